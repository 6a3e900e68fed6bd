//! Two ends over the hardest link that there is, with certificates made for the test.

use super::*;
use crate::net::testlink::{tcp_pair, TestLink};
use crate::net::Poller;
use crate::tls::credentials::{self, Credentials};
use crate::tls::testing::{between, both, list, sessions, Files};
use crate::tls::{ciphers, names};
use rcgen::{SanType, SerialNumber};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::CipherSuiteCommon;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use rustls::{ProtocolVersion, SupportedCipherSuite, Tls13CipherSuite};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::SystemTime;

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

/// The next thing that this end reads, whatever it is. The other end goes on with what it has to say. One poller watches
/// both.
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
        // The end that reads must be able to speak, too: the handshake goes both ways.
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

/// Such a record is refused, whatever its bytes would mean as a length: the rest of it would never come.
#[test]
fn what_is_no_record_is_refused_at_once() {
    for word in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16GET / HTTP/1.1", b"\x16\x03\x03\xff\xff", b"\x00\x03\x03\x20\x00"]
    {
        let (mut one, other) = tcp_pair();
        let mut server = TlsTransport::new(other, Ok(both(&Files::new()).1));
        one.write(&[IoSlice::new(word)]).unwrap();
        let error = next(&mut server, None, &mut [0; 64]).unwrap_err();
        assert!(crate::net::is_refusal(&error), "{word:?}: {error}");
    }
}

/// A node may have many links, and few of them carry much at a time.
#[test]
fn a_link_holds_much_only_while_much_comes() {
    let files = Files::new();
    let (one, other) = tcp_pair();
    let (mut client, mut server) = ends(&files, one, other);
    let mut room = vec![0; 1 << 16];
    let mut send = |size: usize| {
        client.write(&[IoSlice::new(&vec![7; size])]).unwrap();
        let mut got = 0;
        while got < size {
            got += next(&mut server, Some(&mut client), &mut room).unwrap();
        }
        server.inbox.room()
    };
    assert!(send(64) < 16 << 10);
    assert_eq!(send(60 << 10), 128 << 10);
    assert_eq!(send(64), 128 << 10, "more may come");
    let after: Vec<usize> = (0..100).map(|_| send(64)).collect();
    assert!(after.last().unwrap() < &(16 << 10), "{after:?}");
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

/// A clock that is so many days ahead, or behind.
#[derive(Debug)]
struct Ahead(i64);

impl TimeProvider for Ahead {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = UnixTime::now().as_secs().checked_add_signed(self.0 * 24 * 60 * 60)?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// What the judge and the other end say, if the judge does not accept the other's certificate. The other does not know what
/// the judge knows of time and of revocation: a process that knows that its own certificate is not accepted does not start.
fn judged(judge: &Files, days: i64, other: &Files, judge_dials: bool) -> [String; 2] {
    let [judges, shows] = [judge, other].map(|files| credentials::read(&files.settings()).unwrap());
    let (mut client, mut server) =
        if judge_dials { (judges.client, shows.server) } else { (shows.client, judges.server) };
    let clock = Arc::new(Ahead(days));
    match judge_dials {
        true => Arc::make_mut(&mut client).time_provider = clock,
        false => Arc::make_mut(&mut server).time_provider = clock,
    }
    let (one, two) = tcp_pair();
    let (client, server) = sessions(client, server, names::nobody());
    let (mut client, mut server) = (TlsTransport::new(one, Ok(client)), TlsTransport::new(two, Ok(server)));
    let (judge, other) = if judge_dials { (&mut client, &mut server) } else { (&mut server, &mut client) };
    // Both write, so that the handshake of the end that is not read goes on, too.
    judge.write(&[IoSlice::new(b"hello")]).unwrap();
    other.write(&[IoSlice::new(b"hello")]).unwrap();
    let mut room = [0; 64];
    let at_other = next(other, Some(judge), &mut room).expect_err("it is not let in");
    let at_judge = next(judge, None, &mut room).expect_err("it does not go on");
    [at_judge, at_other].map(|error| error.to_string())
}

#[test]
fn both_sides_say_that_a_certificate_has_ended_or_not_begun_or_is_revoked() {
    let (judge, other) = (Files::new(), Files::new());
    let hour = Duration::from_secs(60 * 60);
    other.write("ca.pem", judge.ca.pem());
    for name in ["server", "client"] {
        let own = judge.node(name, |params| {
            params.not_before = (SystemTime::now() - hour).into();
            params.not_after = (SystemTime::now() + 240 * hour).into();
            params.serial_number = Some(SerialNumber::from_slice(&[7]));
        });
        other.write(&format!("{name}.pem"), own);
    }
    judge.configure(r#", "crl_path": "crl.pem""#);
    let ended = ["its certificate has expired", "it says that our certificate has expired, or is not valid yet"];
    let early = ["its certificate is not valid yet", ended[1]];
    let revoked = ["its certificate is revoked", "it says that our certificate is revoked"];
    for judge_dials in [true, false] {
        judge.write("crl.pem", list(&judge.ca, &[8], 90));
        assert_eq!(judged(&judge, 20, &other, judge_dials), ended);
        assert_eq!(judged(&judge, -1, &other, judge_dials), early);
        judge.write("crl.pem", list(&judge.ca, &[7], 90));
        assert_eq!(judged(&judge, 0, &other, judge_dials), revoked);
    }
}

/// Two ends over this link, of which the client has just refused the server: they have different CAs.
fn refusing<T: Transport>(client: T, server: T) -> (End<T>, End<T>) {
    let (ours, theirs) = (Files::new(), Files::of("another CA"));
    let mut client = TlsTransport::new(client, Ok(between(&ours, &theirs).0));
    let mut server = TlsTransport::new(server, Ok(between(&ours, &theirs).1));
    client.write(&[IoSlice::new(b"hello")]).unwrap();
    server.write(&[IoSlice::new(b"hello")]).unwrap(); // so that its handshake goes on while the client is read
    let foreign = next(&mut client, Some(&mut server), &mut [0; 64]).expect_err("it does not take it");
    assert!(crate::net::is_refusal(&foreign), "{foreign}");
    (client, server)
}

/// The alert arrives although the end that refuses still gets bytes, which it does not want.
#[test]
fn one_that_refuses_ends_its_direction_and_reads_on() {
    let (one, other) = tcp_pair();
    let ((mut client, mut server), mut room) = (refusing(one, other), [0; 64]);
    client.shutdown_write().unwrap();
    let unwanted = server.inner.write(&[IoSlice::new(&[0; 5000])]).unwrap();
    assert_eq!(unwanted, 5000);
    let error = next(&mut server, None, &mut room).unwrap_err();
    assert_eq!(error.to_string(), "it does not trust the CA that has signed our certificate");
    server.shutdown_write().unwrap();
    assert_eq!(next(&mut client, None, &mut room).unwrap(), 0, "it has read on to the end");
}

/// The hardest link accepts the alert byte by byte, and not at once.
#[test]
fn the_last_word_of_one_that_refuses_arrives_over_the_hardest_link() {
    for seed in 0..10 {
        let (one, other) = TestLink::pair(seed);
        let ((mut client, mut server), mut room) = (refusing(one, other), [0; 64]);
        let since = std::time::Instant::now();
        let heard = loop {
            let _ = client.shutdown_write(); // again while the link takes no more
            match server.read(&mut [IoSliceMut::new(&mut room)]) {
                Err(error) if would_block(&error) => assert!(since.elapsed() < LIMIT, "nothing comes"),
                heard => break heard.expect_err("it is not let in"),
            }
        };
        assert_eq!(heard.to_string(), "it does not trust the CA that has signed our certificate", "seed {seed}");
    }
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
    assert!(client.write(&[IoSlice::new(&block)]).is_err() && client.flush().is_err());
    assert_eq!(client.unsent(), 0);
}

/// An end that says its last word again and again, as a leaving node does, is done once the first word has gone.
#[test]
fn nothing_is_taken_after_the_end_of_a_direction() {
    let files = Files::new();
    let (one, other) = tcp_pair();
    let (mut client, mut server) = ends(&files, one, other);
    let mut room = [0; 64];
    client.write(&[IoSlice::new(b"the last word")]).unwrap();
    assert_eq!(next(&mut server, Some(&mut client), &mut room).unwrap(), 13);
    client.flush().unwrap();
    client.shutdown_write().unwrap();
    for _ in 0..2 {
        let error = client.write(&[IoSlice::new(b"the last word")]).unwrap_err();
        assert_eq!((error.kind(), client.shutdown_write().is_ok()), (ErrorKind::BrokenPipe, true));
    }
    assert_eq!(next(&mut server, None, &mut room).unwrap(), 0);
    let since = std::time::Instant::now();
    while client.unsent() > 1 {
        assert!(since.elapsed() < LIMIT, "{} bytes stay", client.unsent()); // the end itself counts for one
    }
}

#[test]
fn the_names_of_the_peers_certificate_are_known_once_it_has_shown_one() {
    let files = Files::new();
    files.write("client.pem", files.of_node("rank 3"));
    let (one, other) = tcp_pair();
    let (mut client, mut server) = ends(&files, one, other);
    assert_eq!((client.peer_names(), server.peer_names()), (Vec::new(), Vec::new()));
    client.write(&[IoSlice::new(b"hello")]).unwrap();
    next(&mut server, Some(&mut client), &mut [0; 64]).unwrap();
    assert_eq!(server.peer_names(), ["muster:node:rank%203"]);
    assert_eq!(client.peer_names(), Vec::<String>::new(), "a server's certificate without one");
}

/// What a client says that looks for this host, if the server's certificate has these names.
fn looks_for(host: &str, names: Vec<SanType>) -> io::Result<()> {
    let files = Files::new();
    files.write("server.pem", files.node("server", |params| params.subject_alt_names = names));
    let settings = files.settings_with([("MUSTER_VERIFY_HOST", "1")]);
    let Credentials { client, server, .. } = credentials::read(&settings).unwrap();
    let name = names::of_host(&settings, host).unwrap().expect("it is demanded");
    let (one, other) = tcp_pair();
    let (client, server) = sessions(client, server, name);
    let (mut client, mut server) = (TlsTransport::new(one, Ok(client)), TlsTransport::new(other, Ok(server)));
    server.write(&[IoSlice::new(b"hello")]).unwrap();
    next(&mut client, Some(&mut server), &mut [0; 64]).map(drop)
}

#[test]
fn the_certificate_of_a_scheduler_is_for_its_host_where_that_is_demanded() {
    let (name, address) = ("sched.example".try_into().unwrap(), "::1".parse().unwrap());
    let names = || vec![SanType::DnsName(Clone::clone(&name)), SanType::IpAddress(address)];
    for host in ["sched.example", "Sched.Example", "::1", "[::1]"] {
        looks_for(host, names()).unwrap_or_else(|error| panic!("{host}: {error}"));
    }
    for (host, shown) in [("other.example", "other.example"), ("127.0.0.1", "127.0.0.1"), ("::2", "::2")] {
        let error = looks_for(host, names()).unwrap_err();
        let start =
            format!("its certificate is not for the host {shown:?}, as is demanded here (verify_host): it is for ");
        assert!(error.to_string().starts_with(&start) && crate::net::is_refusal(&error), "{error}");
    }
    let error = looks_for("sched.example", Vec::new()).unwrap_err();
    assert!(error.to_string().ends_with("it has no host name and no address"), "{error}");
}

/// A suite of TLS 1.3 whose keys may seal so few records.
fn lowered(records: u64) -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(usual) = TLS13_AES_128_GCM_SHA256 else { panic!("it is of TLS 1.3") };
    let common = CipherSuiteCommon { confidentiality_limit: records, ..whole(&usual.common) };
    let suite =
        Tls13CipherSuite { common, hkdf_provider: usual.hkdf_provider, aead_alg: usual.aead_alg, quic: usual.quic };
    SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))
}

fn whole(common: &CipherSuiteCommon) -> CipherSuiteCommon {
    CipherSuiteCommon {
        suite: common.suite,
        hash_provider: common.hash_provider,
        confidentiality_limit: common.confidentiality_limit,
    }
}

/// A real limit is 2^24 records of 16 KiB, or more.
#[test]
fn a_link_outlives_its_ciphers_limit_in_both_directions() {
    const RECORDS: u64 = 10;
    const CHUNK: usize = 5000;
    let files = Files::new();
    let Credentials { mut client, mut server, .. } =
        credentials::read_with(&files.settings(), vec![lowered(RECORDS)]).unwrap();
    Arc::make_mut(&mut client).enable_secret_extraction = true;
    Arc::make_mut(&mut server).enable_secret_extraction = true;
    let (one, other) = tcp_pair();
    let (client, server) = sessions(client, server, names::nobody());
    let (mut client, mut server) = (TlsTransport::new(one, Ok(client)), TlsTransport::new(other, Ok(server)));
    let mut room = vec![0; CHUNK];
    for round in 0..20 * RECORDS {
        for is_reversed in [false, true] {
            let (from, into) = if is_reversed { (&mut server, &mut client) } else { (&mut client, &mut server) };
            let sent = vec![round as u8; CHUNK];
            let (mut taken, mut came) = (0, 0);
            while came < CHUNK {
                if taken < CHUNK {
                    taken += from.write(&[IoSlice::new(&sent[taken..])]).unwrap();
                }
                came += next(into, Some(from), &mut room[came..]).unwrap();
            }
            assert_eq!(room, sent);
        }
    }
    for end in [client, server] {
        let keys = end.session.ok().expect("it goes on").dangerous_extract_secrets().unwrap();
        for (sealed, _) in [keys.tx, keys.rx] {
            assert!(sealed <= RECORDS, "{sealed} records with the same key");
        }
    }
}

/// TLS 1.2 cannot change keys: there only suites are accepted whose keys last for ever.
#[test]
fn two_nodes_agree_on_the_newest_version_unless_one_of_them_allows_only_the_older() {
    let set = |version: &str| {
        let files = Files::new();
        let settings = match version {
            "" => files.settings(),
            version => files.settings_with([("MUSTER_TLS_VERSION", version)]),
        };
        (files, settings)
    };
    for (one, other, agreed) in [
        ("", "", Some(ProtocolVersion::TLSv1_3)),
        ("1.2", "", Some(ProtocolVersion::TLSv1_2)),
        ("", "1.2", Some(ProtocolVersion::TLSv1_2)),
        ("1.2", "1.2", Some(ProtocolVersion::TLSv1_2)),
        ("1.3", "", Some(ProtocolVersion::TLSv1_3)),
        ("1.2", "1.3", None),
        ("1.3", "1.2", None),
    ] {
        let ((ours, our_settings), (theirs, their_settings)) = (set(one), set(other));
        trust(&theirs, &ours);
        let client = credentials::read(&our_settings).unwrap().client;
        let server = credentials::read(&their_settings).unwrap().server;
        let (mut client, mut server) = sessions(client, server, names::nobody());
        assert_eq!(shake(&mut client, &mut server), agreed, "{one:?} and {other:?}");
        if agreed == Some(ProtocolVersion::TLSv1_2) {
            let suite = client.negotiated_cipher_suite().expect("they have agreed");
            let SupportedCipherSuite::Tls12(suite) = suite else { panic!("{suite:?} is not of TLS 1.2") };
            assert_eq!(suite.common.confidentiality_limit, u64::MAX, "{:?}", suite.common.suite);
        }
    }
}

/// Makes one side trust the other's CA, and be trusted.
fn trust(one: &Files, other: &Files) {
    one.write("ca.pem", other.ca.pem());
    one.write("server.pem", other.node("server", |_| ()));
    one.write("client.pem", other.node("client", |_| ()));
}

#[test]
fn whatever_the_cipher_list_names_two_nodes_agree_on_the_newest_version_or_not_at_all() {
    let list = |name: &str| {
        let files = Files::new();
        files.configure(&format!(r#", "cipher_list": "{name}""#));
        let settings = files.settings();
        (files, settings)
    };
    for one in ciphers::names() {
        for other in ciphers::names() {
            let ((ours, our_settings), (theirs, their_settings)) = (list(one), list(other));
            trust(&theirs, &ours);
            let client = credentials::read(&our_settings).unwrap().client;
            let server = credentials::read(&their_settings).unwrap().server;
            let (mut client, mut server) = sessions(client, server, names::nobody());
            let agreed = shake(&mut client, &mut server);
            assert!(agreed.is_none_or(|version| version == ProtocolVersion::TLSv1_3), "{one} and {other}: {agreed:?}");
            let both_newest = [one, other].iter().all(|name| name.starts_with("TLS_"));
            assert_eq!(agreed.is_none(), both_newest && one != other, "{one} and {other}");
        }
    }
}

/// A handshake without a link: the version, if both agree.
fn shake(client: &mut Connection, server: &mut Connection) -> Option<ProtocolVersion> {
    let carry = |from: &mut Connection, into: &mut Connection| {
        let mut bytes = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut bytes).unwrap();
        }
        let mut left = &bytes[..];
        while !left.is_empty() {
            into.read_tls(&mut left).unwrap();
            into.process_new_packets().ok()?;
        }
        Some(())
    };
    while client.is_handshaking() || server.is_handshaking() {
        carry(client, server)?;
        carry(server, client)?;
    }
    client.protocol_version()
}
