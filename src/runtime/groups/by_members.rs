//! Makes a group with its other members alone: nobody else takes part, and no group's sequence orders it. The scheduler
//! makes the group once all members have asked; this file waits for that.

use super::handle::GroupHandle;
use super::registry::{hash_of, Registry};
use crate::agent::{Ask, Command};
use crate::error::{Error, Result, Status};
use crate::runtime::base::interrupts::in_call;
use crate::runtime::base::patience::VERDICT_WAIT;
use crate::runtime::state::node_state::{AgentCommand, NodeView};
use crate::runtime::state::participation::left_error;
use crate::types::{Epoch, GroupId, Time};
use crate::wire::{Formed, MakeByMembers};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The longest tag, in bytes.
const TAG_MAX: usize = 255;

impl Registry {
    /// Makes a group of these workers, in this order, with the others that make the same call. Waits at most so many
    /// milliseconds: `i64::MAX` without limit, -1 the default.
    pub fn create_by_members(
        &self,
        world_ranks: &[i32],
        tag: &str,
        timeout_ms: i64,
        default: Option<Duration>,
    ) -> Result<Arc<GroupHandle>> {
        let state = &self.state;
        let now = state.clock.now();
        let deadline = match (timeout_ms, default) {
            (i64::MAX, _) | (-1, None) => Time::NEVER,
            (-1, Some(limit)) => now + limit,
            (0.., _) => now + Duration::from_millis(timeout_ms.unsigned_abs()),
            _ => {
                return Err(Error::invalid(format!("timeout_ms is {timeout_ms}: expected -1 (the default), 0 or more")))
            }
        };
        if tag.len() > TAG_MAX {
            return Err(Error::invalid(format!("tag has {} bytes: expected {TAG_MAX} at most", tag.len())));
        }
        let formed = state.view().epoch.formed.clone();
        let formed = formed.ok_or_else(left_error)?;
        let program = self.handle(GroupId::UNIVERSE).ok_or_else(left_error)?.present();
        if program.epoch() != formed.epoch {
            // An epoch has begun that the program has not been told of.
            return Err(program.why_over().map_or_else(left_error, Error::from));
        }
        let name = (members(world_ranks, &formed)?, tag.to_owned());
        let nth = {
            let mut kept = self.kept();
            if !kept.creating.insert(name.clone()) {
                let sentence =
                    format!("another thread of this process makes a group of these ranks with the tag {tag:?}");
                return Err(Error::new(Status::State, sentence));
            }
            kept.by_members.get(&hash_of(&name.0, tag)).copied().unwrap_or(0) + 1
        };
        let (members, tag) = name.clone();
        let wanted = MakeByMembers { ask: state.next_ask(), wants: true, tag, nth, members };
        let made = self.await_members(formed.epoch, wanted, deadline);
        self.kept().creating.remove(&name);
        made
    }

    fn await_members(&self, epoch: Epoch, wanted: MakeByMembers, deadline: Time) -> Result<Arc<GroupHandle>> {
        let (state, ask) = (&self.state, wanted.ask);
        let attention = state.program.interrupts.attention();
        let title = format!("group_create_members with the tag {:?}", wanted.tag);
        state.view().by_members.insert(ask, None);
        state.ask(AgentCommand::Of(epoch, Command::MakeByMembers(wanted.clone())));
        let mut outcome = state.wait_attentively(deadline, &attention, |view| answer(view, ask, epoch));
        if !matches!(outcome, Ok(Some(_))) {
            // Only the scheduler can say whether all have asked.
            state.ask(AgentCommand::Of(epoch, Command::MakeByMembers(MakeByMembers { wants: false, ..wanted })));
            let word = state.wait(state.clock.now() + VERDICT_WAIT, |view| answer(view, ask, epoch));
            outcome = match (word, outcome) {
                (Some(Ok(id)), _) => Ok(Some(Ok(id))),
                (_, Err(why)) => Err(in_call(&title, &why)),
                (word, _) => Ok(word),
            };
        }
        if let Some(Ok(late)) = state.view().by_members.remove(&ask).flatten() {
            outcome = Ok(Some(Ok(late))); // it was made after this wait had ended
        }
        let silent = || {
            let away = state.view().away.as_ref().map_or_else(String::new, |why| format!(": it is away ({why})"));
            Error::new(Status::Timeout, format!("the time is up, and the scheduler does not say who is awaited{away}"))
        };
        let made = outcome?.unwrap_or_else(|| Err(silent()));
        let id = made.map_err(|error| Error::new(error.status(), format!("{title}: {}", error.message())))?;
        self.handle(id).ok_or_else(left_error)
    }
}

/// The answer to the wish, as soon as it is known.
fn answer(view: &mut NodeView, ask: Ask, epoch: Epoch) -> Option<Result<GroupId>> {
    // Once the scheduler has made a group, this returns it, whatever happened since: the other members have it.
    if let Some(answer) = view.by_members.get_mut(&ask).and_then(Option::take) {
        return Some(answer);
    }
    if let Some(failure) = &view.epoch.broken {
        return Some(Err(view.epoch.causes.of_call(failure).into()));
    }
    if !view.epoch.is_in(epoch) {
        let ended = format!("epoch {} has ended: every node has called muster_recover", epoch.0);
        return Some(Err(Error::new(Status::Revoked, ended)));
    }
    view.participation.is_over().then(|| Err(left_error()))
}

/// The members' indices, which are workers' ranks. This node must be among them.
fn members(world_ranks: &[i32], formed: &Formed) -> Result<Vec<u32>> {
    let workers = formed.worker_num;
    let mut places = HashMap::new();
    let mut members = Vec::with_capacity(world_ranks.len().min(workers as usize)); // a longer list names a rank twice
    for (at, rank) in world_ranks.iter().enumerate() {
        let fits = u32::try_from(*rank).ok().filter(|rank| *rank < workers);
        let last = i64::from(workers) - 1;
        let index =
            fits.ok_or_else(|| Error::invalid(format!("world_ranks[{at}] is {rank}: expected 0 to {last} on world")))?;
        if let Some(first) = places.insert(index, at) {
            let sentence = format!("world_ranks[{at}] is {rank}, as is world_ranks[{first}]: expected each rank once");
            return Err(Error::invalid(sentence));
        }
        members.push(index);
    }
    if !members.contains(&formed.index) {
        let own = if formed.index < workers { format!("rank {}", formed.rank) } else { "a server".to_owned() };
        return Err(Error::invalid(format!(
            "world_ranks: this process, {own}, is not among them: only members call this"
        )));
    }
    Ok(members)
}
