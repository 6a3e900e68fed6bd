//! Finds out to which of its launcher's jobs a process belongs, and at which ports the ranks of such a job meet.
//!
//! Two jobs that are started side by side on one host are told apart by what their launchers say. The mark of a job is
//! the same for all its ranks, on every host. No two jobs that live have the same one. Each start makes a new one, so
//! nothing durable is compared by it. Tested in `derived_test.rs`, and under real launchers by
//! `tests/python/test_mpi.py`.

use super::environment::{Environment, Text};
use super::launchers::Mark;

/// The lowest port that a job may have: the system chooses none of these ports for a connection by itself.
const FIRST_PORT: u64 = 20_000;
const PORTS: u64 = 10_000;
/// How many ports a job has. Rank 0 takes the first that is free, so that one is enough as a rule.
const PORTS_OF_A_JOB: usize = 8;

/// The longest mark that is kept as it is, in bytes. A longer one ends in a hash.
const MARK_BYTES: usize = 200;

/// The program that starts ranks on each host for the launchers that are made of Hydra.
const HYDRA_PROXY: &str = "hydra_pmi_proxy";

/// A job as its launcher knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedJob {
    mark: String,
}

/// What torchrun gives where its user has named no run.
const NO_RUN: &str = "none";

impl DerivedJob {
    /// The job that the first of these marks names, if any does.
    pub(super) fn of(
        launcher: &str,
        marks: &[Mark],
        environment: &Environment,
        ancestors: &[Vec<u8>],
    ) -> Option<DerivedJob> {
        let value = marks.iter().find_map(|mark| mark.value(environment, ancestors))?;
        Some(DerivedJob { mark: shortened(&format!("{launcher} {value}")) })
    }

    /// What tells the job from other jobs, readable: `Open MPI 555089921`.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// The ports at which its ranks meet: rank 0 takes the first that is free, and the others look for it in this order.
    pub fn ports(&self) -> Vec<u16> {
        let mut draw = SplitMix(fnv(self.mark.as_bytes()));
        let mut ports = Vec::with_capacity(PORTS_OF_A_JOB);
        while ports.len() < PORTS_OF_A_JOB {
            let port = u16::try_from(FIRST_PORT + draw.next() % PORTS).expect("30000 fits into 16 bits");
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        ports
    }
}

impl Mark {
    fn value(&self, environment: &Environment, ancestors: &[Vec<u8>]) -> Option<String> {
        let names = match self {
            Mark::Variables(names) => names,
            Mark::HydraProxy => return hydra(ancestors),
        };
        let said = |name: &&str| match environment.get(name)? {
            Text::Valid(text) if text != NO_RUN => Some(text.clone()),
            _ => None,
        };
        let (first, rest) = names.split_first()?;
        let values = std::iter::once(said(first)?).chain(rest.iter().filter_map(said));
        Some(values.collect::<Vec<_>>().join("/"))
    }
}

/// The control port and the process group of the nearest of Hydra's proxies: its launcher gave it both, the same on
/// every host. The ranks that a rank spawns are another group of the same launcher.
fn hydra(ancestors: &[Vec<u8>]) -> Option<String> {
    let lines = ancestors.iter().map(|line| line.split(|byte| *byte == 0).map(String::from_utf8_lossy));
    let nearest = lines
        .map(|words| words.collect::<Vec<_>>())
        .find(|words| words.first().is_some_and(|program| program.rsplit('/').next() == Some(HYDRA_PROXY)))?;
    let after = |name: &str| nearest.iter().skip_while(|word| *word != name).nth(1).filter(|word| !word.is_empty());
    let group = after("--pgid").map_or_else(String::new, |group| format!("/{group}"));
    after("--control-port").map(|port| format!("{port}{group}"))
}

/// The mark itself; if it is too long, its beginning and a hash of all of it.
fn shortened(mark: &str) -> String {
    if mark.len() <= MARK_BYTES {
        return mark.to_owned();
    }
    let end = (0..=MARK_BYTES - 20).rev().find(|end| mark.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...{:016x}", &mark[..end], fnv(mark.as_bytes()))
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
#[path = "derived_test.rs"]
mod tests;
