use super::super::link::end_of;
use super::*;
use crate::membership::testing::worker;
use crate::wire::{Register, StatusQuery};

const OTHER: u8 = 99;

fn session(secret: &str, side: Side, nonce: u8) -> Session {
    Session::new(Arc::new(JobSecret::new(secret.as_bytes())), side, [nonce; NONCE_BYTES])
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(kind, 0, payload, &mut bytes);
    bytes
}

/// A message of the control plane.
fn message() -> Vec<u8> {
    let message = Message::StatusQuery(StatusQuery { protocol_lowest: 1, protocol_highest: 1 });
    frame(message.kind(), &message.encode())
}

/// Passes on what one end has for the other, in pieces of this size.
fn pass(from: &mut Session, to: &mut Session, piece: usize) -> Result<(), Fault> {
    let bytes = std::mem::take(&mut from.outgoing);
    bytes.chunks(piece).try_for_each(|piece| to.heard(piece))
}

/// Both ends, after the dialler has said this.
fn talk(dialler: &mut Session, accepter: &mut Session, piece: usize) -> Result<(), Fault> {
    assert_eq!(dialler.take(&message()), message().len());
    pass(dialler, accepter, piece)?;
    pass(accepter, dialler, piece)?;
    pass(dialler, accepter, piece)
}

#[test]
fn both_sides_prove_themselves_before_a_byte_is_passed_on() {
    for piece in [1, 7, 1 << 20] {
        let (mut dialler, mut accepter) = (session("s", Side::Client, 1), session("s", Side::Server, 2));
        let answer = frame(OTHER, b"answer");
        assert_eq!(accepter.take(&answer), answer.len(), "what is written too early is held");
        dialler.take(&message());
        pass(&mut dialler, &mut accepter, piece).unwrap();
        assert!(accepter.readable.is_empty() && !accepter.outgoing.is_empty());
        assert!(end_of(&dialler).ends_with(": either it has just ended, or no secret is set there (job_secret)"));
        pass(&mut accepter, &mut dialler, piece).unwrap();
        assert!(dialler.writes_freely() && !dialler.reads_freely());
        assert_eq!(end_of(&dialler), "it ended the connection before it answered", "it has a secret, for it asked");
        pass(&mut dialler, &mut accepter, piece).unwrap();
        assert_eq!(accepter.readable, message());
        assert!(accepter.reads_freely() && accepter.writes_freely());
        pass(&mut accepter, &mut dialler, piece).unwrap();
        assert_eq!(dialler.readable, answer);
        assert!(dialler.reads_freely());
    }
}

#[test]
fn what_follows_the_first_message_is_as_it_was_written() {
    let (mut dialler, mut accepter) = (session("s", Side::Client, 1), session("s", Side::Server, 2));
    let (second, half) = (frame(OTHER, b"second"), &frame(OTHER, b"third")[..9]);
    dialler.take(&[&message()[..], &second, half].concat());
    pass(&mut dialler, &mut accepter, 5).unwrap();
    pass(&mut accepter, &mut dialler, 5).unwrap();
    assert!(dialler.writes_freely());
    // What follows the proof may be read together with it: no byte is lost, and the order stays.
    let bytes = std::mem::take(&mut dialler.outgoing);
    accepter.heard(&bytes).unwrap();
    assert_eq!(accepter.readable, [&message()[..], &second, half].concat());
}

#[test]
fn a_first_message_may_be_as_long_as_any() {
    // A scheduler's first message lists the members, of which there are up to a thousand.
    for length in [100 << 10, CONTROL_PAYLOAD_MAX as usize] {
        let (mut dialler, mut accepter) = (session("s", Side::Client, 1), session("s", Side::Server, 2));
        talk(&mut dialler, &mut accepter, 1 << 20).unwrap();
        let long = frame(OTHER, &vec![7; length]);
        assert_eq!(long.chunks(1000).map(|piece| accepter.take(piece)).sum::<usize>(), long.len());
        pass(&mut accepter, &mut dialler, 1 << 20).unwrap();
        assert!(dialler.readable == long, "{length}");
        let mut early = session("s", Side::Server, 2);
        assert_eq!(early.take(&long), HELD_MAX, "before the proof no more is held");
    }
}

#[test]
fn another_secret_is_refused_on_both_sides_and_nothing_is_passed_on() {
    let (mut dialler, mut accepter) = (session("theirs", Side::Client, 1), session("ours", Side::Server, 2));
    let why = talk(&mut dialler, &mut accepter, 1 << 20).unwrap_err();
    assert_eq!(why, refused("its job secret is another than the one that is set here (job_secret)"));
    assert!(accepter.readable.is_empty());
    pass(&mut accepter, &mut dialler, 3).unwrap();
    let (refusal, _) = peek_frame(&dialler.readable, 1 << 20).unwrap().unwrap();
    let Ok(Message::Rejected(rejected)) = Message::decode(refusal.header.kind, &refusal.payload) else {
        panic!("a refusal")
    };
    let reason =
        "the job's secret is another than that of the process that connects: MUSTER_JOB_SECRET (or MUSTER_JOB_SECRET_FILE) \
                  must be the same everywhere";
    assert_eq!(rejected.reason, reason);
    assert!(dialler.is_refused() && !dialler.reads_freely());
    dialler.readable.clear();
    dialler.heard(&message()).unwrap();
    assert!(dialler.readable.is_empty(), "nothing counts after a refusal");
}

/// A process that has taken the scheduler's port may turn others away. It cannot tell a member that its life is over.
#[test]
fn only_a_refusal_as_of_a_stranger_is_passed_on_without_a_proof() {
    let rejected = |status| {
        let message = Message::Rejected(Rejected { status, reason: "gone".to_owned() });
        frame(message.kind(), &message.encode())
    };
    let reject = |reason| {
        let mut payload = crate::wire::Encoder::default();
        LinkReject { reason }.put(&mut payload);
        frame(LinkKind::Reject as u8, &payload.bytes)
    };
    let pass_by = Message::PassBy(PassBy { reason: "another job's".to_owned() });
    let pass_by = frame(pass_by.kind(), &pass_by.encode());
    let may = [rejected(Status::Rejected), reject(LinkRejectReason::Stranger), pass_by];
    let may_not = [
        rejected(Status::Fenced),
        rejected(Status::Aborted),
        reject(LinkRejectReason::NoGroup),
        reject(LinkRejectReason::Duplicate),
        reject(LinkRejectReason::Crossing),
    ];
    for refusal in may.iter().chain(&may_not) {
        for is_challenged in [false, true] {
            let (mut dialler, mut accepter) = (session("s", Side::Client, 1), session("s", Side::Server, 2));
            dialler.take(&message());
            if is_challenged {
                pass(&mut dialler, &mut accepter, 1 << 20).unwrap();
                pass(&mut accepter, &mut dialler, 1 << 20).unwrap();
            }
            let heard = dialler.heard(refusal);
            let is_passed_on = may.contains(refusal);
            assert_eq!((dialler.is_refused(), &dialler.readable == refusal), (is_passed_on, is_passed_on));
            assert_eq!(heard.is_err(), !is_passed_on && !is_challenged, "its proof may follow a challenge");
        }
        // With its proof each is passed on.
        let (mut dialler, mut accepter) = (session("s", Side::Client, 1), session("s", Side::Server, 2));
        talk(&mut dialler, &mut accepter, 1 << 20).unwrap();
        accepter.take(refusal);
        pass(&mut accepter, &mut dialler, 1 << 20).unwrap();
        assert_eq!(&dialler.readable, refusal);
    }
}

#[test]
fn one_that_shows_no_secret_is_told_in_words_that_it_understands() {
    let mut accepter = session("s", Side::Server, 2);
    let why = accepter.heard(&message()).unwrap_err();
    assert_eq!(why, refused("it shows no job secret, and one is set here (job_secret)"));
    let (refusal, _) = peek_frame(&accepter.outgoing, 1 << 20).unwrap().unwrap();
    assert!(matches!(Message::decode(refusal.header.kind, &refusal.payload), Ok(Message::Rejected(_))));
    let mut accepter = session("s", Side::Server, 2);
    accepter.heard(&frame(LinkKind::Hello as u8, b"whatever")).unwrap_err();
    let (refusal, _) = peek_frame(&accepter.outgoing, 1 << 20).unwrap().unwrap();
    assert_eq!(refusal.header.kind, LinkKind::Reject as u8);
    let mut dialler = session("s", Side::Client, 1);
    let why = dialler.heard(&frame(OTHER, b"hello")).unwrap_err();
    assert_eq!(why, refused("it answers without a proof of the job secret: perhaps none is set there (job_secret)"));
}

#[test]
fn a_node_of_another_launchers_job_is_told_to_pass_by() {
    let register = |job: Option<&str>| {
        let register = Register { derived_job: job.map(str::to_owned), ..worker(1, 2) };
        let message = Message::Register(register);
        frame(message.kind(), &message.encode())
    };
    for (theirs, ours, passes_by) in [
        (Some("Slurm 7"), Some("Slurm 8"), true),
        (Some("Slurm 7"), None, true),
        (Some("Slurm 7"), Some("Slurm 7"), false),
        (None, Some("Slurm 8"), false),
    ] {
        for has_secret in [true, false] {
            let mut accepter = session("ours", Side::Server, 2).of_derived_job(ours);
            let mut dialler = session("theirs", Side::Client, 1);
            let answer = match has_secret {
                true => {
                    dialler.take(&register(theirs));
                    pass(&mut dialler, &mut accepter, 100).unwrap();
                    pass(&mut accepter, &mut dialler, 100).unwrap();
                    pass(&mut dialler, &mut accepter, 1 << 20).unwrap_err();
                    pass(&mut accepter, &mut dialler, 100).unwrap();
                    assert!(dialler.is_refused());
                    dialler.readable
                }
                false => {
                    accepter.heard(&register(theirs)).unwrap_err();
                    accepter.outgoing
                }
            };
            let (frame, _) = peek_frame(&answer, 1 << 20).unwrap().unwrap();
            let message = Message::decode(frame.header.kind, &frame.payload).unwrap();
            assert_eq!(matches!(message, Message::PassBy(_)), passes_by, "{theirs:?} at {ours:?}: {message:?}");
        }
    }
}

#[test]
fn what_is_no_frame_is_left_to_the_reader() {
    let mut accepter = session("s", Side::Server, 2);
    accepter.heard(b"GET / HTTP/1.1\r\n").unwrap();
    assert_eq!(accepter.readable, b"GET / HTTP/1.1\r\n");
    let mut accepter = session("s", Side::Server, 2);
    let huge = crate::wire::FrameHeader { kind: OTHER, flags: 0, node: 0, length: 1 << 40 }.encode();
    assert!(accepter.heard(&huge).is_err() && accepter.readable.is_empty());
}

/// What a dialler sent once is of no use later: the accepter's nonce is a new one.
#[test]
fn a_recording_is_of_no_use() {
    let (mut dialler, mut accepter) = (session("s", Side::Client, 1), session("s", Side::Server, 2));
    dialler.take(&message());
    let ask = dialler.outgoing.clone();
    pass(&mut dialler, &mut accepter, 1 << 20).unwrap();
    pass(&mut accepter, &mut dialler, 1 << 20).unwrap();
    let proof = dialler.outgoing.clone();
    accepter.heard(&proof).unwrap();
    let mut later = session("s", Side::Server, 3);
    later.heard(&ask).unwrap();
    assert!(later.heard(&proof).is_err() && later.readable.is_empty());
}

/// A link is proved under a key of its epoch and job instance, which none of the bytes on the wire shows.
#[test]
fn a_link_is_proved_under_a_key_of_its_epoch() {
    let secret = JobSecret::new(b"s");
    let hello = |instance: u8, epoch| {
        let (epoch, group, channel) =
            (crate::types::Epoch(epoch), crate::types::GroupId(0), crate::wire::Channel::Word);
        let mark = secret.of_epoch(crate::types::JobInstance([instance; 16]), epoch);
        let (proof, incarnation) = (mark.0[..16].try_into().unwrap(), crate::types::Incarnation([3; 16]));
        LinkHello { epoch, group, channel, from: 1, to: 0, incarnation, proof, features: 0 }
    };
    let shown = |hello: &LinkHello| {
        let mut payload = crate::wire::Encoder::default();
        hello.put(&mut payload);
        let (mut dialler, mut accepter) = (session("s", Side::Client, 1), session("s", Side::Server, 2));
        dialler.take(&frame(LinkKind::Hello as u8, &payload.bytes));
        pass(&mut dialler, &mut accepter, 1 << 20).unwrap();
        pass(&mut accepter, &mut dialler, 1 << 20).unwrap();
        let of_dialler = dialler.key.clone().unwrap();
        pass(&mut dialler, &mut accepter, 1 << 20).unwrap();
        let of_accepter = accepter.key.clone().unwrap();
        accepter.take(&frame(LinkKind::Accept as u8, b"accept"));
        pass(&mut accepter, &mut dialler, 1 << 20).unwrap();
        assert!(accepter.reads_freely() && dialler.reads_freely());
        assert!(dialler.key.is_none() && accepter.key.is_none(), "it is of no more use");
        let [one, other] = [of_dialler, of_accepter].map(|key| hmac::sign(&key, b"any").as_ref().to_vec());
        assert_eq!(one, other, "both sides have it");
        one
    };
    let [here, later, elsewhere] = [hello(7, 1), hello(7, 2), hello(8, 1)].map(|hello| shown(&hello));
    let of_job = hmac::sign(&secret.of_connection(), b"any");
    assert!(here != later && here != elsewhere && of_job.as_ref() != here, "each epoch of each job has its own");
}

/// Sending an accepter its own words, or those of another session with it, proves nothing.
#[test]
fn words_that_are_sent_back_prove_nothing() {
    // A dialler is answered by itself: its own first message, and its own MAC.
    let mut dialler = session("s", Side::Client, 1);
    dialler.take(&message());
    dialler.outgoing.clear();
    dialler.heard(&frame(PROOF_CHALLENGE, &[1; NONCE_BYTES])).unwrap();
    let own = std::mem::take(&mut dialler.outgoing);
    assert!(dialler.heard(&own).is_err() && dialler.readable.is_empty());
    // Two sessions at once: a MAC of the one does not serve in the other.
    let (mut one, mut first) = (session("s", Side::Client, 1), session("s", Side::Server, 2));
    let (mut two, mut second) = (session("s", Side::Client, 4), session("s", Side::Server, 5));
    for (dialler, accepter) in [(&mut one, &mut first), (&mut two, &mut second)] {
        dialler.take(&message());
        pass(dialler, accepter, 1 << 20).unwrap();
        pass(accepter, dialler, 1 << 20).unwrap();
    }
    assert!(second.heard(&one.outgoing).is_err() && second.readable.is_empty());
}

/// Each bit of the first message, of its MAC, and of both nonces counts.
#[test]
fn a_changed_bit_is_noticed() {
    let bytes = {
        let (mut dialler, mut accepter) = (session("s", Side::Client, 1), session("s", Side::Server, 2));
        dialler.take(&message());
        pass(&mut dialler, &mut accepter, 1 << 20).unwrap();
        pass(&mut accepter, &mut dialler, 1 << 20).unwrap();
        dialler.outgoing
    };
    // The payload is changed, and its checksum made right again, as an attacker on the way would do it.
    let (mut payload, length) = {
        let (frame, length) = peek_frame(&bytes, 1 << 20).unwrap().unwrap();
        (frame.payload.into_owned(), length)
    };
    let kind = bytes[5];
    for at in 0..payload.len() {
        payload[at] ^= 4;
        let mut accepter = session("s", Side::Server, 2);
        accepter.heard(&frame(PROOF_ASK, &[1; NONCE_BYTES])).unwrap();
        let changed = [&frame(kind, &payload)[..], &bytes[length..]].concat();
        assert!(accepter.heard(&changed).is_err() && accepter.readable.is_empty(), "byte {at}");
        payload[at] ^= 4;
    }
    let mut accepter = session("s", Side::Server, 2);
    accepter.heard(&frame(PROOF_ASK, &[9; NONCE_BYTES])).unwrap();
    assert!(accepter.heard(&bytes).is_err(), "another nonce of the dialler's");
}

#[test]
fn an_accepters_answer_belongs_to_this_question() {
    let answer = frame(OTHER, b"answer");
    let (mut one, mut accepter) = (session("s", Side::Client, 1), session("s", Side::Server, 2));
    accepter.take(&answer);
    talk(&mut one, &mut accepter, 1 << 20).unwrap();
    let proved = accepter.outgoing.clone();
    // The same nonces, another first message: the accepter's MAC covers what it answers to.
    let mut other = session("s", Side::Client, 1);
    other.take(&frame(OTHER, b"another question"));
    other.heard(&frame(PROOF_CHALLENGE, &[2; NONCE_BYTES])).unwrap();
    assert!(other.heard(&proved).is_err() && other.readable.is_empty());
    one.heard(&proved).unwrap();
    assert_eq!(one.readable, answer);
}

#[test]
fn tokens_are_hidden_and_shown_again() {
    let secret = JobSecret::new(b"s");
    let clear = [crate::types::Token([7; 32]), crate::types::Token([7; 32])];
    let mut tokens = clear.clone();
    let life = crate::types::Incarnation([3; 16]);
    secret.mask(life, &mut tokens);
    assert!(tokens[0] != clear[0] && tokens[1] != clear[1] && tokens[0] != tokens[1]);
    secret.mask(life, &mut tokens);
    assert!(tokens == clear);
    let (one, two) = (crate::types::JobInstance([1; 16]), crate::types::JobInstance([2; 16]));
    let (first, second) = (crate::types::Epoch(1), crate::types::Epoch(2));
    assert!(secret.of_epoch(one, first) != secret.of_epoch(one, second));
    assert!(secret.of_epoch(one, first) != secret.of_epoch(two, first));
    assert!(secret.of_epoch(one, first) != JobSecret::new(b"t").of_epoch(one, first));
}
