//! The one table of settings. Names, defaults, documentation, help and suggestions are all read from here, and nowhere
//! else is a setting's name or default written down.
//!
//! Invariants (tested in `table_test.rs`): the row of a key stands at the key's number, every default is a valid value,
//! and no name belongs to two settings.

use super::value::Kind;

/// A setting. The table's row says what each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // `Setting::doc` says what each means
pub enum Key {
    Role,
    SchedHost,
    SchedPort,
    SchedBind,
    WorkerNum,
    ServerNum,
    NodeId,
    RankId,
    DeviceId,
    DeviceIp,
    JobId,
    WorkerIp,
    Advertise,
    PortRange,
    Ifname,
    HostId,
    ClusterTimeout,
    TopoTimeout,
    NodeTimeout,
    Timeout,
    StoreTimeout,
    FinalizeTimeout,
    StoreKeyLimit,
    StoreValueLimit,
    StoreTotalLimit,
    Checksums,
    Shm,
    Thresholds,
    PollUs,
    Log,
    Trace,
    SchedFd,
    LaunchId,
    HcclCmInit,
    EnableRecovery,
    RecoveryPath,
    RankTableFile,
    JobSecret,
    JobSecretFile,
    JobSecretFd,
    EnableSsl,
    ConfigFilePath,
    ClientPassword,
    ServerPassword,
    ClientPasswordFile,
    ServerPasswordFile,
    VerifyNodeId,
    VerifyHost,
    ClientPasswordFd,
    ServerPasswordFd,
    TlsVersion,
}

/// One row of the table.
#[derive(Debug)]
pub struct Setting {
    /// Which setting this is.
    pub key: Key,
    /// Its name in code; `MUSTER_` and this in upper case is its variable.
    pub name: &'static str,
    /// The variables that existing users set; a `MUSTER_` variable beats them.
    pub ms: &'static [&'static str],
    /// Variables of launchers that mean the same; they count least.
    pub others: &'static [&'static str],
    /// Which values it takes.
    pub kind: Kind,
    /// Its value where nothing is set.
    pub default: Option<&'static str>,
    /// Whether all nodes of a cluster must have the same value.
    pub agree: bool,
    /// Whether it is never shown.
    pub secret: bool,
    /// What it means, short enough for a table.
    pub doc: &'static str,
    /// What else there is to say; empty for most.
    pub more: &'static str,
}

/// How a setting's own variable begins.
const OWN_PREFIX: &str = "MUSTER_";

impl Setting {
    /// A row with nothing special about it, to be refined.
    const fn new(key: Key, name: &'static str, kind: Kind, doc: &'static str) -> Setting {
        Setting { key, name, ms: &[], others: &[], kind, default: None, agree: false, secret: false, doc, more: "" }
    }

    const fn more(self, more: &'static str) -> Setting {
        Setting { more, ..self }
    }

    const fn ms(self, ms: &'static [&'static str]) -> Setting {
        Setting { ms, ..self }
    }

    const fn others(self, others: &'static [&'static str]) -> Setting {
        Setting { others, ..self }
    }

    const fn default(self, default: &'static str) -> Setting {
        Setting { default: Some(default), ..self }
    }

    const fn agree(self) -> Setting {
        Setting { agree: true, ..self }
    }

    const fn secret(self) -> Setting {
        Setting { secret: true, ..self }
    }

    /// Its own variable: `MUSTER_SCHED_PORT` for `sched_port`.
    pub fn variable(&self) -> String {
        format!("{OWN_PREFIX}{}", self.name.to_uppercase())
    }

    /// Whether this is the setting's own variable. Asked often: makes no string.
    pub fn is_own_variable(&self, variable: &str) -> bool {
        let rest = variable.strip_prefix(OWN_PREFIX).unwrap_or_default();
        rest.len() == self.name.len() && rest.bytes().eq(self.name.bytes().map(|it| it.to_ascii_uppercase()))
    }

    /// The name that users of the original know, or its own variable where there is none.
    pub fn usual_variable(&self) -> String {
        self.ms.iter().chain(self.others).next().map_or_else(|| self.variable(), |name| name.to_string())
    }

    /// The setting with this name in code.
    pub fn named(name: &str) -> Option<&'static Setting> {
        TABLE.iter().find(|setting| setting.name == name)
    }

    /// The setting that this variable sets, whichever of its names it is.
    pub fn of_variable(variable: &str) -> Option<&'static Setting> {
        let own = variable.starts_with(OWN_PREFIX);
        TABLE.iter().find(|setting| match own {
            true => setting.is_own_variable(variable),
            false => setting.ms.contains(&variable) || setting.others.contains(&variable),
        })
    }
}

impl Key {
    /// The row of this setting.
    pub fn setting(self) -> &'static Setting {
        &TABLE[self as usize]
    }
}

/// Nodes of one role, at most.
pub const NODES_LIMIT: u64 = 1 << 20;

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;

/// A descriptor that a process inherits, and that is not for its input, output and errors.
const DESCRIPTOR: Kind = Kind::Whole { min: 3, max: i32::MAX as u64 };

/// Every setting, once, in the order of the documentation.
pub static TABLE: [Setting; 51] = [
    Setting::new(Key::Role, "role", Kind::Role, "What this process is in its cluster.").ms(&["MS_ROLE"]),
    Setting::new(
        Key::SchedHost,
        "sched_host",
        Kind::Host,
        "Where the scheduler is. Needed with a role.",
    )
    .more("The nodes connect to this address. The scheduler binds it, unless `sched_bind` is set. A name is looked up for each attempt to connect.")
    .ms(&["MS_SCHED_HOST"])
    .agree(),
    Setting::new(
        Key::SchedPort,
        "sched_port",
        Kind::Port,
        "The scheduler's port. Needed with a role.",
    )
    .more("Under another launcher it may be unset: then it is one of the ports of the launcher's job, or 8118 where the job is not known. See below.")
    .ms(&["MS_SCHED_PORT"])
    .agree(),
    Setting::new(Key::SchedBind, "sched_bind", Kind::Binds, "What the scheduler binds in place of `sched_host`.")
        .more("For a scheduler that nodes reach by a service's address, through NAT, or at a container's mapped port. `muster run` binds one address, or `*`."),
    Setting::new(
        Key::WorkerNum,
        "worker_num",
        Kind::Whole { min: 1, max: NODES_LIMIT },
        "How many workers the cluster has. Needed with a role.",
    )
    .more("Without a role, and without another launcher, it is an error (`RANK_SIZE` alone: a warning).")
    .ms(&["MS_WORKER_NUM"])
    .others(&["RANK_SIZE"])
    .agree(),
    Setting::new(
        Key::ServerNum,
        "server_num",
        Kind::Whole { min: 0, max: NODES_LIMIT },
        "How many parameter servers the cluster has.",
    )
    .ms(&["MS_SERVER_NUM"])
    .default("0")
    .agree(),
    Setting::new(
        Key::NodeId,
        "node_id",
        Kind::Text { max_bytes: 255 },
        "This node's name, unique in the cluster.",
    )
    .more("A plain decimal number (no leading zero) below the number of nodes of its role is also the rank. An unset id is made of the rank where a launcher gives one (`rank 3`, `server rank 0`): it is the same when the node is started again. Otherwise each process makes up a new one.")
    .ms(&["MS_NODE_ID"]),
    Setting::new(
        Key::RankId,
        "rank_id",
        Kind::Whole { min: 0, max: NODES_LIMIT - 1 },
        "This node's rank, from a launcher. The scheduler chooses if unset.",
    )
    .others(&["RANK_ID"]),
    Setting::new(
        Key::DeviceId,
        "device_id",
        Kind::Whole { min: 0, max: NODES_LIMIT - 1 },
        "This process's index among those of its host.",
    )
    .others(&["DEVICE_ID"]),
    Setting::new(
        Key::DeviceIp,
        "device_ip",
        Kind::Address,
        "The address of this process's device in a rank table.",
    )
    .more("If unset it is what `/etc/hccn.conf` says of `device_id`."),
    Setting::new(
        Key::JobId,
        "job_id",
        Kind::Text { max_bytes: 255 },
        "The job's name. A node with another name than its scheduler is refused.",
    )
    .more("Where only one of the two has a name, it is refused, too. Under another launcher it takes the place of the launcher's job; see below."),
    Setting::new(
        Key::WorkerIp,
        "worker_ip",
        Kind::Addresses,
        "The addresses that this node binds, and tells the others.",
    )
    .more("If unset the node finds them itself.")
    .ms(&["MS_WORKER_IP"]),
    Setting::new(Key::Advertise, "advertise", Kind::Endpoints, "What this node tells the others in place of what it binds.")
        .more("For a node that others reach through NAT. It then binds every address, unless `worker_ip` or `ifname` is set, and the port that is told here, unless there are several or `port_range` is set."),
    Setting::new(Key::PortRange, "port_range", Kind::Ports, "The ports of which this node takes the first that is free.")
        .more("If unset the system chooses the port. For a firewall, or for ports that are mapped."),
    Setting::new(Key::Ifname, "ifname", Kind::Interfaces, "The interfaces that count when a node looks for its addresses.")
        .more("It then binds and tells all addresses of those that are up, not only the one that leads to the scheduler. A loopback interface must be named. `worker_ip` beats it."),
    Setting::new(
        Key::HostId,
        "host_id",
        Kind::Text { max_bytes: 255 },
        "A name of this host, for counting local ranks.",
    )
    .more("It takes the place of host name and boot id."),
    Setting::new(
        Key::ClusterTimeout,
        "cluster_timeout",
        Kind::Seconds { min_ms: 1, limitless: true },
        "How long the cluster may take to form, or to form anew.",
    )
    .more("If `topo_timeout` is set, too, the smaller one counts. The first process whose time is up ends the forming for all.")
    .ms(&["MS_CLUSTER_TIMEOUT"])
    .default("600"),
    Setting::new(
        Key::TopoTimeout,
        "topo_timeout",
        Kind::Seconds { min_ms: 1, limitless: true },
        "Another name for `cluster_timeout`.",
    )
    .more("In MindSpore it limits a second phase. Here one time limits both.")
    .ms(&["MS_TOPO_TIMEOUT"]),
    Setting::new(
        Key::NodeTimeout,
        "node_timeout",
        Kind::Seconds { min_ms: 500, limitless: false },
        "Heartbeat time-out: after so much silence a node is lost. The scheduler's setting counts.",
    )
    .more("A node that does not hear the scheduler for so long is lost, too. A heartbeat goes out every fifth of it.")
    .ms(&["MS_NODE_TIMEOUT"])
    .default("5"),
    Setting::new(
        Key::Timeout,
        "timeout",
        Kind::Seconds { min_ms: 1, limitless: true },
        "How long an operation on a group may take.",
    )
    .default("1800"),
    Setting::new(
        Key::StoreTimeout,
        "store_timeout",
        Kind::Seconds { min_ms: 1, limitless: true },
        "How long a get or wait on the store may take by default.",
    )
    .default("300"),
    Setting::new(
        Key::FinalizeTimeout,
        "finalize_timeout",
        Kind::Seconds { min_ms: 1, limitless: false },
        "How long leaving may take.",
    )
    .default("30"),
    Setting::new(
        Key::StoreKeyLimit,
        "store_key_limit",
        Kind::Whole { min: 1, max: 64 * KIB },
        "The longest key of the store, in bytes. The scheduler's setting counts.",
    )
    .default("4096"),
    Setting::new(
        Key::StoreValueLimit,
        "store_value_limit",
        Kind::Whole { min: 1, max: GIB },
        "The longest value of the store, in bytes. The scheduler's setting counts.",
    )
    .default("16777216"),
    Setting::new(
        Key::StoreTotalLimit,
        "store_total_limit",
        Kind::Whole { min: 1, max: 64 * GIB },
        "Keys and values of the store, in bytes; and those on their way to it. The scheduler's setting counts.",
    )
    .default("268435456"),
    Setting::new(
        Key::Checksums,
        "checksums",
        Kind::Checksums,
        "Which data between nodes carries checksums. The scheduler's setting counts.",
    )
    .more("With `0` nothing does, with `1` what goes over the network. With `all` the data that ranks of a host share in memory does, too: a call that ends well then gives the right result, whatever another process writes there by mistake. Damaged data ends it with `MUSTER_ERR_CORRUPT`. Only a barrier, which has no data, may end early. Data that goes over the network under TLS carries none, for TLS itself finds damage.").default("1"),
    Setting::new(Key::Shm, "shm", Kind::Sharing, "Whether the ranks of a host share memory. The scheduler's setting counts.")
    .more("With `auto` the members of a group that are on one host share memory from its fourth collective on (with several hosts from the first that can use it). They use TCP where that cannot be had, where a host has more than 64 of them, and in clusters of more than 1,024 nodes; the debug log says why. With `require` its calls fail then (`MUSTER_ERR_UNSUPPORTED`). Messages between two such members go through memory from the first on.").default("auto"),
    Setting::new(
        Key::Thresholds,
        "thresholds",
        Kind::Text { max_bytes: 4096 },
        "At which sizes one algorithm of a collective takes over from another.",
    )
    .more("Names and numbers, such as `allreduce_tree_bytes=65536,barrier_tree_ranks=8`, in place of the measured ones. The error for a wrong name lists all names. The scheduler's setting counts."),
    Setting::new(
        Key::PollUs,
        "poll_us",
        Kind::Whole { min: 0, max: 1_000_000 },
        "How many microseconds a waiting call, or a progress thread, polls before it sleeps.",
    )
    .more("0 is never. If unset it is 50, and 400 for calls where ranks share processors. A progress thread polls only where there is a processor for it beside all ranks. Nothing polls while other programs want the processors."),
    Setting::new(Key::Log, "log", Kind::Level, "The least severe messages that are logged.")
    .more("If standard error does not take a line, the line is dropped. A later line says how many were.").default("warn"),
    Setting::new(Key::Trace, "trace", Kind::Path, "A folder for the timeline of this run's collectives.")
        .more("Each rank writes a file there, of 256 MiB at most. It is made if missing. `muster trace merge` joins the files."),
    Setting::new(
        Key::SchedFd,
        "sched_fd",
        DESCRIPTOR,
        "A listening socket that the scheduler inherits; `muster run` sets it.",
    )
    .more("The number of its descriptor. The scheduler takes it in place of binding its port."),
    Setting::new(
        Key::LaunchId,
        "launch_id",
        Kind::Secret { max_bytes: 255 },
        "The name of one start of a process; `muster run` sets it.",
    )
    .more("By it the launcher knows which node belongs to which process that it started, also where that process is a script. Each start has a new one. The first 16 digits are the run's, by which all its processes are found.")
    .secret(),
    Setting::new(
        Key::HcclCmInit,
        "hccl_cm_init",
        Kind::Flag,
        "Whether HCCL starts by its cluster manager.",
    )
    .more("`muster run` then exports `CM_CHIEF_IP` and its four companions to the workers. `muster_hccl_cm` answers either way.")
    .ms(&["MS_HCCL_CM_INIT"])
    .default("0"),
    Setting::new(Key::EnableRecovery, "enable_recovery", Kind::Flag, "Whether lost processes may return.")
        .ms(&["MS_ENABLE_RECOVERY"])
        .default("0")
        .agree(),
    Setting::new(
        Key::RecoveryPath,
        "recovery_path",
        Kind::Path,
        "The directory for the files that must outlive a process. Recovery needs it.",
    )
    .more("The scheduler keeps its journal there, and each node its identity. It is made if missing.")
    .ms(&["MS_RECOVERY_PATH"]),
    Setting::new(
        Key::RankTableFile,
        "rank_table_file",
        Kind::Path,
        "An HCCL rank table (JSON, version 1.0).",
    )
    .more("A worker's entry, and so its rank, is found by `rank_id` if that is set, else by its host and `device_id`.")
    .others(&["RANK_TABLE_FILE"]),
    Setting::new(
        Key::JobSecret,
        "job_secret",
        Kind::Secret { max_bytes: 1024 },
        "A secret that keeps strangers off the job.",
    )
    .more("Long and random: 32 bytes in hexadecimal, for instance. All processes of the job share it. Each proves on each connection that it knows it. It is never sent.")
    .agree()
    .secret(),
    Setting::new(Key::JobSecretFile, "job_secret_file", Kind::Path, "A file with that secret, in place of `job_secret`.")
        .more("One newline at its end is not part of the secret. A file that any user can read is refused.")
        .agree(),
    Setting::new(
        Key::JobSecretFd,
        "job_secret_fd",
        DESCRIPTOR,
        "A descriptor that says that secret, in place of `job_secret`.",
    )
    .more("As `client_password_fd`."),
    Setting::new(Key::EnableSsl, "enable_ssl", Kind::Flag, "Whether all connections run TLS.")
        .default("0")
        .agree(),
    Setting::new(
        Key::ConfigFilePath,
        "config_file_path",
        Kind::Path,
        "The TLS configuration file (JSON); read only with `enable_ssl`.",
    ),
    Setting::new(
        Key::ClientPassword,
        "client_password",
        Kind::Secret { max_bytes: 1024 },
        "The password of the client's certificate file: PKCS#12, or PEM with an encrypted key.",
    )
    .secret(),
    Setting::new(
        Key::ServerPassword,
        "server_password",
        Kind::Secret { max_bytes: 1024 },
        "The password of the server's certificate file: PKCS#12, or PEM with an encrypted key.",
    )
    .secret(),
    Setting::new(
        Key::ClientPasswordFile,
        "client_password_file",
        Kind::Path,
        "A file with that password, in place of `client_password`.",
    )
    .more("One newline at its end is not part of the password. A file that any user can read is refused."),
    Setting::new(
        Key::ServerPasswordFile,
        "server_password_file",
        Kind::Path,
        "A file with that password, in place of `server_password`.",
    )
    .more("As `client_password_file`."),
    Setting::new(
        Key::VerifyNodeId,
        "verify_node_id",
        Kind::Flag,
        "Whether a node's certificate must carry its node id; needs `enable_ssl`.",
    )
    .more("As a subject alternative name, `URI:muster:node:ID`: `muster certs node DIR --node_id=ID` makes it. It is demanded of one's own certificates and, by the process that sets it, of those that connect or are connected to.")
    .default("0"),
    Setting::new(
        Key::VerifyHost,
        "verify_host",
        Kind::Flag,
        "Whether the scheduler's certificate must be for the host at which it is looked for; needs `enable_ssl`.",
    )
    .more("That is `sched_host`, as it is written: a name, or an address. Links between nodes are not concerned.")
    .default("0"),
    Setting::new(
        Key::ClientPasswordFd,
        "client_password_fd",
        DESCRIPTOR,
        "A descriptor that says that password, in place of `client_password`.",
    )
    .more("The number of one that the process was started with: a pipe's, for instance. It is read once, to its end, for 5 s at most, and closed. One newline at its end is not part of the password. It serves one process: `muster run` takes none."),
    Setting::new(
        Key::ServerPasswordFd,
        "server_password_fd",
        DESCRIPTOR,
        "A descriptor that says that password, in place of `server_password`.",
    )
    .more("As `client_password_fd`. It may be the same one."),
    Setting::new(Key::TlsVersion, "tls_version", Kind::TlsVersion, "The only version of TLS that is spoken; read only with `enable_ssl`.").more("If unset both are, and nodes use 1.3 with each other. A process that speaks only one version and a process that speaks only the other refuse each other. Under 1.2 the cipher is ChaCha20-Poly1305, for a link could outlive a key of AES-GCM, which TLS 1.2 cannot change."),
];

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
