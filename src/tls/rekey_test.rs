//! Links under TLS 1.2, whose keys are used up soon.

use super::tests::{next, pass, End, LIMIT};
use super::*;
use crate::config::TlsSettings;
use crate::net::testlink::{tcp_pair, TestLink};
use crate::net::{Poller, Side};
use crate::tls::credentials;
use crate::tls::testing::{again, Files};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

fn old(files: &Files) -> TlsSettings {
    files.settings_with([("MUSTER_TLS_VERSION", "1.2")])
}

/// Two ends that speak TLS 1.2, and change their keys after so many records of one direction. Both count their sessions.
struct Old<T> {
    ends: [End<T>; 2],
    sessions: [Arc<AtomicUsize>; 2],
}

impl<T: Transport> Old<T> {
    fn new(files: &Files, records: u64, client: T, server: T) -> Old<T> {
        let settings = old(files);
        let sessions = [Arc::default(), Arc::default()];
        let end = |inner: T, side, count: &Arc<AtomicUsize>| {
            let (mut next, count) = (again(credentials::read(&settings).unwrap(), side), Arc::clone(count));
            let counted = move || {
                count.fetch_add(1, Relaxed);
                next()
            };
            let mut end = TlsTransport::new(inner, Box::new(counted));
            end.records_max = records;
            end
        };
        Old { ends: [end(client, Side::Client, &sessions[0]), end(server, Side::Server, &sessions[1])], sessions }
    }

    fn sessions(&self) -> [usize; 2] {
        [0, 1].map(|at| self.sessions[at].load(Relaxed))
    }
}

#[test]
fn a_link_outlives_its_keys_over_the_hardest_link_in_both_directions() {
    let files = Files::new();
    let bytes: Vec<u8> = (0..60_000u32).map(|at| (at * 7) as u8).collect();
    for is_reversed in [false, true] {
        let (one, other) = TestLink::pair(42);
        let mut link = Old::new(&files, 3, one, other);
        let [client, server] = &mut link.ends;
        let (from, into) = if is_reversed { (server, client) } else { (client, server) };
        assert!(pass(from, into, &bytes).unwrap() == bytes);
        let [clients, servers] = link.sessions();
        assert!(clients == servers && clients > 1, "{clients} and {servers} sessions");
    }
}

/// Both ends use up their keys at the same time, and neither reads before it has written all. What is on the way when the keys are
/// changed is larger than what a link holds.
#[test]
fn keys_are_changed_while_both_ends_write_and_neither_reads() {
    const BYTES: usize = 3 << 20;
    let files = Files::new();
    let (one, other) = tcp_pair();
    let mut link = Old::new(&files, 40, one, other);
    let mut poller = Poller::new().unwrap();
    for (at, end) in link.ends.iter_mut().enumerate() {
        end.register(poller.registry(), Token(at)).unwrap();
    }
    let sent: [Vec<u8>; 2] = [3, 5].map(|factor| (0..BYTES).map(|at| (at * factor) as u8).collect());
    let (mut taken, mut got) = ([0; 2], [Vec::new(), Vec::new()]);
    let mut room = vec![0; 1 << 16];
    while got.iter().any(|got| got.len() < BYTES) {
        let mut has_moved = false;
        for at in [0, 1] {
            let end = &mut link.ends[at];
            while taken[at] < BYTES {
                let until = BYTES.min(taken[at] + 10_000 + 7 * at);
                match end.write(&[IoSlice::new(&sent[at][taken[at]..until])]) {
                    Ok(count) => (taken[at], has_moved) = (taken[at] + count, true),
                    Err(error) if would_block(&error) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let has_written = taken[at] == BYTES && end.flush().is_ok();
            // A socket takes a part only: then both must read, as over TCP.
            while has_written || end.inner.unsent() > 1 << 20 {
                match end.read(&mut [IoSliceMut::new(&mut room)]) {
                    Ok(count) => {
                        got[at].extend_from_slice(&room[..count]);
                        has_moved = true;
                    }
                    Err(error) if would_block(&error) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        if !has_moved && !link.ends.iter().any(|end| end.holds_readable()) {
            poller.poll(Some(LIMIT)).unwrap();
            assert!(
                poller.ready().count() > 0,
                "both sleep: {taken:?} taken, {:?} here",
                [&got[0], &got[1]].map(Vec::len)
            );
        }
    }
    assert!(got[0] == sent[1] && got[1] == sent[0]);
    assert!(link.sessions().iter().all(|count| *count > 4), "{:?} sessions", link.sessions());
}

/// Sends so many records, so that the keys are used up.
fn use_up<T: Transport>(from: &mut End<T>, into: &mut End<T>, records: u64) {
    for _ in 0..records {
        assert_eq!(from.write(&[IoSlice::new(b"hello")]).unwrap(), 5);
        let mut room = [0; 5];
        assert_eq!(next(into, Some(from), &mut room).unwrap(), 5);
    }
}

/// A stranger on the way can end the connection where the session ends; he cannot say that this was meant.
#[test]
fn an_end_between_two_sessions_is_no_end_in_order() {
    let files = Files::new();
    for is_reversed in [false, true] {
        let (one, other) = tcp_pair();
        let mut link = Old::new(&files, 4, one, other);
        let [client, server] = &mut link.ends;
        let (from, into) = if is_reversed { (server, client) } else { (client, server) };
        use_up(from, into, 4);
        into.inner.shutdown_write().unwrap();
        let error = next(from, None, &mut [0; 64]).unwrap_err();
        assert_eq!((error.kind(), &error.to_string()[..]), (ErrorKind::UnexpectedEof, "it ended without saying so"));
    }
}

/// A certificate of the CA's is not enough to go on in the place of another process.
#[test]
fn nobody_else_goes_on_with_a_link() {
    let files = Files::new();
    for thief_dials in [false, true] {
        let (one, other) = tcp_pair();
        let Old { ends: [mut client, mut server], .. } = Old::new(&files, 4, one, other);
        use_up(&mut client, &mut server, 4);
        let (mut stays, mut goes) = if thief_dials { (server, client) } else { (client, server) };
        // It hears the end of the session, and says its own: there the thief takes over.
        let mut poller = Poller::new().unwrap();
        goes.register(poller.registry(), Token(1)).unwrap();
        while !goes.is_ended {
            stays.pass_on().unwrap();
            match goes.pull() {
                Err(error) if would_block(&error) => {
                    poller.poll(Some(LIMIT)).unwrap();
                    assert!(poller.ready().count() > 0, "nothing comes");
                }
                came => assert!(came.unwrap(), "the connection goes on"),
            }
        }
        goes.pass_on().unwrap();
        goes.deregister(poller.registry()).unwrap();
        let side = if thief_dials { Side::Client } else { Side::Server };
        let mut thief = TlsTransport::new(goes.inner, again(credentials::read(&old(&files)).unwrap(), side));
        thief.write(&[IoSlice::new(b"hello")]).unwrap();
        let error = next(&mut stays, Some(&mut thief), &mut [0; 64]).unwrap_err();
        assert!(crate::net::is_refusal(&error), "{error}");
        assert_eq!(error.to_string(), "it is not the process that this link led to before its keys were used up");
    }
}
