//! The peers of a group's collectives, by rank: where the link to each is, and what is said on it beside a call's data.

use super::stop::{Running, Stop};
use crate::error::Failure;
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::links::link::{Arrival, Link, LinkEnd};
use crate::runtime::links::peers::Slot;
use crate::runtime::state::context::Context;
use crate::runtime::state::node_state::AgentCommand;
use crate::runtime::state::silence::SilenceWatch;
use crate::wire::Channel;

/// The links to all peers of a group.
pub(crate) struct Peers {
    pub slots: Vec<Slot>,
    /// Looks whether the links to the peers that the call waits for are silent.
    pub silence: SilenceWatch,
    pub later: Later,
}

/// A peer's last word about a call that this rank has not reached yet.
#[derive(Default)]
pub(crate) struct Later(Option<Box<Failure>>);

impl Later {
    /// Takes in a peer's last word. It ends this call, or is kept for a later one.
    pub(crate) fn hear(&mut self, running: &Running<'_>, failure: Failure) -> Result<(), Stop> {
        running.ends_by(failure.clone())?;
        self.0 = Some(Box::new(failure));
        Ok(())
    }

    /// Whether this call, which begins, ends by the word that was kept.
    pub(crate) fn hear_again(&self, running: &Running<'_>) -> Result<(), Stop> {
        self.0.as_ref().map_or(Ok(()), |failure| running.ends_by((**failure).clone()))
    }
}

impl Peers {
    /// The peers of a group, before any has a link.
    pub(crate) fn new(context: &Context) -> Peers {
        let slots = context.roster.members.iter().map(|_| Slot::Unused).collect();
        Peers { slots, silence: SilenceWatch::new(context.bounds), later: Later::default() }
    }

    /// The link to a peer, if it is open. A link that nobody has asked for is asked for now.
    pub(crate) fn link(&mut self, context: &Context, peer: u32) -> Result<Option<&mut Link>, Stop> {
        let slot = &mut self.slots[peer as usize];
        match slot {
            Slot::Unused => {
                *slot = Slot::Asked;
                context.state.ask(AgentCommand::Open(LinkKey::new(context.id(), Channel::Collectives, peer)));
                Ok(None)
            }
            Slot::Asked => Ok(None),
            Slot::Up(link) => Ok(Some(link)),
            Slot::Left(_) => Err(Stop::Left(peer)),
            Slot::Ended(end) => Err(Stop::Ended(peer, end.clone())),
        }
    }

    /// Looks at a link that this call does not read just now: a peer may be giving up, or gone.
    pub(crate) fn serve(&mut self, running: &Running<'_>, peer: u32) -> Result<(), Stop> {
        let slot = &mut self.slots[peer as usize];
        let Slot::Up(link) = slot else { return Ok(()) };
        match link.peek() {
            Ok(None | Some(Arrival::Data(..) | Arrival::Message(..))) => Ok(()), // the call that reads it finds out
            Ok(Some(Arrival::Revoke(failure))) => {
                self.later.hear(running, failure.clone())?;
                *slot = Slot::Ended(LinkEnd::Over(Box::new(failure))); // nothing more comes
                Ok(())
            }
            Ok(Some(Arrival::Leave)) => {
                *slot = Slot::Left(None);
                Ok(())
            }
            Err(end) => {
                // This is evidence; the verdict, if there is one, comes from the scheduler.
                let evidence = end.in_words();
                *slot = Slot::Ended(end);
                running.context.ask_early(peer, &evidence);
                Ok(())
            }
        }
    }

    /// Tells the peers why the group is over, on every link that is open and not in the middle of a frame; the others learn it
    /// from the scheduler, or by the link's end.
    pub(crate) fn pass_on(&mut self, context: &Context, cause: &Failure) {
        let frame = context.last_word_of(cause);
        for slot in &mut self.slots {
            if let Slot::Up(link) = slot {
                link.say_last(&frame);
            }
        }
    }
}
