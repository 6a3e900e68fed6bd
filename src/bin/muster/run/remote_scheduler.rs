//! The scheduler on another host, as a launcher sees it that has none: whether anything listens at its address.
//!
//! The launcher there keeps the port for as long as a scheduler may come back. So where connections are refused for a
//! while the run is over, and a worker that was started again would wait in `muster_init` for nobody. Whatever else
//! goes wrong (no answer, a name that is not found) says nothing. (`restart_check.rs` asks it.) Tested below, and with
//! real processes by `tests/python/test_hosts.py`.

use muster::net::resolve;
use muster::wire::{encode_frame, Message, StatusQuery, PROTOCOL_HIGHEST, PROTOCOL_LOWEST};
use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long its port may refuse before the run counts as over.
pub const GONE_AFTER: Duration = Duration::from_secs(5);
/// How soon it is looked at again meanwhile.
pub const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How long one look may take.
const LOOK: Duration = Duration::from_millis(200);

/// See the module. Knows nothing yet.
#[derive(Default)]
pub struct Elsewhere {
    refused_since: Option<Duration>,
}

/// What was seen.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// Somebody listens, or that cannot be told.
    There,
    /// Connections are refused.
    Away,
    /// They have been for long.
    Gone,
}

impl Elsewhere {
    /// Somebody has looked; `now` is the time since the run began.
    pub fn seen(&mut self, refuses: bool, now: Duration) -> Seen {
        if !refuses {
            self.refused_since = None;
            return Seen::There;
        }
        let since = *self.refused_since.get_or_insert(now);
        match now.saturating_sub(since) >= GONE_AFTER {
            true => Seen::Gone,
            false => Seen::Away,
        }
    }
}

/// Whether connections to it are refused. Takes a moment.
pub fn refuses(host: &str, port: u16) -> bool {
    let Ok(addresses) = resolve::resolve(host, port, LOOK) else { return false };
    let refused = |address| match TcpStream::connect_timeout(address, LOOK) {
        Ok(connection) => {
            let _ = greet(connection); // it is there, whatever it makes of that
            false
        }
        Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
    };
    !addresses.is_empty() && addresses.iter().all(refused)
}

/// Says something that a scheduler does not take for a stranger's.
fn greet(mut connection: TcpStream) -> io::Result<()> {
    let query = StatusQuery { protocol_lowest: PROTOCOL_LOWEST, protocol_highest: PROTOCOL_HIGHEST };
    let (query, mut frame) = (Message::StatusQuery(query), Vec::new());
    encode_frame(query.kind(), 0, &query.encode(), &mut frame);
    connection.set_write_timeout(Some(LOOK))?;
    connection.write_all(&frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn who_refuses_for_long_is_gone_and_who_listens_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut elsewhere = Elsewhere::default();
        let mut look = |millis| elsewhere.seen(refuses("127.0.0.1", address.port()), Duration::from_millis(millis));
        assert_eq!(look(0), Seen::There);
        let mut said = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut said).unwrap();
        assert!(!said.is_empty(), "a scheduler would take it for a stranger");
        drop(listener);
        assert_eq!(look(1000), Seen::Away);
        assert_eq!(look(5999), Seen::Away);
        let back = TcpListener::bind(address).unwrap();
        assert_eq!(look(6000), Seen::There);
        drop(back);
        assert_eq!(look(7000), Seen::Away, "the time begins anew");
        assert_eq!(look(12_000), Seen::Gone);
    }

    #[test]
    fn a_name_that_leads_nowhere_says_nothing() {
        let mut elsewhere = Elsewhere::default();
        for now in [Duration::ZERO, 2 * GONE_AFTER] {
            assert_eq!(elsewhere.seen(refuses("no such host", 1), now), Seen::There);
        }
    }
}
