//! A disk that does not return from a sync: nobody waits for it without end.

use super::*;
use crate::runtime::scheduler::thread::SchedulerThread;
use crate::secret::Guard;
use crate::wire::Abort;

/// How long a disk is waited for in these tests: longer than a disk takes that returns.
const SHORT: Duration = Duration::from_millis(200);

/// Once the disk returns, a thread that was left behind in it ends: the journal is free again.
fn await_release(disk: &GatedDisk) -> Vec<u64> {
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        match kept(disk) {
            Ok(keys) => return keys,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_thread_whose_disk_does_not_return_is_left_behind_with_a_line() {
    let disk = GatedDisk::new();
    let mut writer = writer(&disk);
    writer.be_patient_for(SHORT);
    let before = disk.counts().syncs;
    disk.shut(true);
    writer.append(1, record(1, 10));
    disk.await_syncs(before + 1);
    let line = writer.finish().expect("a line");
    let words =
        "/memory/scheduler.journal: the disk has not returned for 200ms: what was written last may not be there";
    assert!(line.starts_with(words) && line.contains("left behind"), "{line}");
    drop(writer); // this waits no more
    let taken = kept(&disk).expect_err("that one still has the lock");
    assert!(taken.message().contains("another scheduler (pid "), "{taken}");
    disk.shut(false);
    assert_eq!(await_release(&disk), [1], "and ends when it returns");
}

/// A scheduler thread with one worker, which has joined; its disk stands still from now on, and the worker has set a key.
fn stalled(disk: &GatedDisk) -> (SchedulerThread, Node) {
    let mut serving =
        Serving::over(&settings(|_| ()), Guard::of(crate::net::unwrapped()), || Ok(Box::new(disk.clone()))).unwrap();
    serving.writer.as_mut().expect("with recovery").be_patient_for(SHORT);
    let scheduler = SchedulerThread::of(serving).unwrap();
    let mut node = Node::join(scheduler.addresses()[0], None);
    node.formed();
    let before = disk.counts().syncs;
    disk.shut(true);
    node.set(1);
    disk.await_syncs(before + 1);
    (scheduler, node)
}

#[test]
fn a_scheduler_ends_though_its_disk_does_not_return() {
    let ends: [fn(&SchedulerThread, &mut Node); 3] = [
        |scheduler, _| drop(scheduler.stop()),
        |_, node| node.say(&Message::Leave),
        |_, node| node.say(&Message::Abort(Abort { code: 1, reason: "enough".to_owned() })),
    ];
    for end in ends {
        let disk = GatedDisk::new();
        let (scheduler, mut node) = stalled(&disk);
        end(&scheduler, &mut node);
        drop(node); // nobody is left
        let error = scheduler.wait(Some(LIMIT)).expect("it ends").expect_err("its journal does not know so");
        assert_eq!(error.status(), Status::Journal);
        let words = "cannot write to /memory/scheduler.journal: the disk has not returned for 200ms";
        assert!(error.message().starts_with(words), "{error}");
        drop(scheduler);
        disk.shut(false);
        await_release(&disk); // the thread that was left behind has gone
    }
    // A scheduler whose nodes have left does not wait for long either.
    let disk = GatedDisk::new();
    let (scheduler, _node) = stalled(&disk);
    scheduler.vanish();
    drop(scheduler);
    disk.shut(false);
}
