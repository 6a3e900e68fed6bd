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
    /// A life registers with what it has kept: is it let in?
    fn registers(&mut self, reentry: &Reentry, seed: u64) {
        self.lives += 1;
        let shown: Vec<TokenHash> = reentry.tokens.iter().map(TokenHash::of).collect();
        let is_known = self.holds.as_ref().is_none_or(|holds| shown.contains(holds));
        assert!(is_known, "seed {seed}: life {} would have to wait for 30 s", self.lives);
    }
}

fn begin(disk: &MemoryDisk) -> Result<(Reentry, Keeper)> {
    of(disk, "job")
}

fn of(disk: &MemoryDisk, job_id: &str) -> Result<(Reentry, Keeper)> {
    Keeper::begin(Box::new(disk.clone()), "worker 1".to_owned(), Some(job_id.to_owned()), host::random_bytes)
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
                disk.crash_after(choose(12)); // a life that joins takes ten operations
            }
            match begin(&disk) {
                Ok((reentry, mut keeper)) => {
                    known.registers(&reentry, seed);
                    registered += 1;
                    let (is_complete, hears_so) = (choose(2) == 0, choose(2) == 0);
                    if is_complete {
                        known.holds = Some(reentry.next);
                    }
                    if is_complete && hears_so {
                        broken_off += u32::from(keeper.joined().is_err());
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
    for operations in 0..5 {
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
