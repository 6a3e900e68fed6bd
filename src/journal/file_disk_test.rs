use super::*;
use crate::error::Status;
use crate::journal::{Entry, Identity, Journal};
use crate::net::fork::Guarded;
use crate::net::host::user;
use crate::net::testfork::ForkedChild;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Long enough for a child on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of its own for a test, gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("muster-journal-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn recovery(&self) -> PathBuf {
        self.0.join("recovery")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens a file as the runtime does: children that are forked by other tests must not hold these tests' locks.
fn guarded(open: &mut dyn FnMut() -> io::Result<File>) -> io::Result<Kept> {
    Ok(Box::new(Guarded::create(open)?))
}

/// Opens a file without the fork table.
fn plain(open: &mut dyn FnMut() -> io::Result<File>) -> io::Result<Kept> {
    Ok(Box::new(Box::new(open()?)))
}

fn disk(path: &Path) -> FileDisk {
    FileDisk::open(path, guarded, user()).unwrap()
}

fn open(path: &Path) -> Result<Journal> {
    Ok(Journal::open(Box::new(disk(path)), 1)?.journal)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A directory that was removed is made again, with the lock in it: no second scheduler can take the journal.
#[test]
fn a_journal_goes_on_where_its_directory_was_removed() {
    let folder = Folder::new("removed");
    let path = folder.recovery();
    let mut journal = open(&path).unwrap();
    fs::remove_dir_all(&path).unwrap();
    journal.append(&[b"one"]).unwrap();
    journal.sync().unwrap();
    assert!(journal.is_displaced());
    journal.rewrite([b"one"]).unwrap();
    assert_eq!(mode(&path), 0o700);
    let error = open(&path).err().expect("it is locked");
    assert!(error.message().contains(&format!("another scheduler (pid {})", std::process::id())), "{error}");
    drop(journal);
    let opened = Journal::open(Box::new(disk(&path)), 1).unwrap();
    assert_eq!(opened.records.iter().collect::<Vec<_>>(), [b"one"]);
}

#[test]
fn a_journal_lives_on_a_real_disk() {
    let folder = Folder::new("life");
    let path = folder.recovery();
    let mut journal = open(&path).unwrap();
    journal.append(&[&b"one"[..], b""]).unwrap();
    journal.sync().unwrap();
    journal.rewrite([b"sum"]).unwrap();
    journal.append(&[b"two"]).unwrap();
    journal.sync().unwrap();
    drop(journal);
    let file = OpenOptions::new().append(true).open(path.join("scheduler.journal")).unwrap();
    (&file).write_all(&[0; 100]).unwrap();
    fs::write(path.join("scheduler.journal.new"), "left over").unwrap();

    let mut opened = Journal::open(Box::new(disk(&path)), 2).unwrap();
    assert_eq!(opened.records.iter().collect::<Vec<_>>(), [b"sum", b"two"]);
    assert!(opened.note.unwrap().contains("100 bytes"));
    assert!(!path.join("scheduler.journal.new").exists());
    for _ in 0..5 {
        opened.journal.archive().unwrap();
    }
    let mut names = disk(&path).names().unwrap();
    names.sort();
    let expected = ["", ".3", ".4", ".5"].map(|end| format!("scheduler.journal{end}"));
    assert_eq!(names, [&expected[..], &["scheduler.lock".to_owned()]].concat());
    drop(opened.journal);
    let opened = Journal::open(Box::new(disk(&path)), 3).unwrap();
    assert!(opened.records.is_empty() && opened.note.is_none());
}

#[test]
fn directories_and_files_are_the_users_alone() {
    let folder = Folder::new("modes");
    let path = folder.recovery().join("deeper");
    drop(open(&path).unwrap());
    let own = Entry { next: Some([1; 32]), ..Entry::default() };
    let identity = Identity { node_id: "0".into(), own, aside: Vec::new() };
    identity.store(&disk(&path)).unwrap();
    assert_eq!((mode(&folder.recovery()), mode(&path)), (0o700, 0o700));
    let files: Vec<PathBuf> = disk(&path).names().unwrap().iter().map(|name| path.join(name)).collect();
    assert_eq!(files.len(), 3);
    for file in &files {
        assert_eq!(mode(file), 0o600, "{file:?}");
        fs::set_permissions(file, Permissions::from_mode(0o664)).unwrap();
    }
    drop(open(&path).unwrap());
    assert_eq!(Identity::load(&disk(&path), "0").unwrap(), Some(identity));
    for file in &files {
        assert_eq!(mode(file), 0o600, "{file:?} is mended");
    }
}

#[test]
fn what_is_no_directory_is_refused_in_words() {
    let folder = Folder::new("no-directory");
    fs::write(folder.recovery(), "").unwrap();
    for path in [folder.recovery(), folder.recovery().join("deeper")] {
        let error = FileDisk::open(&path, guarded, user()).err().unwrap();
        assert_eq!(error.status(), Status::Journal);
        assert!(error.message().starts_with(&format!("cannot make the directory {}", path.display())), "{error}");
        assert!(
            error.message().ends_with("expected the recovery path (MS_RECOVERY_PATH) to be a directory"),
            "{error}"
        );
    }
}

/// That a file of the same name was made in the same moment says nothing about the directory.
#[test]
fn a_file_that_is_there_already_says_nothing_about_the_directory() {
    let folder = Folder::new("exists");
    let disk = disk(&folder.recovery());
    fs::create_dir(folder.recovery().join("a")).unwrap();
    let exists = fs::create_dir(folder.recovery().join("a")).unwrap_err();
    let error = refused("create", &disk.path().join("a"), &exists);
    assert!(error.message().ends_with("File exists (os error 17)"), "{error}");
}

#[test]
fn one_start_of_a_node_at_a_time_reads_and_writes_its_file() {
    let folder = Folder::new("starts");
    let (one, other) = (disk(&folder.recovery()), disk(&folder.recovery()));
    let held = Identity::lock(&one, "0").unwrap();
    assert!(
        matches!(Identity::lock(&other, "0").unwrap(), Locked::Taken(by) if by == format!("{}\n", std::process::id()))
    );
    assert!(matches!(Identity::lock(&other, "1").unwrap(), Locked::Held(_)), "another node is not kept from starting");
    drop(held);
    assert!(matches!(Identity::lock(&other, "0").unwrap(), Locked::Held(_)));
}

#[test]
fn symbolic_links_are_not_followed() {
    for name in ["scheduler.journal", "scheduler.lock"] {
        let folder = Folder::new(&format!("link-{name}"));
        let (path, target) = (folder.recovery(), folder.0.join("target"));
        drop(open(&path).unwrap());
        fs::rename(path.join(name), &target).unwrap();
        symlink(&target, path.join(name)).unwrap();
        let error = open(&path).err().unwrap();
        assert_eq!(error.status(), Status::Journal);
        assert!(error.message().contains(name) && error.message().ends_with("are not followed"), "{error}");
    }
}

/// Nobody waits for a pipe's other end, nor reads from it.
#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    for name in ["scheduler.journal", "scheduler.lock", "node-0.identity"] {
        let folder = Folder::new(&format!("pipe-{name}"));
        let path = folder.recovery();
        drop(open(&path).unwrap());
        let _ = fs::remove_file(path.join(name));
        assert!(Command::new("mkfifo").arg(path.join(name)).status().unwrap().success());
        let (answer, answers) = channel();
        std::thread::spawn(move || {
            let refused = match name {
                "node-0.identity" => Identity::load(&disk(&path), "0").err(),
                _ => open(&path).err(),
            };
            answer.send(refused).unwrap();
        });
        let error = answers.recv_timeout(PATIENCE).expect("it waits for nobody").expect("it is refused");
        assert_eq!(error.status(), Status::Journal);
        assert!(error.message().contains(name) && error.message().contains("not a regular file: remove it"), "{error}");
    }
}

#[test]
fn a_second_scheduler_of_this_process_is_refused_until_the_first_ends() {
    let folder = Folder::new("second");
    let first = open(&folder.recovery()).unwrap();
    let error = open(&folder.recovery()).err().unwrap();
    assert_eq!(error.status(), Status::Journal);
    let path = folder.recovery().join("scheduler.journal");
    let begin =
        format!("another scheduler (pid {}) uses this journal: {}: expected ", std::process::id(), path.display());
    assert!(error.message().starts_with(&begin), "{error}");
    drop(first);
    open(&folder.recovery()).unwrap();
}

/// Waits until this file says this.
fn await_text(path: &Path, text: &str) {
    let until = Instant::now() + PATIENCE;
    while fs::read_to_string(path).ok().as_deref() != Some(text) {
        assert!(Instant::now() < until, "{path:?} says {text:?} in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn sleep_on() -> ! {
    loop {
        std::thread::sleep(PATIENCE);
    }
}

#[test]
fn an_owner_that_has_not_said_yet_who_it_is_is_waited_for() {
    let folder = Folder::new("owner");
    let (path, disk) = (folder.recovery().join("lock"), disk(&folder.recovery()));
    let owner = File::create(&path).unwrap();
    owner.try_lock().unwrap();
    assert!(matches!(disk.lock("lock", "1\n").unwrap(), Locked::Taken(by) if by.is_empty()), "and not for ever");
    thread::scope(|scope| {
        let asks = scope.spawn(|| owner_of(&File::open(&path).unwrap(), PATIENCE).unwrap());
        thread::sleep(Duration::from_millis(20)); // so that it usually asks before
        (&owner).write_all(b"4711\n").unwrap();
        assert_eq!(asks.join().unwrap(), "4711\n");
    });
    owner.unlock().unwrap();
    let Locked::Held(held) = disk.lock("lock", "12\n").unwrap() else { panic!("nobody has it") };
    assert_eq!(fs::read(&path).unwrap(), b"12\n");
    drop(held);
    assert_eq!(fs::read(&path).unwrap(), b"", "the next owner is not taken for this one");
}

#[test]
fn the_lock_of_another_process_holds_until_that_dies() {
    let folder = Folder::new("process");
    let path = folder.recovery();
    let child = ForkedChild::start(|| {
        let _journal = open(&path).unwrap();
        sleep_on()
    });
    await_text(&path.join("scheduler.lock"), &format!("{}\n", child.pid()));
    let error = open(&path).err().unwrap();
    assert!(error.message().starts_with(&format!("another scheduler (pid {}) uses", child.pid())), "{error}");
    // Killed, it has no time to give the lock back.
    drop(child);
    open(&path).unwrap();
}

#[test]
fn a_forked_child_that_drops_its_copy_does_not_give_the_lock_back() {
    for keep in [guarded as Keep, plain] {
        let folder = Folder::new("copy");
        let path = folder.recovery();
        let opened = Journal::open(Box::new(FileDisk::open(&path, keep, user()).unwrap()), 1).unwrap();
        let mut journal = Some(opened.journal);
        let child = ForkedChild::start(|| {
            drop(journal.take());
            0
        });
        assert_eq!(child.exit_code(), 0);
        assert!(open(&path).err().unwrap().message().starts_with("another scheduler"));
        let journal = journal.as_mut().unwrap();
        journal.append(&[b"still"]).unwrap();
        journal.sync().unwrap();
    }
}

#[test]
fn a_forked_child_that_outlives_the_scheduler_does_not_keep_its_lock() {
    let folder = Folder::new("outlive");
    let (path, forked, end) = (folder.recovery(), folder.0.join("forked"), folder.0.join("end"));
    let scheduler = ForkedChild::start(|| {
        let _journal = open(&path).unwrap();
        let _child = ForkedChild::start(|| {
            fs::write(&forked, "yes").unwrap();
            await_text(&end, "yes");
            fs::write(&forked, "gone").unwrap();
            0
        });
        sleep_on()
    });
    await_text(&forked, "yes");
    drop(scheduler);
    open(&path).unwrap();
    fs::write(&end, "yes").unwrap();
    await_text(&forked, "gone");
}

#[test]
fn the_lock_is_given_back_though_a_child_still_has_the_file_open() {
    // The child stands for a program that another thread is just starting, and that has the file open.
    let folder = Folder::new("starting");
    let path = folder.recovery();
    let open_plain = || Journal::open(Box::new(FileDisk::open(&path, plain, user()).unwrap()), 1);
    let opened = open_plain().unwrap();
    let _child = ForkedChild::start(|| sleep_on());
    drop(opened);
    open_plain().unwrap();
}

#[test]
fn a_hard_link_is_refused_and_what_it_leads_to_is_left_as_it_is() {
    let folder = Folder::new("hard-link");
    let (path, precious) = (folder.recovery(), folder.0.join("precious"));
    drop(open(&path).unwrap());
    fs::write(&precious, "what somebody needs").unwrap();
    for entry in fs::read_dir(&path).unwrap() {
        let name = entry.unwrap().path();
        fs::remove_file(&name).unwrap();
        fs::hard_link(&precious, &name).unwrap();
    }
    fs::set_permissions(&precious, Permissions::from_mode(0o644)).unwrap();
    let error = open(&path).err().expect("it is no lock of ours");
    assert_eq!(error.status(), Status::Journal);
    assert!(error.message().contains("it is a hard link, the same file as one of another name: remove it"), "{error}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "what somebody needs");
    assert_eq!(mode(&precious), 0o644);
}

#[test]
fn a_directory_that_others_may_change_is_refused() {
    let folder = Folder::new("open");
    let path = folder.recovery();
    fs::create_dir(&path).unwrap();
    for (open, refused) in [(0o777, true), (0o773, true), (0o1777, false), (0o775, false), (0o700, false)] {
        fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
        match FileDisk::open(&path, guarded, user()) {
            Ok(_) => assert!(!refused, "{open:o}"),
            Err(error) => {
                assert!(refused, "{open:o}: {error}");
                let words = "every user of this host may change what is in it: expected a directory that others cannot write to";
                assert!(error.status() == Status::Journal && error.message().contains(words), "{error}");
            }
        }
    }
}

#[test]
fn a_directory_and_a_file_of_another_user_are_refused() {
    let folder = Folder::new("foreign");
    let (path, own) = (folder.recovery(), user());
    fs::create_dir(&path).unwrap();
    let other = own + 1; // as if this process were that user's: the directory and its files are not
    if own == SUPERUSER {
        std::os::unix::fs::chown(&path, Some(other + 1), None).unwrap();
    }
    let error = FileDisk::open(&path, guarded, other).err().expect("it is another user's");
    assert!(
        error.message().contains("it is another user's: expected a directory that this process's user owns"),
        "{error}"
    );
    let disk = FileDisk { path: path.clone(), keep: guarded, users: Users { own: own + 7, directory: own + 7 } };
    fs::write(path.join("planted"), "a journal").unwrap();
    let expected = (own != SUPERUSER).then_some("it is another user's: remove it, or make it this user's (chown)");
    let found = disk.read("planted").err().map(|error| error.to_string());
    assert_eq!(found.as_deref(), expected);
}
