//! Finds the known name that somebody may have meant.

use super::shown::show;
use super::table::{Setting, TABLE};

/// The setting whose name in code is nearest to this; a variable's name leads to its setting.
pub fn key(unknown: &str) -> Option<&'static str> {
    let lower = unknown.to_lowercase();
    let setting = Setting::of_variable(&unknown.to_uppercase()).or_else(|| Setting::named(&lower));
    setting.map(|setting| setting.name).or_else(|| {
        let bare = lower.strip_prefix("muster_").or_else(|| lower.strip_prefix("ms_")).unwrap_or(&lower);
        closest(bare, TABLE.iter().map(|setting| setting.name))
    })
}

/// The sentence about a `MUSTER_` variable that no setting has.
pub fn unknown(name: &str) -> String {
    let hint = variable(name).map_or_else(String::new, |near| format!("; did you mean {near}?"));
    format!("{} is set, but there is no such setting{hint}", show(name).trim_matches('"'))
}

/// The `MUSTER_` variable that is nearest to this one.
pub fn variable(unknown: &str) -> Option<String> {
    let bare = unknown.strip_prefix("MUSTER_").unwrap_or(unknown).to_lowercase();
    let name = closest(&bare, TABLE.iter().map(|setting| setting.name))?;
    Setting::named(name).map(Setting::variable)
}

/// The sentence about a variable that is no setting, and is nearly this one.
pub fn slip(name: &str, near: &str) -> String {
    format!("{} is set, but has no effect here; did you mean {near}?", show(name).trim_matches('"'))
}

/// The variable of the original that this one must be a slip of. One letter may differ, in a long name two, because
/// other programs have variables with the same beginning.
pub fn original(unknown: &str) -> Option<&'static str> {
    let names = TABLE.iter().flat_map(|setting| setting.ms.iter().copied());
    let slips = |name: &str| if name.len() > "MS_WORKER_IP".len() { 2 } else { 1 };
    if unknown.len() > 64 {
        return None;
    }
    let near = names.map(|name| (distance(unknown, name), name)).filter(|(off, name)| *off <= slips(name));
    near.min_by_key(|(off, _)| *off).map(|(_, name)| name)
}

/// The nearest of these, if it is near enough to have been meant: a third of its letters may differ.
pub fn closest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A word much longer than any name is near to none: it is not worth the walk.
    if word.len() > 64 {
        return None;
    }
    known
        .map(|name| (distance(word, name), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How many letters must be put in, taken out, changed, or swapped with their neighbours to turn one word into the
/// other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for i in 0..=from.len() {
        for j in 0..=to.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
                let mut least = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (from, to, expected) in
            [("", "", 0), ("", "ab", 2), ("role", "role", 0), ("rloe", "role", 1), ("workr_num", "worker_num", 1)]
        {
            assert_eq!(distance(from, to), expected, "{from} to {to}");
            assert_eq!(distance(to, from), expected, "{to} to {from}");
        }
    }

    #[test]
    fn slips_lead_to_the_name_that_was_meant() {
        assert_eq!(variable("MUSTER_WORKR_NUM").as_deref(), Some("MUSTER_WORKER_NUM"));
        assert_eq!(variable("MUSTER_SCHED_PROT").as_deref(), Some("MUSTER_SCHED_PORT"));
        assert_eq!(variable("MUSTER_LGO").as_deref(), Some("MUSTER_LOG"));
        assert_eq!(variable("MUSTER_SOMETHING_ELSE"), None);
        assert_eq!(variable("MUSTER_"), None);
        assert_eq!(variable(&format!("MUSTER_{}", "X".repeat(10_000))), None);
        assert_eq!(key("sched_prot"), Some("sched_port"));
        assert_eq!(key("schedport"), Some("sched_port"));
        assert_eq!(key("frobnicate"), None);
    }

    #[test]
    fn only_a_slip_leads_to_a_variable_of_the_originals() {
        for (slip, meant) in [
            ("MS_CLUSTER_TIMOUT", "MS_CLUSTER_TIMEOUT"),
            ("MS_CLUSTER_TIME_OUT", "MS_CLUSTER_TIMEOUT"),
            ("MS_WORKERS_NUM", "MS_WORKER_NUM"),
            ("MS_SCHED_HSOT", "MS_SCHED_HOST"),
            ("MS_ROEL", "MS_ROLE"),
            ("MS_RECOVERY_PAHT", "MS_RECOVERY_PATH"),
        ] {
            assert_eq!(original(slip), Some(meant), "{slip}");
        }
        for another in [
            "MS_SCHED_NUM",
            "MS_SUBMODULE_LOG_v",
            "MS_COMPILER_CACHE_PATH",
            "MS_ENABLE_LCCL",
            "MS_ENABLE_NUMA",
            "MS_BUILD_PROCESS_NUM",
            "MS_SIMULATION_LEVEL",
            "MS_RECEIVE_MSG_TIMEOUT",
            "MS_RETRY_INTERVAL_LOWER",
            "MS_ALLOC_CONF",
            "MS_DEV_RUNTIME_CONF",
            "MS_JIT",
            "MS_",
        ] {
            assert_eq!(original(another), None, "{another}");
        }
        assert_eq!(original(&format!("MS_{}", "X".repeat(10_000))), None);
    }

    #[test]
    fn variables_lead_to_their_key() {
        for name in ["MS_SCHED_PORT", "MUSTER_SCHED_PORT", "SCHED_PORT", "ms_sched_port", "MUSTER_SCHED_PRT"] {
            assert_eq!(key(name), Some("sched_port"), "{name}");
        }
        assert_eq!(key("RANK_SIZE"), Some("worker_num"));
    }
}
