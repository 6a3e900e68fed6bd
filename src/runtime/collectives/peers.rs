//! The peers of a group's collectives, by rank: where the link to each is, and what is said on it beside a call's data.

use super::stop::{Running, Stop};
use crate::error::Failure;
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::links::link::{Arrival, Link, LinkEnd};
use crate::runtime::links::peers::{Links, Slot};
use crate::runtime::state::context::Context;
use crate::runtime::state::node_state::AgentCommand;
use crate::runtime::state::silence::SilenceWatch;
use crate::wire::Channel;

/// What the collectives of a group know of their peers.
pub(crate) struct Peers {
    pub links: Links<()>,
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

    /// Fails this call, which begins, if the kept last word ends it.
    pub(crate) fn hear_again(&self, running: &Running<'_>) -> Result<(), Stop> {
        self.0.as_ref().map_or(Ok(()), |failure| running.ends_by((**failure).clone()))
    }
}

impl Peers {
    /// The peers of a group, before any has a link.
    pub(crate) fn new(context: &Context) -> Peers {
        let links = Links::among(context.roster.members.len());
        Peers { links, silence: SilenceWatch::new(context.bounds), later: Later::default() }
    }

    /// The link to a peer, if it is open. A link that nobody has asked for is asked for now, if this rank `opens` it.
    pub(crate) fn link(&mut self, context: &Context, peer: u32, opens: bool) -> Result<Option<&mut Link>, Stop> {
        let entry = self.links.entry(peer);
        match entry.slot {
            Slot::Up(ref mut link) => Ok(Some(link)),
            Slot::Unused if opens => {
                let key = LinkKey::new(context.id(), Channel::Collectives, peer);
                entry.want(|| context.state.ask(AgentCommand::Open(key)));
                Ok(None)
            }
            Slot::Unused | Slot::Asked => Ok(None),
            Slot::Left(_) => Err(Stop::Left(peer)),
            Slot::Ended(ref end) => Err(Stop::Ended(peer, end.clone())),
        }
    }

    /// Looks at a link that this call does not read just now: a peer may be giving up, or gone.
    pub(crate) fn serve(&mut self, running: &Running<'_>, peer: u32) -> Result<(), Stop> {
        let Some(slot) = self.links.known_mut(peer).map(|entry| &mut entry.slot) else { return Ok(()) };
        let Some(link) = slot.opened() else { return Ok(()) };
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
        self.links.all_opened().for_each(|(_, link)| link.say_last(&frame));
    }
}
