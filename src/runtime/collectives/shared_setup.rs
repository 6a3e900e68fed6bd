//! How the ranks of a group come to share memory, or agree that they don't.
//!
//! If a group has several ranks on one host, all its ranks take three *rounds*: before its fourth collective or, on
//! several hosts, before the first collective that takes two levels. The rounds are within that call's turn. In each
//! round every rank tells all others, over the group's links, whether it can go on, and why not. All go on, or none
//! does, so that all choose alike.
//! A round's frames carry the header of the call that is to come. So ranks that call something else, or do not come, are
//! found as in any call.
//! 1. Each has a doorbell, and knows how much memory it may take.
//! 2. The first rank of each host has made a segment, and has handed it to all others there by their doorbells.
//! 3. Each has it mapped, and has had the pages made that it writes.
//!
//! A rank waits only for rounds: what another rank hands over in one round is there in the next.

use super::drive::Plan;
use super::engine::{Collectives, Driver};
use super::hosts::Hosts;
use super::levels::takes_two;
use super::shared::{CarrierChoice, Floor, HostMemory, Levels, TOTAL_BYTES_MAX};
use super::shared_checks::Checks;
use super::stop::{Running, Stop};
use crate::error::{Error, Status};
use crate::net::doorbell::{Address, Doorbell, NAME_BYTES, PROOF_BYTES};
use crate::net::fork::Guarded;
use crate::net::shm::{page_bytes, Segment};
use crate::net::{cgroup, host};
use crate::runtime::memory::buffer::CallBuffers;
use crate::runtime::memory::buffer_shared::FOLDED_MAX;
use crate::runtime::state::context::Context;
use crate::schedules::{choose, Layout, Shape};
use crate::types::{Call, CallKind, DType, SharedMemory};
use crate::wire::{Carrier, GroupCarrier};
use ring::hmac;
use std::cell::Cell;
use std::fmt::Display;
use std::fs::File;

/// The first collective before which memory is set up in a group on one host. For fewer calls it is not worth the
/// trouble.
const FIRST: u64 = 4;
/// How long the words may be by which a rank tells in a round why it cannot go on.
const WORDS_BYTES: usize = 160;
const RECORD_BYTES: usize = 1 + 8 + NAME_BYTES + WORDS_BYTES;
/// At most one part in so many is taken of the memory that is still free.
const PART_TAKEN: u64 = 4;

/// What each rank tells all others.
#[derive(Clone, Copy)]
struct MemoryRecord {
    /// How much memory it may take, and the name of its doorbell.
    free: u64,
    name: [u8; NAME_BYTES],
}

impl MemoryRecord {
    /// The record of a rank that shares memory with nobody.
    const ALONE: MemoryRecord = MemoryRecord { free: u64::MAX, name: [0; NAME_BYTES] };
}

/// The hosts within which a group's members share memory. The inner error says why they need not, the outer one why they
/// can't, if that is known before anything is tried. All ranks get the same.
fn hosts_of(context: &Context) -> Result<Result<Hosts, String>, String> {
    if context.formed().agreed.shared_memory == SharedMemory::Off {
        return Ok(Err("the scheduler's setting shm is off".to_owned()));
    }
    let unknown = "a member of a cluster of so many nodes does not know on which hosts the others are";
    let hosts = Hosts::of(context).ok_or(unknown)?;
    match hosts.most() {
        0 | 1 => Ok(Err("each of its members is on a host of its own".to_owned())),
        _ => Ok(Ok(hosts)),
    }
}

/// Finds out how the calls from this one on are carried out, if it is time to.
pub(super) fn find_way(
    group: &Collectives,
    driver: &mut Driver,
    choice: &mut CarrierChoice,
    running: &Running<'_>,
) -> Result<(), Stop> {
    let context = &group.context;
    let formed = context.formed();
    let (is_early, is_one_host) =
        (running.sequence < FIRST, formed.local_size == formed.worker_num && formed.server_num == 0);
    let hosts = match &*choice {
        CarrierChoice::Untried if is_early && is_one_host => return Ok(()),
        CarrierChoice::Untried if context.size() < 2 => {
            *choice = CarrierChoice::Links; // a group of one needs no carrier
            return Ok(());
        }
        CarrierChoice::Untried => hosts_of(context),
        CarrierChoice::Apart => match group.apart.get() {
            Some(hosts) if takes_two(&running.call, hosts) => Ok(Ok(hosts.clone())),
            _ => return Ok(()),
        },
        CarrierChoice::Links | CarrierChoice::Memory(_) | CarrierChoice::Levels(_) => return Ok(()),
    };
    let outcome = match hosts {
        // On several hosts the order of folding depends on the carrier: all calls that take one level are to have the
        // same order.
        Ok(Ok(hosts)) if hosts.count() > 1 && !takes_two(&running.call, &hosts) => {
            *choice = CarrierChoice::Apart;
            group.apart.get_or_init(|| hosts);
            return Ok(());
        }
        Ok(Ok(hosts)) if hosts.count() == 1 && is_early => return Ok(()),
        Ok(Err(_)) | Err(_) if is_early => return Ok(()),
        Ok(Err(why)) => Ok(Err(why)),
        Err(why) => required(context, Err(why)),
        Ok(Ok(hosts)) if hosts.most() > FOLDED_MAX => {
            let (most, of) = (hosts.most(), if hosts.count() == 1 { "" } else { " on one host" });
            required(context, Err(format!("it has {most} members{of}: at most {FOLDED_MAX} can share memory")))
        }
        Ok(Ok(hosts)) => {
            let outcome = Setup { group, context, driver, running, hosts: &hosts }.take_rounds()?;
            required(context, outcome.map(|shared| (hosts, shared)))
        }
    };
    let (chosen, carrier, words) = match outcome? {
        Ok((hosts, shared)) => {
            let words = what_is_shared(context, &hosts, shared.as_deref());
            let chosen = match (hosts.count(), shared) {
                (1, Some(shared)) => CarrierChoice::Memory(shared),
                (_, shared) => {
                    let (piece, parts, addends) = (Vec::new(), Layout::default(), Layout::default());
                    CarrierChoice::Levels(Box::new(Levels { shared, hosts, piece, parts, addends }))
                }
            };
            (chosen, Carrier::Memory, words)
        }
        Err(why) => (CarrierChoice::Links, Carrier::Links, why),
    };
    *choice = chosen;
    let told = group.carrier.get_or_init(|| GroupCarrier { group: context.id(), carrier, words });
    context.state.logger.debug(&told.to_string());
    Ok(())
}

/// `4 ranks on host a, 2.6 MiB`, and how many other hosts there are.
fn what_is_shared(context: &Context, hosts: &Hosts, shared: Option<&HostMemory>) -> String {
    let host = context.culprit(context.own_rank()).map_or_else(|| "this one".to_owned(), |own| own.host);
    let here = match shared {
        Some(shared) => {
            let total = mebibytes(shared.floor.total_bytes() as u64);
            let checked = if shared.checks.is_some() { ", with checksums" } else { "" };
            format!("{} ranks on host {host}, {total}{checked}", hosts.here().len())
        }
        None => format!("1 rank on host {host}"),
    };
    match hosts.count() {
        1 => here,
        count => format!("{here}; links between {count} hosts"),
    }
}

/// Passes on what the set-up has brought. Where memory is required, an error names the rank that can't, and why.
fn required<T>(context: &Context, outcome: Result<T, String>) -> Result<Result<T, String>, Stop> {
    match outcome {
        Err(why) if context.formed().agreed.shared_memory == SharedMemory::Require => {
            let what = format!("{} can't share memory, which shm \"require\" asks for: {why}", context.id());
            Err(Stop::Failed(Error::new(Status::Unsupported, what)))
        }
        outcome => Ok(outcome),
    }
}

/// The set-up of one group's memory, within the turn of the call before which it comes.
struct Setup<'a> {
    group: &'a Collectives,
    context: &'a Context,
    driver: &'a mut Driver,
    running: &'a Running<'a>,
    hosts: &'a Hosts,
}

impl Setup<'_> {
    /// Takes the rounds. The inner error says why all ranks use links. A rank that is alone on its host takes part for
    /// the others' sake, and gets no memory.
    fn take_rounds(&mut self) -> Result<Result<Option<Box<HostMemory>>, String>, Stop> {
        let (rank, here) = (self.context.own_rank(), self.hosts.here());
        let (begun, own) = split(if here.len() == 1 { Ok((MemoryRecord::ALONE, None)) } else { begin() });
        let records = match self.round(begun)? {
            Ok(records) => records,
            Err(why) => return Ok(Err(why)),
        };
        let (record, own) = (records[rank as usize], own.flatten());
        let floor = own.as_ref().map(|_| self.floor(rank, &records)).transpose().map(Option::flatten);
        let (made, segment) = split(match (&floor, &own) {
            (Err(why), _) => Err(why.clone()),
            (Ok(Some(floor)), Some(own)) if rank == here[0] => {
                self.hand_out(own, &records, *floor).map(|segment| (record, Some(segment)))
            }
            _ => Ok((record, None)),
        });
        if let Err(why) = self.round(made)? {
            return Ok(Err(why));
        }
        let (mapped, shared) = split(match (floor, own) {
            (Ok(Some(floor)), Some(own)) => {
                let mapped = self.map(own, &records, floor, segment.flatten());
                mapped.map(|(record, shared)| (record, Some(Box::new(shared))))
            }
            _ => Ok((record, None)),
        });
        Ok(self.round(mapped)?.map(|_| shared.flatten()))
    }

    /// The layout of the memory of this host's members; none if there is too little memory. In that case the rank with
    /// the least memory returns the error.
    fn floor(&self, rank: u32, records: &[MemoryRecord]) -> Result<Option<Floor>, String> {
        let here = self.hosts.here();
        let free_of = |rank: &u32| records[*rank as usize].free;
        let least = here.iter().copied().min_by_key(free_of).unwrap_or(rank);
        let free = free_of(&least);
        let checked = self.context.formed().agreed.checksums.has_memory();
        match Floor::of(here.len(), page_bytes(), free / PART_TAKEN, checked) {
            None if least == rank => {
                let (free, ranks) = (mebibytes(free), here.len());
                Err(format!("it has {free} of memory left, and a quarter of that is too little for {ranks} ranks"))
            }
            floor => Ok(floor),
        }
    }

    /// Tells all others whether this rank can go on, and hears the same of them. The inner error names the first rank
    /// that can't.
    fn round(&mut self, own: Result<MemoryRecord, String>) -> Result<Result<Vec<MemoryRecord>, String>, Stop> {
        let (rank, size) = (self.context.own_rank(), self.context.size());
        let (input, mut output) = (encode(own), vec![0; RECORD_BYTES * size as usize]);
        let (kind, dtype, count) = (CallKind::Allgather, Some(DType::Uint8), RECORD_BYTES as u64);
        let call = Call { kind, dtype, op: None, root: None, count, layout: 0 };
        let shape = Shape { rank, size, call, in_place: false, layout: None };
        let algorithm = choose(&shape, &self.group.thresholds);
        let mut scratch = vec![0; algorithm.scratch_bytes(&shape)];
        let memory = CallBuffers::of(&input, &mut output).with_scratch(&mut scratch);
        self.group.carry_out(self.driver, self.running, &Plan::of_all(&shape, algorithm), &memory, None)?;
        let decoded = output
            .chunks(RECORD_BYTES)
            .zip(0..)
            .map(|(bytes, rank)| decode(bytes).map_err(|why| format!("{}: {why}", self.context.describe(rank))));
        Ok(decoded.collect())
    }

    /// The part of a host's first rank: makes the segment, and hands it to all others there.
    fn hand_out(
        &self,
        own: &Doorbell,
        records: &[MemoryRecord],
        floor: Floor,
    ) -> Result<(Segment, Guarded<File>), String> {
        let made = Segment::create(floor.total_bytes());
        let (segment, file) = made.map_err(|error| refused("the memory cannot be made", error))?;
        for rank in self.hosts.here().iter().copied().skip(1) {
            let record = &records[rank as usize];
            let handed = Address::of(&record.name).and_then(|to| own.hand(&to, &self.proof(rank, record), &file));
            handed
                .map_err(|error| refused(format_args!("{} cannot be reached", self.context.describe(rank)), error))?;
        }
        Ok((segment, file))
    }

    /// Maps the segment, and has the pages made that this rank writes.
    fn map(
        &self,
        own: Doorbell,
        records: &[MemoryRecord],
        floor: Floor,
        made: Option<(Segment, Guarded<File>)>,
    ) -> Result<(MemoryRecord, HostMemory), String> {
        let rank = self.context.own_rank();
        let record = records[rank as usize];
        let (segment, file) = match made {
            Some(made) => made,
            None => {
                let file: Guarded<File> =
                    own.take(&self.proof(rank, &record)).map_err(|error| refused("the memory is not there", error))?;
                let opened = Segment::open(&file, floor.total_bytes());
                (opened.map_err(|error| refused("the memory cannot be mapped", error))?, file)
            }
        };
        let (members, place) = (self.hosts.here(), self.hosts.place() as u32);
        let (at, length) = floor.region(place);
        // Others may have taken memory since the first round, for groups that they set up at the same time.
        if let Some(free) = cgroup::free_memory().filter(|free| free / PART_TAKEN < length as u64) {
            let (free, length) = (mebibytes(free), mebibytes(length as u64));
            return Err(format!(
                "it has {free} of memory left by now, and its part of {length} is more than a quarter of that"
            ));
        }
        segment.populate(&file, at, length).map_err(|error| refused("its memory cannot be had", error))?;
        let names = members.iter().map(|rank| &records[*rank as usize].name);
        let others: std::io::Result<Vec<Address>> = names.map(Address::of).collect();
        let others = others.map_err(|error| refused("a doorbell has no name", error))?;
        own.drain();
        let (rank, members) = (place, members.to_vec());
        let shared = HostMemory {
            segment,
            floor,
            rank,
            members,
            own,
            rung: others.iter().map(|_| Cell::default()).collect(),
            others,
            sleeps: Cell::default(),
            calls: 0,
            called: Default::default(),
            done_by_all: 0,
            pieces: 0,
            told: Vec::new(),
            checks: self.context.formed().agreed.checksums.has_memory().then(Checks::default),
        };
        Ok((record, shared))
    }

    /// A host's first rank shows this to a rank to which it hands the memory: only these nodes know the epoch's secret.
    fn proof(&self, rank: u32, record: &MemoryRecord) -> [u8; PROOF_BYTES] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.context.formed().secret.0);
        let mut text = hmac::Context::with_key(&key);
        text.update(b"muster shared memory, version 4");
        text.update(&self.context.id().0.to_le_bytes());
        text.update(&rank.to_le_bytes());
        text.update(&record.name);
        text.sign().as_ref().try_into().expect("SHA-256 gives 32 bytes")
    }
}

/// The first thing that each rank does: it makes its doorbell, and finds out how much memory is free.
fn begin() -> Result<(MemoryRecord, Option<Doorbell>), String> {
    let name = host::random_bytes().map_err(|error| error.to_string())?;
    let doorbell = Doorbell::bind(&name).map_err(|error| refused("a local socket cannot be made", error))?;
    let free = cgroup::free_memory().unwrap_or(TOTAL_BYTES_MAX * PART_TAKEN);
    Ok((MemoryRecord { free, name }, Some(doorbell)))
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn refused(what: impl Display, error: std::io::Error) -> String {
    format!("{what}: {error}")
}

/// Splits an outcome into what is told to the other ranks, and what this rank keeps.
fn split<T>(outcome: Result<(MemoryRecord, T), String>) -> (Result<MemoryRecord, String>, Option<T>) {
    match outcome {
        Ok((record, kept)) => (Ok(record), Some(kept)),
        Err(why) => (Err(why), None),
    }
}

fn encode(record: Result<MemoryRecord, String>) -> Vec<u8> {
    let mut bytes = vec![0; RECORD_BYTES];
    match record {
        Ok(MemoryRecord { free, name }) => {
            bytes[0] = 1;
            bytes[1..9].copy_from_slice(&free.to_le_bytes());
            bytes[9..9 + NAME_BYTES].copy_from_slice(&name);
        }
        Err(why) => {
            let words = &mut bytes[RECORD_BYTES - WORDS_BYTES..];
            words.iter_mut().zip(why.bytes()).for_each(|(to, byte)| *to = byte);
        }
    }
    bytes
}

fn decode(bytes: &[u8]) -> Result<MemoryRecord, String> {
    if bytes[0] != 1 {
        // Longer words were cut off, perhaps within a character.
        let words = String::from_utf8_lossy(&bytes[RECORD_BYTES - WORDS_BYTES..]);
        return Err(words.trim_end_matches(['\0', char::REPLACEMENT_CHARACTER]).to_owned());
    }
    let free = u64::from_le_bytes(bytes[1..9].try_into().expect("eight bytes"));
    Ok(MemoryRecord { free, name: bytes[9..9 + NAME_BYTES].try_into().expect("as many as a name has") })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_journey_and_long_reasons_are_cut_off() {
        let there = decode(&encode(Ok(MemoryRecord { free: 1 << 40, name: [7; NAME_BYTES] }))).expect("it can go on");
        assert_eq!((there.free, there.name), (1 << 40, [7; NAME_BYTES]));
        let why = |words: &str| decode(&encode(Err(words.to_owned()))).map(|_| ()).expect_err("it cannot");
        assert_eq!(why("no room"), "no room");
        assert_eq!(why(&"é".repeat(WORDS_BYTES)), "é".repeat(WORDS_BYTES / 2));
        assert_eq!(why(&format!("x{}", "é".repeat(WORDS_BYTES))), format!("x{}", "é".repeat(WORDS_BYTES / 2 - 1)));
    }
}
