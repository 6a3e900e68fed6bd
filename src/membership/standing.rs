//! Where a node stands, and every transition of it: whether it counts, how it is connected, how certain its loss is, which life has
//! its place, and whether its place is abandoned.
//!
//! ```text
//! member --> left
//!   |  ^
//!   v  |
//!  lost        (the same life is heard again, or another has its place)
//! ```
//!
//! A member whose connection ends is detached until it attaches again. A node that says that it goes, or whose next life has
//! taken its place, has no connection, and none is waited for.
//!
//! The certainty of a loss grows until the node attaches again. A life that comes back has the place from the next epoch on.
//!
//! A place is abandoned when its launcher says that no process is started in it any more. The next sign of life takes
//! that word back. `suspicion.rs` decides which loss is a culprit's and which is a consequence.
//!
//! Each of these is an enum of its own, because they do not exclude each other: a lost node may still be connected, and a node
//! that is back may be lost once more.

use super::contract::{Closed, ConnId};
use super::timers::HELD;
use crate::types::Time;
use crate::wire::Register;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Whether a node counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It takes part (connected or not).
    Member,
    /// It has left in an orderly way.
    Left,
    /// It is lost, or has closed after the job broke.
    Lost { since: Time },
}

impl Presence {
    /// It ends in order.
    pub(super) fn leave(&mut self) {
        debug_assert_eq!(*self, Presence::Member, "only a member leaves");
        *self = Presence::Left;
    }

    /// It is lost now.
    pub(super) fn lose(&mut self, now: Time) {
        *self = Presence::Lost { since: now };
    }

    /// It takes part once more, or another life does in its place. A node that has left comes back only where it left a
    /// run, and not the job.
    pub(super) fn return_as_member(&mut self) {
        *self = Presence::Member;
    }

    pub(super) fn is_lost(self) -> bool {
        self.lost_since().is_some()
    }

    /// Since when it is lost, if it is.
    pub(super) fn lost_since(self) -> Option<Time> {
        match self {
            Presence::Lost { since } => Some(since),
            Presence::Member | Presence::Left => None,
        }
    }
}

/// How a member's connection came to be gone.
#[derive(Clone, Debug)]
pub(super) struct Detached {
    pub(super) since: Time,
    pub(super) how: Closed,
    pub(super) words: String,
    /// How long until its process is looked at again (only on the scheduler's own host).
    pub(super) probe_wait: Duration,
}

/// How a node is connected to this scheduler.
#[derive(Debug)]
pub(super) enum Attachment {
    /// This connection stands for it.
    Attached(ConnId),
    /// Its connection ended, and it may come back.
    Detached(Detached),
    /// No connection stands for it, and none is waited for: the node has left, has said that it ends, was refused, is lost
    /// already, or is a life that has not attached yet.
    None,
}

impl Attachment {
    /// This connection stands for it from now on.
    pub(super) fn attach(&mut self, conn: ConnId) {
        *self = Attachment::Attached(conn);
    }

    /// Its connection has ended. `probe_wait`: how long until its process is looked at again.
    pub(super) fn detach(&mut self, now: Time, how: Closed, words: String, probe_wait: Duration) {
        *self = Attachment::Detached(Detached { since: now, how, words, probe_wait });
    }

    /// The connection that stands for it does so no more; returns it.
    pub(super) fn release(&mut self) -> Option<ConnId> {
        let conn = self.conn()?;
        *self = Attachment::None;
        Some(conn)
    }

    pub(super) fn conn(&self) -> Option<ConnId> {
        match self {
            Attachment::Attached(conn) => Some(*conn),
            Attachment::Detached(_) | Attachment::None => None,
        }
    }

    pub(super) fn detached(&self) -> Option<&Detached> {
        match self {
            Attachment::Detached(detached) => Some(detached),
            Attachment::Attached(_) | Attachment::None => None,
        }
    }

    pub(super) fn detached_mut(&mut self) -> Option<&mut Detached> {
        match self {
            Attachment::Detached(detached) => Some(detached),
            Attachment::Attached(_) | Attachment::None => None,
        }
    }
}

/// How certain it is that a node is lost.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Certainty {
    /// Nothing of the kind was found.
    #[default]
    None,
    /// Its process was seen to be gone. If its connection is open its last words may still have to be read.
    ProcessGone,
    /// Its loss is certain; the text says why it is called lost, if no other node turns out to be the cause.
    Confirmed(String),
}

impl Certainty {
    /// Its process was seen to be gone. That adds nothing to a loss that is certain.
    pub(super) fn process_has_gone(&mut self) {
        if *self == Certainty::None {
            *self = Certainty::ProcessGone;
        }
    }

    /// Its loss is certain, for this reason. The newest reason counts.
    pub(super) fn confirm(&mut self, why: String) {
        *self = Certainty::Confirmed(why);
    }

    /// Whether its process is gone, and its loss is not certain yet.
    pub(super) fn is_process_gone(&self) -> bool {
        *self == Certainty::ProcessGone
    }

    /// Why it is called lost, if its loss is certain.
    pub(super) fn why_lost(&self) -> Option<&str> {
        match self {
            Certainty::Confirmed(why) => Some(why),
            Certainty::None | Certainty::ProcessGone => None,
        }
    }
}

/// Which life of a node has its place in this epoch.
#[derive(Debug, Default)]
pub(super) enum Seat {
    /// The present life.
    #[default]
    Present,
    /// This earlier life: the present one has come back since, and waits for the next epoch.
    Earlier(Box<Register>),
}

impl Seat {
    /// Another life comes back after this one. The life that has the place keeps it until the next epoch.
    pub(super) fn come_back_after(&mut self, last: Register) {
        if self.earlier().is_none() {
            *self = Seat::Earlier(Box::new(last));
        }
    }

    /// An epoch begins: the present life has the place in it. Returns whether that life had waited for it.
    pub(super) fn begin_epoch(&mut self) -> bool {
        let has_waited = self.earlier().is_some();
        *self = Seat::Present;
        has_waited
    }

    /// The earlier life that has the place, if one does.
    pub(super) fn earlier(&self) -> Option<&Register> {
        match self {
            Seat::Earlier(life) => Some(life),
            Seat::Present => None,
        }
    }
}

/// What a launcher has said of a node's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Abandonment {
    /// Nothing that counts.
    #[default]
    None,
    /// No process is started in it any more: that was said to a scheduler before this one. It counts once a node comes
    /// that goes on with the epoch in which it was said.
    Earlier,
    /// No process is started in it any more: that was said at this time.
    Since(Time),
}

impl Abandonment {
    /// The launcher says now that no process is started in this place any more. Returns whether that is news.
    pub(super) fn say(&mut self, now: Time) -> bool {
        let is_news = *self == Abandonment::None;
        *self = Abandonment::Since(now);
        is_news
    }

    /// Takes up that a scheduler before this one was told so.
    pub(super) fn take_up(&mut self) {
        *self = Abandonment::Earlier;
    }

    /// A node goes on with the epoch in which the word was said. Returns whether the word counts from now on.
    pub(super) fn count_earlier(&mut self, now: Time) -> bool {
        let counts = *self == Abandonment::Earlier;
        if counts {
            *self = Abandonment::Since(now);
        }
        counts
    }

    /// A process was started in this place: what an earlier scheduler was told does not hold.
    pub(super) fn forget_earlier(&mut self) {
        if *self == Abandonment::Earlier {
            *self = Abandonment::None;
        }
    }

    /// Whether the word was said, to this scheduler or to one before it.
    pub(super) fn is_said(self) -> bool {
        self != Abandonment::None
    }

    /// Whether the word was said to this scheduler, or counts as said to it.
    pub(super) fn is_said_here(self) -> bool {
        matches!(self, Abandonment::Since(_))
    }

    /// Whether the word stands, although the node was heard at this time. A message that was on its way when the word was
    /// said proves nothing.
    pub(super) fn stands(self, heard: Time) -> bool {
        matches!(self, Abandonment::Since(at) if heard < at + HELD)
    }

    /// The time at which the word was said. If this scheduler itself stood still, it moves as all times do.
    pub(super) fn time(&mut self) -> Option<&mut Time> {
        match self {
            Abandonment::Since(at) => Some(at),
            Abandonment::None | Abandonment::Earlier => None,
        }
    }
}

/// What a launcher has said of a node's place, and the number of that word among all such words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AbandonedPlace {
    word: Abandonment,
    /// The number in the order in which places were abandoned in this epoch. It stays if somebody was started in the
    /// place after all. The node's next sign of life removes it.
    nth: Option<usize>,
}

impl AbandonedPlace {
    pub(super) fn nth(&self) -> Option<usize> {
        self.nth
    }

    /// Forgets what was said: the node lives, or a new epoch begins.
    pub(super) fn clear(&mut self) {
        *self = AbandonedPlace::default();
    }

    /// Gives it this number in the order of words, unless it has one.
    pub(super) fn count_as(&mut self, nth: usize) {
        self.nth.get_or_insert(nth);
    }
}

impl Deref for AbandonedPlace {
    type Target = Abandonment;

    fn deref(&self) -> &Abandonment {
        &self.word
    }
}

impl DerefMut for AbandonedPlace {
    fn deref_mut(&mut self) -> &mut Abandonment {
        &mut self.word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::testing::worker;

    #[test]
    fn a_node_is_lost_until_it_returns() {
        let mut presence = Presence::Member;
        presence.lose(Time(3));
        assert_eq!((presence.is_lost(), presence.lost_since()), (true, Some(Time(3))));
        presence.return_as_member();
        assert_eq!((presence, presence.lost_since()), (Presence::Member, None));
        presence.leave();
        assert_eq!((presence, presence.is_lost()), (Presence::Left, false));
    }

    #[test]
    fn a_released_connection_is_not_waited_for_and_one_that_ended_is() {
        let mut attachment = Attachment::Attached(ConnId(1));
        assert_eq!((attachment.release(), attachment.conn()), (Some(ConnId(1)), None));
        assert!(attachment.detached().is_none() && attachment.release().is_none());
        attachment.detach(Time(3), Closed::Broken, "reset".into(), Duration::ZERO);
        assert_eq!((attachment.conn(), attachment.release()), (None, None));
        assert_eq!(attachment.detached().map(|detached| detached.since), Some(Time(3)));
        attachment.attach(ConnId(2));
        assert_eq!((attachment.conn(), attachment.detached().is_none()), (Some(ConnId(2)), true));
    }

    #[test]
    fn a_loss_that_is_certain_stays_so() {
        let mut certainty = Certainty::default();
        assert!(!certainty.is_process_gone() && certainty.why_lost().is_none());
        certainty.process_has_gone();
        assert!(certainty.is_process_gone() && certainty.why_lost().is_none());
        certainty.confirm("is lost".to_owned());
        certainty.process_has_gone();
        assert_eq!((certainty.is_process_gone(), certainty.why_lost()), (false, Some("is lost")));
        certainty.confirm("has ended".to_owned());
        assert_eq!(certainty.why_lost(), Some("has ended"));
    }

    #[test]
    fn the_life_that_has_the_place_keeps_it_until_the_next_epoch() {
        let mut seat = Seat::default();
        assert!(seat.earlier().is_none() && !seat.begin_epoch());
        (1..3).for_each(|serial| seat.come_back_after(worker(serial, 3)));
        assert_eq!(seat.earlier().map(|life| life.incarnation), Some(worker(1, 3).incarnation));
        assert!(seat.begin_epoch() && seat.earlier().is_none() && !seat.begin_epoch());
    }

    #[test]
    fn a_launchers_word_is_news_once() {
        let mut word = Abandonment::default();
        assert!(!word.is_said() && !word.stands(Time(0)));
        assert!(word.say(Time(9)) && !word.say(Time(10)));
        assert!(word.is_said() && word.is_said_here() && word.stands(Time(9)) && !word.stands(Time(10) + HELD));
        word.forget_earlier();
        assert_eq!(word, Abandonment::Since(Time(10)));
    }

    #[test]
    fn a_word_to_an_earlier_scheduler_counts_once_the_epoch_goes_on() {
        let mut word = Abandonment::default();
        word.take_up();
        assert!(word.is_said() && !word.is_said_here() && !word.stands(Time(0)) && word.time().is_none());
        assert!(word.count_earlier(Time(4)) && !word.count_earlier(Time(5)));
        assert_eq!(word, Abandonment::Since(Time(4)));
        let mut word = Abandonment::Earlier;
        assert!(!word.say(Time(4)));
        let mut word = Abandonment::Earlier;
        word.forget_earlier();
        assert!(!word.is_said() && !word.count_earlier(Time(5)));
    }
}
