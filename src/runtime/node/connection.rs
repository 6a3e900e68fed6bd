//! A node's one connection to its scheduler: attempts to connect, what goes out and comes in, and its end. It decides
//! nothing: what happens to it is returned as inputs for the brain.

use super::whereabouts::Whereabouts;
use crate::agent::Input;
use crate::net::{end_after_refusal, Poller, Side, Token, Wrap};
use crate::runtime::base::control::{ControlEnd, ControlLink, FIRST_READ_BYTES};
use crate::runtime::base::log::Logger;
use crate::runtime::base::polling::Lookout;
use crate::runtime::links::dial::{Dial, Dialled};
use crate::runtime::links::mesh_connections::FIRST_TOKEN;
use crate::secret::JobSecret;
use crate::types::Time;
use crate::wire::Message;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const CONTROL: Token = Token(1);
const FIRST_DIAL: usize = 16;
/// How long a connection that the brain has given up may take to write what was sent before.
const LINGER: Duration = Duration::from_secs(1);

/// The token of the next attempt. Tokens go round well below the mesh's. A late report of an old one does no harm.
fn following(next_dial: &mut usize) -> Token {
    *next_dial = FIRST_DIAL + (*next_dial + 1 - FIRST_DIAL) % (FIRST_TOKEN - FIRST_DIAL);
    Token(*next_dial)
}

/// How far the connection is.
enum Stage {
    None,
    Dialling(Dial, Time),
    Up(ControlLink),
    /// The brain has given it up; what was sent before still goes out.
    Lingering(ControlLink, Time),
}

/// What has come of an attempt.
pub(crate) enum Attempt {
    /// Nothing yet, or nothing new.
    Pending,
    /// The connection stands; our end has this address.
    Up(SocketAddr),
    /// The attempt has failed, for this reason.
    Failed(String),
}

/// The connection.
pub(crate) struct Connection {
    stage: Stage,
    wrap: Wrap,
    secret: Option<Arc<JobSecret>>,
    whereabouts: Whereabouts,
    /// The scheduler's place that it tries.
    place: usize,
    /// Where a connection stands, or stood last, and whether a scheduler has answered there.
    met: Option<(SocketAddr, bool)>,
    next_dial: usize,
    through: Vec<u8>,
    /// How many attempts were made so far. Another number after a read: what was read is an earlier connection's.
    pub attempts: u64,
    /// Whether there is more to read, or to write, of which the poller does not know.
    pub more: bool,
    /// Looks out for the next answer of the store: a caller's next question follows the answer to its last.
    pub lookout: Lookout,
}

impl Connection {
    pub(crate) fn new(
        wrap: Wrap,
        secret: Option<Arc<JobSecret>>,
        whereabouts: Whereabouts,
        poll: Option<Duration>,
    ) -> Connection {
        Connection {
            stage: Stage::None,
            wrap,
            secret,
            whereabouts,
            place: 0,
            met: None,
            next_dial: FIRST_DIAL,
            through: vec![0; FIRST_READ_BYTES],
            attempts: 0,
            more: false,
            lookout: Lookout::new(poll),
        }
    }

    /// Whether the connection stands.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    /// Whether there is no connection, and no attempt at one.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::None)
    }

    /// The scheduler's address, while the connection stands.
    pub(crate) fn scheduler(&self) -> Option<SocketAddr> {
        match &self.stage {
            Stage::Up(link) => Some(link.transport.peer_address()),
            _ => None,
        }
    }

    /// The time until which an attempt, or a connection that was given up, is waited for.
    pub(crate) fn deadline(&self) -> Time {
        match &self.stage {
            Stage::Dialling(_, deadline) | Stage::Lingering(_, deadline) => *deadline,
            Stage::None | Stage::Up(_) => Time::NEVER,
        }
    }

    /// Ends what has waited until its deadline.
    pub(crate) fn expire(&mut self, now: Time) -> Option<Input> {
        if now < self.deadline() {
            return None;
        }
        match std::mem::replace(&mut self.stage, Stage::None) {
            Stage::Dialling(dial, _) => {
                let words = [Some(dial.so_far()).filter(|words| !words.is_empty()), self.whereabouts.unanswered()];
                let words: Vec<String> = words.into_iter().flatten().collect();
                let none = || "no answer in time".to_owned();
                Some(Input::ConnectFailed(if words.is_empty() { none() } else { words.join("; ") }))
            }
            _ => None,
        }
    }

    /// Sets which node speaks from now on.
    pub(crate) fn set_node(&mut self, index: u32) {
        if let Stage::Up(link) = &mut self.stage {
            link.set_node(index);
        }
    }

    /// Attempts the connection to one of the scheduler's places.
    pub(crate) fn dial(&mut self, place: usize, deadline: Time, poller: &Poller) -> Attempt {
        self.place = place;
        self.attempts += 1;
        let (mut addresses, reason) = self.whereabouts.begin(place);
        self.put_in_order(&mut addresses);
        let mut dial = Dial::start(&addresses, poller, || following(&mut self.next_dial));
        reason.into_iter().for_each(|reason| dial.note_reason(reason));
        self.stage = Stage::Dialling(dial, deadline);
        self.look_at_dial(poller)
    }

    /// The result of a lookup of the scheduler's name, if it has ended: further addresses for the attempt that is under
    /// way.
    pub(crate) fn hear_names(&mut self, poller: &Poller) -> Attempt {
        let mut news = self.whereabouts.news(self.place);
        news.iter_mut().flatten().for_each(|addresses| self.put_in_order(addresses));
        let (Stage::Dialling(dial, _), Some(news)) = (&mut self.stage, news) else { return Attempt::Pending };
        match news {
            Ok(addresses) => dial.add(&addresses, poller, || following(&mut self.next_dial)),
            Err(reason) => dial.note_reason(reason),
        }
        self.look_at_dial(poller)
    }

    /// An attempt begins at the address where a scheduler answered last. If something else listened there, it begins with the
    /// next address, also if the port is another one.
    fn put_in_order(&self, addresses: &mut [SocketAddr]) {
        let Some((met, has_answered)) = self.met else { return };
        let same = addresses.iter().position(|address| *address == met);
        if let Some(at) = same.or_else(|| addresses.iter().position(|address| address.ip() == met.ip())) {
            addresses.rotate_left(if has_answered { at } else { at + 1 });
        }
    }

    /// Tries further addresses if the first do not answer, and asks for them. Returns the time to come again, too.
    pub(crate) fn dial_on(&mut self, now: Time, poller: &Poller) -> (Time, Attempt) {
        let Stage::Dialling(dial, _) = &mut self.stage else { return (Time::NEVER, Attempt::Pending) };
        let next = dial.go_on(now, poller, || following(&mut self.next_dial));
        let again = self.whereabouts.look_again(now);
        let attempt = if dial.is_settled() { self.look_at_dial(poller) } else { Attempt::Pending };
        (next.min(again), attempt)
    }

    pub(crate) fn look_at_dial(&mut self, poller: &Poller) -> Attempt {
        let Stage::Dialling(dial, _) = &mut self.stage else { return Attempt::Pending };
        match dial.look(poller, || following(&mut self.next_dial)) {
            Dialled::Pending => Attempt::Pending,
            // The scheduler's name may stand for another address.
            Dialled::Failed(_) if self.whereabouts.unanswered().is_some() => Attempt::Pending,
            Dialled::Failed(why) => self.fail(why.to_string()),
            Dialled::Ready(transport) => {
                let mut transport = (self.wrap)(transport, Side::Client);
                if let Err(error) = transport.register(poller.registry(), CONTROL) {
                    return self.fail(format!("it cannot be watched: {error}"));
                }
                let own = transport.local_address();
                self.met = Some((transport.peer_address(), false));
                let mut link = ControlLink::new(transport);
                link.trust(); // it is the scheduler that we chose
                self.stage = Stage::Up(link);
                Attempt::Up(own)
            }
        }
    }

    fn fail(&mut self, why: String) -> Attempt {
        self.stage = Stage::None;
        Attempt::Failed(why)
    }

    /// Drops the connection.
    pub(crate) fn drop_it(&mut self) {
        self.stage = Stage::None;
    }

    /// The brain gives the connection up: what was sent before goes out for a while.
    pub(crate) fn give_up(&mut self, now: Time) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::None) {
            Stage::Up(link) => Stage::Lingering(link, now + LINGER),
            _ => Stage::None,
        };
    }

    /// Sends a message. Returns why the connection has ended, if it has.
    pub(crate) fn send(&mut self, mut message: Message) -> Option<ControlEnd> {
        let Stage::Up(link) = &mut self.stage else { return None };
        if let (Some(secret), Message::Register(register)) = (&self.secret, &mut message) {
            let life = register.incarnation;
            register.reentry.iter_mut().for_each(|reentry| secret.mask(life, &mut reentry.tokens));
        }
        link.queue(message).err()
    }

    /// Writes what waits. A failed write ends nothing: what was said to us before the end is read first.
    pub(crate) fn write(&mut self) {
        let (Stage::Up(link) | Stage::Lingering(link, _)) = &mut self.stage else { return };
        let goes = link.write();
        match &self.stage {
            Stage::Lingering(link, _) if !goes || !link.has_outbound() && link.transport.unsent() == 0 => {
                self.stage = Stage::None;
            }
            _ => self.more |= !goes,
        }
    }

    /// Reads what has come. Returns inputs for the brain, in order, and how the connection has ended, if it has.
    pub(crate) fn read(&mut self) -> (Vec<Input>, Option<ControlEnd>) {
        self.more = false;
        let Stage::Up(link) = &mut self.stage else { return (Vec::new(), None) };
        let mut arrivals = Vec::new();
        let heard = link.read(&mut self.through, &mut arrivals);
        self.more = heard.as_ref().is_ok_and(|heard| heard.more);
        if let Some((_, has_answered)) = &mut self.met {
            let is_no = |message: &Message| matches!(message, Message::PassBy(_) | Message::Rejected(_));
            *has_answered |= arrivals.iter().flatten().any(|message| !is_no(message));
        }
        let mut inputs = Vec::with_capacity(arrivals.len() + 1);
        if heard.as_ref().map_or(!arrivals.is_empty(), |heard| heard.any) {
            inputs.push(Input::Heard);
        }
        for arrival in arrivals {
            match arrival {
                Ok(Message::Formed(mut formed)) => {
                    if let Some(secret) = &self.secret {
                        formed.secret = secret.of_epoch(formed.instance, formed.epoch);
                    }
                    inputs.push(Input::Received(Message::Formed(formed)));
                }
                Ok(message) => inputs.push(Input::Received(message)),
                Err((_, _, error)) => return (inputs, Some(ControlEnd::Garbage(error.0))),
            }
        }
        (inputs, heard.err())
    }

    /// The connection has ended. The brain decides what that means, unless it gave the connection up before.
    pub(crate) fn lose(&mut self, end: &ControlEnd, logger: &Logger) -> Option<Input> {
        let was_up = self.is_up();
        if let (ControlEnd::Refused(_), Stage::Up(link)) = (end, &mut self.stage) {
            end_after_refusal(&mut *link.transport);
        }
        self.stage = Stage::None;
        if !was_up {
            return None;
        }
        // A name may stand for several addresses, and another program may listen at this one.
        let reason = match self.met {
            Some((at, false)) if self.whereabouts.is_by_name() => format!("{} (at {at})", end.reason()),
            _ => end.reason().to_owned(),
        };
        if matches!(end, ControlEnd::Garbage(_)) {
            logger.warn(&format!("the connection to the scheduler is closed, and made anew: {reason}"));
        }
        Some(match end {
            ControlEnd::Strange(_) => Input::Strange(reason),
            ControlEnd::Refused(_) | ControlEnd::Encrypted(_) => Input::Refused(reason),
            _ => Input::Closed(reason),
        })
    }
}

#[cfg(test)]
#[path = "connection_test.rs"]
mod tests;
