//! Two ends over the hardest link that there is, with certificates made for the test.

use super::*;
use crate::net::testlink::{tcp_pair, TestLink};
use crate::net::Poller;
use crate::tls::testing::{between, both, Files};
use std::io::ErrorKind;

const LIMIT: Duration = Duration::from_secs(60);

type End<T> = TlsTransport<T>;

fn ends<T: Transport>(files: &Files, client: T, server: T) -> (End<T>, End<T>) {
    let (client_session, server_session) = both(files);
    (TlsTransport::new(client, Ok(client_session)), TlsTransport::new(server, Ok(server_session)))
}

/// Sends these bytes from one end to the other, to the end; both go on as their poller tells them.
fn pass<T: Transport>(from: &mut End<T>, into: &mut End<T>, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut poller = Poller::new().unwrap();
    from.register(poller.registry(), Token(1))?;
    into.register(poller.registry(), Token(2))?;
    let (mut sent, mut shut, mut got) = (0, false, Vec::new());
    let mut room = vec![0; 7000];
    loop {
        let mut has_moved = false;
        while sent < bytes.len() {
            match from.write(&[IoSlice::new(&bytes[sent..])]) {
                Ok(count) => (sent, has_moved) = (sent + count, true),
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if sent == bytes.len() && !shut && from.flush().is_ok() && from.shutdown_write().is_ok() {
            (shut, has_moved) = (true, true);
        }
        loop {
            match into.read(&mut [IoSliceMut::new(&mut room)]) {
                Ok(0) => return Ok(got),
                Ok(count) => {
                    got.extend_from_slice(&room[..count]);
                    has_moved = true;
                }
                Err(error) if would_block(&error) && into.holds_readable() => has_moved = true,
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if !has_moved {
            poller.poll(Some(LIMIT))?;
            assert!(poller.ready().count() > 0, "both sleep: {sent} of {} sent, {} here", bytes.len(), got.len());
        }
    }
}

/// What this end reads next, whatever it is. The other end goes on with what it has to say. One poller watches both.
fn next<T: Transport>(reader: &mut End<T>, other: Option<&mut End<T>>, room: &mut [u8]) -> io::Result<usize> {
    let (mut poller, mut other) = (Poller::new().unwrap(), other);
    reader.register(poller.registry(), Token(1)).unwrap();
    other.iter_mut().for_each(|other| other.register(poller.registry(), Token(2)).unwrap());
    let read = loop {
        other.iter_mut().for_each(|other| drop(other.flush()));
        match reader.read(&mut [IoSliceMut::new(room)]) {
            Err(error) if would_block(&error) && reader.holds_readable() => {}
            Err(error) if would_block(&error) => {
                poller.poll(Some(LIMIT)).unwrap();
                assert!(poller.ready().count() > 0, "nothing comes");
            }
            read => break read,
        }
    };
    reader.deregister(poller.registry()).unwrap();
    other.iter_mut().for_each(|other| other.deregister(poller.registry()).unwrap());
    read
}

#[test]
fn what_goes_in_comes_out_over_the_hardest_link_in_both_directions() {
    let files = Files::new();
    let bytes: Vec<u8> = (0..20_000u32).map(|at| (at * 7) as u8).collect();
    for is_reversed in [false, true] {
        let (one, other) = TestLink::pair(42);
        let (mut client, mut server) = ends(&files, one, other);
        let (from, into) = if is_reversed { (&mut server, &mut client) } else { (&mut client, &mut server) };
        // The one that reads must be let speak, too: the handshake goes both ways.
        assert_eq!(pass(from, into, &bytes).unwrap(), bytes);
        assert!(from.is_intact());
    }
}

#[test]
fn much_more_than_is_held_goes_through() {
    let files = Files::new();
    let bytes: Vec<u8> = (0..8u32 << 20).map(|at| (at * 7) as u8).collect();
    let (one, other) = tcp_pair();
    let (mut client, mut server) = ends(&files, one, other);
    assert!(pass(&mut client, &mut server, &bytes).unwrap() == bytes);
}

#[test]
fn nothing_goes_out_in_clear_and_what_was_taken_is_held_until_the_handshake_is_over() {
    let files = Files::new();
    let (one, mut other) = tcp_pair();
    let mut client = TlsTransport::new(one, Ok(both(&files).0));
    let word = b"a word that nobody else may read";
    assert_eq!(client.write(&[IoSlice::new(word)]).unwrap(), word.len());
    assert_eq!(client.flush().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(client.unsent() >= word.len());
    let mut seen = vec![0; 1 << 16];
    let mut poller = Poller::new().unwrap();
    other.register(poller.registry(), Token(1)).unwrap();
    poller.poll(Some(LIMIT)).unwrap();
    let count = other.read(&mut [IoSliceMut::new(&mut seen)]).unwrap();
    assert!(!seen[..count].windows(word.len()).any(|bytes| bytes == word));
    // A stranger answers.
    other.write(&[IoSlice::new(b"HTTP/1.1 400 Bad Request\r\n\r\n")]).unwrap();
    let mut room = [0; 64];
    let error = next(&mut client, None, &mut room).unwrap_err();
    assert!(error.to_string().starts_with("it does not speak TLS"), "{error}");
    assert_eq!(client.write(&[IoSlice::new(word)]).unwrap_err().to_string(), error.to_string(), "it is of no more use");
}

#[test]
fn an_end_without_a_word_is_no_end_in_order() {
    let files = Files::new();
    let (one, other) = tcp_pair();
    let (mut client, mut server) = ends(&files, one, other);
    let mut room = [0; 64];
    client.write(&[IoSlice::new(b"hello")]).unwrap();
    let heard = next(&mut server, Some(&mut client), &mut room).unwrap();
    assert_eq!(&room[..heard], b"hello");
    client.inner.shutdown_write().unwrap();
    let error = next(&mut server, None, &mut room).unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::UnexpectedEof, "it ended without saying so".to_owned()));
}

/// What both ends say of a handshake that fails: the client finds it, and the server hears of it.
fn refused(client: &Files, server: &Files) -> [String; 2] {
    let (one, other) = tcp_pair();
    let (client_session, server_session) = between(client, server);
    let mut client = TlsTransport::new(one, Ok(client_session));
    let mut server = TlsTransport::new(other, Ok(server_session));
    let mut room = [0; 64];
    // It writes, so that its handshake goes on while the server is read.
    client.write(&[IoSlice::new(b"hello")]).unwrap();
    let at_server = next(&mut server, Some(&mut client), &mut room).expect_err("it is not let in");
    let at_client = next(&mut client, None, &mut room).expect_err("it does not go on");
    [at_client, at_server].map(|error| error.to_string())
}

#[test]
fn both_sides_say_why_a_certificate_is_not_taken() {
    let (ours, theirs) = (Files::new(), Files::of("another CA"));
    let foreign = "its certificate is not signed by the CA that is trusted here (ca_cert_path)";
    let alert = "it does not trust the CA that has signed our certificate";
    assert_eq!(refused(&ours, &theirs), [foreign, alert]);
    let feigned =
        "its certificate names the CA that is trusted here (ca_cert_path) as its signer, and is not signed by it";
    assert_eq!(refused(&ours, &Files::new()), [feigned, alert]);
}

/// The alert arrives although the one that refuses still gets bytes, which it does not want.
#[test]
fn one_that_refuses_ends_its_direction_and_reads_on() {
    let (ours, theirs) = (Files::new(), Files::of("another CA"));
    let (client, server) = tcp_pair();
    let mut client = TlsTransport::new(client, Ok(between(&ours, &theirs).0));
    let mut server = TlsTransport::new(server, Ok(between(&ours, &theirs).1));
    let mut room = [0; 64];
    client.write(&[IoSlice::new(b"hello")]).unwrap();
    server.write(&[IoSlice::new(b"hello")]).unwrap(); // so that its handshake goes on while the client is read
    let foreign = next(&mut client, Some(&mut server), &mut room).expect_err("it does not take it");
    assert!(crate::net::is_refusal(&foreign), "{foreign}");
    client.shutdown_write().unwrap();
    let unwanted = server.inner.write(&[IoSlice::new(&[0; 5000])]).unwrap();
    assert_eq!(unwanted, 5000);
    let error = next(&mut server, None, &mut room).unwrap_err();
    assert_eq!(error.to_string(), "it does not trust the CA that has signed our certificate");
    server.shutdown_write().unwrap();
    assert_eq!(next(&mut client, None, &mut room).unwrap(), 0, "it has read on to the end");
}

#[test]
fn what_cannot_go_out_any_more_is_not_unsent() {
    let files = Files::new();
    let (one, other) = tcp_pair();
    let (mut client, mut server) = ends(&files, one, other);
    client.write(&[IoSlice::new(b"hello")]).unwrap();
    let mut room = [0; 3];
    let heard = next(&mut server, Some(&mut client), &mut room).unwrap();
    assert_eq!((heard, server.holds_readable()), (3, true));
    drop(server);
    let since = std::time::Instant::now();
    let block = vec![1; 1 << 16];
    let error = loop {
        match client.write(&[IoSlice::new(&block)]).and_then(|_| client.flush()) {
            Err(error) if !would_block(&error) => break error,
            _ => assert!(since.elapsed() < LIMIT, "it takes more and more"),
        }
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
    assert_eq!(client.unsent(), 0);
}
