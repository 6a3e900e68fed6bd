//! What the scheduler's brain is told of the settings: the rules of the job.

use crate::config::{closest, whole, Key, Settings};
use crate::error::{Error, Result};
use crate::membership::{self, Rules};
use crate::net::host;
use crate::schedules::Thresholds;
use crate::wire::Agreed;

/// The rules of the job that these settings describe.
pub(crate) fn rules(settings: &Settings) -> Result<Rules> {
    let limits = settings.store_limits;
    // If all nodes are on one host, the scheduler is mostly there, too; if it is not, they choose less well.
    let ranks = settings.worker_num.saturating_add(settings.server_num);
    let set = |measured| thresholds(settings, measured);
    Ok(Rules {
        job_id: settings.job_id.clone(),
        derived_job: settings.derived_job.as_ref().map(|job| job.mark().to_owned()),
        worker_num: settings.worker_num,
        server_num: settings.server_num,
        recovery: settings.enable_recovery,
        durable: settings.enable_recovery,
        forming_timeout: settings.forming_timeout,
        forming_setting: settings.forming_setting.clone(),
        agreed: Agreed {
            heartbeat_timeout_ms: settings.heartbeat_timeout.as_millis() as u64,
            checksums: settings.checksums,
            thresholds: set(Thresholds::default())?,
            store_key_max: limits.key as u64,
            store_value_max: limits.value as u64,
            shared_memory: settings.shared_memory,
        },
        one_host: set(Thresholds::for_one_host(ranks, host::cores()))?,
        store: membership::StoreLimits {
            key_max: limits.key,
            value_max: limits.value,
            total_max: usize::try_from(limits.total).unwrap_or(usize::MAX),
        },
    })
}

/// Whether a scheduler can read the thresholds of these settings; the error says which part is wrong.
pub fn check_thresholds(settings: &Settings) -> Result<()> {
    thresholds(settings, Thresholds::default()).map(|_| ())
}

/// The measured thresholds, except those that are set.
fn thresholds(settings: &Settings, measured: Thresholds) -> Result<Vec<u64>> {
    let mut numbers = measured.to_array().to_vec();
    let mut set = vec![false; numbers.len()];
    for part in settings.thresholds.iter().flat_map(|text| text.split(',')) {
        let read = threshold(part).and_then(|(place, number)| match std::mem::replace(&mut set[place], true) {
            true => Err(format!("{} occurs twice: expected each name once", Thresholds::NAMES[place])),
            false => Ok((place, number)),
        });
        let (place, number) = read.map_err(|wrong| {
            let setting = settings.origin(Key::Thresholds);
            Error::config(format!("{setting} has {part:?} in it: {wrong}"))
        })?;
        numbers[place] = number;
    }
    Ok(numbers)
}

/// Reads one `name=number`: returns the place of the name, and the number; or what is wrong with it.
fn threshold(part: &str) -> Result<(usize, u64), String> {
    if part.contains(char::is_whitespace) || part.is_empty() {
        return Err("expected name=number, with one comma between two of them and no blanks".to_owned());
    }
    let (name, number) = part.split_once('=').unwrap_or((part, ""));
    let Some(place) = Thresholds::NAMES.iter().position(|known| *known == name) else {
        let near = closest(&name.to_lowercase(), Thresholds::NAMES.iter().copied());
        let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        let names = Thresholds::NAMES.join(", ");
        return Err(format!("there is no threshold {name:?}{near} (expected one of {names})"));
    };
    whole(number).map(|number| (place, number)).ok_or_else(|| {
        let (unit, example) = if name.ends_with("_ranks") { ("ranks", 8) } else { ("bytes", 65_536) };
        format!("{number:?} is not a number of {unit}: expected digits and no unit, such as {name}={example}")
    })
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
    fn thresholds_that_are_set_take_the_place_of_measured_ones() {
        let rules = of("barrier_tree_ranks=7,allreduce_pair_bytes=0").unwrap();
        for told in [rules.agreed.thresholds, rules.one_host] {
            let told = Thresholds::from_slice(&told).unwrap();
            assert_eq!((told.barrier_tree_ranks, told.allreduce_pair_bytes), (7, 0));
            assert_eq!(told.allreduce_halving_bytes, Thresholds::default().allreduce_halving_bytes);
        }
    }

    #[test]
    fn of_what_is_wrong_the_part_is_named_and_what_would_be_right() {
        let said = |text: &str| of(text).unwrap_err().to_string();
        let form = "expected name=number, with one comma between two of them and no blanks";
        let bytes = "is not a number of bytes: expected digits and no unit, such as allreduce_tree_bytes=65536";
        for (text, part, wrong) in [
            ("allreduce_tree_bytes=64K", "allreduce_tree_bytes=64K", format!("\"64K\" {bytes}")),
            ("allreduce_tree_bytes=+1", "allreduce_tree_bytes=+1", format!("\"+1\" {bytes}")),
            ("allreduce_tree_bytes=-1", "allreduce_tree_bytes=-1", format!("\"-1\" {bytes}")),
            ("allreduce_pair_bytes=1,allreduce_tree_bytes", "allreduce_tree_bytes", format!("\"\" {bytes}")),
            (
                "barrier_tree_ranks=all",
                "barrier_tree_ranks=all",
                "\"all\" is not a number of ranks: expected digits and no unit, such as barrier_tree_ranks=8"
                    .to_owned(),
            ),
            ("allreduce_pair_bytes=1, allreduce_tree_bytes=1", " allreduce_tree_bytes=1", form.to_owned()),
            ("barrier_tree_ranks=1,,allreduce_tree_bytes=1", "", form.to_owned()),
            (
                "barrier_tree_ranks=1,barrier_tree_ranks=2",
                "barrier_tree_ranks=2",
                "barrier_tree_ranks occurs twice: expected each name once".to_owned(),
            ),
        ] {
            assert_eq!(said(text), format!("thresholds has {part:?} in it: {wrong}"));
        }
        let names = format!(" (expected one of {})", Thresholds::NAMES.join(", "));
        for (name, near) in [
            ("allreduce_tre_bytes", "; did you mean allreduce_tree_bytes?"),
            ("BARRIER_TREE_RANKS", "; did you mean barrier_tree_ranks?"),
            ("frobnicate", ""),
            ("", ""),
        ] {
            let part = format!("{name}=3");
            assert_eq!(
                said(&part),
                format!("thresholds has {part:?} in it: there is no threshold {name:?}{near}{names}")
            );
        }
    }
}
