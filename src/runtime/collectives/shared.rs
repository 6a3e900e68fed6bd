//! The memory that those ranks of a group share which are on one host: what lies where, and what its words say.
//!
//! Each rank has a *region*, which it alone writes: others only read there. So there are no locks, and a rank that
//! is killed anywhere leaves nothing to repair. A region has, each in lines of its own:
//! - counters, which only grow: of pieces put, of pieces folded, of pieces taken, and of calls done;
//! - the rank for which this one sleeps;
//! - checksums of pieces and results, where the user wants them (`shared_checks`);
//! - [`SETS`] call lines: the number of a call that is carried out here, a check of what is called, a short contribution, and what is
//!   called, to be read where the check differs. Calls take the lines in turn;
//! - [`DEPTH`] pieces of a long contribution, and as many of results.
//!
//! A counter or a line's number is published by one store, after what it tells of was written. Before a rank writes over a place it
//! waits until all have done with what lay there.
//!
//! What others write there is data: it is compared, and copied or folded as elements. No length of a buffer and no
//! place is read from it. `shared_drive` has what is done with all this, `shared_wait` how a rank waits, and
//! `shared_setup` how the memory comes to be.

use super::hosts::Hosts;
use super::shared_checks::{Checks, Room, BLOCK_BYTES, CHECK_BYTES};
use super::shared_flags;
use super::stop::{Running, Stop};
use crate::net::doorbell::{Address, Doorbell};
use crate::net::shm::{Segment, LINE_BYTES};
use crate::runtime::links::link::LinkEnd;
use crate::runtime::memory::buffer_shared::Source;
use crate::schedules::{Layout, Mistold, Sharing};
use crate::wire::{DataHeader, DATA_HEADER_BYTES};
use std::cell::Cell;
use std::ops::Range;

/// How many calls can be under way before the first of them is done by all.
pub(super) const SETS: u64 = 4;
/// How many pieces of a call can be under way.
pub(super) const DEPTH: u64 = 4;
/// The longest contribution that goes with its call line, in bytes.
pub(super) const FLAT_BYTES: usize = 4096;
/// The longest piece of a contribution.
const PIECE_BYTES: usize = 128 << 10;
/// A piece that is shorter is not worth the trouble.
pub(super) const PIECE_BYTES_LEAST: usize = 4 << 10;
/// The most memory of a group.
pub(super) const TOTAL_BYTES_MAX: u64 = 32 << 20;

const CHECK: usize = 8;
/// Where a line's contribution begins: aligned as memory from the system is.
const CONTENT: usize = 16;
/// Where it says what is called: words that differ from call to call, and a header with the rest.
const SEQUENCE: usize = CONTENT + FLAT_BYTES;
const DIGEST: usize = SEQUENCE + 8;
const PIECES: usize = DIGEST + 8;
const CALLED: usize = PIECES + 8;
/// Where the contribution's checksum is.
const CONTENT_CHECK: usize = CALLED + DATA_HEADER_BYTES;
const CALL_LINE_BYTES: usize = (CONTENT_CHECK + CHECK_BYTES).next_multiple_of(LINE_BYTES);
const _: () = assert!(FLAT_BYTES <= BLOCK_BYTES, "a line has one checksum");
const _: () = assert!(PIECE_BYTES / BLOCK_BYTES * CHECK_BYTES <= LINE_BYTES, "a piece has a line of them");

/// A rank's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    /// Pieces that it has put.
    Put = 0,
    /// Pieces that it has folded: it has read all contributions to them.
    Folded = 1,
    /// Pieces from which it has taken all that it gets.
    Taken = 2,
    /// Calls that it has done.
    Done = 3,
    /// The rank for which it sleeps, or is about to, plus 1, and the number of the sleep; 0 while it is awake.
    Asleep = 4,
}

/// How many lines the counters take.
const COUNTERS: usize = 5;

/// The layout of the memory. It is the same on all ranks, because it follows from what they have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    pub ranks: usize,
    /// How long a piece of a contribution may be.
    pub piece_bytes: usize,
    /// How long a piece of a result may be.
    result_bytes: usize,
    checks_at: usize,
    pieces_at: usize,
    region_bytes: usize,
}

impl Floor {
    /// The layout for so many ranks, in so many bytes at most; none if these are too few. Where the user wants
    /// checksums, each rank has copies beside its region, and these count, too.
    pub(super) fn of(ranks: usize, page_bytes: usize, total_bytes: u64, checked: bool) -> Option<Floor> {
        let total = usize::try_from(total_bytes.min(TOTAL_BYTES_MAX)).unwrap_or(usize::MAX);
        let mut piece_bytes = PIECE_BYTES;
        while piece_bytes >= PIECE_BYTES_LEAST {
            let floor = Floor::with(ranks, page_bytes, piece_bytes);
            let copies = if checked { (ranks + 1) * piece_bytes } else { 0 };
            if (floor.region_bytes + copies).saturating_mul(ranks) <= total {
                return Some(floor);
            }
            piece_bytes /= 2;
        }
        None
    }

    fn with(ranks: usize, page_bytes: usize, piece_bytes: usize) -> Floor {
        let checks_at = COUNTERS * LINE_BYTES + SETS as usize * CALL_LINE_BYTES;
        let pieces_at = checks_at + 2 * DEPTH as usize * LINE_BYTES;
        // A rank folds its share of a piece, rounded up to an element, which may be large.
        let result_bytes = (piece_bytes.div_ceil(ranks) + LINE_BYTES).next_multiple_of(LINE_BYTES);
        let region_bytes = pieces_at + DEPTH as usize * (piece_bytes + result_bytes);
        let region_bytes = region_bytes.next_multiple_of(page_bytes);
        Floor { ranks, piece_bytes, result_bytes, checks_at, pieces_at, region_bytes }
    }

    pub(super) fn total_bytes(&self) -> usize {
        self.region_bytes * self.ranks
    }

    /// A rank's region: where it begins, and how long it is.
    pub(super) fn region(&self, rank: u32) -> (usize, usize) {
        (rank as usize * self.region_bytes, self.region_bytes)
    }

    pub(super) fn counter(&self, rank: u32, counter: Counter) -> usize {
        self.region(rank).0 + counter as usize * LINE_BYTES
    }

    fn line(&self, rank: u32, call: u64) -> usize {
        let set = (call % SETS) as usize;
        self.region(rank).0 + COUNTERS * LINE_BYTES + set * CALL_LINE_BYTES
    }

    /// A line's contribution, which has so many bytes.
    #[inline]
    pub(super) fn content(&self, rank: u32, call: u64, bytes: usize) -> Room {
        let line = self.line(rank, call);
        Room { at: line + CONTENT, bytes, checks_at: line + CONTENT_CHECK, number: call }
    }

    /// A piece of a contribution.
    #[inline]
    pub(super) fn piece(&self, rank: u32, number: u64, bytes: usize) -> Room {
        let (region, nth) = (self.region(rank).0, (number % DEPTH) as usize);
        let at = region + self.pieces_at + nth * self.piece_bytes;
        Room { at, bytes, checks_at: region + self.checks_at + nth * LINE_BYTES, number }
    }

    /// A piece of a result: the share that this rank has folded.
    #[inline]
    pub(super) fn result(&self, rank: u32, number: u64, bytes: usize) -> Room {
        let (region, nth, depth) = (self.region(rank).0, (number % DEPTH) as usize, DEPTH as usize);
        let at = region + self.pieces_at + depth * self.piece_bytes + nth * self.result_bytes;
        Room { at, bytes, checks_at: region + self.checks_at + (depth + nth) * LINE_BYTES, number }
    }

    /// Whether a call has room: a piece takes so many bytes of each part, and a result takes a share plus one element.
    pub(super) fn has_room_for(&self, parts: usize, bytes: usize, element: usize) -> bool {
        parts.saturating_mul(bytes) <= self.piece_bytes && element <= LINE_BYTES
    }
}

/// What carries a group's collectives.
#[derive(Debug)]
pub(super) enum CarrierChoice {
    /// Over links, until it is time to look what else can carry it.
    Untried,
    /// Over links, on several hosts, until a call would take two levels.
    Apart,
    /// Over links.
    Links,
    /// Through memory.
    Memory(Box<HostMemory>),
    /// Within each host through memory, and between hosts over links.
    Levels(Box<Levels>),
}

/// A group that has members on several hosts.
#[derive(Debug)]
pub(super) struct Levels {
    /// The memory of this host's members; none where this rank is alone there.
    pub shared: Option<Box<HostMemory>>,
    pub hosts: Hosts,
    /// A piece that is folded in memory goes here, while the driver's holds one that is on its way between hosts.
    pub piece: Vec<u8>,
    /// Where the hosts' parts of the present call lie, if its ranks have parts. In an exact sum: how many addends each
    /// host brings.
    pub parts: Layout,
    /// Where the addends of each member on this host lie, if their numbers differ.
    pub addends: Layout,
}

/// The memory of a group's members on one host, as one of them has it. A rank here is a place among these members.
pub(super) struct HostMemory {
    pub segment: Segment,
    pub floor: Floor,
    pub rank: u32,
    /// The members' ranks in the group.
    pub members: Vec<u32>,
    pub own: Doorbell,
    pub others: Vec<Address>,
    /// For each of them, the sleep in which this rank rang it last.
    pub rung: Vec<Cell<u64>>,
    /// How often this rank has fallen asleep.
    pub sleeps: Cell<u32>,
    /// How many calls have been carried out here.
    pub calls: u64,
    /// The signature of the call whose header lies in each of this rank's lines.
    pub called: [Option<u64>; SETS as usize],
    /// How many calls all ranks have done, as far as this rank has looked.
    pub done_by_all: u64,
    /// How many pieces there have been in all calls.
    pub pieces: u64,
    /// The lengths of parts that the ranks have told each other last: 8 bytes for each part, one rank's after
    /// another's.
    pub told: Vec<u8>,
    /// What is needed for checksums, where the user wants them.
    pub checks: Option<Checks>,
}

impl std::fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of {} ranks", self.floor.total_bytes(), self.floor.ranks)
    }
}

impl HostMemory {
    /// The value of a rank's counter.
    #[inline]
    pub(super) fn count(&self, rank: u32, counter: Counter) -> u64 {
        self.segment.load(self.floor.counter(rank, counter))
    }

    /// Publishes a counter of this rank, and wakes the ranks that sleep for it.
    #[inline]
    pub(super) fn publish(&self, counter: Counter, count: u64) {
        self.publish_at(self.floor.counter(self.rank, counter), count);
    }

    #[inline]
    fn publish_at(&self, at: usize, value: u64) {
        let others = (0..self.floor.ranks as u32).filter(|rank| *rank != self.rank);
        let sleepers = others.map(|rank| (rank, self.floor.counter(rank, Counter::Asleep)));
        shared_flags::publish(&self.segment, at, value, self.rank, sleepers, |rank, sleep| {
            let rung = &self.rung[rank as usize];
            if rung.get() != sleep && self.own.ring(&self.others[rank as usize]) {
                rung.set(sleep);
            }
        });
    }

    /// Whether a rank has come to this call, or to a later one.
    #[inline]
    pub(super) fn has_come(&self, rank: u32, call: u64) -> bool {
        self.segment.load(self.floor.line(rank, call)) >= call
    }

    /// Publishes that this rank has come to a call, and what it called. Its contribution, if it is a short one, lies there by
    /// now. Most programs repeat the same call. Then the header is there already.
    pub(super) fn come(&mut self, call: u64, running: &Running<'_>, scratch: &mut Vec<u8>) {
        let (data, line) = (&running.data, self.floor.line(self.rank, call));
        let called = &mut self.called[(call % SETS) as usize];
        if called.replace(data.signature) != Some(data.signature) {
            self.segment.write(line + CALLED, &data.encode_in(scratch));
        }
        self.segment.store(line + SEQUENCE, data.sequence);
        self.segment.store(line + DIGEST, data.digest.into());
        self.segment.store(line + PIECES, self.pieces);
        self.segment.store(line + CHECK, check_of(data, self.pieces));
        self.publish_at(line, call);
    }

    /// Looks whether a rank that has come is in the same call as this one.
    #[inline]
    pub(super) fn compare(&self, rank: u32, call: u64, running: &Running<'_>) -> Result<(), Stop> {
        let line = self.floor.line(rank, call);
        if self.segment.load(line) == call && self.segment.load(line + CHECK) == check_of(&running.data, self.pieces) {
            return Ok(());
        }
        Err(self.difference(rank, line, running))
    }

    #[cold]
    fn difference(&self, rank: u32, line: usize, running: &Running<'_>) -> Stop {
        let rank = self.members[rank as usize];
        match self.called(line) {
            Some(data) if data.sequence != running.sequence || data.signature != running.data.signature => {
                Stop::Mismatch(rank, data.sequence, data.call)
            }
            Some(data) if data.digest != running.data.digest => Stop::Earlier(rank),
            _ => Stop::Ended(rank, LinkEnd::Corrupt("what it called, in shared memory, is damaged".to_owned())),
        }
    }

    /// What was called, as a line says it; nothing if that is damaged.
    fn called(&self, line: usize) -> Option<DataHeader> {
        let mut called = [0; DATA_HEADER_BYTES];
        self.segment.read(line + CALLED, &mut called);
        let (sequence, digest) = (self.segment.load(line + SEQUENCE), self.segment.load(line + DIGEST));
        let data = DataHeader { sequence, digest: digest as u32, ..DataHeader::decode(&called).ok()? };
        let check = check_of(&data, self.segment.load(line + PIECES));
        (self.segment.load(line + CHECK) == check).then_some(data)
    }

    /// The place from which this rank reads what ranks have put or folded.
    #[inline]
    pub(super) fn source(&self) -> Source<'_> {
        match &self.checks {
            Some(checks) => Source::Copy(&checks.copies),
            None => Source::Shared(&self.segment),
        }
    }

    /// Where a rank's room begins in that place.
    #[inline]
    pub(super) fn begin(&self, rank: u32, room: Room) -> usize {
        self.checks.as_ref().map_or(room.at, |checks| rank as usize * checks.stride)
    }

    /// Checks these bytes of a room, where the user wants checksums.
    #[inline]
    pub(super) fn check(
        &mut self,
        rank: u32,
        room: Room,
        ranges: impl Iterator<Item = Range<usize>>,
    ) -> Result<(), Stop> {
        let Some(checks) = &mut self.checks else { return Ok(()) };
        let is_right = checks.fetch(&self.segment, room, rank, ranges);
        is_right.then_some(()).ok_or(Stop::Damaged(self.members[rank as usize]))
    }

    /// The call with the lengths of parts that the ranks have told each other.
    pub(super) fn told_of<'a>(&self, sharing: &Sharing<'a>) -> Result<Sharing<'a>, Stop> {
        let parts = sharing.parts();
        let counts = self.told.as_chunks().0;
        let told = sharing.told(|rank, part| u64::from_le_bytes(counts[(rank * parts + part) as usize]));
        told.map_err(|mistold| match mistold {
            Mistold::Differs(rank, theirs, expected) => Stop::Counts(self.members[rank as usize], theirs, expected),
            Mistold::TooMany(rank, count) => {
                let odd = format!("a part of {count} elements, in shared memory, is more than any memory holds");
                Stop::Ended(self.members[rank as usize], LinkEnd::Corrupt(odd))
            }
        })
    }

    /// Says that this rank is about to sleep for a peer. Before it sleeps it must look once more for what it waits for.
    pub(super) fn fall_asleep(&self, peer: u32) {
        self.sleeps.set(self.sleeps.get().wrapping_add(1));
        let at = self.floor.counter(self.rank, Counter::Asleep);
        shared_flags::fall_asleep(&self.segment, at, self.sleeps.get(), peer);
    }

    /// Says that this rank is awake, and takes the rings of its sleep.
    pub(super) fn wake_up(&self) {
        self.own.drain();
        shared_flags::wake_up(&self.segment, self.floor.counter(self.rank, Counter::Asleep));
    }
}

/// A check of a call. The check differs (except by chance) if ranks are in different calls, called something else before, or
/// counted another number of `pieces` before. In the last case another rank's count was damaged.
fn check_of(data: &DataHeader, pieces: u64) -> u64 {
    let before = u64::from(data.digest) << 32 | data.sequence & 0xffff_ffff;
    data.signature.rotate_left(23) ^ (before ^ pieces.rotate_left(48)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_check_tells_calls_histories_and_counts_of_pieces_apart() {
        let (dtype, op, root, count, layout) = (None, None, None, 0, 0);
        let call = crate::types::Call { kind: crate::types::CallKind::Barrier, dtype, op, root, count, layout };
        let data = |sequence, digest, signature| {
            let (epoch, group) = (crate::types::Epoch(1), crate::types::GroupId::WORLD);
            DataHeader { epoch, group, sequence, signature, call, digest }
        };
        let calls =
            [(data(1, 2, 3), 4), (data(2, 2, 3), 4), (data(1, 3, 3), 4), (data(1, 2, 4), 4), (data(1, 2, 3), 5)];
        let checks: std::collections::HashSet<u64> =
            calls.iter().map(|(data, pieces)| check_of(data, *pieces)).collect();
        assert_eq!(checks.len(), calls.len());
    }

    /// Where everything lies that ranks write, with its length.
    fn places(floor: &Floor) -> Vec<(usize, usize)> {
        let counters = [Counter::Put, Counter::Folded, Counter::Taken, Counter::Done, Counter::Asleep];
        let mut places = Vec::new();
        for rank in 0..floor.ranks as u32 {
            places.extend(counters.map(|counter| (floor.counter(rank, counter), LINE_BYTES)));
            places.extend((1..=SETS).map(|call| (floor.line(rank, call), CALL_LINE_BYTES)));
            let (piece_bytes, result_bytes) = (floor.piece_bytes, floor.result_bytes);
            let pieces = (0..DEPTH).map(|number| floor.piece(rank, number, piece_bytes));
            let results = (0..DEPTH).map(|number| floor.result(rank, number, result_bytes));
            let checks = |room: &Room| (room.checks_at, room.bytes.div_ceil(BLOCK_BYTES) * CHECK_BYTES);
            let rooms: Vec<Room> = pieces.chain(results).collect();
            places.extend(rooms.iter().map(|room| (room.at, room.bytes)));
            places.extend(rooms.iter().map(checks));
            let content = floor.content(rank, 1, FLAT_BYTES);
            assert!(content.at + FLAT_BYTES <= content.checks_at);
            assert!(content.checks_at + CHECK_BYTES <= floor.line(rank, 1) + CALL_LINE_BYTES);
        }
        places.sort_unstable();
        places
    }

    /// Processes of two builds may share memory, unless the proof by which they take it tells them apart.
    #[test]
    fn another_layout_has_another_version() {
        let places = [SEQUENCE, DIGEST, PIECES, CALLED, CONTENT_CHECK, CALL_LINE_BYTES];
        let of_version_4 = [4112, 4120, 4128, 4136, 4200, 4224];
        assert_eq!(places, of_version_4, "raise the version in shared_setup.rs and in docs/protocol.md");
    }

    #[test]
    fn nothing_overlaps_and_each_rank_writes_its_own_pages() {
        for ranks in [2, 3, 8, 33, 64] {
            for page in [4 << 10, 64 << 10] {
                for (total, checked) in [(1 << 20, false), (8 << 20, true), (u64::MAX, false), (u64::MAX, true)] {
                    let Some(floor) = Floor::of(ranks, page, total, checked) else { continue };
                    assert!(floor.total_bytes() as u64 <= total.min(TOTAL_BYTES_MAX));
                    let places = places(&floor);
                    assert!(places.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "{floor:?}");
                    assert!(places.iter().all(|(at, _)| at % LINE_BYTES == 0), "{floor:?}");
                    let (at, length) = places[places.len() - 1];
                    assert!(at + length <= floor.total_bytes(), "{floor:?}");
                    assert!((0..ranks as u32).all(|rank| floor.region(rank).0 % page == 0), "{floor:?}");
                }
            }
        }
        assert!(
            [false, true].iter().all(|checked| Floor::of(64, 4096, u64::MAX, *checked).is_some()),
            "the largest group"
        );
        assert_eq!(Floor::of(8, 4096, 100 << 10, false), None, "so little is not worth the trouble");
    }

    /// A rank's share of a piece is rounded to whole elements, as `Sharing::slice` does it.
    #[test]
    fn a_share_of_a_piece_fits_into_a_result() {
        for ranks in 2..=64 {
            let floor = Floor::of(ranks, 4096, u64::MAX, false).expect("there is room");
            for element in [1, 3, 8, 24, LINE_BYTES] {
                assert!(floor.has_room_for(ranks, element, element));
                let longest = (floor.piece_bytes / element).div_ceil(ranks) * element;
                assert!(longest <= floor.result_bytes, "{ranks} ranks, elements of {element}: {floor:?}");
            }
            assert!(!floor.has_room_for(1, LINE_BYTES + 1, LINE_BYTES + 1));
        }
    }
}
