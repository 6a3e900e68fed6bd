//! Whole clusters in which the links of one rank damage what passes, or break although both ends live.

use super::cluster_test::{allreduce, node, one_cause, plain, scheduler, scheduler_over};
use crate::error::{Error, Status};
use crate::net::Wrap;
use crate::net::{Acknowledged, Registry, Signs, TcpTransport, Token, Transport};
use crate::runtime::collectives::queued_call::Work;
use crate::runtime::memory::buffer::CallBuffers;
use crate::runtime::node::cluster::Cluster;
use crate::runtime::scheduler::thread::SchedulerThread;
use crate::tls::testing::{wrapped, Files};
use crate::types::{Call, CallKind, DType, GroupId, ReduceOp};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Far less than the operations' own time-out, which is 60 s.
const SOON: Duration = Duration::from_secs(10);
/// Where the trouble is, in bytes received on a link: behind the handshake and the first frame's head.
const TROUBLE_AT: usize = 10_000;
const RANKS: u32 = 3;
/// The rank whose links make trouble.
const TROUBLED: u32 = 1;

#[derive(Clone, Copy)]
pub(crate) enum Trouble {
    /// One bit comes out wrong.
    Flip,
    /// Nothing comes any more; the other end sees that too, once this one has let go.
    Break,
    /// The reader finds a bug in this library.
    Panic,
}

pub(crate) struct Troubled {
    inner: TcpTransport,
    trouble: Trouble,
    received: usize,
}

impl Transport for Troubled {
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.received > TROUBLE_AT && matches!(self.trouble, Trouble::Break) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        assert!(
            self.received <= TROUBLE_AT || !matches!(self.trouble, Trouble::Panic),
            "the bug that this test plants"
        );
        let count = self.inner.read(buffers)?;
        let before = self.received;
        self.received += count;
        if matches!(self.trouble, Trouble::Flip) && (before..self.received).contains(&TROUBLE_AT) {
            let byte = buffers.iter_mut().flat_map(|buffer| buffer.iter_mut()).nth(TROUBLE_AT - before);
            *byte.expect("so many bytes were read") ^= 0x10;
        }
        Ok(count)
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.inner.write(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn holds_readable(&self) -> bool {
        self.inner.holds_readable()
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.inner.shutdown_write()
    }

    fn unsent(&self) -> usize {
        self.inner.unsent()
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.inner.register(registry, token)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.inner.deregister(registry)
    }

    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }

    fn descriptor(&self) -> std::os::fd::RawFd {
        self.inner.descriptor()
    }

    fn peer_address(&self) -> SocketAddr {
        self.inner.peer_address()
    }
}

impl Signs for Troubled {
    fn silence(&self) -> Option<Duration> {
        self.inner.silence()
    }

    fn acknowledged(&self) -> Acknowledged {
        self.inner.acknowledged()
    }

    fn ask_for_signs(&mut self, within: Duration) {
        self.inner.ask_for_signs(within);
    }

    fn send_again_evenly(&mut self) {
        self.inner.send_again_evenly();
    }

    fn bound_unsent(&mut self, bytes: u32) {
        self.inner.bound_unsent(bytes);
    }
}

/// What every rank is told when one has this trouble in the middle of an allreduce, and at its next call.
fn told(trouble: Trouble) -> Vec<Option<Error>> {
    told_by(trouble, sums)
}

/// How a node's sums end.
fn sums(cluster: &Cluster) -> Error {
    let world = cluster.group(GroupId::WORLD);
    let values = vec![1.0; 1 << 18];
    // A rank whose own part is done may hear of the trouble at its next call only.
    loop {
        if let Err(error) = allreduce(&world, &values) {
            break error;
        }
    }
}

/// What every rank is told, twice, when it works until that fails.
pub(crate) fn told_by(trouble: Trouble, work: impl Fn(&Cluster) -> Error + Sync) -> Vec<Option<Error>> {
    let wrap_of = |rank| -> Wrap {
        match rank {
            TROUBLED => Arc::new(move |inner, _| Box::new(Troubled { inner, trouble, received: 0 })),
            _ => plain(),
        }
    };
    told_over(scheduler(RANKS), wrap_of, work)
}

/// The same, with the connections of each rank wrapped so.
fn told_over(
    scheduler: SchedulerThread,
    wrap_of: impl Fn(u32) -> Wrap,
    work: impl Fn(&Cluster) -> Error + Sync,
) -> Vec<Option<Error>> {
    let before = Instant::now();
    let errors: Vec<[Error; 2]> = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..RANKS)
            .map(|rank| {
                let (scheduler, work, wrap) = (&scheduler, &work, wrap_of(rank));
                scope.spawn(move || {
                    let cluster = node(scheduler, RANKS, rank, wrap);
                    let errors = [(); 2].map(|()| work(&cluster));
                    cluster.finalize().unwrap();
                    errors
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    assert!(before.elapsed() < SOON, "it took {:?}", before.elapsed());
    errors.into_iter().flatten().map(Some).collect()
}

/// The same for requests, of which a second one waits behind the first.
fn told_in_requests(trouble: Trouble) -> Vec<Option<Error>> {
    told_by(trouble, |cluster| {
        let world = cluster.group(GroupId::WORLD);
        let call = Call {
            kind: CallKind::Allreduce,
            dtype: Some(DType::Uint8),
            op: Some(ReduceOp::Max),
            root: None,
            count: 1 << 20,
            layout: 0,
        };
        loop {
            // Requests outlive this, so their memory is given up.
            let memory = || CallBuffers::of(vec![1; 1 << 20].leak(), vec![0; 1 << 20].leak());
            let requests = [(); 2].map(|()| world.start(Work::plain(call, memory())));
            let outcomes = requests.map(|started| started.and_then(|it| it.wait(Some(SOON)).expect("it ends")));
            if let Some(Err(error)) = outcomes.into_iter().find(Result::is_err) {
                break error;
            }
        }
    })
}

#[test]
fn a_bug_of_ours_ends_the_group_for_all_and_nobody_waits_for_ever() {
    for told in [told(Trouble::Panic), told_in_requests(Trouble::Panic)] {
        let sentence = one_cause(told, Status::Internal);
        assert!(sentence.starts_with("rank 1 (node id \"1\""), "{sentence}");
        assert!(sentence.contains("cannot go on with allreduce #1 on world: a bug in this library"), "{sentence}");
    }
}

#[test]
fn damage_on_a_link_revokes_the_group_and_names_the_link() {
    let sentence = one_cause(told(Trouble::Flip), Status::Corrupt);
    assert!(sentence.contains("allreduce #1 on world: on the link to rank "), "{sentence}");
    assert!(sentence.contains("), as rank 1 (") && sentence.contains("a payload with a wrong checksum"), "{sentence}");
}

#[test]
fn two_that_live_and_cannot_reach_each_other_are_both_named() {
    let sentence = one_cause(told(Trouble::Break), Status::Link);
    assert!(sentence.contains("rank 1 (node id \"1\""), "{sentence}");
    assert!(sentence.contains("rank 0 (node id \"0\"") || sentence.contains("rank 2 (node id \"2\""), "{sentence}");
    assert!(sentence.contains("cannot reach each other although both live"), "{sentence}");
}

/// A record that is damaged is told as a payload is that is: the other end of the link hears why it has ended, and blames nobody.
#[test]
fn damage_under_tls_revokes_the_group_and_names_the_link() {
    let files = Arc::new(Files::new());
    let encrypted = |trouble: Option<Trouble>| -> Wrap {
        let files = Arc::clone(&files);
        Arc::new(move |inner, side| match trouble {
            Some(trouble) => wrapped(&files, Troubled { inner, trouble, received: 0 }, side),
            None => wrapped(&files, inner, side),
        })
    };
    let wrap_of = |rank| encrypted((rank == TROUBLED).then_some(Trouble::Flip));
    let sentence = one_cause(told_over(scheduler_over(RANKS, encrypted(None)), wrap_of, sums), Status::Corrupt);
    assert!(sentence.contains("allreduce #1 on world: on the link to rank "), "{sentence}");
    assert!(
        sentence.contains("), as rank 1 (") && sentence.contains("a TLS record was damaged on the way"),
        "{sentence}"
    );
}
