//! What this host's processors can carry: warnings, before anything is started, if workers will wait for each other.
//!
//! A container's quota limits how much time its processes compute, not on which cores. Programs see all cores and start
//! a thread for each. The quota then holds all of these back together.

use muster::net::cgroup::{quota, Quota};

/// What a user should know before so many workers start that may use so many cores.
pub fn warnings(workers: u32, cores: usize) -> Vec<String> {
    said(workers, cores, quota())
}

fn said(workers: u32, cores: usize, quota: Option<Quota>) -> Vec<String> {
    let mut said = Vec::new();
    if workers as usize > cores {
        let noun = if cores == 1 { "core" } else { "cores" };
        said.push(format!(
            "{workers} workers outnumber the {cores} {noun} that they may use: they take turns, and those that wait for each other \
             are slow"
        ));
    }
    if let Some(Quota { cores: allowed, file }) = quota.filter(|quota| quota.cores < cores as f64) {
        said.push(format!(
            "this container's quota is {allowed:.2} cores ({}), but {cores} cores are seen here: programs that start a thread for \
             each core are held back (OMP_NUM_THREADS sets how many they start)",
            file.display()
        ));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_warning_says_what_is_too_little() {
        let quota = |cores| Some(Quota { cores, file: PathBuf::from("/q/cpu.max") });
        assert_eq!(said(2, 2, None), [""; 0]);
        assert_eq!(said(2, 2, quota(2.0)), [""; 0]);
        let both = said(3, 2, quota(1.5));
        assert!(both[0].starts_with("3 workers outnumber the 2 cores that they may use: "), "{both:?}");
        assert!(
            both[1].starts_with("this container's quota is 1.50 cores (/q/cpu.max), but 2 cores are seen"),
            "{both:?}"
        );
        assert!(said(2, 1, None)[0].contains("the 1 core that"));
    }
}
