//! Decides which cores each process is bound to, and the memory of which NUMA nodes.
//!
//! If the workers share the host, each NUMA node has a part of them, and they share its cores: so no worker's memory is
//! another node's. Fewer workers than nodes have several nodes each. No physical core is divided, unless there are more
//! workers than physical cores. More workers than threads have one thread each, and share it with others.

use super::bind_values::{Bind, BindTarget, Binds};
use super::number_set::NumberSet;
use super::part::Part;
use super::topology::Topology;
use std::collections::BTreeMap;
use std::fmt;

/// What one process is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Its cores; none: it may use all.
    pub cores: NumberSet,
    /// The nodes of its memory; none: it has memory of all.
    pub memory: NumberSet,
}

/// What all processes of this host are bound to.
#[derive(Debug, Default)]
pub struct Binding {
    scheduler: Bound,
    workers: Vec<Bound>,
    unbound: Bound,
}

impl Binding {
    /// The binding of so many workers on this host, whose devices have these numbers. An error is a sentence for the
    /// user.
    pub fn plan(binds: &Binds, devices: &[u32], host: &Topology) -> Result<Binding, String> {
        if !binds.any() {
            return Ok(Binding::default());
        }
        let names_nodes = [&binds.core_nodes, &binds.memory].iter().any(|bind| **bind != Bind::Off);
        if names_nodes && host.nodes.is_empty() {
            return Err(
                "--bind_numa: the kernel of this host tells of no NUMA nodes (/sys/devices/system/node)".to_owned()
            );
        }
        let existing = host.nodes.keys().copied().collect();
        let known = Known { devices, kind: "core", exist: &host.cores, usable: &host.usable_cores };
        known.check("--bind_core", &binds.cores)?;
        let known = Known { devices, kind: "NUMA node", exist: &existing, usable: &existing };
        known.check("--bind_numa", &binds.core_nodes)?;
        Known { usable: &host.usable_nodes, ..known }.check("--bind_numa", &binds.memory)?;
        nodes_have_usable_cores(binds, host)?;
        let places: Vec<BindTarget> = devices.iter().copied().map(BindTarget::Device).collect();
        let cores = cores(binds, &places, host);
        let workers =
            places.iter().zip(cores).map(|(place, cores)| Bound { memory: memory(binds, *place, &cores, host), cores });
        let cores = by_hand(&binds.cores, BindTarget::Scheduler)
            .cloned()
            .or_else(|| by_hand(&binds.core_nodes, BindTarget::Scheduler).map(|nodes| host.cores_of(nodes)))
            .unwrap_or_default();
        // Only the workers share.
        let memory = by_hand(&binds.memory, BindTarget::Scheduler).cloned().unwrap_or_default();
        Ok(Binding { workers: workers.collect(), scheduler: Bound { cores, memory }, unbound: Bound::default() })
    }

    /// What this process is bound to.
    pub fn of(&self, part: Part) -> &Bound {
        match part {
            Part::Scheduler => &self.scheduler,
            Part::Worker { index, .. } => self.workers.get(index as usize).unwrap_or(&self.unbound),
        }
    }

    /// What a user should know of it: two workers that were given the same core by hand.
    pub fn warning(&self, binds: &Binds, devices: &[u32]) -> Option<String> {
        let Bind::ByHand(_) = binds.cores else { return None };
        let mut owners = BTreeMap::new();
        let cores = self
            .workers
            .iter()
            .enumerate()
            .flat_map(|(index, bound)| bound.cores.iter().map(move |core| (index, core)));
        let (one, other) = cores
            .filter_map(|(index, core)| Some((owners.insert(core, index)?, index)))
            .find(|(one, other)| one != other)?;
        let common = self.workers[one].cores.common(&self.workers[other].cores);
        let noun = if common.len() == 1 { "core" } else { "cores" };
        Some(format!("--bind_core: device{} and device{} share {noun} {common}", devices[one], devices[other]))
    }
}

/// The numbers of the devices of so many workers, as a binding by hand names them: those that Ascend's variable makes
/// visible, if it has as many; otherwise the workers are counted.
pub fn devices(workers: u32, visible: Option<&str>) -> Vec<u32> {
    let listed: Option<Vec<u32>> =
        visible.and_then(|text| text.split(',').map(|one| one.trim().parse().ok()).collect());
    match listed {
        Some(mut listed) if listed.len() >= workers as usize => {
            listed.truncate(workers as usize);
            listed
        }
        _ => (0..workers).collect(),
    }
}

impl Bound {
    /// Whether it is bound to anything.
    pub fn any(&self) -> bool {
        !self.cores.is_empty() || !self.memory.is_empty()
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = |set: &NumberSet, one, several| if set.len() == 1 { one } else { several };
        let (cores, memory) = (noun(&self.cores, "core", "cores"), noun(&self.memory, "node", "nodes"));
        match (self.cores.is_empty(), self.memory.is_empty()) {
            (true, true) => f.write_str("all cores"),
            (false, true) => write!(f, "{cores} {}", self.cores),
            (true, false) => write!(f, "memory of {memory} {}", self.memory),
            (false, false) => write!(f, "{cores} {}, memory of {memory} {}", self.cores, self.memory),
        }
    }
}

/// What there is to name by hand.
struct Known<'a> {
    devices: &'a [u32],
    kind: &'a str,
    exist: &'a NumberSet,
    usable: &'a NumberSet,
}

impl Known<'_> {
    fn check(&self, option: &str, bind: &Bind) -> Result<(), String> {
        let Bind::ByHand(places) = bind else { return Ok(()) };
        let Known { devices, kind, exist, usable } = self;
        for (place, numbers) in places {
            if matches!(place, BindTarget::Device(number) if !devices.contains(number)) {
                let all: NumberSet = devices.iter().copied().collect();
                let (first, more) = (devices[0], devices.len() > 1);
                let here = if more { format!("devices {all}") } else { format!("device {first}") };
                return Err(format!("{option} has {place}, but the workers of this host have the {here}"));
            }
            if let Some(number) = numbers.iter().find(|number| !exist.contains(*number)) {
                return Err(format!(
                    "{option}: {place} has {kind} {number}, which is not there: this host has {exist}"
                ));
            }
            if let Some(number) = numbers.iter().find(|number| !usable.contains(*number)) {
                return Err(format!(
                    "{option}: {place} has {kind} {number}, which this process may not use: a cpuset, taskset or another launcher \
                     has left it {usable}"
                ));
            }
        }
        Ok(())
    }
}

/// Checks that this process may use the cores of every node that a process is to be bound to. Otherwise that process
/// would stay unbound.
fn nodes_have_usable_cores(binds: &Binds, host: &Topology) -> Result<(), String> {
    let Bind::ByHand(places) = &binds.core_nodes else { return Ok(()) };
    for (place, nodes) in places.iter().filter(|(place, _)| by_hand(&binds.cores, **place).is_none()) {
        let has_cores = nodes.iter().filter_map(|node| host.nodes.get(&node)).any(|cores| !cores.is_empty());
        if has_cores && host.cores_of(nodes).is_empty() {
            return Err(format!(
                "--bind_numa: {place} has NUMA node {nodes}, of whose cores this process may use none: a cpuset, taskset or another \
                 launcher has left it {}",
                host.usable_cores
            ));
        }
    }
    Ok(())
}

/// What was given by hand to this process, if anything was.
fn by_hand(bind: &Bind, place: BindTarget) -> Option<&NumberSet> {
    match bind {
        Bind::ByHand(places) => places.get(&place).filter(|numbers| !numbers.is_empty()),
        Bind::Off | Bind::Shared => None,
    }
}

fn cores(binds: &Binds, workers: &[BindTarget], host: &Topology) -> Vec<NumberSet> {
    let shares = shared_nodes(workers.len(), host);
    let nodes_of = |index: usize| by_hand(&binds.core_nodes, workers[index]).unwrap_or(&shares[index]);
    if binds.cores == Bind::Shared {
        // Workers with the same nodes share their cores.
        let mut groups: BTreeMap<&NumberSet, Vec<usize>> = BTreeMap::new();
        (0..workers.len()).for_each(|index| groups.entry(nodes_of(index)).or_default().push(index));
        let mut cores = vec![NumberSet::default(); workers.len()];
        for (nodes, members) in groups {
            let mut shared = host.physical(&host.cores_of(nodes));
            if shared.len() < members.len() {
                shared = shared.concat().into_iter().map(|thread| vec![thread]).collect();
            }
            let parts = (0..members.len())
                .map(|at| shared[share(at, members.len(), shared.len())].concat().into_iter().collect());
            members.iter().zip(parts).for_each(|(member, part)| cores[*member] = part);
        }
        return cores;
    }
    let of_nodes = |index: usize| match &binds.core_nodes {
        Bind::Off => None,
        Bind::Shared => Some(host.cores_of(&shares[index])),
        Bind::ByHand(_) => by_hand(&binds.core_nodes, workers[index]).map(|nodes| host.cores_of(nodes)),
    };
    let chosen = |index: usize| by_hand(&binds.cores, workers[index]).cloned().or_else(|| of_nodes(index));
    (0..workers.len()).map(|index| chosen(index).unwrap_or_default()).collect()
}

fn memory(binds: &Binds, worker: BindTarget, cores: &NumberSet, host: &Topology) -> NumberSet {
    match &binds.memory {
        Bind::Off => NumberSet::default(),
        Bind::Shared => host.nodes_of(cores).common(&host.usable_nodes),
        Bind::ByHand(_) => by_hand(&binds.memory, worker).cloned().unwrap_or_default(),
    }
}

/// The nodes of each worker if they share the host: a node gets workers in proportion to its cores.
fn shared_nodes(workers: usize, host: &Topology) -> Vec<NumberSet> {
    let sizes = host.nodes.iter().map(|(node, cores)| (*node, cores.common(&host.usable_cores).len()));
    let nodes: Vec<(u32, usize)> = sizes.filter(|(_, size)| *size > 0).collect();
    if workers < nodes.len() {
        let part = |worker| nodes[share(worker, workers, nodes.len())].iter().map(|(node, _)| *node).collect();
        return (0..workers).map(part).collect();
    }
    let by_core: Vec<u32> = nodes.iter().flat_map(|(node, size)| std::iter::repeat_n(*node, *size)).collect();
    (0..workers).map(|worker| by_core.get(worker * by_core.len() / workers).copied().into_iter().collect()).collect()
}

/// Shares so many things among several, as evenly as possible. Returns the share of the `index`-th: at least one thing.
fn share(index: usize, several: usize, things: usize) -> std::ops::Range<usize> {
    let start = index * things / several;
    start..((index + 1) * things / several).max((start + 1).min(things))
}

#[cfg(test)]
mod tests {
    use super::super::topology::tests::two_nodes;
    use super::*;
    use crate::run::tree_test::Tree;

    fn plan(cores: &str, nodes: &str, workers: u32, host: &Topology) -> Result<Vec<String>, String> {
        let value = |text| Some(text).filter(|text: &&str| !text.is_empty());
        let devices: Vec<u32> = (0..workers).collect();
        let binding = Binding::plan(&Binds::read(value(cores), value(nodes))?, &devices, host)?;
        Ok((0..workers).map(|index| binding.of(Part::Worker { index, rank: None }).to_string()).collect())
    }

    fn planned(cores: &str, nodes: &str, workers: u32) -> Vec<String> {
        plan(cores, nodes, workers, &two_nodes()).unwrap()
    }

    #[test]
    fn workers_share_the_cores_of_their_node_and_threads_of_a_core_stay_together() {
        assert_eq!(planned("True", "", 2), ["cores 0-1,4-5", "cores 2-3,6-7"]);
        assert_eq!(planned("True", "", 4), ["cores 0,4", "cores 1,5", "cores 2,6", "cores 3,7"]);
        assert_eq!(planned("True", "", 1), ["cores 0-7"]);
        assert_eq!(planned("True", "", 3), ["cores 0,4", "cores 1,5", "cores 2-3,6-7"]);
        assert_eq!(planned("True", "", 16).iter().filter(|cores| *cores == "core 7").count(), 2);
        assert_eq!(planned("", "", 2), ["all cores", "all cores"]);
    }

    #[test]
    fn no_physical_core_is_divided_where_each_worker_can_have_one() {
        let cores = 10;
        let tree = Tree::new(&[("sys/devices/system/cpu/online", &format!("0-{}\n", 2 * cores - 1))]);
        for core in 0..2 * cores {
            let path = format!("sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
            tree.write(&path, &format!("{},{}\n", core % cores, core % cores + cores));
        }
        let host = Topology::read(tree.path(), (0..2 * cores).collect());
        let four = plan("True", "", 4, &host).unwrap();
        assert_eq!(four, ["cores 0-1,10-11", "cores 2-4,12-14", "cores 5-6,15-16", "cores 7-9,17-19"]);
        for workers in 1..=cores {
            for bound in plan("True", "", workers, &host).unwrap() {
                let own = NumberSet::parse(bound.trim_start_matches(|one: char| !one.is_ascii_digit())).unwrap();
                assert!(own.iter().all(|core| own.contains((core + cores) % (2 * cores))), "{workers}: {bound}");
            }
        }
        assert!(plan("True", "", 11, &host).unwrap().iter().all(|bound| bound.len() <= "cores 19,20".len()));
    }

    #[test]
    fn memory_is_where_the_cores_are() {
        assert_eq!(planned("", "True", 2), ["cores 0-1,4-5, memory of node 0", "cores 2-3,6-7, memory of node 1"]);
        assert_eq!(planned("True", "True", 4)[3], "cores 3,7, memory of node 1");
        assert_eq!(planned("True", "True", 1), ["cores 0-7, memory of nodes 0-1"]);
        assert_eq!(planned(r#"{"device0":"1-2"}"#, "True", 2)[0], "cores 1-2, memory of nodes 0-1");
        let to_one = r#"{"device0":"1","device1":"1"}"#;
        assert_eq!(planned("True", to_one, 2), ["cores 2,6, memory of node 1", "cores 3,7, memory of node 1"]);
        assert_eq!(planned("", r#"{"device1":"1-2"}"#, 2), ["all cores", "cores 2-3,6-7, memory of nodes 1-2"]);
        assert_eq!(planned("", r#"{"device1":"2"}"#, 2)[1], "memory of node 2", "a node without cores");
    }

    #[test]
    fn what_is_given_by_hand_is_what_is_taken() {
        let binds = Binds::read(Some(r#"{"scheduler":"7","device6":["0-1"],"device7":[]}"#), None).unwrap();
        let binding = Binding::plan(&binds, &[6, 7], &two_nodes()).unwrap();
        let of = |part| binding.of(part).to_string();
        let worker = |index| Part::Worker { index, rank: Some(index) };
        assert_eq!(
            (of(Part::Scheduler), of(worker(0)), of(worker(1))),
            ("core 7".into(), "cores 0-1".into(), "all cores".into())
        );
        assert_eq!(binding.warning(&binds, &[6, 7]), None);
        let binds = Binds::read(Some(r#"{"device0":"0-3","device1":"4","device2":"2-5"}"#), None).unwrap();
        let binding = Binding::plan(&binds, &[0, 1, 2], &two_nodes()).unwrap();
        assert_eq!(binding.warning(&binds, &[0, 1, 2]).unwrap(), "--bind_core: device0 and device2 share cores 2-3");
    }

    #[test]
    fn devices_have_the_numbers_that_are_visible() {
        assert_eq!(devices(2, None), [0, 1]);
        assert_eq!(devices(2, Some("6, 7,8")), [6, 7]);
        for odd in ["", "6", "a,b", "6,-7"] {
            assert_eq!(devices(2, Some(odd)), [0, 1], "{odd}");
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let mut narrowed = two_nodes();
        narrowed.usable_cores = NumberSet::parse("0-3").unwrap();
        for (cores, nodes, said) in [
            (r#"{"device0":"6-9"}"#, "", "--bind_core: device0 has core 8, which is not there: this host has 0-7"),
            (r#"{"scheduler":"9"}"#, "", "--bind_core: scheduler has core 9"),
            (
                r#"{"device0":"3-4"}"#,
                "",
                "device0 has core 4, which this process may not use: a cpuset, taskset or another",
            ),
            (r#"{"device2":"0"}"#, "", "--bind_core has device2, but the workers of this host have the devices 0-1"),
            ("", r#"{"device0":"3"}"#, "--bind_numa: device0 has NUMA node 3, which is not there: this host has 0-2"),
        ] {
            let error = plan(cores, nodes, 2, &narrowed).unwrap_err();
            assert!(error.contains(said), "{cores}{nodes}: {error}");
        }
        narrowed.usable_cores = NumberSet::parse("0-1").unwrap();
        let error = plan("", r#"{"device0":"1"}"#, 2, &narrowed).unwrap_err();
        assert!(error.contains("NUMA node 1, of whose cores this process may use none"), "{error}");
        assert_eq!(
            plan(r#"{"device0":"0"}"#, r#"{"device0":"1"}"#, 2, &narrowed).unwrap()[0],
            "core 0, memory of node 1"
        );
        let no_nodes = Topology::read(Tree::new(&[]).path(), (0..4).collect());
        assert!(plan("", "True", 2, &no_nodes).unwrap_err().contains("tells of no NUMA nodes"));
        assert_eq!(plan("True", "", 2, &no_nodes).unwrap(), ["cores 0-1", "cores 2-3"]);
        let mut far = two_nodes();
        far.usable_nodes = NumberSet::parse("0").unwrap();
        let error = plan("", r#"{"device0":"1"}"#, 2, &far).unwrap_err();
        assert!(
            error.contains("NUMA node 1, which this process may not use") && error.ends_with("left it 0"),
            "{error}"
        );
    }
}
