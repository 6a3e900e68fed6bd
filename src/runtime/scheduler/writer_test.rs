//! The writing thread by itself, and whole schedulers, over a disk whose syncs take as long as the test wants.

use super::*;
use crate::config::{Config, LogLevel};
use crate::journal::testdisk::MemoryDisk;
use crate::journal::{Appender, Disk, Journal, Locked};
use crate::membership::testing::{named, rules, Bench};
use crate::membership::Rules;
use crate::runtime::by_hand_test::Node;
use crate::runtime::scheduler::serving::Serving;
use crate::secret::Guard;
use crate::wire::{Blob, Message, Register, StoreOperation, StorePiece, StoreRecord};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

#[path = "stalled_test.rs"]
mod stalled;

const LIMIT: Duration = Duration::from_secs(60);

/// A disk on which the sync of a file waits while the gate is shut.
#[derive(Clone)]
struct GatedDisk {
    disk: MemoryDisk,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct GateState {
    shut: bool,
    /// How many syncs of files have begun, and how many writes.
    syncs: u64,
    writes: u64,
}

impl GatedDisk {
    fn new() -> GatedDisk {
        GatedDisk { disk: MemoryDisk::new(1), gate: Arc::default() }
    }

    /// The disk after the scheduler's machine has crashed.
    fn crash(&self) -> GatedDisk {
        GatedDisk { disk: self.disk.crash(), gate: Arc::default() }
    }

    fn counts(&self) -> GateState {
        *self.gate.state.lock().unwrap()
    }

    fn shut(&self, shut: bool) {
        self.gate.state.lock().unwrap().shut = shut;
        self.gate.changed.notify_all();
    }

    /// Waits until so many syncs have begun.
    fn await_syncs(&self, count: u64) {
        let state = self.gate.state.lock().unwrap();
        let waited = self.gate.changed.wait_timeout_while(state, LIMIT, |state| state.syncs < count).unwrap();
        assert!(!waited.1.timed_out(), "{} syncs have begun, and {count} are awaited", waited.0.syncs);
    }
}

impl Disk for GatedDisk {
    fn path(&self) -> &Path {
        self.disk.path()
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.disk.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Appender>> {
        Ok(Box::new(GatedFile { file: self.disk.create(name)?, gate: Arc::clone(&self.gate) }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.disk.names()
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn lock(&self, name: &str, owner: &str) -> io::Result<Locked> {
        self.disk.lock(name, owner)
    }
}

struct GatedFile {
    file: Box<dyn Appender>,
    gate: Arc<Gate>,
}

impl Appender for GatedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.gate.state.lock().unwrap().writes += 1;
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.gate.state.lock().unwrap();
        state.syncs += 1;
        self.gate.changed.notify_all();
        let waited = self.gate.changed.wait_timeout_while(state, LIMIT, |state| state.shut).unwrap();
        if waited.1.timed_out() {
            return Err(io::Error::other("the test has forgotten this sync"));
        }
        drop(waited);
        self.file.sync()
    }

    fn is_called(&self, name: &str) -> io::Result<bool> {
        self.file.is_called(name)
    }
}

fn settings(set: impl FnOnce(&mut Config)) -> Settings {
    let mut config = Config::new();
    for (key, value) in [
        ("sched_host", "127.0.0.1"),
        ("sched_port", "0"),
        ("worker_num", "1"),
        ("enable_recovery", "1"),
        ("recovery_path", "/memory"),
        ("node_timeout", "60"),
    ] {
        config.set(key, value).unwrap();
    }
    set(&mut config);
    config.scheduler_settings().unwrap()
}

fn begun(disk: &GatedDisk) -> Begun {
    begin(&settings(|_| ()), || Ok(Box::new(disk.clone()))).unwrap()
}

/// A scheduler over this disk on a thread of its own: the address where it listens, and the result.
fn serve(disk: &GatedDisk) -> (SocketAddr, JoinHandle<Result<()>>) {
    let serving =
        Serving::over(&settings(|_| ()), Guard::of(crate::net::unwrapped()), || Ok(Box::new(disk.clone()))).unwrap();
    (serving.addresses()[0], std::thread::spawn(move || serving.run()))
}

#[test]
fn a_slow_sync_does_not_stop_the_loop_and_what_depends_on_it_is_held_back() {
    let disk = GatedDisk::new();
    let (address, scheduler) = serve(&disk);
    let before = disk.counts().syncs;
    disk.shut(true);
    let mut node = Node::join(address, None);
    disk.await_syncs(before + 1);
    (0..5).for_each(|_| node.beat());
    assert!(node.told.is_empty(), "an epoch that is not durable is promised: {:?}", node.told);
    disk.shut(false);
    assert_eq!(node.formed().rank, 0);
    // The same holds for each other promise.
    let acts: [fn(&mut Node); 2] = [|node| node.set(1), |node| node.say(&Message::Leave)];
    for (act, answer) in acts.into_iter().zip([35, 9]) {
        let before = disk.counts().syncs;
        disk.shut(true);
        act(&mut node);
        disk.await_syncs(before + 1);
        if answer == 35 {
            (0..5).for_each(|_| node.beat());
        }
        assert!(node.told.is_empty(), "{:?}", node.told);
        disk.shut(false);
        assert_eq!(node.next_told().kind(), answer);
    }
    assert!(node.hear().is_none(), "then it is closed");
    drop(node);
    scheduler.join().unwrap().unwrap();
    let next = begun(&disk.crash());
    assert!(next.notes[0].contains("is done: a new one begins"), "{:?}", next.notes);
}

#[test]
fn what_comes_while_the_disk_is_busy_is_written_and_synced_at_once() {
    let disk = GatedDisk::new();
    let (address, scheduler) = serve(&disk);
    let mut node = Node::join(address, None);
    node.formed();
    let before = disk.counts();
    disk.shut(true);
    node.set(1);
    disk.await_syncs(before.syncs + 1);
    (2..=20).for_each(|request| node.set(request));
    node.beat();
    assert_eq!(disk.counts().syncs, before.syncs + 1, "all of them wait");
    assert!(node.told.is_empty(), "{:?}", node.told);
    disk.shut(false);
    for request in 1..=20 {
        let reply = node.reply();
        assert_eq!((reply.request, reply.status), (request, 0), "{reply:?}");
    }
    let after = disk.counts();
    assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (2, 2), "the first, and all others");
    node.say(&Message::Leave);
    while node.hear().is_some() {}
    drop(node);
    scheduler.join().unwrap().unwrap();
}

#[test]
fn a_sync_that_fails_ends_the_scheduler_and_is_never_tried_again() {
    let (disk, reason) = (GatedDisk::new(), io::Error::from_raw_os_error(libc::EIO));
    let (address, scheduler) = serve(&disk);
    let mut node = Node::join(address, None);
    let formed = node.formed();
    node.set(1);
    assert_eq!(node.reply().request, 1);
    disk.shut(true);
    disk.disk.fail_sync_after(0);
    let before = disk.counts();
    node.set(2);
    disk.await_syncs(before.syncs + 1);
    // These records wait for the next batch, which never comes.
    (3..=9).for_each(|request| node.set(request));
    node.beat();
    disk.shut(false);
    let error = scheduler.join().unwrap().expect_err("nothing is promised any more");
    assert_eq!(error.status(), Status::Journal);
    let words = format!("cannot sync /memory/scheduler.journal: {reason}: expected a disk that works");
    assert!(error.message().starts_with(&words), "{error}");
    assert_eq!(node.hear(), None, "nothing of it was acknowledged: {:?}", node.told);
    assert!(node.told.is_empty(), "{:?}", node.told);
    let after = disk.counts();
    assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (1, 1), "it has let it be");

    // What was acknowledged is there when the disk works again.
    let disk = disk.crash();
    let (address, scheduler) = serve(&disk);
    let mut node = Node::join(address, Some(&formed));
    assert_eq!(node.formed().generation, 2);
    node.say(&Message::InEpoch(crate::wire::InEpoch { epoch: formed.epoch }));
    node.ask(10, StoreOperation::TryGet, "key 1", b"");
    assert_eq!((node.reply().status, node.next_told()), (0, piece(10, &1u64.to_le_bytes())));
    node.ask(11, StoreOperation::TryGet, "key 9", b"");
    assert_eq!(node.reply().status, Status::NotFound.code());
    node.say(&Message::Leave);
    while node.hear().is_some() {}
    drop(node);
    scheduler.join().unwrap().unwrap();
}

fn piece(request: u64, bytes: &[u8]) -> Message {
    Message::StorePiece(StorePiece { request, bytes: Blob::new(bytes) })
}

#[test]
fn a_disk_that_fills_up_ends_the_scheduler_and_keeps_what_was_acknowledged() {
    let disk = GatedDisk::new();
    let (address, scheduler) = serve(&disk);
    let mut node = Node::join(address, None);
    let formed = node.formed();
    disk.disk.fill_after(1000);
    let mut acknowledged = 0;
    for request in 1..1000 {
        node.set(request);
        match node.hear() {
            Some(Message::StoreReply(reply)) => assert_eq!((reply.request, reply.status), (request, 0)),
            Some(other) => panic!("{other:?}"),
            None => break,
        }
        acknowledged = request;
    }
    assert!(acknowledged > 0, "some had room");
    let error = scheduler.join().unwrap().expect_err("the disk is full");
    assert_eq!(error.status(), Status::Journal);
    let words = "cannot write to /memory/scheduler.journal: No space left on device";
    assert!(error.message().starts_with(words) && error.message().contains("expected free space"), "{error}");

    let disk = disk.crash();
    let (address, scheduler) = serve(&disk);
    let mut node = Node::join(address, Some(&formed));
    node.formed();
    for request in 1..=acknowledged {
        node.ask(2000 + request, StoreOperation::TryGet, &format!("key {request}"), b"");
        assert_eq!(node.reply().status, 0, "key {request} of {acknowledged}");
        assert_eq!(node.next_told(), piece(2000 + request, &request.to_le_bytes()));
    }
    node.say(&Message::Leave);
    while node.hear().is_some() {}
    drop(node);
    scheduler.join().unwrap().unwrap();
}

// The thread by itself

fn writer(disk: &GatedDisk) -> Writer {
    Writer::start(begun(disk), Waker::new().unwrap(), Logger::new(LogLevel::Off, "test")).unwrap()
}

fn record(number: u64, bytes: usize) -> Record {
    Record::Store(StoreRecord {
        entries: vec![(number.to_le_bytes().to_vec(), Some(Blob::new(vec![7; bytes])))],
        by: None,
    })
}

/// The records that a journal holds that nobody else has open.
fn kept(disk: &GatedDisk) -> Result<Vec<u64>> {
    let key = |bytes: &[u8]| match Record::decode(bytes).expect("what was written can be read") {
        Record::Store(mut store) => Some(u64::from_le_bytes(store.entries.pop()?.0.try_into().ok()?)),
        _ => None,
    };
    Ok(Journal::open(Box::new(disk.clone()), 3)?.records.iter().filter_map(key).collect())
}

/// Waits for it.
fn until<T>(writer: &Writer, mut found: impl FnMut(Written) -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        if let Some(found) = found(writer.progress()) {
            return found;
        }
        assert!(std::time::Instant::now() < deadline, "the writer does not get there");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn all_that_was_given_is_written_before_it_ends() {
    let disk = GatedDisk::new();
    let writer = writer(&disk);
    let before = disk.counts().syncs;
    disk.shut(true);
    writer.append(1, record(1, 10));
    disk.await_syncs(before + 1);
    (2..=9).for_each(|number| writer.append(number, record(number, 10)));
    assert_eq!(writer.progress().durable, 0);
    let handover = Arc::clone(&writer.handover);
    let ending = std::thread::spawn(move || drop(writer));
    let deadline = std::time::Instant::now() + LIMIT;
    while handover.lock().stage == Stage::Open {
        assert!(std::time::Instant::now() < deadline, "it is not told to end");
        std::thread::sleep(Duration::from_millis(1));
    }
    disk.shut(false);
    ending.join().unwrap();
    assert_eq!(kept(&disk.crash()).unwrap(), Vec::from_iter(1..=9));
}

#[test]
fn a_journal_that_has_grown_long_is_said_to_be_once_until_it_is_rewritten() {
    let disk = GatedDisk::new();
    let writer = writer(&disk);
    let mut number = 0;
    for _ in 0..2 {
        let mut said = 0;
        for _ in 0..24 {
            number += 1;
            writer.append(number, record(number, 100_000));
            said += until(&writer, |progress| (progress.durable == number).then_some(u32::from(progress.is_long)));
        }
        said += u32::from(writer.progress().is_long);
        assert_eq!(said, 1);
        writer.rewrite(vec![record(number, 10)]);
        number += 1;
        writer.append(number, record(number, 10));
        until(&writer, |progress| (progress.durable == number).then_some(()));
        let length = disk.disk.bytes("scheduler.journal").len();
        assert!(length < 1000, "{length} bytes");
    }
    drop(writer);
    assert_eq!(kept(&disk.crash()).unwrap(), [number - 1, number]);
}

#[test]
fn a_failure_is_told_with_what_was_durable_before_and_nothing_is_written_after_it() {
    let disk = GatedDisk::new();
    let writer = writer(&disk);
    writer.append(1, record(1, 10));
    until(&writer, |progress| (progress.durable == 1).then_some(()));
    disk.disk.fail_sync_after(0);
    writer.append(2, record(2, 10));
    let error = until(&writer, |progress| progress.failed);
    let before = disk.counts();
    (3..=9).for_each(|number| writer.append(number, record(number, 10)));
    writer.rewrite(Vec::new());
    let progress = writer.progress();
    assert_eq!((progress.durable, progress.failed.as_ref()), (1, Some(&error)));
    drop(writer);
    let after = disk.counts();
    assert_eq!((after.writes, after.syncs), (before.writes, before.syncs));
}

#[test]
fn what_makes_no_sense_is_refused_with_its_offset() {
    let good = [Record::Left(0).encode(), vec![99], b"\x03".to_vec()];
    for (bytes, words) in good.iter().zip(["something happens before the first epoch", "unknown record 99", ""]) {
        let disk = GatedDisk::new();
        drop(begun(&disk));
        let mut journal = Journal::open(Box::new(disk.clone()), 5).unwrap().journal;
        journal.append(&[bytes]).unwrap();
        journal.sync().unwrap();
        drop(journal);
        for _ in 0..2 {
            let error = begin(&settings(|_| ()), || Ok(Box::new(disk.clone()))).err().expect("refused");
            assert_eq!(error.status(), Status::Journal);
            let file = disk.disk.bytes("scheduler.journal");
            let said = error.message().split_once("at offset ").expect("it says where").1;
            let offset: usize = said.split_once(": ").unwrap().0.parse().unwrap();
            // A record begins with its own offset, and 24 bytes later with what it says.
            assert_eq!(file[offset..offset + 8], (offset as u64).to_le_bytes());
            assert!(file[offset + 24..].starts_with(bytes) && said.contains(words), "{error}");
            assert!(error.message().starts_with("the journal /memory/scheduler.journal makes no sense"), "{error}");
        }
    }
}

// Which job it is

#[test]
fn a_job_goes_on_until_it_is_done_and_another_is_refused() {
    let disk = GatedDisk::new();
    let first = begun(&disk);
    let instance = first.instance;
    assert_eq!(first.records, [Record::Generation(1)]);
    drop(first);
    let again = begun(&disk);
    assert_eq!(again.instance, instance);
    assert_eq!(again.records.last(), Some(&Record::Generation(2)));
    drop(again);
    let other = settings(|config| config.set("worker_num", "2").unwrap());
    let error = begin(&other, || Ok(Box::new(disk.clone()))).err().expect("refused");
    assert_eq!(error.status(), Status::Journal);
    let words = "/memory/scheduler.journal belongs to another job that has not ended (no job id, 1 workers";
    assert!(error.message().contains(words), "{error}");
    let writer = writer(&disk);
    writer.append(1, Record::Done);
    drop(writer);
    let next = begin(&other, || Ok(Box::new(disk.clone()))).unwrap();
    assert_ne!(next.instance, instance);
    assert_eq!(next.records, [Record::Generation(1)]);
}

#[test]
fn a_job_that_all_nodes_have_left_is_done_though_nobody_wrote_so() {
    let durable = Rules { recovery: true, durable: true, ..rules(1, 0) };
    let mut bench = Bench::new(durable);
    bench.join(0, Register { recovery: true, ..named(0, 1, "0") });
    bench.say(0, Message::Leave);
    assert_eq!(bench.written.pop(), Some(Record::Done));
    assert_eq!(bench.written.pop(), Some(Record::Left(0)));
    let disk = GatedDisk::new();
    let instance = begun(&disk).instance;
    for (number, record) in (1..).zip(bench.written) {
        writer(&disk).append(number, record);
    }
    assert_eq!(begun(&disk).instance, instance, "its node may come back");
    writer(&disk).append(1, Record::Left(0));
    assert_ne!(begun(&disk).instance, instance);
}

#[test]
fn that_it_was_started_is_durable_before_a_scheduler_says_anything() {
    for seed in 0..20 {
        let disk = MemoryDisk::new(seed);
        let begun = |disk: &MemoryDisk| begin(&settings(|_| ()), || Ok(Box::new(disk.clone()))).unwrap();
        let first = begun(&disk);
        let again = begun(&disk.crash());
        assert_eq!(again.instance, first.instance, "seed {seed}");
        assert_eq!(again.records.last(), Some(&Record::Generation(2)), "seed {seed}");
    }
}
