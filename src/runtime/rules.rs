//! What the scheduler's brain is told of the settings.

use crate::collective::Thresholds;
use crate::config::{Key, Settings};
use crate::error::{Error, Result};
use crate::membership::{self, Rules};
use crate::net::host;
use crate::wire::Agreed;

/// The rules of the job that these settings describe.
pub(super) fn rules(settings: &Settings) -> Result<Rules> {
    let limits = settings.store_limits;
    // If all are on one host, then the scheduler is there, too, as a rule; else they choose less well.
    let ranks = settings.worker_num.saturating_add(settings.server_num);
    let set = |measured| thresholds(settings, measured);
    Ok(Rules {
        job_id: settings.job_id.clone(),
        worker_num: settings.worker_num,
        server_num: settings.server_num,
        recovery: settings.enable_recovery,
        durable: settings.enable_recovery,
        forming_timeout: settings.forming_timeout,
        agreed: Agreed {
            heartbeat_timeout_ms: settings.heartbeat_timeout.as_millis() as u64,
            checksums: settings.checksums,
            thresholds: set(Thresholds::default())?,
            store_key_max: limits.key as u64,
            store_value_max: limits.value as u64,
        },
        one_host: set(Thresholds::for_one_host(ranks, host::cores()))?,
        store: membership::StoreLimits {
            key_max: limits.key,
            value_max: limits.value,
            total_max: usize::try_from(limits.total).unwrap_or(usize::MAX),
        },
    })
}

/// The measured thresholds, but for those that are set.
fn thresholds(settings: &Settings, measured: Thresholds) -> Result<Vec<u64>> {
    let mut numbers = measured.to_array().to_vec();
    for word in settings.thresholds.iter().flat_map(|text| text.split(',')) {
        let (name, number) = word.split_once('=').unwrap_or((word, ""));
        let known = Thresholds::NAMES.iter().position(|known| *known == name);
        let (Some(place), Ok(number)) = (known, number.parse()) else {
            let (setting, names) = (settings.origin(Key::Thresholds), Thresholds::NAMES.join(", "));
            let expected = "expected name=number, with commas between them; the names are";
            return Err(Error::config(format!("{setting} has {word:?} in it: {expected} {names}")));
        };
        numbers[place] = number;
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn of(text: &str) -> Result<Rules> {
        let mut config = Config::new();
        for (name, value) in [
            ("role", "MS_SCHED"),
            ("sched_host", "::1"),
            ("sched_port", "8118"),
            ("worker_num", "2"),
            ("thresholds", text),
        ] {
            config.set(name, value)?;
        }
        rules(&config.settings()?)
    }

    #[test]
    fn thresholds_that_are_set_take_the_place_of_measured_ones_and_others_are_named() {
        let rules = of("barrier_tree_ranks=7,allreduce_pair_bytes=0").unwrap();
        for told in [rules.agreed.thresholds, rules.one_host] {
            let told = Thresholds::from_slice(&told).unwrap();
            assert_eq!((told.barrier_tree_ranks, told.allreduce_pair_bytes), (7, 0));
            assert_eq!(told.allreduce_halving_bytes, Thresholds::default().allreduce_halving_bytes);
        }
        for wrong in ["barrier_tree_ranks", "barrier_tree_ranks=-1", "barrier_tree=1", "barrier_tree_ranks=1,,", "=3"] {
            let said = of(wrong).unwrap_err().to_string();
            assert!(said.contains("thresholds") && said.contains("allreduce_pair_bytes, "), "{wrong}: {said}");
        }
    }
}
