//! The rules, each a function that says what breaks it. `sabotage.rs` shows that each is noticed.

use super::causes::{self, Causes};
use super::node::{End, Process};
use super::questions::Question;
use super::rounds::{expected, Collective, Frame};
use super::world::World;
use crate::error::{Failure, Status};
use crate::membership::Scheduler;
use crate::types::{Epoch, GroupId, Incarnation, Role, Time};
use crate::wire::{Absent, Formed, GroupMade, Member, Members, Message, Record, StragglerState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

type Verdict = Result<(), String>;

/// What everybody has been told. What is told next is compared with it.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// By epoch: what the first node was told of it; and by index, which life was told that it is a member.
    epochs: BTreeMap<Epoch, (Formed, BTreeMap<u32, Incarnation>)>,
    results: BTreeMap<(Epoch, GroupId, u64), Vec<u8>>,
    /// By number: the group from which it was made, its number among the groups made of that, and its members.
    groups: BTreeMap<GroupId, (GroupId, u64, Vec<u32>)>,
    /// Since when each member has been in a collective.
    entered: BTreeMap<(Epoch, GroupId, u64), BTreeMap<u32, Time>>,
    /// The causes of what is broken.
    pub(super) causes: Causes,
}

impl Told {
    /// A node calls a collective.
    pub(super) fn enters(&mut self, epoch: Epoch, group: GroupId, sequence: u64, index: u32, now: Time) {
        self.entered.entry((epoch, group, sequence)).or_default().insert(index, now);
    }

    /// When this process called a collective of its epoch.
    pub(super) fn entered_at(&self, process: &Process, group: GroupId, sequence: u64) -> Option<Time> {
        let index = process.formed.as_ref()?.index;
        self.entered.get(&(process.epoch, group, sequence))?.get(&index).copied()
    }

    /// The members of a group that was made.
    pub(super) fn members(&self, group: GroupId) -> &[u32] {
        self.groups.get(&group).map_or(&[], |(.., members)| members)
    }

    /// What the member was told of the newest epoch, as if its twin, which wants to be that member, had been told.
    pub(super) fn for_twin(&self, world: &World, node: usize) -> Option<Formed> {
        let twin = world.processes.get(node).filter(|process| process.twin)?;
        let member = &world.processes[world.slots[twin.slot].current?];
        let (_, (_, lives)) = self.epochs.last_key_value()?;
        let mut formed = member.formed.clone().filter(|formed| lives.contains_key(&formed.index))?;
        let mut members = formed.members.to_vec();
        std::sync::Arc::make_mut(&mut members[formed.index as usize]).process.pid = 1000 + node as u32;
        formed.members = Members::new(members);
        Some(formed)
    }
}

/// The nodes that have a place: one life per node id, ranks unique and dense.
pub(super) fn after_step(world: &mut World) -> Verdict {
    if let Some(wrong) = &world.wrong {
        return Err(wrong.clone());
    }
    world.nobody_waits_in_vain()?;
    let has_changed = std::mem::take(&mut world.seats_changed);
    let Some(running) = &world.host.running else { return Ok(()) };
    if !has_changed {
        return freed(world, &running.brain);
    }
    let seats = running.brain.admitted().map(|seat| (&seat.register.node_id[..], seat.register.role, seat.rank));
    places(seats, world.plan.workers, world.plan.servers)
        .map_err(|wrong| format!("in the scheduler's tables {wrong}"))?;
    freed(world, &running.brain)
}

/// A node that has freed a group, and was told that this is kept, does not count as using it.
fn freed(world: &World, brain: &Scheduler) -> Verdict {
    let holds = |process: &Process| brain.admitted().any(|seat| seat.register.incarnation == process.incarnation);
    let has_freed = |process: &Process| process.alive && !process.program.freed.is_empty();
    for (node, process) in world.processes.iter().enumerate().filter(|(_, process)| has_freed(process)) {
        let Some(formed) = process.formed.as_ref().filter(|formed| Some(formed.instance) == world.host.instance) else {
            continue;
        };
        let kept = process.freed_for_good().find(|group| brain.counts_as_using(formed.index, *group));
        if let Some(group) = kept.filter(|_| holds(process)) {
            return Err(format!("the scheduler has forgotten that node {node} has freed {group}"));
        }
    }
    Ok(())
}

/// The same rule, for any list of places.
pub(super) fn places<'a>(
    seats: impl Iterator<Item = (&'a str, Role, Option<u32>)>,
    workers: u32,
    servers: u32,
) -> Verdict {
    let (mut ids, mut ranks, mut ranked) = (BTreeSet::new(), [0u64; 2], 0);
    let size = (workers + servers) as usize;
    for (id, role, rank) in seats {
        if !ids.insert(id) {
            return Err(format!("two lives of node {id:?} are admitted"));
        }
        if ids.len() > size {
            return Err(format!("more than {size} nodes are admitted"));
        }
        let Some(rank) = rank else { continue };
        ranked += 1;
        let held = &mut ranks[usize::from(role == Role::Server)];
        if *held & (1 << rank) != 0 {
            return Err(format!("two nodes have {role} rank {rank}"));
        }
        *held |= 1 << rank;
    }
    match ranked > 0 && ranks != [(1 << workers) - 1, (1 << servers) - 1] {
        true => Err(format!("ranks are not unique and dense: {ranks:?} of {workers} workers and {servers} servers")),
        false => Ok(()),
    }
}

/// The scheduler says something. It is never of an epoch before the newest that any node was told of.
pub(super) fn sent(world: &mut World, message: &Message) -> Verdict {
    causes::said(world, message)?;
    match message {
        Message::Formed(formed) if formed.epoch < world.newest => {
            Err(format!("the epoch went back: {} is told, nodes know {}", formed.epoch.0, world.newest.0))
        }
        _ => Ok(()),
    }
}

/// A process is told of an epoch.
pub(super) fn formed(world: &mut World, node: usize, formed: &Formed) -> Verdict {
    let process = &world.processes[node];
    world.not_after_abandoning(formed.epoch)?;
    if formed.epoch <= process.epoch {
        return Err(format!("node {node} goes back from epoch {} to {}", process.epoch.0, formed.epoch.0));
    }
    if let Some(known) = process.formed.as_ref().filter(|known| known.instance == formed.instance) {
        if formed.generation < known.generation {
            let (theirs, known) = (formed.generation, known.generation);
            return Err(format!("node {node} follows a scheduler of start {theirs}: it knew {known}"));
        }
    }
    let members = formed.members.iter().map(|member| (&member.node_id[..], member.role, Some(member.rank)));
    places(members, world.plan.workers, world.plan.servers)
        .map_err(|wrong| format!("node {node} was told: {wrong}"))?;
    let own = formed.members.get(formed.index as usize).filter(|own| own.process.pid as usize == 1000 + node);
    let place = (process.register.role, formed.rank, formed.local_rank);
    if own.is_none_or(|own| (own.role, own.rank, own.local_rank) != place) {
        return Err(format!("two lives of slot {}: node {node} was given the place of another: {own:?}", process.slot));
    }
    own_account(world, node, formed)?;
    table(world, formed)?;
    let process = &world.processes[node];
    let life = process.incarnation;
    let told = &mut world.told;
    let (first, lives) = told.epochs.entry(formed.epoch).or_insert_with(|| (formed.clone(), BTreeMap::new()));
    if *lives.entry(formed.index).or_insert(life) != life {
        return Err(format!("two lives of index {} are members of epoch {}", formed.index, formed.epoch.0));
    }
    let of_all = |formed: &Formed| (formed.instance, formed.secret, formed.agreed.clone());
    if of_all(first) != of_all(formed) || first.members != formed.members {
        return Err(format!("node {node} was told of another epoch {} than others", formed.epoch.0));
    }
    if let Some((_, (earlier, _))) = told.epochs.range(..formed.epoch).next_back() {
        let places = |formed: &Formed| formed.members.iter().map(|it| (it.role, it.rank)).collect::<Vec<_>>();
        let same_secret = earlier.secret == formed.secret;
        if places(earlier) != places(formed) || same_secret {
            return Err(format!("epoch {} is not made of the nodes of the one before", formed.epoch.0));
        }
    }
    Ok(())
}

/// A worker whose id is a rank, or that says its rank, has that rank.
fn own_account(world: &World, node: usize, formed: &Formed) -> Verdict {
    let plan = &world.plan.nodes[world.processes[node].slot];
    let number = plan.node_id.as_ref().and_then(|id| id.parse().ok());
    let own = number.filter(|rank: &u32| *rank < world.plan.workers).or(plan.rank);
    match plan.role == Role::Worker && own.is_some_and(|rank| rank != formed.rank) {
        true => Err(format!("node {node} is rank {own:?} by its own account, and was given {}", formed.rank)),
        false => Ok(()),
    }
}

/// Workers by rank, then servers by rank; local ranks are dense on each host.
fn table(world: &World, formed: &Formed) -> Verdict {
    let mut local: BTreeMap<(Role, &str), u32> = BTreeMap::new();
    for (at, member) in (0u32..).zip(formed.members.iter()) {
        let (role, rank) = world.plan.place(at);
        let next = local.entry((role, &member.host.key)).or_default();
        if (member.index, member.role, member.rank, member.local_rank) != (at, role, rank, *next) {
            return Err(format!("place {at} of the table is {member:?}"));
        }
        *next += 1;
    }
    Ok(())
}

/// The scheduler was started again: what it had promised is there.
pub(super) fn resumed(world: &World, records: &[Record]) -> Verdict {
    let is_of = |record: &Record, known| matches!(record, Record::Job(job) if job.instance == known);
    if world.host.instance.is_some_and(|known| !records.iter().any(|record| is_of(record, known))) {
        return Err("the journal forgot a job that goes on".to_owned());
    }
    let epochs = records.iter().filter_map(|record| match record {
        Record::Epoch(epoch) => Some(epoch.epoch),
        _ => None,
    });
    let epoch = epochs.max().unwrap_or(Epoch(0));
    if epoch < world.newest {
        return Err(format!("the epoch went back: the scheduler knows {}, nodes {}", epoch.0, world.newest.0));
    }
    world.ledger.judge_records(records)
}

/// A frame is acted on.
pub(super) fn acted_on(process: &Process, node: usize, frame: &Frame, sequence: u64) -> Verdict {
    let secret = process.formed.as_ref().map(|formed| formed.secret);
    if (frame.epoch, Some(frame.secret)) != (process.epoch, secret) {
        let (own, theirs) = (process.epoch.0, frame.epoch.0);
        return Err(format!("node {node} acts in epoch {own} on a frame of epoch {theirs}"));
    }
    match frame.sequence == sequence {
        true => Ok(()),
        false => Err(format!("node {node} acts in collective {sequence} on a frame of {}", frame.sequence)),
    }
}

/// A collective has ended here: the same result as elsewhere, and the right one.
pub(super) fn collective(world: &mut World, node: usize, collective: &Collective) -> Verdict {
    let epoch = world.processes[node].epoch;
    let result = collective.result().to_vec();
    let which = (epoch, collective.group, collective.sequence);
    let name = || format!("node {node}: collective {} on {} of epoch {}", which.2, which.1, epoch.0);
    if expected(collective, epoch).is_some_and(|expected| result != expected) {
        return Err(format!("{} has a wrong result", name()));
    }
    let known = world.told.results.entry(which).or_insert_with(|| result.clone());
    match *known == result {
        true => Ok(()),
        false => Err(format!("{} has another result than elsewhere", name())),
    }
}

/// A group is the one that was wanted. It is the same for all, in every epoch.
pub(super) fn group_made(world: &mut World, node: usize, made: &GroupMade) -> Verdict {
    let index = world.processes[node].formed.as_ref().map_or(0, |formed| formed.index);
    let members = world.members(made.parent, made.nth, index);
    if made.members != members || made.group.is_none() != members.is_empty() {
        return Err(format!("node {node} was told of {made:?}: {members:?} were wanted"));
    }
    let Some(group) = made.group else { return Ok(()) };
    let told = (made.parent, made.nth, members);
    let known = world.told.groups.entry(group).or_insert_with(|| told.clone()).clone();
    let others = world.told.groups.iter().find(|(other, known)| **other != group && **known == told);
    match (known == told, others) {
        (true, None) => Ok(()),
        (_, other) => Err(format!("node {node} was told of {made:?}, others of {known:?}, {other:?}")),
    }
}

/// A node hears where another node is reached: it is what the others of its epoch were told.
pub(super) fn located(world: &World, node: usize, asked: Option<u32>, member: &Member) -> Verdict {
    let formed = world.processes[node].formed.as_ref();
    let known = asked.zip(formed).and_then(|(index, formed)| formed.members.get(index as usize));
    match known.is_some_and(|known| **known == *member) {
        true => Ok(()),
        false => {
            Err(format!("node {node} asked for the address of {asked:?}, and was told: {member:?}; it knew {known:?}"))
        }
    }
}

/// How old the news of a node may be: it may be from before it was asked, by somebody else's question.
const STALE: Duration = Duration::from_millis(300);

/// A rank that is said to be absent from a collective had not entered it when somebody asked. All others had.
pub(super) fn absent(world: &World, node: usize, question: &Question, absent: &Absent) -> Verdict {
    let process = &world.processes[node];
    let Some(formed) = process.formed.as_ref().filter(|formed| Some(formed.instance) == world.host.instance) else {
        return Ok(()); // its job is done
    };
    let Question { group, sequence, members, asked, .. } = question;
    let entered = world.told.entered.get(&(process.epoch, *group, *sequence));
    let since = |index: &u32| entered.and_then(|entered| entered.get(index)).copied();
    let which = || format!("collective {sequence} on {group} of epoch {}", process.epoch.0);
    let mut named = BTreeSet::new();
    for straggler in &absent.members {
        let place = |member: &&std::sync::Arc<Member>| {
            (member.role, Some(member.rank)) == (straggler.culprit.role, straggler.culprit.rank)
        };
        let member = formed.members.iter().find(place);
        // A node that has come back has its place, and is not in this epoch, which is broken for that reason.
        let is_back = |member: &Member| member.process.pid != straggler.culprit.pid;
        let Some(member) = member.filter(|member| !is_back(member) || process.broken.is_some()) else {
            return Err(format!("node {node} was told that a stranger is absent from {}: {straggler:?}", which()));
        };
        let has_said = !is_back(member)
            && matches!(straggler.state, StragglerState::Never | StragglerState::Inside | StragglerState::Outside);
        if has_said && since(&member.index).is_some_and(|since| since + STALE < *asked) {
            return Err(format!("node {node} was told that one who is in {} is absent: {straggler:?}", which()));
        }
        named.insert(member.index);
    }
    let missing = members.iter().find(|index| !named.contains(index) && since(index).is_none());
    match missing.filter(|_| absent.total as usize == named.len()) {
        Some(index) => Err(format!("node {node} was not told that {index} is absent from {}: {absent:?}", which())),
        None => Ok(()),
    }
}

/// A process hears that its epoch is broken, for the cause that all others hear.
pub(super) fn broken(world: &mut World, node: usize, failure: &Failure) -> Verdict {
    let process = &world.processes[node];
    if failure.epoch != process.epoch {
        let (own, theirs) = (process.epoch.0, failure.epoch.0);
        return Err(format!("node {node} is told in epoch {own} that {theirs} is broken: {failure}"));
    }
    if failure.status == Status::Fenced {
        let guessed = failure.cause.contains("unconfirmed");
        // Its job was done before it heard so, and its scheduler has begun another.
        let is_done = world.host.archived && failure.cause.contains("belongs to another run of the job");
        return match process.to_blame.is_some() || process.replaced || guessed || is_done {
            true => Ok(()),
            false => Err(format!("node {node}, to which nothing had happened, was put out: {failure}")),
        };
    }
    culprit(world, failure)?;
    super::abort::judged(world, failure)?;
    causes::heard(world, node, failure, false)
}

/// The culprit is a process that failed.
pub(super) fn culprit(world: &World, failure: &Failure) -> Verdict {
    // A loss that nobody could confirm says so. Without recovery there is a culprit of everything but a revocation.
    let certain = failure.status == Status::PeerLost && !failure.cause.contains("unconfirmed");
    let must_be = !world.plan.recovers() && failure.group.is_none() && failure.status != Status::Aborted;
    let named = match &failure.culprit {
        None if must_be => return Err(format!("{failure:?} names nobody")),
        named => named.as_ref().filter(|_| certain || must_be),
    };
    let Some(named) = named else { return Ok(()) };
    let process = world.processes.get((named.pid as usize).wrapping_sub(1000));
    let has_failed = |process: &&Process| process.to_blame.is_some_and(|since| since <= world.now);
    match process.filter(has_failed).filter(|process| process.register.node_id == named.node_id) {
        Some(_) => Ok(()),
        None => Err(format!("the culprit did not fail: {failure}")),
    }
}

/// One first cause per group and epoch.
pub(super) fn revoked(world: &mut World, node: usize, failure: &Failure) -> Verdict {
    let epoch = world.processes[node].epoch;
    if failure.epoch != epoch {
        return Err(format!("node {node} is told in epoch {} of a revocation in {}", epoch.0, failure.epoch.0));
    }
    culprit(world, failure)?;
    causes::heard(world, node, failure, true)
}

/// Whether a place is empty now, or its process has not been told of the present epoch.
pub(super) fn somebody_is_missing(world: &World) -> bool {
    world.slots.iter().any(|slot| {
        slot.current.is_none_or(|at| {
            let process = &world.processes[at];
            !process.alive
                || process.epoch != world.newest
                || process.paused_until > world.now
                || process.to_blame.is_some()
        })
    })
}

/// A story that has not ended in time.
pub(super) fn unended(world: &World) -> String {
    let slots: Vec<String> = world
        .slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| !slot.finished)
        .map(|(at, slot)| {
            let process = slot.current.map(|at| &world.processes[at]);
            let stage = process.map(|process| (process.alive, process.epoch.0, process.program.stage));
            format!("slot {at} {stage:?}")
        })
        .collect();
    let others: Vec<usize> = (0..world.processes.len()).filter(|at| world.processes[*at].alive).collect();
    format!(
        "no end within the bound after the last fault ({} steps; scheduler {:?}): {}; alive: {others:?}",
        world.steps,
        world.host.ended.as_ref().map(|(at, result)| (at, result.is_ok())),
        slots.join(", ")
    )
}

fn is_complete(world: &World) -> bool {
    world.slots.iter().all(|slot| slot.done == world.plan.rounds)
}

/// Whether everybody has done everything, and the job has ended so.
pub(super) fn ended_well(world: &World) -> bool {
    is_complete(world) && world.host.ended.as_ref().is_some_and(|(_, result)| result.is_ok())
}

/// Judges the whole story: everything that could be done was done.
pub(super) fn at_end(world: &World) -> Verdict {
    let Some((_, result)) = &world.host.ended else { return Err("the scheduler never ended".to_owned()) };
    if let Some(wrong) = &world.wrong {
        return Err(wrong.clone());
    }
    match (result, is_complete(world)) {
        (Ok(()), true) => Ok(()),
        // The scheduler died after it had written that all is done. The next start began another job, to which nobody
        // came.
        (Err(_), true) if world.host.archived => Ok(()),
        _ if world.may_fail => Ok(()),
        (Ok(()), false) => Err("the job ended well before all was done".to_owned()),
        (Err(error), _) => Err(format!("the job ended badly, although everything came back: {error}: {}", ends(world))),
    }
}

fn ends(world: &World) -> String {
    let of = |process: &Process| match &process.ended {
        Some((_, End::Failed(error))) => format!("slot {}: {error}", process.slot),
        other => format!("slot {}: {:?}", process.slot, other.as_ref().map(|(at, _)| at)),
    };
    world.processes.iter().map(of).collect::<Vec<_>>().join("; ")
}
