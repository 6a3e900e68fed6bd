//! The addresses of the scheduler, as far as they are known. A name is looked up for each attempt to connect, on a
//! thread of its own: it may become known later than the node starts, and may stand for another address when the
//! scheduler comes back. Meanwhile the addresses from the last look-up are tried, because a node that has lost its
//! connection must be back soon. While no name service answers there are no others. If nobody is at an address any
//! more, an attempt hears nothing for seconds: then the name is looked up again and again.
//!
//! This waits for nothing. One lookup is under way at a time; an answer that comes after its attempt has ended counts
//! for the next. Tested below, against a name server by `tests/python/test_names.py`, and where a host's own name leads
//! to its loopback by `test_own_name.py`.

use crate::config::{Assignment, Settings};
use crate::error::Error;
use crate::net::resolve::{asks_nobody, with_port, Lookup};
use crate::runtime::scheduler::port;
use crate::runtime::state::node_state::NodeState;
use crate::types::Time;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How often a name is looked up while one attempt waits.
const AGAIN: Duration = Duration::from_secs(1);

/// Where a scheduler may be: at one host, at one of these ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Places {
    /// The scheduler is in this process, and listens there.
    Here(Vec<SocketAddr>),
    /// The scheduler is at this host.
    Host {
        /// By name or by address.
        host: String,
        /// At one of these ports.
        ports: Vec<u16>,
        /// Whether the job has ranks on other hosts, too, as far as it is known: they must find what this node finds.
        spans_hosts: bool,
    },
}

/// Where the scheduler may be, and how sentences name each place: where it listens, if it is in this process.
pub fn places(settings: &Settings, here: Option<&[SocketAddr]>) -> Result<(Places, Vec<String>), Error> {
    if let Some(addresses) = here {
        let own: Vec<SocketAddr> = addresses.iter().map(|address| port::connectable(*address)).collect();
        let name = own[0].to_string();
        return Ok((Places::Here(own), vec![name]));
    }
    let Assignment::Node { host, ports, .. } = &settings.assignment else {
        return Err(Error::config("a cluster of one has its own scheduler"));
    };
    let name = |port: &u16| if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let places = Places::Host { host: host.clone(), ports: ports.clone(), spans_hosts: settings.spans_hosts };
    Ok((places, ports.iter().map(name).collect()))
}

/// A function that is called from any thread when a lookup has ended.
pub type Announce = Arc<dyn Fn() + Send + Sync>;

/// Wakes the agent thread of a node, if the thread is still there: a lookup may outlast it.
pub(crate) fn waking(state: &Arc<NodeState>) -> Announce {
    let state = Arc::downgrade(state);
    Arc::new(move || {
        if let Some(state) = state.upgrade() {
            state.waker.wake();
        }
    })
}

/// What is known of the scheduler's addresses.
pub(crate) struct Whereabouts {
    places: Places,
    announce: Announce,
    lookup: Option<Lookup>,
    /// The addresses for which the host's name stood last.
    known: Vec<SocketAddr>,
    /// When the name is looked up again, if the attempt still waits then.
    again: Option<Time>,
}

impl Whereabouts {
    pub(crate) fn new(places: Places, announce: Announce) -> Whereabouts {
        Whereabouts { places, announce, lookup: None, known: Vec::new(), again: None }
    }

    /// Whether the scheduler's host is a name, which may stand for several addresses.
    pub(crate) fn is_by_name(&self) -> bool {
        matches!(&self.places, Places::Host { host, .. } if !asks_nobody(host))
    }

    /// Begins an attempt at this place. Returns the known addresses, and why there may be none, if that is known
    /// already.
    pub(crate) fn begin(&mut self, place: usize) -> (Vec<SocketAddr>, Option<String>) {
        if matches!(self.places, Places::Here(_)) {
            return (self.at(place), None);
        }
        // An answer that came while nobody waited counts, but the name is looked up anew.
        let _ = self.news(place);
        self.look_up();
        self.again = None;
        let reason = self.news(place).and_then(Result::err);
        (self.at(place), reason)
    }

    /// Looks a name up again if the attempt has waited for long enough. Returns the time to come again.
    pub(crate) fn look_again(&mut self, now: Time) -> Time {
        if !self.is_by_name() {
            return Time::NEVER;
        }
        if now >= *self.again.get_or_insert(now + AGAIN) {
            self.look_up();
            self.again = Some(now + AGAIN);
        }
        self.again.unwrap_or(Time::NEVER)
    }

    /// Begins a lookup, if none is under way.
    fn look_up(&mut self) {
        if let (Places::Host { host, .. }, None) = (&self.places, &self.lookup) {
            let announce = Arc::clone(&self.announce);
            self.lookup = Some(Lookup::start(host, move || announce()));
        }
    }

    /// The news of the lookup since this was last called: the addresses, or why there are none.
    pub(crate) fn news(&mut self, place: usize) -> Option<Result<Vec<SocketAddr>, String>> {
        let answer = self.lookup.as_mut()?.answer()?;
        self.lookup = None;
        Some(match answer {
            Ok(addresses) => {
                self.known = self.towards_others(addresses);
                Ok(self.at(place))
            }
            Err(error) => Err(error.message().to_owned()),
        })
    }

    fn towards_others(&self, found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        match &self.places {
            Places::Here(_) => found,
            Places::Host { host, spans_hosts, .. } => port::towards_others(*spans_hosts, host, found),
        }
    }

    /// The words about a lookup that has no answer yet.
    pub(crate) fn unanswered(&self) -> Option<String> {
        let Places::Host { host, .. } = &self.places else { return None };
        self.lookup.as_ref().map(|_| format!("cannot resolve host {host:?}: no answer from the name service in time"))
    }

    fn at(&self, place: usize) -> Vec<SocketAddr> {
        match &self.places {
            Places::Here(addresses) => addresses.clone(),
            Places::Host { ports, .. } => self.known.iter().map(|known| with_port(*known, ports[place])).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    fn host(host: &str, ports: Vec<u16>) -> Places {
        Places::Host { host: host.to_owned(), ports, spans_hosts: false }
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_known_at_once_at_each_port() {
        let places = host("10.0.0.1", vec![7000, 7001]);
        let mut whereabouts = Whereabouts::new(places, Arc::new(|| panic!("nobody was asked")));
        assert_eq!(whereabouts.begin(0), (vec![at("10.0.0.1:7000")], None));
        assert_eq!(whereabouts.begin(1), (vec![at("10.0.0.1:7001")], None));
        assert_eq!((whereabouts.news(1), whereabouts.unanswered()), (None, None));
        let mut here = Whereabouts::new(Places::Here(vec![at("127.0.0.1:7")]), Arc::new(|| ()));
        assert_eq!(here.begin(0), (vec![at("127.0.0.1:7")], None));
    }

    #[test]
    fn a_name_is_looked_up_for_each_attempt_and_announced() {
        let (announce, announced) = mpsc::channel();
        let places = host("localhost", vec![7000]);
        let announce = move || announce.send(()).expect("the test waits for it");
        let mut whereabouts = Whereabouts::new(places, Arc::new(announce));
        for _ in 0..2 {
            let (known, reason) = whereabouts.begin(0);
            assert!(known.iter().all(|address| address.ip().is_loopback()) && reason.is_none());
            announced.recv_timeout(Duration::from_secs(60)).unwrap();
            let found = whereabouts.news(0);
            // The lookup's answer may have come before the attempt had begun.
            assert!(found.is_none_or(|found| found.is_ok_and(|found| found[0].port() == 7000)));
            assert!(!whereabouts.known.is_empty());
        }
    }

    #[test]
    fn a_name_is_looked_up_again_each_second_while_an_attempt_waits() {
        let (announce, announced) = mpsc::channel();
        let places = host("localhost", vec![7000]);
        // The last lookup may be answered when the test has ended.
        let mut whereabouts = Whereabouts::new(places, Arc::new(move || announce.send(()).unwrap_or(())));
        let at = |ms| Time::default() + Duration::from_millis(ms);
        whereabouts.begin(0);
        for (now, next) in [(500, 1500), (1499, 1500), (1500, 2500), (2600, 3600)] {
            // The announcement may be of an answer that the attempt has heard already.
            while whereabouts.lookup.is_some() && whereabouts.news(0).is_none() {
                announced.recv_timeout(Duration::from_secs(60)).unwrap();
            }
            assert_eq!(whereabouts.look_again(at(now)), at(next));
            assert_eq!(whereabouts.lookup.is_some(), next > 1500, "at {now} ms");
        }
        for places in [host("10.0.0.1", vec![7]), Places::Here(vec!["127.0.0.1:7".parse().unwrap()])] {
            let mut fixed = Whereabouts::new(places, Arc::new(|| panic!("nobody was asked")));
            fixed.begin(0);
            assert_eq!((fixed.look_again(at(5000)), fixed.unanswered()), (Time::NEVER, None));
        }
    }

    #[test]
    fn what_was_known_is_tried_while_a_name_is_not_known_any_more() {
        let places = host("no-such-host.invalid", vec![7000]);
        let (announce, announced) = mpsc::channel();
        let mut whereabouts = Whereabouts::new(places, Arc::new(move || announce.send(()).unwrap_or_default()));
        whereabouts.known = vec![at("10.0.0.1:0")];
        assert_eq!(whereabouts.begin(0).0, [at("10.0.0.1:7000")]);
        announced.recv_timeout(Duration::from_secs(60)).unwrap();
        if let Some(said) = whereabouts.news(0) {
            assert!(said.unwrap_err().contains("no-such-host.invalid"));
        }
        assert_eq!(whereabouts.begin(0).0, [at("10.0.0.1:7000")]);
    }
}
