use super::*;
use crate::net::testfork::ForkedChild;
use std::os::unix::fs::MetadataExt;

/// A second mapping of a segment, such as another process has.
fn other(file: &File, length: usize) -> Segment {
    Segment::open(file, length).unwrap()
}

#[test]
fn what_one_publishes_the_other_reads() {
    let length = 2 * page_bytes();
    let (one, file) = Segment::create(length).unwrap();
    let two = other(&file, length);
    one.populate(&file, 0, length).unwrap();
    drop(file);
    assert_eq!((two.load(128), two.length()), (0, length));
    one.write(256, b"some words");
    one.store(128, 7);
    assert_eq!(two.load(128), 7);
    let mut words = [0; 10];
    two.read(256, &mut words);
    assert_eq!(&words, b"some words");
}

/// As on a kernel that does not know the advice by which pages are made.
#[test]
fn pages_are_made_by_their_file_too() {
    let page = page_bytes();
    let (one, file) = Segment::create(4 * page).unwrap();
    let made = || file.metadata().unwrap().blocks() * 512;
    assert_eq!(made(), 0);
    allocate(&file, page, 2 * page).unwrap();
    assert!(made() >= 2 * page as u64, "{} bytes", made());
    one.store(page, 7);
    assert_eq!((other(&file, 4 * page).load(page), file.metadata().unwrap().len()), (7, 4 * page as u64));
    let beyond = allocate(&file, 4 * page, page).unwrap_err();
    assert_eq!(beyond.raw_os_error(), Some(libc::EPERM), "its length is sealed");
}

#[test]
fn a_length_that_is_not_sealed_or_another_one_is_refused() {
    let length = page_bytes();
    let (_segment, file) = Segment::create(length).unwrap();
    let words = |length| Segment::open(&file, length).unwrap_err().to_string();
    assert!(words(2 * length).contains("where"), "{}", words(2 * length));
    assert!(file.set_len(0).is_err() && file.set_len(2 * length as u64).is_err(), "it is sealed");
    let open = anonymous_file().unwrap();
    open.set_len(length as u64).unwrap();
    let error = Segment::open(&open, length).unwrap_err();
    assert!(error.to_string().contains("can still be changed"), "{error}");
}

#[test]
fn no_access_leads_beyond_it() {
    let (segment, _file) = Segment::create(page_bytes()).unwrap();
    let end = page_bytes();
    let accesses: [&dyn Fn(); 5] = [
        &|| assert_eq!(segment.load(end), 0),
        &|| assert_eq!(segment.load(4), 0),
        &|| segment.store(end - 4, 1),
        &|| segment.write(end - 1, b"two"),
        &|| assert!(!segment.pointer(usize::MAX, 2).is_null()),
    ];
    for (at, access) in accesses.iter().enumerate() {
        let access = std::panic::AssertUnwindSafe(access);
        assert!(std::panic::catch_unwind(access).is_err(), "access {at}");
    }
}

/// The child has no such memory: a reader of its map finds it in none of the lines.
#[test]
fn a_forked_child_does_not_have_it() {
    let (segment, _file) = Segment::create(page_bytes()).unwrap();
    segment.store(0, 1);
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("/memfd:muster");
    assert!(maps());
    let child = ForkedChild::start(|| {
        let has_it = std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("/memfd:muster"));
        i32::from(has_it)
    });
    assert_eq!(child.exit_code(), 0);
    assert_eq!(segment.load(0), 1);
}

#[test]
fn a_limit_of_files_lengths_is_an_error_and_no_signal() {
    let child = ForkedChild::start(|| {
        let limit = libc::rlimit { rlim_cur: page_bytes() as u64, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the limit outlives the call; the signal gets back its default, which ends the process.
        let is_set = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL) != libc::SIG_ERR
                && libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) == 0
        };
        let refused = Segment::create(2 * page_bytes()).map_err(|error| error.raw_os_error());
        i32::from(!is_set || refused.err() != Some(Some(libc::EFBIG)) || Segment::create(page_bytes()).is_err())
    });
    assert_eq!(child.exit_code(), 0);
}
