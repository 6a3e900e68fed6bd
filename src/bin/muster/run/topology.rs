//! The cores and NUMA nodes of this host, and which of them its processes may use, as the kernel tells it.
//!
//! A core is a unit on which the kernel schedules: each hardware thread is one.

use super::number_set::NumberSet;
use std::collections::BTreeMap;
use std::path::Path;

/// The cores and NUMA nodes of this host.
#[derive(Debug, Default)]
pub struct Topology {
    /// The cores that are switched on.
    pub cores: NumberSet,
    /// The cores that this process may use, and so its children.
    pub usable_cores: NumberSet,
    /// The NUMA nodes and their cores; none where the kernel tells of none.
    pub nodes: BTreeMap<u32, NumberSet>,
    /// The nodes whose memory this process may use.
    pub usable_nodes: NumberSet,
    /// For each core: the first thread of the same physical core.
    first_threads: BTreeMap<u32, u32>,
}

impl Topology {
    /// The topology that the files below `root` tell, for a process that may use these cores. What they do not tell is
    /// taken from those cores.
    pub fn read(root: &Path, usable_cores: NumberSet) -> Topology {
        let told = |path: &str| {
            let text = std::fs::read_to_string(root.join("sys/devices/system").join(path)).ok()?;
            // A node without cores has an empty list.
            if text.trim().is_empty() {
                Some(NumberSet::default())
            } else {
                NumberSet::parse(text.trim()).ok()
            }
        };
        let cores = told("cpu/online").unwrap_or_default().joined(&usable_cores);
        let nodes: BTreeMap<u32, NumberSet> = told("node/online")
            .unwrap_or_default()
            .iter()
            .map(|node| (node, told(&format!("node/node{node}/cpulist")).unwrap_or_default()))
            .collect();
        let first_thread = |core: u32| told(&format!("cpu/cpu{core}/topology/thread_siblings_list"))?.iter().next();
        let first_threads = usable_cores.iter().filter_map(|core| Some((core, first_thread(core)?))).collect();
        let usable_nodes = usable_memory(root).unwrap_or_else(|| nodes.keys().copied().collect());
        Topology { cores, usable_cores, nodes, usable_nodes, first_threads }
    }

    /// These cores, each with the others that are threads of the same physical core.
    pub fn physical(&self, cores: &NumberSet) -> Vec<Vec<u32>> {
        let mut physical: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for core in cores.iter() {
            physical.entry(self.first_threads.get(&core).copied().unwrap_or(core)).or_default().push(core);
        }
        physical.into_values().collect()
    }

    /// The usable cores of these nodes; all usable cores of a host without nodes.
    pub fn cores_of(&self, nodes: &NumberSet) -> NumberSet {
        if self.nodes.is_empty() {
            return self.usable_cores.clone();
        }
        let of_node = nodes.iter().filter_map(|node| self.nodes.get(&node));
        of_node.fold(NumberSet::default(), NumberSet::joined).common(&self.usable_cores)
    }

    /// The nodes that these cores belong to.
    pub fn nodes_of(&self, cores: &NumberSet) -> NumberSet {
        self.nodes.iter().filter(|(_, own)| !own.common(cores).is_empty()).map(|(node, _)| *node).collect()
    }
}

/// The nodes whose memory this process may use, which a cpuset decides.
fn usable_memory(root: &Path) -> Option<NumberSet> {
    let status = std::fs::read_to_string(root.join("proc/self/status")).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"))?;
    NumberSet::parse(list.trim()).ok()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::run::tree_test::Tree;

    /// A host with two nodes of four cores each, two threads to a physical core: thread n and n + 4; and a node of memory alone.
    pub fn two_nodes() -> Topology {
        let tree = Tree::new(&[
            ("sys/devices/system/cpu/online", "0-7\n"),
            ("sys/devices/system/node/online", "0-2\n"),
            ("sys/devices/system/node/node0/cpulist", "0-1,4-5\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3,6-7\n"),
            ("sys/devices/system/node/node2/cpulist", "\n"),
            ("proc/self/status", "Name:\tx\nMems_allowed_list:\t0-2\n"),
        ]);
        for core in 0..8 {
            let path = format!("sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
            tree.write(&path, &format!("{},{}\n", core % 4, core % 4 + 4));
        }
        Topology::read(tree.path(), (0..8).collect())
    }

    #[test]
    fn it_is_what_the_files_tell() {
        let host = two_nodes();
        let shown = |set: &NumberSet| set.to_string();
        assert_eq!((shown(&host.cores), shown(&host.usable_nodes)), ("0-7".to_owned(), "0-2".to_owned()));
        assert_eq!(host.nodes.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(host.physical(&host.nodes[&0]), [[0, 4], [1, 5]]);
        assert_eq!(shown(&host.cores_of(&NumberSet::parse("1,2").unwrap())), "2-3,6-7");
        assert_eq!(shown(&host.nodes_of(&NumberSet::parse("5-6").unwrap())), "0-1");
    }

    #[test]
    fn a_host_that_tells_nothing_has_the_cores_that_may_be_used() {
        let tree = Tree::new(&[]);
        let host = Topology::read(tree.path(), (0..3).collect());
        assert_eq!((host.cores.to_string(), host.nodes.len()), ("0-2".to_owned(), 0));
        assert_eq!(host.cores_of(&NumberSet::default()).to_string(), "0-2");
        assert_eq!(host.physical(&host.cores), [[0], [1], [2]]);
    }

    #[test]
    fn this_host_has_cores() {
        let usable = NumberSet::of_bits(&crate::sys::usable_cores().unwrap());
        let host = Topology::read(Path::new("/"), usable);
        assert!(!host.usable_cores.is_empty(), "{host:?}");
        assert!(host.usable_cores.iter().all(|core| host.cores.contains(core)), "{host:?}");
    }
}
