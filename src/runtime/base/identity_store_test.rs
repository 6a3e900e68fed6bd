use super::*;
use crate::journal::testdisk::MemoryDisk;

/// What a node has said of itself, as its scheduler keeps it.
#[derive(Default)]
struct Known {
    /// The token that lets its next life in, once the cluster has been complete.
    holds: Option<TokenHash>,
    lives: u32,
}

impl Known {
    /// A life registers with what it has kept. Returns whether it is let in.
    fn registers(&mut self, reentry: &Reentry, seed: u64) {
        self.lives += 1;
        let shown: Vec<TokenHash> = reentry.tokens.iter().map(TokenHash::of).collect();
        let is_known = self.holds.as_ref().is_none_or(|holds| shown.contains(holds));
        assert!(is_known, "seed {seed}: life {} would have to wait for 30 s", self.lives);
    }
}

fn begin(disk: &MemoryDisk) -> Result<(Reentry, IdentityStore)> {
    of(disk, "job")
}

fn of(disk: &MemoryDisk, job_id: &str) -> Result<(Reentry, IdentityStore)> {
    IdentityStore::begin(Box::new(disk.clone()), "worker 1".to_owned(), Some(job_id.to_owned()), host::random_bytes)
}

/// Every life may end anywhere: in an operation of its disk, by itself or with its machine, before the cluster is complete,
/// after that and before it has heard so, or later.
#[test]
fn every_life_has_the_token_that_holds_however_the_last_one_ended() {
    let (mut registered, mut broken_off) = (0, 0);
    for seed in 0..2000u64 {
        let mut disk = MemoryDisk::new(seed);
        let mut known = Known::default();
        let mut choice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut choose = |below: u64| {
            choice = choice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (choice >> 33) % below
        };
        for _ in 0..8 {
            if choose(2) == 0 {
                disk.crash_after(choose(14)); // a life that joins takes twelve operations
            }
            while choose(3) == 0 {
                let _ = of(&disk, ["another", "a third"][choose(2) as usize]); // by mistake: its scheduler refuses it
            }
            match begin(&disk) {
                Ok((reentry, mut store)) => {
                    known.registers(&reentry, seed);
                    registered += 1;
                    let (is_complete, hears_so) = (choose(2) == 0, choose(2) == 0);
                    if is_complete {
                        known.holds = Some(reentry.next);
                    }
                    if is_complete && hears_so {
                        broken_off += u32::from(store.joined().is_err());
                    }
                }
                Err(_) => broken_off += 1,
            }
            disk = if choose(2) == 0 { disk.crash() } else { disk.kill() };
        }
    }
    assert!(registered > 8000 && broken_off > 1000, "{registered} {broken_off}");
}

#[test]
fn a_life_that_cannot_keep_its_token_does_not_register_with_it() {
    for operations in 0..6 {
        let disk = MemoryDisk::new(operations);
        disk.crash_after(operations);
        assert!(begin(&disk).is_err(), "operation {operations}");
    }
    let disk = MemoryDisk::new(1);
    disk.fail_sync_after(0);
    let Err(error) = begin(&disk) else { panic!("what was not synced is not kept") };
    assert_eq!(error.status(), crate::error::Status::Journal);
}

#[test]
fn what_another_job_has_kept_under_the_same_name_is_not_shown() {
    let disk = MemoryDisk::new(1);
    let (_, mut first) = begin(&disk).unwrap();
    first.joined().unwrap();
    let (reentry, _) = begin(&disk).unwrap();
    assert_eq!(reentry.tokens.len(), 1);
    assert_eq!(of(&disk, "another").unwrap().0.tokens, []);
}

/// More jobs than are kept.
const MANY: &[&str] = &["c", "e", "f", "g", "h", "i", "k", "l", "m", "n", "o", "p", "q", "r"];

/// Starts with other job ids, which their scheduler refuses: what they show is what they have drawn themselves.
fn mistakes(disk: &MemoryDisk, ids: &[&str], right: TokenHash) {
    for id in ids {
        let shown = of(disk, id).unwrap().0.tokens;
        assert!(shown.iter().all(|token| TokenHash::of(token) != right), "{id}");
    }
}

#[test]
fn a_start_with_a_wrong_job_id_does_not_cost_the_token_nor_do_several() {
    for is_known_to_hold in [true, false] {
        let disk = MemoryDisk::new(1);
        let (first, mut store) = begin(&disk).unwrap();
        if is_known_to_hold {
            store.joined().unwrap();
        }
        for ids in [&["b"][..], &["b", "c", "d"], &["b", "b"], &["b", "c", "b"], &[], &["d"], MANY, &["b"], MANY, MANY]
        {
            let most = if is_known_to_hold { ids.len() } else { ids.len().min(ASIDE_MAX) };
            mistakes(&disk, &ids[..most], first.next);
            let (again, _) = begin(&disk).unwrap();
            let shown: Vec<TokenHash> = again.tokens.iter().map(TokenHash::of).collect();
            assert!(shown.contains(&first.next), "known to hold: {is_known_to_hold}, after {ids:?}");
        }
    }
}

#[test]
fn a_job_that_has_this_node_drops_what_was_put_aside() {
    let disk = MemoryDisk::new(1);
    begin(&disk).unwrap().1.joined().unwrap();
    let (_, mut other) = of(&disk, "another").unwrap();
    let aside = || -> Vec<Option<String>> {
        let kept = Identity::load(&disk, "worker 1").unwrap().unwrap();
        kept.aside.into_iter().map(|entry| entry.job_id).collect()
    };
    assert_eq!(aside(), [Some("job".to_owned())]);
    other.joined().unwrap();
    assert_eq!(aside(), []);
    assert_eq!(begin(&disk).unwrap().0.tokens, []);
    assert_eq!(aside(), [Some("another".to_owned())]);
}

#[test]
fn of_two_starts_at_once_one_is_refused_in_words_and_nothing_is_lost() {
    let disk = MemoryDisk::new(1);
    let (first, mut store) = begin(&disk).unwrap();
    let lock = Identity::lock(&disk, "worker 1").unwrap();
    let Err(error) = begin(&disk) else { panic!("somebody else reads and writes this file now") };
    let pid = std::process::id();
    let begin_of_it = format!(
        "another process (pid {pid}) is starting with this node id, \"worker 1\", in this recovery path, /memory: expected one"
    );
    assert_eq!(error.status(), Status::Journal);
    assert!(error.message().starts_with(&begin_of_it), "{error}");
    store.joined().expect("a life that has joined is not disturbed by one that starts");
    drop(lock);
    let (again, _) = begin(&disk).unwrap();
    assert_eq!(again.tokens.iter().map(TokenHash::of).collect::<Vec<_>>(), [first.next]);
}
