//! One member of a group of four, whose peers and scheduler the test plays.

use super::*;
use crate::agent::{Command, Event};
use crate::config::LogLevel;
use crate::error::{Culprit, Error};
use crate::net::testlink::TestLink;
use crate::net::{Listener, TcpTransport, Transport};
use crate::runtime::base::clock::Clock;
use crate::runtime::base::interrupts::Attention;
use crate::runtime::base::log::Logger;
use crate::runtime::base::patience::VERDICT_WAIT;
use crate::runtime::base::sync::Bell;
use crate::runtime::collectives::queued_call::Work;
use crate::runtime::groups::group::Group;
use crate::runtime::groups::registry::Registry;
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::mesh::tests::formed;
use crate::runtime::links::peers::Mail;
use crate::runtime::memory::buffer::CallBuffers;
use crate::runtime::state::node_state::{AgentCommand, NodeState};
use crate::types::{Call, CallKind, DType, Epoch, GroupId, Process};
use crate::wire::{
    encode_frame, Agreed, Channel, DataHeader, Encoder, Formed, FrameHeader, LinkKind, LinkRevoke, Member, Members,
    Wire, COMPARED_WITHIN, PIECE_BYTES,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(in crate::runtime) const SOON: Duration = Duration::from_secs(60);
pub(in crate::runtime) const PEERS: [u32; 3] = [1, 2, 3];

/// The group, as rank 0; what it shares with its agent thread, which is not there; and its peers' ends of its links.
pub(in crate::runtime) struct Bench {
    pub group: Arc<Group>,
    pub state: Arc<NodeState>,
    pub registry: Arc<Registry>,
    pub peers: Vec<TcpStream>,
    links: Vec<TcpTransport>,
}

fn of_four() -> Formed {
    let two = formed(0, [([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into()]);
    let member = |rank: u32| {
        let process = Process { pid: 1 + rank, ..two.members[1].process };
        let member = Member::clone(&two.members[1]);
        Arc::new(Member { index: rank, rank, local_rank: rank, node_id: rank.to_string(), process, ..member })
    };
    Formed { local_size: 4, worker_num: 4, members: Members::new((0..4).map(member).collect()), ..two }
}

impl Bench {
    pub fn new() -> Bench {
        Bench::of(of_four(), false)
    }

    /// With this heartbeat time-out, in milliseconds.
    pub fn with_time_out(heartbeat_timeout_ms: u64, recovery: bool) -> Bench {
        let four = of_four();
        let agreed = Agreed { heartbeat_timeout_ms, ..four.agreed.clone() };
        Bench::of(Formed { agreed, ..four }, recovery)
    }

    fn of(formed: Formed, recovery: bool) -> Bench {
        let mut state = NodeState::new(Logger::new(LogLevel::Off, "test"), Clock::start(), Bell::new().unwrap());
        state.recovery = recovery;
        let state = Arc::new(state);
        let registry = Registry::new(&state);
        let group = Group::new(GroupId::WORLD, vec![0, 1, 2, 3], &state, &Arc::new(formed), 60_000).unwrap();
        let mut listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let address = listener.local_addresses()[0];
        let (mut peers, mut links) = (Vec::new(), Vec::new());
        for _ in PEERS {
            peers.push(TcpStream::connect(address).unwrap());
            let deadline = Instant::now() + SOON;
            let link = loop {
                match listener.accept() {
                    Ok((link, _)) => break link,
                    Err(error) => assert!(Instant::now() < deadline, "nobody comes: {error}"),
                }
            };
            links.push(link);
        }
        Bench { group: Arc::new(group), state, registry, peers, links }
    }

    /// Opens the links, each through a transport that passes so many bytes at a time; 0: as many as it likes.
    pub fn stand(&mut self, piece: usize) {
        for (rank, link) in PEERS.into_iter().zip(self.links.drain(..)) {
            let link: Box<dyn Transport> = match piece {
                0 => Box::new(link),
                piece => Box::new(TestLink::with_piece(link, u64::from(rank), piece)),
            };
            self.group.deliver(Channel::Collectives, Mail::Up(rank, link, Vec::new()));
        }
    }

    /// A broadcast from rank 3, which never comes.
    pub fn call(&self) -> Failure {
        self.broadcast(1)
    }

    /// A broadcast of so many bytes from rank 3.
    fn broadcast(&self, count: usize) -> Failure {
        let mut output = vec![0; count];
        let work = Work::plain(broadcast(count), CallBuffers::of(&[], &mut output));
        let error = self.group.run(work).expect_err("it is revoked");
        let failure = self.group.context.broken().expect("it is revoked");
        assert_eq!(error.status(), failure.status, "{error}");
        failure
    }

    /// Everything that a peer is told until the link's end.
    fn told(&mut self, rank: u32) -> Vec<u8> {
        let peer = &mut self.peers[rank as usize - 1];
        peer.set_read_timeout(Some(SOON)).unwrap();
        let mut bytes = Vec::new();
        match peer.read_to_end(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {} // what it had said itself was not read
            read => drop(read.expect("the link ends")),
        }
        bytes
    }
}

pub(in crate::runtime) fn broadcast(count: usize) -> Call {
    let (kind, dtype) = (CallKind::Broadcast, Some(DType::Uint8));
    Call { kind, dtype, op: None, root: Some(3), count: count as u64, layout: 0 }
}

/// Rank 3's part of its group's first collective, that broadcast.
fn broadcast_frame(count: usize) -> Vec<u8> {
    frame(DataHeader::of_first(broadcast(count)))
}

pub(in crate::runtime) fn frame(data: DataHeader) -> Vec<u8> {
    let length = data.call.count;
    let header = FrameHeader { kind: LinkKind::Data as u8, flags: 0, node: 0, length }.encode();
    let mut bytes = [&header[..], &data.encode()].concat();
    for piece in vec![7; length as usize].chunks(PIECE_BYTES) {
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(&crc32fast::hash(piece).to_le_bytes());
    }
    bytes
}

pub(in crate::runtime) fn cause(rank: u32) -> Failure {
    let cause = format!("rank {rank} gives up");
    Failure { status: Status::Timeout, culprit: None, cause, epoch: Epoch(1), group: Some(GroupId::WORLD), sequence: 1 }
}

pub(in crate::runtime) fn revoke(failure: Failure) -> Vec<u8> {
    let mut payload = Encoder::default();
    LinkRevoke { failure }.put(&mut payload);
    let mut frame = Vec::new();
    encode_frame(LinkKind::Revoke as u8, 0, &payload.bytes, &mut frame);
    frame
}

/// The ranks that revoke: the awaited peer, or others; one, or several, each for its own reason.
#[test]
fn a_revocation_that_is_heard_is_passed_on_once_over_each_link_and_told_to_the_scheduler_once() {
    for revokers in [&[3][..], &[1], &[1, 3], &[2, 1], &[1, 2, 3]] {
        for piece in [0, 7] {
            let mut bench = Bench::new();
            for rank in revokers {
                bench.peers[*rank as usize - 1].write_all(&revoke(cause(*rank))).unwrap();
            }
            bench.stand(piece);
            let first = bench.call();
            assert!(revokers.iter().any(|rank| first == cause(*rank)), "{first}");
            assert_eq!(bench.call(), first, "every later call, too");
            if piece > 0 {
                bench.group.shut(); // such a transport may keep the end of what is sent to itself
            }
            for rank in PEERS {
                let (told, word) = (bench.told(rank), revoke(first.clone()));
                // The last word is left out where a transport does not take it at once: then the link's end tells it.
                let is_once = if piece == 0 { told == word } else { word.starts_with(&told) };
                assert!(is_once, "{revokers:?}: rank {rank} was told {told:?}");
            }
            let commands = std::iter::from_fn(|| bench.state.next_command());
            // A call that has had to wait reports that, too.
            let told = commands.filter(|command| matches!(command, AgentCommand::Of(_, Command::Revoke(_))));
            let told: Vec<AgentCommand> = told.collect();
            let [AgentCommand::Of(Epoch(1), Command::Revoke(told))] = &told[..] else {
                panic!("{} revocations", told.len())
            };
            assert_eq!(*told, first);
        }
    }
}

#[test]
fn a_call_does_not_end_well_by_a_frame_behind_which_its_peer_has_given_up() {
    for (count, ended) in [1, 4 << 10, 32 << 10].into_iter().flat_map(|count| [(count, false), (count, true)]) {
        let mut bench = Bench::new();
        bench.peers[2].write_all(&[broadcast_frame(count), revoke(cause(3))].concat()).unwrap();
        if ended {
            bench.peers[2].shutdown(Shutdown::Write).unwrap();
        }
        bench.stand(0);
        if count >= 4 << 10 && !ended {
            // Nothing is read ahead behind such a frame, and no end tells of it: the next call hears it.
            let mut output = vec![0; count];
            bench.group.run(Work::plain(broadcast(count), CallBuffers::of(&[], &mut output))).expect("it is all there");
        } else {
            assert_eq!(bench.broadcast(count), cause(3), "{count}");
        }
        assert_eq!(bench.call(), cause(3), "{count}");
    }
}

#[test]
fn a_collective_that_cannot_begin_revokes_its_group_too() {
    let mut bench = Bench::new();
    bench.stand(0);
    // Its peer's frame is there, and behind it the second one's: so the links are known, and the driver waits for nobody.
    bench.peers[2].write_all(&broadcast_frame(1)).unwrap();
    let mut output = vec![0; 1];
    bench.group.run(Work::plain(broadcast(1), CallBuffers::of(&[], &mut output))).expect("it is all there");
    let no_thread = |_| Err(Error::system("cannot start a thread", &std::io::Error::from_raw_os_error(libc::EAGAIN)));
    let work = Work::plain(broadcast(1), CallBuffers::of(&[], vec![0; 1].leak()));
    let error = bench.group.collectives.start_on(work, no_thread).err().expect("there is no thread for it");
    let first = bench.group.context.broken().expect("it is revoked");
    assert_eq!((error.status(), first.status), (Status::System, Status::System), "{error}");
    let words = "cannot go on with broadcast #2 on world: cannot start a thread";
    assert!(first.cause.starts_with(words) && error.message().contains(words), "{error}");
    assert_eq!(first.culprit.as_ref().and_then(|culprit| culprit.rank), Some(0));
    for rank in PEERS {
        assert_eq!(bench.told(rank), revoke(first.clone()), "rank {rank}");
    }
    let commands = std::iter::from_fn(|| bench.state.next_command());
    assert!(commands.into_iter().any(|it| matches!(it, AgentCommand::Of(_, Command::Revoke(told)) if told == first)));
    assert_eq!(bench.call(), first, "every later call, too");
}

/// The failure that this rank is lost: as the scheduler's verdict, or as a peer believes.
fn own_loss(is_verdict: bool) -> Failure {
    let culprit = of_four().members[0].culprit();
    let cause = "is lost: it was silent for 1 s".to_owned();
    let group = (!is_verdict).then_some(GroupId::WORLD);
    Failure { status: Status::PeerLost, culprit: Some(culprit), cause, group, ..self::cause(3) }
}

/// What the agent's brain and the scheduler are told of it.
fn asked_for(state: &NodeState) -> (Vec<Failure>, Vec<Failure>) {
    let (mut called_lost, mut revoked) = (Vec::new(), Vec::new());
    for command in std::iter::from_fn(|| state.next_command()) {
        match command {
            AgentCommand::Of(Epoch(1), Command::CalledLost(failure)) => called_lost.push(failure),
            AgentCommand::Of(Epoch(1), Command::Revoke(failure)) => revoked.push(failure),
            _ => {}
        }
    }
    (called_lost, revoked)
}

/// The node does not call itself lost: it says that the others have given it up. The others keep what they said.
#[test]
fn a_rank_that_hears_over_a_link_of_its_own_loss_is_fenced_and_passes_the_news_on() {
    for (is_verdict, revoker) in [(true, 3), (true, 1), (false, 3), (false, 2)] {
        let heard = own_loss(is_verdict);
        let mut bench = Bench::new();
        bench.peers[revoker - 1].write_all(&revoke(heard.clone())).unwrap();
        bench.stand(0);
        let first = bench.call();
        assert_eq!((first.status, &first.culprit), (Status::Fenced, &heard.culprit), "{first}");
        assert_eq!(first.cause, format!("was taken for lost by the others: it {}", heard.cause));
        assert_eq!(bench.call(), first, "every later call, too");
        for rank in PEERS {
            assert_eq!(bench.told(rank), revoke(heard.clone()), "rank {rank}");
        }
        assert_eq!(asked_for(&bench.state), (vec![heard.clone()], vec![heard]));
    }
    // Another node's loss stays what it was, even that of a process that had this node's place before.
    for (pid, rank) in [(9, 0), (1, 1)] {
        let own = own_loss(true);
        let culprit = own.culprit.clone().map(|own| Culprit { pid, rank: Some(rank), ..own });
        let other = Failure { culprit, ..own };
        let mut bench = Bench::new();
        bench.peers[2].write_all(&revoke(other.clone())).unwrap();
        bench.stand(0);
        assert_eq!(bench.call(), other);
        assert_eq!(asked_for(&bench.state), (Vec::new(), vec![other]));
    }
}

#[test]
fn a_rank_that_hears_of_its_own_loss_in_a_message_or_from_the_scheduler_is_fenced_too() {
    let heard = own_loss(true);
    let mut bench = Bench::new();
    bench.peers[2].write_all(&revoke(heard.clone())).unwrap();
    let link = Box::new(bench.links.remove(2));
    bench.group.deliver(Channel::Messages, Mail::Up(3, link, Vec::new()));
    let deadline = Instant::now() + SOON;
    while bench.group.context.broken().is_none() {
        assert!(Instant::now() < deadline, "it hears nothing");
        std::thread::yield_now();
    }
    assert_eq!(bench.group.context.broken(), Some(heard.clone().to_the_lost()));
    assert_eq!(asked_for(&bench.state), (vec![heard.clone()], vec![heard]));
    bench.group.end_progress(cause(0));

    let bench = Bench::new();
    bench.state.learn(|view| view.epoch.formed = Some(Arc::new(of_four())));
    bench.state.file(Event::Revoked(own_loss(false)));
    assert_eq!(bench.call(), own_loss(false).to_the_lost());
}

/// An abort or a loss that comes later changes for nobody why a group is over.
#[test]
fn what_ends_the_cluster_later_is_not_why_a_group_is_over() {
    let aborted = Failure { status: Status::Aborted, group: None, ..cause(2) };
    for first in [cause(1), Failure { status: Status::Mismatch, ..cause(3) }, own_loss(false)] {
        let bench = Bench::new();
        bench.state.file(Event::Revoked(first.clone()));
        bench.state.file(Event::Broken(aborted.clone()));
        assert_eq!(bench.call(), first);
        // Word of the group comes too late when all is over.
        let bench = Bench::new();
        bench.state.file(Event::Broken(aborted.clone()));
        bench.state.file(Event::Revoked(first));
        assert_eq!(bench.call(), aborted);
    }
    // A wish for the next epoch is no cause.
    let bench = Bench::new();
    bench.state.file(Event::Revoked(Failure { status: Status::Revoked, ..cause(1) }));
    bench.state.file(Event::Broken(aborted.clone()));
    assert_eq!(bench.call(), aborted);
}

/// A node that is cut off may hear of its loss from nobody else: the others heard of it between two calls, and called
/// nothing since.
#[test]
fn a_rank_that_leaves_a_group_that_is_over_tells_its_peers_why_it_is_over() {
    let leave = crate::runtime::links::handshake::leave();
    let over = || Failure { status: Status::State, ..cause(0) };
    for failure in [Some(own_loss(false)), Some(cause(2)), None] {
        let mut bench = Bench::new();
        let last = bench.links.pop().unwrap();
        bench.stand(0);
        failure.iter().for_each(|failure| bench.registry.file(Event::Revoked(failure.clone())));
        bench.group.close(over(), &leave);
        bench.group.close(over(), &leave); // as where a group is freed, and then its cluster is left
        bench.group.shut();
        bench.group.deliver(Channel::Collectives, Mail::Up(3, Box::new(last), Vec::new()));
        for rank in PEERS {
            let word = failure.clone().map_or_else(|| leave.clone(), revoke);
            assert_eq!(bench.told(rank), word, "rank {rank} after {failure:?}");
        }
    }
}

/// What a rank finds out itself, by what rank 3 does.
#[derive(Clone, Copy, Debug)]
enum Found {
    Nothing,
    AnotherCall,
    AnotherPast,
    Damage,
    Leave,
    End,
    NoMemory,
    NoMeans,
    Bug,
}

impl Found {
    /// Plays a collective that finds this here, and not on a link.
    fn play(self, bench: &Bench) -> Failure {
        let state = &bench.state;
        let turn = bench.group.collectives.turns.take(Some((broadcast(1), state.clock.now())));
        let outcome = bench.group.collectives.in_turn(
            &turn,
            (broadcast(1), 0),
            (bench.group.context.time_limit(), &Attention::none()),
            |_, _| match self {
                Found::NoMemory => Err::<(), _>(Stop::Memory(7)),
                Found::NoMeans => Err(Stop::Failed(Error::new(Status::System, "no descriptor is left"))),
                _ => panic!("the bug that this test plants"),
            },
        );
        let failure = bench.group.context.broken().expect("it is revoked");
        assert_eq!(outcome, Err(failure.clone().into()));
        failure
    }
}

#[test]
fn a_rank_that_gives_up_for_its_own_reason_tells_its_peers_and_the_scheduler() {
    for (found, status) in [
        (Found::Nothing, Status::Timeout),
        (Found::AnotherCall, Status::Mismatch),
        (Found::AnotherPast, Status::Mismatch),
        (Found::Damage, Status::Corrupt),
        (Found::Leave, Status::PeerLeft),
        (Found::End, Status::PeerLost),
        (Found::NoMemory, Status::Memory),
        (Found::NoMeans, Status::System),
        (Found::Bug, Status::Internal),
    ] {
        let mut bench = Bench::new();
        let peer = &mut bench.peers[2];
        match found {
            Found::Nothing => bench.group.set_timeout_ms(50).unwrap(),
            Found::AnotherCall => peer.write_all(&broadcast_frame(2)).unwrap(),
            Found::AnotherPast => {
                peer.write_all(&frame(DataHeader { digest: 1, ..DataHeader::of_first(broadcast(1)) })).unwrap()
            }
            Found::Damage => {
                let mut bytes = broadcast_frame(1);
                *bytes.last_mut().unwrap() ^= 1;
                peer.write_all(&bytes).unwrap();
            }
            Found::Leave => peer.write_all(&crate::runtime::links::handshake::leave()).unwrap(),
            Found::End => peer.shutdown(Shutdown::Write).unwrap(),
            Found::NoMemory | Found::NoMeans | Found::Bug => {}
        }
        bench.stand(0);
        let first = match found {
            Found::NoMemory | Found::NoMeans | Found::Bug => found.play(&bench),
            _ => bench.call(),
        };
        assert_eq!(
            (first.status, first.group, first.sequence),
            (status, Some(GroupId::WORLD), 1),
            "{found:?}: {first}"
        );
        for rank in [1, 2] {
            assert_eq!(bench.told(rank), revoke(first.clone()), "{found:?}: rank {rank}");
        }
        let asked = std::iter::from_fn(|| bench.state.next_command()).filter_map(|asked| match asked {
            AgentCommand::Of(Epoch(1), Command::Revoke(told)) => Some(Ok(told)),
            AgentCommand::Of(Epoch(1), Command::Suspect { peer, .. }) => Some(Err(peer)),
            _ => None,
        });
        let mut asked: Vec<_> = asked.collect();
        asked.dedup(); // where the end was seen, and where it was needed
        let is_suspected = matches!(found, Found::End).then_some(Err(3));
        assert_eq!(asked, Vec::from_iter(is_suspected.into_iter().chain([Ok(first.clone())])), "{found:?}");
        assert_eq!(first.cause.contains("unconfirmed"), matches!(found, Found::End), "{first}");
        assert_eq!(bench.call(), first, "every later call, too");
    }
}

/// The rank finds the difference however long ago it was.
#[test]
fn a_frame_that_nobody_asked_for_is_told_with_what_this_rank_called_then() {
    for later in [0, 1, 254, 255] {
        let mut bench = Bench::new();
        bench.stand(0);
        bench.peers[2].write_all(&broadcast_frame(2)).unwrap();
        for count in 1..=1 + later {
            let call = Call { root: Some(0), ..broadcast(count) };
            let mut buffer = vec![0; count];
            bench.group.run(Work::plain(call, CallBuffers::of(&[], &mut buffer))).expect("a root waits for nobody");
        }
        let (own, other) = ("broadcast(count 1, uint8, root 0)", "broadcast(count 2, uint8, root 3)");
        let (Failure { cause: first, sequence, .. }, number) = (bench.call(), later + 2);
        assert_eq!(sequence, 1, "the one that was not the same");
        let known = first.contains(&format!(" called {own} as collective #1 on world, but rank 3 ("));
        let words = match later {
            255 => {
                let what = format!("a part of {other} as #1, for which it did not ask");
                format!("#{number} on world, but rank 3 (node id \"3\", host host, pid 4) has sent it {what}")
            }
            _ => format!(" called {other}"),
        };
        assert!(known == (later < 255) && first.ends_with(&words), "{first}");
    }
}

/// A peer is in a later call, or has called something else before. What it called then, only the scheduler can find out; without
/// it the sentence says what is known here.
#[test]
fn one_that_differs_under_a_number_that_is_past_is_compared_by_the_scheduler_first() {
    let later = DataHeader { sequence: 3, ..DataHeader::of_first(broadcast(2)) };
    let another_past = DataHeader { sequence: 2, digest: 1, ..DataHeader::of_first(broadcast(1)) };
    let is_further = "called something else then: it is in broadcast(count 2, uint8, root 3) as #3 already";
    let own_last = " called broadcast(count 1, uint8, root 3) as collective #2 on world, but their earlier calls differ: rank 0 (node id \"0\", \
                    host host, pid 1) called broadcast(count 1, uint8, root 0) as #1";
    for (heard, words) in [(later, is_further), (another_past, own_last)] {
        for compared in [true, false] {
            let mut bench = Bench::new();
            bench.peers[2].write_all(&frame(heard)).unwrap();
            bench.stand(0);
            let mut sent = [0];
            let first = Call { root: Some(0), ..broadcast(1) };
            bench.group.run(Work::plain(first, CallBuffers::of(&[], &mut sent))).expect("a root waits for nobody");
            std::thread::scope(|scope| {
                let call = scope.spawn(|| bench.call());
                let is_report = |asked| matches!(asked, Some(AgentCommand::Brain(Command::Report)));
                let asked_by = Instant::now() + SOON;
                while !is_report(bench.state.next_command()) {
                    assert!(Instant::now() < asked_by, "it does not ask");
                    std::thread::yield_now();
                }
                if compared {
                    bench.state.file(Event::Revoked(cause(1)));
                }
                let first = call.join().expect("the call does not panic");
                match compared {
                    true => assert_eq!(first, cause(1)),
                    false => assert!(first.status == Status::Mismatch && first.cause.ends_with(words), "{first}"),
                }
            });
        }
    }
}

/// The rank does not wait beyond its own time: others, whose time is up soon after, would then say so first, and blame
/// this rank. It does not wait at all for a scheduler that is away.
#[test]
fn what_was_called_before_is_not_waited_for_where_that_is_of_no_use() {
    for away in [false, true] {
        let soon_enough = (0..10).any(|_| {
            let mut bench = Bench::new();
            match away {
                true => bench.registry.file(Event::SchedulerAway(Some("it is gone".to_owned()))),
                false => bench.group.set_timeout_ms(50).unwrap(),
            }
            bench.peers[2].write_all(&frame(DataHeader { digest: 1, ..DataHeader::of_first(broadcast(1)) })).unwrap();
            bench.stand(0);
            let before = Instant::now();
            assert_eq!(bench.call().status, Status::Mismatch);
            before.elapsed() < COMPARED_WITHIN
        });
        assert!(soon_enough, "away: {away}: each waited for {COMPARED_WITHIN:?}");
    }
}

/// A peer that the scheduler does not reach may be waiting for this rank, which has nothing to do with the group any more.
#[test]
fn what_the_scheduler_says_is_passed_on_where_nobody_calls() {
    for group in [None, Some(GroupId::WORLD)] {
        let mut bench = Bench::new();
        let groups = bench.registry.form(&Arc::new(of_four()), 60_000).unwrap();
        bench.group = groups.into_iter().find(|group| group.id() == GroupId::WORLD).unwrap();
        bench.state.learn(|view| view.epoch.formed = Some(Arc::new(of_four())));
        bench.stand(0);
        let failure = Failure { group, ..cause(2) };
        bench.registry.file(if group.is_none() {
            Event::Broken(failure.clone())
        } else {
            Event::Revoked(failure.clone())
        });
        for rank in PEERS {
            assert_eq!(bench.told(rank), bench.group.context.last_word_of(&failure), "rank {rank}");
        }
    }
}

/// A link that is silent says nothing of its peer where this node may be the one that is cut off, of which it hears a little
/// later. A link that a peer's system has closed does, and with recovery nobody waits for more then.
#[test]
fn a_rank_that_is_cut_off_says_so_of_itself_and_not_of_the_peer_on_a_silent_link() {
    let words = || "nothing that was sent to it has been acknowledged for 1.2 s".to_owned();
    let own = of_four().members[0].culprit();
    let cut_off = Failure { status: Status::Unreachable, culprit: Some(own), group: None, ..cause(0) };
    for (recovery, end) in [
        (false, LinkEnd::Silent(words())),
        (true, LinkEnd::Silent(words())),
        (false, LinkEnd::Ended(words())),
        (true, LinkEnd::Ended(words())),
    ] {
        let bench = Bench::with_time_out(SOON.as_millis() as u64, recovery);
        bench.state.file(Event::SchedulerAway(Some("it is silent".to_owned())));
        let finds_out = !(recovery && matches!(end, LinkEnd::Ended(_)));
        bench.group.deliver(Channel::Collectives, Mail::Failed(3, end));
        let found = std::thread::scope(|scope| {
            let began = Instant::now();
            let call = scope.spawn(|| bench.call());
            if finds_out {
                std::thread::sleep(VERDICT_WAIT * 3); // longer than for the scheduler's word alone
                assert!(!call.is_finished(), "recovery: {recovery}: it does not wait for what it finds out");
                bench.state.file(Event::CutOff(Some(cut_off.clone())));
            }
            let found = call.join().expect("the call does not panic");
            assert!(began.elapsed() < SOON, "it waits for what it does not find out");
            found
        });
        match finds_out {
            true => assert_eq!(found, Failure { group: Some(GroupId::WORLD), ..cut_off.clone() }),
            false => assert!(found.status == Status::PeerLost && found.cause.contains("unconfirmed"), "{found}"),
        }
    }
}
