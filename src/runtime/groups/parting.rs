//! How the use of a group ends, when its node leaves, frees the group, or goes on in the next epoch: its calls end, the peers are
//! told, its threads end, its links are dropped.
//!
//! Invariants: when a node leaves or goes on, only [`await_farewell`] and [`join`] wait, each until a moment that its
//! caller says, and for all groups together. (A group that is freed by itself waits for its own threads,
//! `end_progress`.) So one group that is stuck, in a user's function or on a peer that does not read, holds up no
//! other. What is stuck beyond that moment ends by itself later.

use super::group::Group;
use crate::agent::Command;
use crate::error::{Failure, Result};
use crate::runtime::base::interrupts::Attention;
use crate::runtime::links::link::Link;
use crate::runtime::state::node_state::{AgentCommand, NodeState};
use crate::types::Time;
use crate::wire::GroupProgress;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often to look whether the last bytes have been acknowledged, or a thread has ended: nothing tells of either.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// Tells the scheduler what this rank called last, before its peers hear that it has gone.
pub(crate) fn tell_last_calls(groups: &[Arc<Group>], state: &NodeState) {
    let now = state.clock.now();
    let calls: Vec<GroupProgress> =
        groups.iter().flat_map(|group| group.log(|log| log.parting(group.id(), now))).collect();
    if !calls.is_empty() {
        state.view().epoch.parting.extend(calls);
        state.ask(AgentCommand::Brain(Command::Report));
    }
}

impl Group {
    /// Ends the group's use, and all calls on it. If the group was over already, this tells the peers the cause, and
    /// not that this member leaves: a node that is cut off learns the cause only from its peers.
    pub(crate) fn close(&self, over: Failure, leave: &[u8]) {
        let context = &self.context;
        let told = context.told();
        let word = told.as_ref().map_or_else(|| leave.to_vec(), |first| context.last_word_of(first));
        context.last_word.get_or_init(|| word); // the same as before, if there is one
        context.break_with(told.unwrap_or(over));
        context.interrupt(); // a call that another thread is in ends, and lets the driver go
        self.messages.close();
    }

    /// Tells the peers on every open link, also on those that no call has taken in yet, and says that nothing more
    /// follows. Returns whether all that was sent has reached them; false while another thread's call has the links. If
    /// a call was interrupted in the middle of a frame, its link can say nothing; it stays until `shut`.
    fn say_farewell(&self) -> bool {
        let Some(mut exclusive) = self.collectives.exclusive_if_idle() else { return false };
        let driver = &mut exclusive.driver;
        self.collectives.take_in(driver);
        let word = self.context.last_word.get();
        for (_, link) in driver.peers.links.all_opened() {
            match word {
                Some(word) if !link.is_mid_frame() => link.say_last(word),
                _ => {}
            }
        }
        let on_its_way = |(_, link): (u32, &mut Link)| !link.is_mid_frame() && link.unsent() > 1;
        !driver.peers.links.all_opened().any(on_its_way) && self.messages.is_drained()
    }

    /// Tells the group's threads to end, and returns the threads that exist. Operations under way end first, because
    /// the group is broken: for the reason `over`, if it was not broken before.
    pub(crate) fn end_threads(&self, over: Failure) -> Vec<JoinHandle<()>> {
        self.context.break_with(over);
        self.context.interrupt();
        let threads = [self.collectives.queue.end(), self.messages.end()];
        self.messages.close();
        threads.into_iter().flatten().collect()
    }

    /// Ends the group's threads, and waits until they have ended.
    pub(crate) fn end_progress(&self, over: Failure) {
        self.end_threads(over).into_iter().for_each(|thread| drop(thread.join()));
        // a panic was printed
    }

    /// Drops every link, and turns away whatever still comes. This is done once the scheduler knows that this node has
    /// left, so that a peer that finds the end of a link is told the reason.
    pub(crate) fn shut(&self) {
        self.collectives.shut();
        self.messages.shut();
    }

    /// Drops every link, if no call has the links any more. If one has, they are dropped with the group.
    pub(crate) fn shut_if_idle(&self) {
        if self.collectives.exclusive_if_idle().is_some() {
            self.shut();
        }
    }
}

/// Says the last word on the links of these groups, and waits until what was sent has reached the peers: at most until
/// this time, and not longer than until the program interrupts the call that waits.
pub(crate) fn await_farewell(
    groups: &[Arc<Group>],
    state: &NodeState,
    until: Time,
    attention: &Attention<'_>,
) -> Result<()> {
    let mut left: Vec<&Arc<Group>> = groups.iter().collect();
    loop {
        left.retain(|group| !group.say_farewell());
        if left.is_empty() || state.clock.now() >= until {
            return Ok(());
        }
        look_again(attention)?;
    }
}

/// Waits for these threads, at most until this time (`Time::NEVER`: until they have ended), unless the program
/// interrupts the call that waits. Threads that go on stay in the list.
pub(crate) fn join(
    threads: &mut Vec<JoinHandle<()>>,
    state: &NodeState,
    until: Time,
    attention: &Attention<'_>,
) -> Result<()> {
    let mut outcome = Ok(());
    for thread in std::mem::take(threads) {
        while until != Time::NEVER && !thread.is_finished() && state.clock.now() < until && outcome.is_ok() {
            outcome = look_again(attention);
        }
        if until == Time::NEVER || thread.is_finished() {
            let _ = thread.join(); // it has no result; a panic was printed
        } else {
            threads.push(thread);
        }
    }
    outcome
}

fn look_again(attention: &Attention<'_>) -> Result<()> {
    attention.ask()?;
    std::thread::sleep(attention.left(Some(LOOK_AGAIN)).unwrap_or(LOOK_AGAIN));
    Ok(())
}
