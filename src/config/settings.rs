//! The way from the values that count to what they mean: the validated settings, and the rules that join one setting to
//! another.

use super::derived::DerivedJob;
use super::hccl::hccl_chief_port;
use super::launcher::Placement;
use super::launchers::MASTER_ADDR;
use super::origin::Origin;
use super::reach::Reach;
use super::reader::Reader;
use super::shown::wrong;
use super::sources::Config;
use super::table::{Key, TABLE};
use super::tls::JOB_SECRET;
use super::tls::{Lock, TlsSettings};
use super::value::{plain_decimal, LogLevel};
use crate::error::{Error, Result};
use crate::types::{ChecksumScope, Hook, Role, SharedMemory};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What a process is to its cluster, and where the scheduler is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// No settings at all: a cluster of one.
    Alone {
        /// Its name, where it was given one.
        node_id: Option<String>,
    },
    /// The scheduler: binds here and serves.
    Scheduler {
        /// An address or a host name.
        host: String,
        /// At least one port: the first that is free counts. 0 lets the system choose; it is allowed only if the caller
        /// can ask for the address.
        ports: Vec<u16>,
    },
    /// A worker or a server.
    Node {
        /// Which of the two.
        role: Role,
        /// The scheduler's address or host name.
        host: String,
        /// The scheduler's port, never 0. Several, if the scheduler has taken the first of them that was free.
        ports: Vec<u16>,
        /// Its name, where it was given one.
        node_id: Option<String>,
        /// Its rank, where it is settled: given by a launcher, or by a node id that is a number.
        rank: Option<u32>,
        /// Whether it runs the scheduler in its own process: rank 0 under another launcher.
        hosts_scheduler: bool,
    },
}

/// What the scheduler's store may hold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// The longest key.
    pub key: usize,
    /// The longest value.
    pub value: usize,
    /// All keys and values together.
    pub total: u64,
}

/// Validated settings: nobody checks a setting again after these are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What this process is, and where the scheduler is.
    pub assignment: Assignment,
    /// Workers in all.
    pub worker_num: u32,
    /// Parameter servers in all.
    pub server_num: u32,
    /// The job's name; nodes of another are refused.
    pub job_id: Option<String>,
    /// The job as the launcher knows it that gave this process its rank. It is set if nobody has named the job or a
    /// port.
    pub derived_job: Option<DerivedJob>,
    /// Whether the launcher that gave this process its rank says that there are ranks on other hosts, too.
    pub spans_hosts: bool,
    /// How long forming and recovering may take; `None` is no limit.
    pub forming_timeout: Option<Duration>,
    /// The setting that says so, in words: `MS_CLUSTER_TIMEOUT is 5`.
    pub forming_setting: String,
    /// How long an operation on a group may take; `None` is no limit.
    pub operation_timeout: Option<Duration>,
    /// How long a get or wait on the store may take; `None` is no limit.
    pub store_timeout: Option<Duration>,
    /// How long leaving may take.
    pub finalize_timeout: Duration,
    /// Silence after which a node is lost; half a second at least.
    pub heartbeat_timeout: Duration,
    /// What tells this host from others, in place of host name and boot id.
    pub host_id: Option<String>,
    /// The addresses to bind and to tell the others; empty: find them.
    pub worker_addresses: Vec<IpAddr>,
    /// What else is set about its addresses and the scheduler's. In a cluster of one nothing of it counts.
    pub reach: Reach,
    /// This process's index on its host, where a launcher gives one.
    pub device_id: Option<u32>,
    /// The address of its device, for a rank table that is written.
    pub device_ip: Option<IpAddr>,
    /// A listening socket that the scheduler inherits in place of binding its port.
    pub sched_fd: Option<i32>,
    /// The word by which its launcher knows this process.
    pub launch_id: Option<String>,
    /// What the store may hold.
    pub store_limits: StoreLimits,
    /// Which data between nodes carries checksums.
    pub checksums: ChecksumScope,
    /// Whether the ranks of one host share memory.
    pub shared_memory: SharedMemory,
    /// Thresholds between algorithms, as they are written.
    pub thresholds: Option<String>,
    /// How long a waiting call polls before it sleeps; `None`: as long as is best here.
    pub poll: Option<Duration>,
    /// The least severe messages that are logged.
    pub log_level: LogLevel,
    /// Whether HCCL starts by its cluster manager.
    pub hccl_cm_init: bool,
    /// Whether lost processes may return.
    pub enable_recovery: bool,
    /// Where scheduler and nodes keep what they must remember.
    pub recovery_path: Option<PathBuf>,
    /// Where the timeline of its collectives is written.
    pub trace: Option<PathBuf>,
    /// An HCCL rank table to take ranks from.
    pub rank_table_file: Option<PathBuf>,
    /// Where the job's secret comes from, if it has one.
    pub job_secret: Lock,
    /// What TLS is to use, where all connections run it.
    pub tls: Option<TlsSettings>,
    /// What the program is asked while a call waits.
    pub interrupt: Hook,
    /// What is odd though not wrong, one sentence each.
    pub warnings: Vec<String>,
    /// The origins of the settings that are set.
    origins: BTreeMap<Key, Origin>,
}

impl Settings {
    /// How the user knows this setting: the variable that it came from, or its name in code. For the default, it is the
    /// variable that would change it. For errors that only show when a value is used.
    pub fn origin(&self, key: Key) -> String {
        self.origins.get(&key).unwrap_or(&Origin::Default).name(key.setting())
    }

    /// Whether the scheduler's host is the first of a list that a launcher tells.
    pub fn host_is_listed(&self) -> bool {
        matches!(self.origins.get(&Key::SchedHost), Some(Origin::FirstOf(_)))
    }

    /// The port of the chief of HCCL's cluster manager, for a scheduler at this one.
    pub fn hccl_chief_port(&self, sched_port: u16) -> Result<u16> {
        hccl_chief_port(sched_port, &self.origin(Key::SchedPort))
    }

    /// Checks whether the settings leave room for HCCL's cluster manager, if it is asked for.
    fn check_hccl(&self) -> Result<()> {
        match &self.assignment {
            Assignment::Node { ports, .. } | Assignment::Scheduler { ports, .. } if self.hccl_cm_init => {
                ports.iter().try_for_each(|port| self.hccl_chief_port(*port).map(|_| ()))
            }
            _ => Ok(()),
        }
    }
}

/// Raw settings become validated ones.
impl Config {
    /// The validated settings of a process that joins its cluster (or is it, or is its scheduler) as they say.
    pub fn settings(&self) -> Result<Settings> {
        let reader = Reader::new(self)?;
        let role = reader.role()?;
        let (assignment, worker_num, server_num) = match (role, &reader.placement) {
            (Some(Role::Scheduler), _) => reader.scheduler()?,
            (Some(role), _) => reader.node(role)?,
            (None, Some(placement)) => reader.launched(placement)?,
            (None, None) => reader.alone()?,
        };
        let settings = reader.settings(assignment, worker_num, server_num)?;
        settings.check_hccl()?;
        Ok(settings)
    }

    /// The validated settings of a scheduler inside a program. The role does not count. The host is this one unless
    /// another is set. The port is 0 unless another is set, because the caller can ask for it. A launcher's variables may
    /// say where the scheduler of the launcher's own job is: they do not count here.
    pub fn scheduler_settings(&self) -> Result<Settings> {
        let reader = Reader::new(self)?;
        let is_set = |key| matches!(reader.set_by(key), Some(Origin::Code | Origin::Variable(_)));
        let host = if is_set(Key::SchedHost) { reader.text(Key::SchedHost)? } else { None };
        let port = if is_set(Key::SchedPort) { reader.port()? } else { None };
        let host = host.unwrap_or_else(|| "127.0.0.1".to_string());
        let assignment = Assignment::Scheduler { host, ports: vec![port.unwrap_or(0)] };
        let (worker_num, server_num) = reader.sizes("a scheduler")?;
        let mut settings = reader.settings(assignment, worker_num, server_num)?;
        settings.origins.retain(|key, _| ![Key::SchedHost, Key::SchedPort].contains(key) || is_set(*key));
        Ok(settings)
    }
}

/// The rules that join settings.
impl Reader<'_> {
    fn scheduler(&self) -> Result<(Assignment, u32, u32)> {
        let inherits = self.whole(Key::SchedFd)?.is_some();
        let (worker_num, server_num) = self.sizes(Role::Scheduler.ms_name())?;
        let (host, port) = if inherits {
            let host = self.text(Key::SchedHost)?.unwrap_or_else(|| "127.0.0.1".to_string());
            (host, self.port()?.unwrap_or(0))
        } else {
            self.endpoint(Role::Scheduler.ms_name())?
        };
        Ok((Assignment::Scheduler { host, ports: vec![port] }, worker_num, server_num))
    }

    fn node(&self, role: Role) -> Result<(Assignment, u32, u32)> {
        let (worker_num, server_num) = self.sizes(role.ms_name())?;
        let (host, port) = self.endpoint(role.ms_name())?;
        if role == Role::Server && server_num == 0 {
            return Err(Error::config(format!(
                "{} is \"{}\", but {} is \"0\": expected at least one server",
                self.name(Key::Role),
                role.ms_name(),
                self.name(Key::ServerNum)
            )));
        }
        let (node_id, rank) = self.identity(role, worker_num, server_num)?;
        let assignment = Assignment::Node { role, host, ports: vec![port], node_id, rank, hosts_scheduler: false };
        Ok((assignment, worker_num, server_num))
    }

    /// A worker that another launcher started.
    fn launched(&self, placement: &Placement) -> Result<(Assignment, u32, u32)> {
        let (worker_num, server_num) = self.sizes(placement.launcher.name)?;
        let (node_id, rank) = self.identity(Role::Worker, worker_num, server_num)?;
        if worker_num == 1 && server_num == 0 {
            // Nobody else will come. So this process needs no port, and another job on this host may hold it.
            return Ok((Assignment::Alone { node_id }, 1, 0));
        }
        if self.set_by(Key::SchedHost).is_none() {
            let hint = placement.hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
            let told = placement.given.get(&Key::WorkerNum).map(|given| &given.origin);
            let by = self.name(Key::WorkerNum);
            let by = if told == Some(&Origin::Launcher(by.clone())) { String::new() } else { format!(" (by {by})") };
            return Err(Error::config(format!(
                "{} started this process as one of {worker_num}{by}, but nothing says where the scheduler is: set {} (or \
                 {}) to the address of the host of rank 0{hint}",
                placement.launcher.name,
                Key::SchedHost.setting().variable(),
                MASTER_ADDR
            )));
        }
        let (host, ports) = match placement.ports_of_job() {
            Some(ports) => (self.host(placement.launcher.name)?, ports),
            None => self.endpoint(placement.launcher.name).map(|(host, port)| (host, vec![port]))?,
        };
        let assignment =
            Assignment::Node { role: Role::Worker, host, ports, node_id, rank, hosts_scheduler: rank == Some(0) };
        Ok((assignment, worker_num, server_num))
    }

    fn alone(&self) -> Result<(Assignment, u32, u32)> {
        for key in [Key::WorkerNum, Key::ServerNum] {
            let counts = matches!(self.set_by(key), Some(Origin::Code))
                || matches!(self.set_by(key), Some(Origin::Variable(name)) if !key.setting().others.contains(&name.as_str()));
            let number = if counts { self.whole(key)? } else { None };
            // A cluster of one has no servers, so 0 servers are no contradiction.
            if let Some(number) = number.filter(|number| (key, *number) != (Key::ServerNum, 0)) {
                let name = self.name(key);
                return Err(Error::config(format!(
                    "{name} is \"{number}\", but MS_ROLE is not set: expected MS_ROLE to be {}, or {name} to be unset \
                     for a cluster of one",
                    Key::Role.setting().kind.expectation()
                )));
            }
        }
        Ok((Assignment::Alone { node_id: self.text(Key::NodeId)? }, 1, 0))
    }

    /// Where the scheduler is, for a process that must know.
    fn endpoint(&self, who: &str) -> Result<(String, u16)> {
        let host = self.host(who)?;
        let port = self.port()?.ok_or_else(|| Self::missing(Key::SchedPort, who))?;
        if port == 0 {
            return Err(wrong(Key::SchedPort.setting(), &self.name(Key::SchedPort), "0"));
        }
        Ok((host, port))
    }

    fn host(&self, who: &str) -> Result<String> {
        self.text(Key::SchedHost)?.ok_or_else(|| Self::missing(Key::SchedHost, who))
    }

    /// A setting that this process cannot do without is not set.
    fn missing(key: Key, who: &str) -> Error {
        let setting = key.setting();
        Error::config(format!(
            "{} (in code: {}) is not set, but {who} needs it: expected {}",
            setting.usual_variable(),
            setting.name,
            setting.kind.expectation()
        ))
    }

    fn sizes(&self, who: &str) -> Result<(u32, u32)> {
        let workers = self.small(Key::WorkerNum)?.ok_or_else(|| Self::missing(Key::WorkerNum, who))?;
        Ok((workers, self.small(Key::ServerNum)?.unwrap_or(0)))
    }

    /// Node id and rank. A node id that is a number below the number of the role's nodes is the rank.
    fn identity(&self, role: Role, workers: u32, servers: u32) -> Result<(Option<String>, Option<u32>)> {
        let (count_key, count) =
            if role == Role::Server { (Key::ServerNum, servers) } else { (Key::WorkerNum, workers) };
        let node_id = self.text(Key::NodeId)?;
        let named = node_id.as_deref().and_then(plain_decimal).filter(|number| *number < u64::from(count));
        let named = named.and_then(|number| u32::try_from(number).ok());
        let given = self.small(Key::RankId)?;
        if let Some(given) = given.filter(|given| *given >= count) {
            return Err(Error::config(format!(
                "{} is \"{given}\", but {} is \"{count}\": expected a rank from 0 to {}",
                self.name(Key::RankId),
                self.name(count_key),
                count - 1
            )));
        }
        match (named, given) {
            (Some(named), Some(given)) if named != given => Err(Error::config(format!(
                "{} is \"{named}\", but {} is \"{given}\": expected the same rank from both, or a node id that is no \
                 number",
                self.name(Key::NodeId),
                self.name(Key::RankId)
            ))),
            _ => Ok((node_id, named.or(given))),
        }
    }

    /// The time for forming: the smaller of the two that is set.
    fn forming_timeout(&self) -> Result<Option<Duration>> {
        Ok(self.forming()?.1)
    }

    /// The setting that decides the time for forming, and its value.
    fn forming_setting(&self) -> Result<String> {
        let (key, limit) = self.forming()?;
        let is_default = self.set_by(key).is_none();
        let value = limit.map_or("no limit".to_owned(), |limit| limit.as_secs_f64().to_string());
        Ok(format!("{} is {value}{}", self.name(key), if is_default { " where it is not set" } else { "" }))
    }

    fn forming(&self) -> Result<(Key, Option<Duration>)> {
        let cluster = (Key::ClusterTimeout, self.seconds(Key::ClusterTimeout)?.flatten());
        let Some(topo) = self.seconds(Key::TopoTimeout)? else { return Ok(cluster) };
        let topo = (Key::TopoTimeout, topo);
        let is_less = topo.1.is_some_and(|topo| cluster.1.is_none_or(|cluster| topo < cluster));
        Ok(if is_less || self.set_by(Key::ClusterTimeout).is_none() { topo } else { cluster })
    }

    fn settings(&self, assignment: Assignment, worker_num: u32, server_num: u32) -> Result<Settings> {
        let serves =
            matches!(assignment, Assignment::Scheduler { .. } | Assignment::Node { hosts_scheduler: true, .. });
        let sched_fd = self.whole(Key::SchedFd)?.filter(|_| serves);
        let bounded = |span: Option<Option<Duration>>| span.flatten().expect("the table has a default and a limit");
        let length = |number: Option<u64>| number.expect("the table has a default");
        // Nobody waits for a cluster of one to come back.
        let is_alone = matches!(assignment, Assignment::Alone { .. });
        let enable_recovery = self.flag(Key::EnableRecovery)? && !is_alone;
        let reach = self.reach()?;
        let takes_rank = matches!(assignment, Assignment::Node { .. });
        let placement = self.placement.as_ref().filter(|_| takes_rank);
        let recovery_path = self.text(Key::RecoveryPath)?.map(PathBuf::from);
        if enable_recovery && recovery_path.is_none() {
            let (flag, path) = (self.name(Key::EnableRecovery), self.name(Key::RecoveryPath));
            let what = "the directory where scheduler and nodes keep what they must remember";
            return Err(Error::config(format!("{flag} is on, but {path} is not set: expected {what}")));
        }
        Ok(Settings {
            warnings: self.warnings(is_alone),
            origins: TABLE.iter().filter_map(|setting| Some((setting.key, self.set_by(setting.key)?))).collect(),
            assignment,
            worker_num,
            server_num,
            job_id: self.text(Key::JobId)?,
            derived_job: placement.and_then(|placement| placement.job.clone()),
            spans_hosts: placement.is_some_and(|placement| placement.spans_hosts),
            forming_setting: self.forming_setting()?,
            forming_timeout: self.forming_timeout()?,
            operation_timeout: self.seconds(Key::Timeout)?.flatten(),
            store_timeout: self.seconds(Key::StoreTimeout)?.flatten(),
            finalize_timeout: bounded(self.seconds(Key::FinalizeTimeout)?),
            heartbeat_timeout: bounded(self.seconds(Key::NodeTimeout)?),
            host_id: self.text(Key::HostId)?,
            worker_addresses: self.addresses()?,
            reach: if is_alone { Reach::default() } else { reach },
            device_id: self.small(Key::DeviceId)?,
            device_ip: self.device_ip()?,
            sched_fd: sched_fd.map(|fd| i32::try_from(fd).expect("the table's maximum is that of an i32")),
            launch_id: self.text(Key::LaunchId)?,
            store_limits: StoreLimits {
                key: length(self.whole(Key::StoreKeyLimit)?) as usize,
                value: length(self.whole(Key::StoreValueLimit)?) as usize,
                total: length(self.whole(Key::StoreTotalLimit)?),
            },
            checksums: self.checksums()?,
            shared_memory: self.shared_memory()?,
            thresholds: self.text(Key::Thresholds)?,
            poll: self.whole(Key::PollUs)?.map(Duration::from_micros),
            log_level: self.log_level()?,
            hccl_cm_init: self.flag(Key::HcclCmInit)?,
            enable_recovery,
            recovery_path,
            trace: self.text(Key::Trace)?.map(PathBuf::from),
            rank_table_file: self.text(Key::RankTableFile)?.map(PathBuf::from),
            job_secret: self.lock(JOB_SECRET)?,
            tls: self.tls()?,
            interrupt: self.config.interrupt.clone(),
        })
    }
}

#[cfg(test)]
#[path = "settings_test.rs"]
mod tests;
