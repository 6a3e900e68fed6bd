//! What Kubeflow Trainer tells each of its nodes (`PET_NNODES` and others, which torchrun reads too), as options of `muster run`.
//!
//! The variables stand for options before the first word of the command line, so that what is written there counts. If
//! the command line itself says what runs where, the variables do not count at all: a placement that comes half from
//! each would be one that nobody wanted. Without `PET_NNODES` the other variables do not count either, and a warning
//! names those that are set.

use super::options::COMMAND;
use crate::cli::words::{read, Asked};
use crate::voice::complain;
use muster::config::{self, Key};
use std::ffi::OsString;

/// Options that say what runs where.
const PLACEMENT: [&str; 7] = ["worker_num", "local_worker_num", "node_rank", "master_addr", "np", "host", "hostfile"];

const NODES: &str = "PET_NNODES";
const PROCESSES: &str = "PET_NPROC_PER_NODE";
const NODE: &str = "PET_NODE_RANK";
const ADDRESS: &str = "PET_MASTER_ADDR";
const PORT: &str = "PET_MASTER_PORT";

const INSTEAD: &str = "or give --worker_num, --local_worker_num, --node_rank and --master_addr";

/// The words of a command line, with the options that these variables stand for before them. Warns if the variables
/// have no effect because one of them is missing.
pub fn extended(words: Vec<OsString>, variable: impl Fn(&str) -> Option<OsString>) -> Result<Vec<OsString>, String> {
    // The parser reports what is wrong with the words.
    let Ok(Asked::With(given)) = read(&COMMAND, words.clone()) else { return Ok(words) };
    if given.given().iter().any(|given| PLACEMENT.contains(&given.option.name)) {
        return Ok(words);
    }
    let said =
        |name: &str| variable(name).map(|text| text.to_string_lossy().into_owned()).filter(|text| !text.is_empty());
    if let Some(warning) = unused(said) {
        complain(format!("muster: warning: {warning}\n"));
    }
    Ok(options(said)?.into_iter().map(OsString::from).chain(words).collect())
}

/// The warning about variables that have no effect, since the number of nodes is missing.
fn unused(said: impl Fn(&str) -> Option<String>) -> Option<String> {
    let set = |name: &str| said(name).map(|text| format!("{name} is {text:?}"));
    let set: Vec<String> = [PROCESSES, NODE, ADDRESS, PORT].into_iter().filter_map(set).collect();
    match said(NODES).is_none() && !set.is_empty() {
        true => Some(format!(
            "{}, but {NODES} is not set, so this has no effect: set {NODES}, {INSTEAD}",
            set.join(" and ")
        )),
        false => None,
    }
}

/// The options that these variables stand for.
fn options(said: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, String> {
    let Some(nodes) = said(NODES) else { return Ok(Vec::new()) };
    let nodes = whole(NODES, &nodes, 1)?;
    let processes = said(PROCESSES).map_or(Ok(1), |text| match text.as_str() {
        "cpu" => Ok(std::thread::available_parallelism().map_or(1, |count| count.get() as u32)),
        _ => whole(PROCESSES, &text, 1),
    })?;
    let missing = |name: &str| format!("{NODES} is \"{nodes}\", but {name} is not set: set it, {INSTEAD}");
    let node = match said(NODE) {
        Some(text) => whole(NODE, &text, 0)?,
        None if nodes == 1 => 0,
        None => return Err(missing(NODE)),
    };
    if node >= nodes {
        return Err(format!(
            "{NODE} is \"{node}\" and {NODES} is \"{nodes}\": expected {NODE} to be less than {NODES}"
        ));
    }
    let Some(workers) = nodes.checked_mul(processes) else {
        return Err(format!("{NODES} is \"{nodes}\" and {PROCESSES} is \"{processes}\": that is too many workers"));
    };
    let mut all = vec![format!("--worker_num={workers}"), format!("--local_worker_num={processes}")];
    if nodes > 1 {
        let address = said(ADDRESS).ok_or_else(|| missing(ADDRESS))?;
        let kind = Key::SchedHost.setting().kind;
        if kind.parse(&address).is_none() {
            let right = kind.expectation_for(&address);
            return Err(format!("{ADDRESS} is {address:?}: expected {right}; set it so, {INSTEAD}"));
        }
        all.extend([format!("--node_rank={node}"), format!("--master_addr={address}")]);
    }
    if let Some(port) = said(PORT) {
        if !config::whole(&port).is_some_and(|port| port == 0 || (1024..=u64::from(u16::MAX)).contains(&port)) {
            return Err(format!(
                "{PORT} is {port:?}: expected 0 (the system chooses) or 1024 to 65535; set it so, {INSTEAD}"
            ));
        }
        all.push(format!("--master_port={port}"));
    }
    Ok(all)
}

fn whole(name: &str, text: &str, least: u32) -> Result<u32, String> {
    config::whole(text)
        .and_then(|number| u32::try_from(number).ok())
        .filter(|number| *number >= least)
        .ok_or_else(|| format!("{name} is {text:?}: expected a whole number from {least} on; set it so, {INSTEAD}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAINER: [(&str, &str); 5] =
        [(NODES, "2"), (PROCESSES, "4"), (NODE, "1"), (ADDRESS, "job-node-0-0.job"), (PORT, "29500")];

    fn of(line: &str, changes: &[(&str, &str)]) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from).collect();
        let kept = || TRAINER.iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        let variable =
            |wanted: &str| kept().chain(changes).find(|(name, _)| *name == wanted).map(|(_, value)| value.into());
        let words = extended(words, variable)?;
        Ok(words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_node_learns_its_place() {
        let place = "--worker_num=8 --local_worker_num=4 --node_rank=1 --master_addr=job-node-0-0.job";
        assert_eq!(of("--join a.out", &[]).unwrap(), format!("{place} --master_port=29500 --join a.out"));
        assert_eq!(of("a.out --worker_num 2", &[(PORT, "")]).unwrap(), format!("{place} a.out --worker_num 2"));
        let one = [(NODES, "1"), (NODE, ""), (ADDRESS, ""), (PORT, ""), (PROCESSES, "")];
        assert_eq!(of("a.out", &one).unwrap(), "--worker_num=1 --local_worker_num=1 a.out");
    }

    #[test]
    fn a_command_line_that_places_its_workers_counts_alone() {
        for line in
            ["--worker_num 2 a.out", "--local_worker_num=2 a.out", "--node_rank 0 a.out", "--help", "--nonsense a.out"]
        {
            assert_eq!(of(line, &[]).unwrap(), line);
        }
        assert_eq!(of("a.out", &[(NODES, "")]).unwrap(), "a.out", "Trainer has not started it");
    }

    #[test]
    fn variables_without_the_number_of_nodes_are_named_in_a_warning() {
        let warning = |set: &'static [(&str, &str)]| {
            unused(|wanted: &str| set.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(
            warning(&[(NODE, "0"), (PROCESSES, "4")]).unwrap(),
            "PET_NPROC_PER_NODE is \"4\" and PET_NODE_RANK is \"0\", but PET_NNODES is not set, so this has no effect: set \
             PET_NNODES, or give --worker_num, --local_worker_num, --node_rank and --master_addr"
        );
        assert!(warning(&[(PORT, "29500")]).unwrap().starts_with("PET_MASTER_PORT is \"29500\", but PET_NNODES"));
        assert_eq!(warning(&TRAINER), None);
        assert_eq!(warning(&[]), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (change, said) in [
            ((NODES, "1:4"), "PET_NNODES is \"1:4\": expected a whole number from 1 on"),
            ((NODES, "+2"), "PET_NNODES is \"+2\": expected a whole number from 1 on"),
            ((NODES, "0"), "PET_NNODES is \"0\": expected a whole number from 1 on"),
            ((PROCESSES, "auto"), "PET_NPROC_PER_NODE is \"auto\": expected a whole number from 1 on"),
            (
                (PROCESSES, "4000000000"),
                "PET_NNODES is \"2\" and PET_NPROC_PER_NODE is \"4000000000\": that is too many",
            ),
            ((NODE, ""), "PET_NNODES is \"2\", but PET_NODE_RANK is not set: set it, or give --worker_num"),
            ((NODE, "2"), "PET_NODE_RANK is \"2\" and PET_NNODES is \"2\": expected"),
            (
                (PORT, "80"),
                "PET_MASTER_PORT is \"80\": expected 0 (the system chooses) or 1024 to 65535; set it so, or",
            ),
            ((PORT, "70000"), "PET_MASTER_PORT is \"70000\": expected"),
            ((ADDRESS, "job:80"), "PET_MASTER_ADDR is \"job:80\": expected a host name or an IP address"),
            (
                (ADDRESS, "fe80::1"),
                "PET_MASTER_ADDR is \"fe80::1\": expected its interface, too, as in fe80::1%eth0; set",
            ),
            ((PORT, "+29500"), "PET_MASTER_PORT is \"+29500\": expected"),
            ((ADDRESS, ""), "PET_NNODES is \"2\", but PET_MASTER_ADDR is not set"),
        ] {
            let error = of("a.out", &[change]).unwrap_err();
            assert!(error.starts_with(said), "{change:?}: {error}");
        }
    }
}
