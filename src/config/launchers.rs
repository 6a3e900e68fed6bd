//! The launchers that we know: which variables each of them sets. [`super::launcher`] says what these mean to our settings.
//!
//! In a variable's name `*` stands for the task of a Volcano job to which this process belongs.

/// Something by which a launcher tells its jobs apart.
#[derive(Debug)]
pub enum Mark {
    /// The values of these variables, one after the other. The first must be set.
    Variables(&'static [&'static str]),
    /// The place where the nearest of Hydra's proxies among the process's ancestors finds its launcher.
    HydraProxy,
}

impl Mark {
    /// The variables that it looks at.
    pub fn variables(&self) -> &'static [&'static str] {
        match self {
            Mark::Variables(names) => names,
            Mark::HydraProxy => &[],
        }
    }
}

/// What must hold, beside rank and size being set, for a launcher to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing else must hold.
    Always,
    /// Slurm has not started the process itself. `srun --mpi=pmi2` sets these variables, too, but Slurm's own say more.
    NotSrun,
    /// The process is of one of Slurm's steps that have several tasks, and not of a batch script.
    SrunStep,
    /// This variable, if it is set, says that the launcher starts one process on each node, and the size is a number.
    /// Otherwise something else must start the node's processes.
    OnePerNode(&'static str),
}

/// The variables by which a launcher tells a process its place.
#[derive(Debug)]
pub struct Launcher {
    /// What people call it.
    pub name: &'static str,
    /// This process's rank. The launcher counts when this and `size` are set, and the condition holds.
    pub rank: &'static str,
    /// How many processes there are.
    pub size: &'static str,
    /// This process's index on its host.
    pub local_rank: Option<&'static str>,
    /// How many processes its host has.
    pub local_size: Option<&'static str>,
    /// Where rank 0 is: a host, or several hosts, of which the first has rank 0.
    pub host: Option<&'static str>,
    /// The port beside `host`.
    pub port: Option<&'static str>,
    /// What else must hold.
    pub condition: Condition,
    /// The marks by which the launcher tells its jobs apart; the first that is there counts.
    pub marks: &'static [Mark],
}

const fn launcher(name: &'static str, rank: &'static str, size: &'static str) -> Launcher {
    Launcher {
        name,
        rank,
        size,
        local_rank: None,
        local_size: None,
        host: None,
        port: None,
        condition: Condition::Always,
        marks: &[],
    }
}

/// The launchers that we know, the innermost first.
pub static LAUNCHERS: [Launcher; 8] = [
    Launcher {
        local_rank: Some("LOCAL_RANK"),
        local_size: Some("LOCAL_WORLD_SIZE"),
        marks: &[Mark::Variables(&["TORCHELASTIC_RUN_ID"])],
        ..launcher("torchrun", "RANK", "WORLD_SIZE")
    },
    Launcher {
        local_rank: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
        local_size: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
        marks: &[Mark::Variables(&["PMIX_NAMESPACE"]), Mark::Variables(&["OMPI_MCA_ess_base_jobid"])],
        ..launcher("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    },
    Launcher {
        local_rank: Some("MPI_LOCALRANKID"),
        local_size: Some("MPI_LOCALNRANKS"),
        condition: Condition::NotSrun,
        // Intel's proxies have no control port among their arguments. Its number of the job may be inherited by another
        // launcher that is started inside, so the proxy comes first.
        marks: &[
            Mark::Variables(&["PMI_JOBID"]),
            Mark::HydraProxy,
            Mark::Variables(&["I_MPI_HYDRA_UUID", "HYDRA_BSTRAP_PGID"]),
        ],
        ..launcher("MPICH or Intel MPI", PMI_RANK, "PMI_SIZE")
    },
    Launcher {
        local_rank: Some("SLURM_LOCALID"),
        condition: Condition::SrunStep,
        marks: &[Mark::Variables(&["SLURM_JOB_ID", SLURM_STEP])],
        ..launcher("Slurm", SLURM_RANK, SLURM_SIZE)
    },
    Launcher {
        host: Some("PET_MASTER_ADDR"),
        port: Some("PET_MASTER_PORT"),
        condition: Condition::OnePerNode("PET_NPROC_PER_NODE"),
        ..launcher("Kubeflow Trainer", "PET_NODE_RANK", "PET_NNODES")
    },
    Launcher { host: Some("LWS_LEADER_ADDRESS"), ..launcher("LeaderWorkerSet", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE") },
    Launcher { host: Some(VOLCANO_HOSTS), ..launcher("Volcano", VOLCANO_INDEX, VOLCANO_SIZE) },
    Launcher {
        // Set by the downward API, from the label batch.kubernetes.io/job-name.
        marks: &[Mark::Variables(&["JOB_NAME"])],
        ..launcher("Kubernetes", "JOB_COMPLETION_INDEX", "MUSTER_WORKER_NUM")
    },
];

/// The variable that says where the first rank can be reached, as torchrun and many scripts have it. This variable and
/// the next count under every launcher.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// The port beside [`MASTER_ADDR`].
pub const MASTER_PORT: &str = "MASTER_PORT";

/// The rank by which a process of MPICH's kind knows itself, whichever launcher has started it.
pub const PMI_RANK: &str = "PMI_RANK";
/// A process of Slurm's step, how many there are, and which step it is.
pub const SLURM_RANK: &str = "SLURM_PROCID";
pub const SLURM_SIZE: &str = "SLURM_STEP_NUM_TASKS";
pub const SLURM_STEP: &str = "SLURM_STEP_ID";
/// The nodes of the step, and those of the job.
pub const SLURM_STEP_NODES: &str = "SLURM_STEP_NODELIST";
pub const SLURM_JOB_NODES: &str = "SLURM_JOB_NODELIST";
/// Slurm's own steps, such as the one of a batch script, have numbers above this one.
pub const SLURM_STEP_MAX: u64 = 0xffff_fff0;

/// A process of a Volcano job: its index among the pods of its task, how many these are, and their host names.
pub const VOLCANO_INDEX: &str = "VC_TASK_INDEX";
pub const VOLCANO_SIZE: &str = "VC_*_NUM";
pub const VOLCANO_HOSTS: &str = "VC_*_HOSTS";
/// The host's own name, by which a pod knows its task among several.
pub const HOSTNAME: &str = "HOSTNAME";

/// Variables that name a file whose first host has rank 0: how Kubeflow's MPIJob tells `mpirun` its hosts.
pub const HOST_FILES: [&str; 4] =
    ["I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE", "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"];

/// The mark by which a process knows a launcher that has started it, and that we cannot ask for the process's place.
#[derive(Debug)]
pub struct Stranger {
    /// What people call it.
    pub name: &'static str,
    /// The variable that it sets.
    pub mark: &'static str,
    /// The variable that says how many processes it has started, if there is one. One alone is no surprise.
    pub size: Option<&'static str>,
}

const fn stranger(name: &'static str, mark: &'static str, size: Option<&'static str>) -> Stranger {
    Stranger { name, mark, size }
}

/// The launchers that we know by their marks alone.
pub const STRANGERS: &[Stranger] = &[
    stranger("Flux", "FLUX_TASK_RANK", Some("FLUX_JOB_SIZE")),
    stranger("PALS", "PALS_RANKID", None),
    stranger("jsrun", "JSM_NAMESPACE_RANK", Some("JSM_NAMESPACE_SIZE")),
    stranger("MVAPICH", "MV2_COMM_WORLD_RANK", Some("MV2_COMM_WORLD_SIZE")),
    stranger("Horovod", "HOROVOD_RANK", Some("HOROVOD_SIZE")),
    stranger("a launcher that speaks PMIx", "PMIX_RANK", None),
    stranger("Kubeflow's MPIJob", "K_MPI_JOB_ROLE", None),
    // An old Volcano's plugin `env` sets this name alone; newer ones set the row's variable, too.
    stranger("Volcano", "VK_TASK_INDEX", None),
];

/// Variables that are read apart from the rows of the tables.
const SHARED: [&str; 6] = [MASTER_ADDR, MASTER_PORT, SLURM_STEP, SLURM_STEP_NODES, SLURM_JOB_NODES, HOSTNAME];

impl Launcher {
    fn variables(&self) -> impl Iterator<Item = &'static str> {
        let condition = match self.condition {
            Condition::OnePerNode(name) => Some(name),
            _ => None,
        };
        let places =
            [Some(self.rank), Some(self.size), self.local_rank, self.local_size, self.host, self.port, condition];
        let marks = self.marks.iter().flat_map(Mark::variables).copied();
        places.into_iter().flatten().chain(marks)
    }
}

/// The task whose variable this is, if a name with `*` stands for it.
pub fn task_of<'a>(name: &'static str, variable: &'a str) -> Option<&'a str> {
    let (before, after) = name.split_once('*')?;
    variable.strip_prefix(before)?.strip_suffix(after).filter(|task| !task.is_empty())
}

/// The variables that a launcher's row or a hint mentions. They are gathered once for an environment, because a start
/// looks at each variable in it.
pub struct Names {
    /// The whole names, in order.
    whole: Vec<&'static str>,
    /// The names with a `*`, which stands for a task's name.
    of_tasks: Vec<&'static str>,
}

impl Names {
    pub fn gather() -> Names {
        let of_strangers = STRANGERS.iter().flat_map(|stranger| [Some(stranger.mark), stranger.size]).flatten();
        let shared = SHARED.into_iter().chain(HOST_FILES).chain(of_strangers);
        let all = shared.chain(LAUNCHERS.iter().flat_map(Launcher::variables));
        let (of_tasks, mut whole): (Vec<_>, Vec<_>) = all.partition(|name| name.contains('*'));
        whole.sort_unstable();
        Names { whole, of_tasks }
    }

    pub fn have(&self, variable: &str) -> bool {
        self.whole.binary_search(&variable).is_ok()
            || self.of_tasks.iter().any(|name| task_of(name, variable).is_some())
    }
}

#[cfg(test)]
#[path = "launchers_test.rs"]
mod tests;
