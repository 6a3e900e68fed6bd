//! The launchers that we know: which variables each of them sets. [`super::launcher`] says what these mean to our settings.

/// Something by which a launcher tells its jobs apart.
#[derive(Debug)]
pub enum Mark {
    /// The values of these variables, one after the other. The first must be set.
    Variables(&'static [&'static str]),
    /// Where the nearest of Hydra's proxies among the process's ancestors finds its launcher.
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

/// The variables by which a launcher tells a process its place.
#[derive(Debug)]
pub struct Launcher {
    /// What people call it.
    pub name: &'static str,
    /// This process's rank. The launcher counts when this and `size` are set.
    pub rank: &'static str,
    /// How many processes there are.
    pub size: &'static str,
    /// This process's index on its host.
    pub local_rank: &'static str,
    /// How many processes its host has.
    pub local_size: &'static str,
    /// By what it tells its jobs apart; the first that there is counts.
    pub marks: &'static [Mark],
}

/// The launchers that we know, the innermost first.
pub static LAUNCHERS: [Launcher; 3] = [
    Launcher {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
        marks: &[Mark::Variables(&["TORCHELASTIC_RUN_ID"])],
    },
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        marks: &[Mark::Variables(&["PMIX_NAMESPACE"]), Mark::Variables(&["OMPI_MCA_ess_base_jobid"])],
    },
    Launcher {
        name: "MPICH or Intel MPI",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
        // Intel's proxies have no control port among their arguments. Its number of the job may be inherited by another
        // launcher that is started inside, so the proxy comes first.
        marks: &[
            Mark::Variables(&["PMI_JOBID"]),
            Mark::HydraProxy,
            Mark::Variables(&["I_MPI_HYDRA_UUID", "HYDRA_BSTRAP_PGID"]),
        ],
    },
];

/// Where the first rank can be reached, as torchrun and many scripts have it; they count under every launcher.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// The port beside [`MASTER_ADDR`].
pub const MASTER_PORT: &str = "MASTER_PORT";

impl Launcher {
    fn variables(&self) -> [&'static str; 4] {
        [self.rank, self.size, self.local_rank, self.local_size]
    }
}

/// A process of Slurm's step, and how many there are: no launcher of ours yet, but not to be passed over in silence.
pub const SLURM_RANK: &str = "SLURM_PROCID";
pub const SLURM_SIZE: &str = "SLURM_STEP_NUM_TASKS";
/// A process of any launcher that speaks PMIx.
pub const PMIX_RANK: &str = "PMIX_RANK";

/// Whether a launcher's row mentions this variable, or a hint does.
pub fn reads(variable: &str) -> bool {
    let shared = [MASTER_ADDR, MASTER_PORT, SLURM_RANK, SLURM_SIZE, PMIX_RANK].contains(&variable);
    let marks = |launcher: &Launcher| launcher.marks.iter().any(|mark| mark.variables().contains(&variable));
    shared || LAUNCHERS.iter().any(|launcher| launcher.variables().contains(&variable) || marks(launcher))
}
