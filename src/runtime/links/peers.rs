//! A group's links, as each of its engines keeps them: an entry for each peer that was used, and what the agent thread mails about it.
//! Tested below.

use super::link::{say_at_once, Link, LinkEnd};
use crate::error::{Culprit, Failure};
use crate::net::Transport;
use crate::types::{GroupId, Time};
use crate::wire::Channel;
use std::collections::TryReserveError;
use std::time::Duration;

/// What the agent thread mails to an engine.
pub(crate) enum Mail {
    /// A link to this rank, open, with what was read behind its handshake.
    Up(u32, Box<dyn Transport>, Vec<u8>),
    /// A link to this rank cannot be opened.
    Failed(u32, LinkEnd),
    /// This rank has freed the group.
    Freed(u32),
}

/// What the mesh has found out, for the agent thread to pass on.
pub(crate) enum MeshEvent {
    /// For the engine of this group that has links of this kind.
    Mail(GroupId, Channel, Mail),
    /// A member says that its group is over.
    Revoked(Failure),
    /// The node with this index says that the job is over.
    Aborted(u32, Failure),
    /// The scheduler is to be asked who and where the member with this index is.
    Locate(u32),
}

/// Where the link to a peer is.
pub(crate) enum Slot {
    /// Not needed yet.
    Unused,
    /// Asked for.
    Asked,
    /// Open.
    Up(Box<Link>),
    /// Its peer has left the cluster, or freed the group. The culprit: how a failure names the peer, where that was told.
    Left(Option<Culprit>),
    /// It ended, or never came to be.
    Ended(LinkEnd),
}

impl Mail {
    /// The rank that it is about.
    pub(crate) fn peer(&self) -> u32 {
        match self {
            Mail::Up(peer, ..) | Mail::Failed(peer, _) | Mail::Freed(peer) => *peer,
        }
    }
}

/// What an engine keeps of one peer.
pub(crate) struct Entry<T> {
    pub rank: u32,
    pub slot: Slot,
    /// What the engine itself knows of the peer.
    pub peer: T,
}

/// One engine's links to the members of a group, by rank. A peer that was not used yet has an empty place and no entry: a group may
/// be large, and most algorithms use few links.
pub(crate) struct Links<T> {
    /// The place of each rank's entry, or [`NOWHERE`].
    places: Vec<u32>,
    /// In the order of their first use.
    entries: Vec<Entry<T>>,
    is_shut: bool,
}

/// The place of a rank that has no entry.
const NOWHERE: u32 = u32::MAX;

impl<T: Default> Links<T> {
    /// The links of a group with so many members, before any is in use.
    pub(crate) fn among(members: usize) -> Links<T> {
        Links { places: vec![NOWHERE; members], entries: Vec::new(), is_shut: false }
    }

    /// Makes room for the entry of one rank more.
    pub(crate) fn reserve_one(&mut self) -> Result<(), TryReserveError> {
        self.entries.try_reserve(1)
    }

    /// What is kept of the peers that are in use.
    pub(crate) fn used(&self) -> &[Entry<T>] {
        &self.entries
    }

    pub(crate) fn used_mut(&mut self) -> &mut [Entry<T>] {
        &mut self.entries
    }

    /// What is kept of this rank, if it is in use. (On the hot path.)
    pub(crate) fn known(&self, rank: u32) -> Option<&Entry<T>> {
        self.entries.get(self.places[rank as usize] as usize)
    }

    pub(crate) fn known_mut(&mut self, rank: u32) -> Option<&mut Entry<T>> {
        self.entries.get_mut(self.places[rank as usize] as usize)
    }

    /// What is kept of this rank, which is in use from now on. (On the hot path.)
    pub(crate) fn entry(&mut self, rank: u32) -> &mut Entry<T> {
        let place = match self.places[rank as usize] {
            NOWHERE => self.begin(rank),
            place => place,
        };
        &mut self.entries[place as usize]
    }

    /// Makes the entry of this rank. Returns its place.
    #[cold]
    fn begin(&mut self, rank: u32) -> u32 {
        let place = self.entries.len() as u32;
        let slot = if self.is_shut { Slot::Left(None) } else { Slot::Unused };
        self.entries.push(Entry { rank, slot, peer: T::default() });
        self.places[rank as usize] = place;
        place
    }

    /// Where the link to this rank is.
    pub(crate) fn slot(&self, rank: u32) -> &Slot {
        match self.known(rank) {
            Some(entry) => &entry.slot,
            None if self.is_shut => &Slot::Left(None),
            None => &Slot::Unused,
        }
    }

    /// The link to this rank, if it is open.
    pub(crate) fn opened(&mut self, rank: u32) -> Option<&mut Link> {
        self.known_mut(rank)?.slot.opened()
    }

    /// All links that are open, with their ranks.
    pub(crate) fn all_opened(&mut self) -> impl Iterator<Item = (u32, &mut Link)> {
        self.entries.iter_mut().filter_map(|entry| Some((entry.rank, entry.slot.opened()?)))
    }

    /// Takes in what the agent thread says of a link, and returns its entry if that is news. A link that is open, or has
    /// ended, stays what it is: then there is no news. A second one would be dropped, but the agent thread lets none in.
    /// `checksums`: whether the cluster wants them; a link whose transport is intact sends none.
    pub(crate) fn take_in(&mut self, mail: Mail, checksums: bool) -> Option<&mut Entry<T>> {
        let entry = self.entry(mail.peer());
        if !matches!(entry.slot, Slot::Unused | Slot::Asked) {
            return None;
        }
        entry.slot = match mail {
            Mail::Up(_, transport, ahead) => Slot::Up(Box::new(Link::new(transport, &ahead).with_checksums(checksums))),
            Mail::Failed(_, end) => Slot::Ended(end),
            Mail::Freed(_) => Slot::Left(None),
        };
        Some(entry)
    }

    /// For how long an open link has been silent. `late` means the same as for `Link::silence`.
    pub(crate) fn silence(&mut self, rank: u32, now: Time, late: Duration) -> Option<Duration> {
        self.opened(rank).map(|link| link.silence(now, late))
    }

    /// Drops every link. From now on there are none: the slot of each peer says that it has left.
    pub(crate) fn shut(&mut self) {
        self.is_shut = true;
        self.places.fill(NOWHERE);
        self.entries.clear();
    }
}

impl<T> Entry<T> {
    /// The link is wanted. If nobody has asked for it yet, `ask` does so now.
    pub(crate) fn want(&mut self, ask: impl FnOnce()) {
        if matches!(self.slot, Slot::Unused) {
            self.slot = Slot::Asked;
            ask();
        }
    }
}

impl Slot {
    /// The link, if it is open.
    pub(crate) fn opened(&mut self) -> Option<&mut Link> {
        match self {
            Slot::Up(link) => Some(link),
            _ => None,
        }
    }
}

/// Drops mail for an engine whose links are shut. The peer of a new link is told why, where that is known.
pub(crate) fn turn_away(mail: Mail, last_word: Option<&Vec<u8>>) {
    if let (Mail::Up(_, mut transport, _), Some(word)) = (mail, last_word) {
        say_at_once(&mut *transport, word);
    }
}

#[cfg(test)]
impl<T: Default> Links<T> {
    /// The links of a group whose members have these slots.
    pub(crate) fn with<const MEMBERS: usize>(slots: [Slot; MEMBERS]) -> Links<T> {
        let mut links = Links::among(MEMBERS);
        slots.into_iter().zip(0..).for_each(|(slot, rank)| links.entry(rank).slot = slot);
        links
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::base::control::tests::Scripted;

    fn up(rank: u32) -> Mail {
        Mail::Up(rank, Box::new(Scripted::default()), Vec::new())
    }

    #[test]
    fn only_peers_in_use_have_an_entry() {
        let mut links: Links<u32> = Links::among(1000);
        assert!(matches!(links.slot(999), Slot::Unused) && links.known(999).is_none());
        assert!(links.opened(999).is_none() && links.silence(999, Time(0), Duration::ZERO).is_none());
        assert_eq!(links.used().len(), 0, "looking makes no entry");
        links.entry(999).peer = 7;
        links.entry(3).peer = 8;
        links.entry(999).peer += 1;
        assert_eq!(links.used().iter().map(|entry| (entry.rank, entry.peer)).collect::<Vec<_>>(), [(999, 8), (3, 8)]);
        assert_eq!(links.known_mut(3).map(|entry| entry.rank), Some(3));
    }

    #[test]
    fn a_link_is_asked_for_once_and_stays_what_it_became() {
        let (mut links, mut asked): (Links<()>, _) = (Links::among(4), Vec::new());
        for rank in [2, 1, 2] {
            links.entry(rank).want(|| asked.push(rank));
            assert!(matches!(links.slot(rank), Slot::Asked));
        }
        assert_eq!(asked, [2, 1]);
        assert!(links.take_in(up(2), true).is_some() && links.take_in(up(2), true).is_none());
        assert!(links.take_in(Mail::Freed(2), true).is_none() && links.opened(2).is_some());
        let failed = |rank| Mail::Failed(rank, LinkEnd::Ended("it was closed".to_owned()));
        assert!(links.take_in(failed(1), true).is_some() && links.take_in(up(1), true).is_none());
        assert!(matches!(links.slot(1), Slot::Ended(_)));
        assert!(links.take_in(Mail::Freed(3), true).is_some(), "nobody asked for it");
        links.entry(3).want(|| panic!("it has left"));
        assert!(matches!(links.slot(3), Slot::Left(None)));
        assert_eq!(links.all_opened().map(|(rank, _)| rank).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn once_they_are_shut_all_peers_have_left() {
        let mut links: Links<()> = Links::with([Slot::Unused, Slot::Asked]);
        links.take_in(up(1), true);
        links.shut();
        assert_eq!(links.all_opened().count(), 0);
        for rank in 0..2 {
            assert!(matches!(links.slot(rank), Slot::Left(None)));
            links.entry(rank).want(|| panic!("it is shut"));
            assert!(matches!(links.slot(rank), Slot::Left(None)));
        }
    }
}
