//! A cluster, as one of its nodes has it: joined by [`join`], left by [`Cluster::finalize`].
//!
//! Owns the agent thread and, where this process hosts it, the scheduler. Dropping it without finalizing is a loss to the
//! others.

use super::agent_thread::{Node, Setup};
use super::own_addresses::OwnAddresses;
use super::{rank_table, whereabouts::places};
use crate::agent::{Agent, Command, Profile};
use crate::config::{Assignment, Settings};
use crate::error::{Error, Failure, Result, Status};
use crate::net::host;
use crate::runtime::base::clock::Clock;
use crate::runtime::base::identity;
use crate::runtime::base::identity_store::{lasting_name, IdentityStore};
use crate::runtime::base::interrupts::{in_call, Interrupts};
use crate::runtime::base::log::Logger;
use crate::runtime::base::one_thread::OneThread;
use crate::runtime::base::patience::VERDICT_WAIT;
use crate::runtime::base::polling::Polling;
use crate::runtime::base::program::Program;
use crate::runtime::base::sync::Bell;
use crate::runtime::groups::group::Group;
use crate::runtime::groups::handle::GroupHandle;
use crate::runtime::groups::registry::Registry;
use crate::runtime::links::upgrade::Upgrade;
use crate::runtime::scheduler::port;
use crate::runtime::scheduler::serving::Serving;
use crate::runtime::scheduler::thread::SchedulerThread;
use crate::runtime::state::node_state::{AgentCommand, NodeState, NodeView};
use crate::runtime::state::participation::Participation;
use crate::runtime::state::reduce_functions::ReduceFunctions;
use crate::runtime::state::roster::own_role;
use crate::runtime::state::trace::Tracer;
use crate::runtime::state::trace_file::About;
use crate::secret::{self, Guard};
use crate::types::{Epoch, GroupId, Incarnation, LaunchId, Role, Time};
use crate::wire::{Abort, Formed, Member, Register, Told, FEATURES, PROTOCOL_HIGHEST, PROTOCOL_LOWEST};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The warning at the start of a node that no later life could be recognized as.
const NO_LASTING_NAME: &str =
    "this node has neither a node id (MS_NODE_ID) nor a rank from its launcher: should it be lost, \
                              it cannot come back";

/// How long an abort waits for the other nodes to be told of it, if the scheduler does not tell them.
const ABORT_WAIT: Duration = Duration::from_secs(2);

/// The result of joining.
pub enum Joined {
    /// This process is a node of the cluster.
    Node(Box<Cluster>),
    /// This process was the scheduler; the job has ended well.
    SchedulerDone,
}

/// How far this process has left its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The process is in its cluster.
    #[default]
    NotYet,
    /// The others know that it has left; the scheduler in this process may still serve them.
    HasLeft,
    /// Nothing is left to be done.
    Done,
}

/// A node's cluster.
pub struct Cluster {
    settings: Settings,
    pub(crate) state: Arc<NodeState>,
    pub(crate) registry: Arc<Registry>,
    formed: Arc<Formed>,
    node_id: String,
    pub(super) thread: Option<JoinHandle<()>>,
    /// Threads of groups that had not ended when finalizing had to.
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(super) scheduler: Option<SchedulerThread>,
    pub(super) leaving: Mutex<Leaving>,
    /// One thread at a time leaves.
    pub(super) finalizing: OneThread,
    /// The newest epoch that the program was told of. The one thread that is inside `muster_recover` holds it.
    pub(crate) recovering: Mutex<Epoch>,
}

/// What HCCL's cluster manager is started with (see `MS_HCCL_CM_INIT`).
pub struct HcclCm {
    /// The scheduler's address, and the port above its own.
    pub chief: SocketAddr,
    /// The device that collects what the others say.
    pub chief_device: u32,
    /// How many workers there are.
    pub worker_size: u32,
    /// This node's address.
    pub worker: IpAddr,
}

/// Does what the settings say: serves as the scheduler until the job ends, or joins the cluster as a node.
pub fn join(mut settings: Settings) -> Result<Joined> {
    if let Assignment::Scheduler { .. } = settings.assignment {
        let interrupts = Interrupts::new(settings.interrupt.clone());
        serving(&settings)?.run_for(&interrupts.attention())?;
        return Ok(Joined::SchedulerDone);
    }
    rank_table::take_rank(&mut settings)?;
    identity::demand_own_id(&mut settings)?;
    let mut guard = secret::open(&settings)?;
    settings.warnings.append(&mut guard.warnings);
    join_over(settings, guard, Upgrade::to_memory())
}

/// Does what [`join`] does for a node, with every connection wrapped, and links upgraded if their peers offer the same.
pub fn join_over(settings: Settings, guard: Guard, upgrade: Upgrade) -> Result<Joined> {
    let scheduler = scheduler_thread(&settings, &guard)?;
    Cluster::join(settings, scheduler, guard, upgrade).map(|cluster| Joined::Node(Box::new(cluster)))
}

/// A scheduler that is ready to serve on the thread that runs it.
pub fn serving(settings: &Settings) -> Result<Serving> {
    check_scheduler(settings)?;
    Serving::new(settings)
}

/// Starts a scheduler on a thread of this process.
pub fn start_scheduler(settings: &Settings) -> Result<SchedulerThread> {
    check_scheduler(settings)?;
    SchedulerThread::start(settings)
}

fn check_scheduler(settings: &Settings) -> Result<()> {
    rank_table::take_rank(&mut settings.clone()) // a scheduler has no rank, but the table must be right
}

/// The scheduler that a cluster of one, or rank 0 under another launcher, runs in its own process. Its connections are wrapped as
/// the node's are.
fn scheduler_thread(settings: &Settings, guard: &Guard) -> Result<Option<SchedulerThread>> {
    let place = match &settings.assignment {
        Assignment::Alone { .. } => Assignment::Scheduler { host: "127.0.0.1".to_owned(), ports: vec![0] },
        Assignment::Node { host, ports, hosts_scheduler: true, .. } => {
            Assignment::Scheduler { host: host.clone(), ports: ports.clone() }
        }
        _ => return Ok(None),
    };
    let is_alone = matches!(settings.assignment, Assignment::Alone { .. });
    let mut settings = settings.clone();
    settings.assignment = place;
    settings.warnings.clear(); // the node tells of them
    let thread = SchedulerThread::of(Serving::guarded(&settings, guard.shared())?)?;
    // If this process cannot join, the others can go on with recovery; and in a cluster of one there are no others.
    Ok(Some(if settings.enable_recovery || is_alone { thread.vanishing() } else { thread }))
}

impl Cluster {
    fn join(settings: Settings, scheduler: Option<SchedulerThread>, guard: Guard, upgrade: Upgrade) -> Result<Cluster> {
        let incarnation = identity::incarnation()?;
        let mut register = registration(&settings, incarnation)?;
        let (node_id, host) = (register.node_id.clone(), register.host.clone());
        let logger = Logger::new(settings.log_level, &format!("{} {node_id:?}", register.role));
        settings.warnings.iter().for_each(|line| logger.warn(line));
        let (reentry, mut identity_store) = IdentityStore::open(&settings)?.unzip();
        register.reentry = reentry.map(Box::new);
        if identity_store.as_ref().is_some_and(Option::is_none) {
            logger.warn(NO_LASTING_NAME);
        }
        let (schedulers, names) = places(&settings, scheduler.as_ref().map(SchedulerThread::addresses))?;
        let own = own_addresses(&settings, scheduler.as_ref())?;
        let profile = Profile {
            register,
            schedulers: names,
            scheduler_settings: port::settings_of_places(&settings),
            forming_timeout: settings.forming_timeout,
            forming_setting: settings.forming_setting.clone(),
            heartbeat_timeout: settings.heartbeat_timeout,
            finalize_timeout: settings.finalize_timeout,
            seed: u64::from_le_bytes(host::random_bytes()?),
        };
        let clock = Clock::start();
        let mut state = NodeState::new(logger, clock, Bell::new()?);
        state.recovery = settings.enable_recovery;
        state.polling = Polling::new(settings.poll);
        state.program = Arc::new(Program::asked_by(settings.interrupt.clone()));
        state.tracer = Tracer::of(&settings, clock)?;
        let state = Arc::new(state);
        let setup = Setup {
            agent: Agent::new(profile, clock.now()),
            schedulers,
            own,
            operation_timeout_ms: limit_ms(settings.operation_timeout),
            guard,
            upgrade,
        };
        let registry = Registry::new(&state);
        let node = Node::new(Arc::clone(&registry), setup, incarnation)?;
        let thread = crate::net::thread::spawn("muster-agent", move || node.run_to_the_end())?;
        match await_forming(&state) {
            Ok(formed) => {
                if let Some(Err(error)) = identity_store.as_mut().and_then(Option::as_mut).map(IdentityStore::joined) {
                    state.logger.warn(&format!("this node's token could not be saved as the current one: {error}"));
                }
                state.logger.set_speaker(&format!("{} {}, node id {node_id:?}", rank_word(&formed), formed.rank));
                state.begin_trace(About::of(&formed, &node_id, host));
                let (thread, recovering) = (Some(thread), Mutex::new(formed.epoch));
                Ok(Cluster {
                    settings,
                    state,
                    registry,
                    formed,
                    node_id,
                    thread,
                    threads: Mutex::default(),
                    scheduler,
                    leaving: Mutex::default(),
                    finalizing: OneThread::default(),
                    recovering,
                })
            }
            Err(error) => {
                state.ask(AgentCommand::Quit);
                let _ = thread.join(); // its panic, if any, was printed
                Err(error)
            }
        }
    }

    /// This node's role.
    pub fn role(&self) -> Role {
        own_role(&self.formed)
    }

    /// What the cluster has agreed on, in the present epoch.
    pub fn formed(&self) -> Arc<Formed> {
        self.state.view().epoch.formed.clone().unwrap_or_else(|| Arc::clone(&self.formed))
    }

    /// The settings with which the node joined.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// This node's id.
    pub fn node_id(&self) -> &str {
        &self.node_id
    }

    /// Users' reduction functions.
    pub fn reduce_functions(&self) -> &ReduceFunctions {
        &self.state.reduce_functions
    }

    /// The epoch in which the program is: `recover` has returned it, or the node has joined in it.
    pub fn epoch(&self) -> Epoch {
        self.group(GroupId::UNIVERSE).epoch()
    }

    /// The registry of the node's groups.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// A built-in group, in whatever epoch.
    pub fn handle(&self, id: GroupId) -> Arc<GroupHandle> {
        self.registry.handle(id).expect("the built-in groups are made before the cluster is handed out")
    }

    /// A built-in group, as the program has it.
    pub fn group(&self, id: GroupId) -> Arc<Group> {
        self.handle(id).present()
    }

    /// The first cause that broke the cluster, or, if the cluster holds, the first cause of a group's end. If nothing
    /// is broken: the failure of a message whose time was up.
    pub fn failure(&self) -> Option<Failure> {
        let first = self.state.view().epoch.causes.of_cluster().cloned();
        first.or_else(|| self.registry.groups().iter().find_map(|group| group.messages.late()))
    }

    /// How many nodes of this node's role there are.
    pub fn size(&self) -> u32 {
        match self.role() {
            Role::Server => self.formed.server_num,
            _ => self.formed.worker_num,
        }
    }

    /// The ranks of the workers that are lost.
    pub fn failed_ranks(&self) -> Vec<u32> {
        let view = self.state.view();
        view.epoch.lost.iter().copied().filter(|index| *index < self.formed.worker_num).collect()
    }

    /// What HCCL's cluster manager is started with.
    pub fn hccl_cm(&self) -> Result<HcclCm> {
        let scheduler = self.state.view().scheduler;
        let scheduler = scheduler
            .ok_or_else(|| Error::new(Status::Internal, "a scheduler that formed the cluster has an address"))?;
        let own = self.state.member(&self.formed(), self.formed.index)?;
        let worker = own.addresses.first().map_or(scheduler.ip(), |address| address.ip());
        // A scheduler in this process may listen on every address. The others know this host by the worker's address.
        let ip = if scheduler.ip().is_unspecified() { worker } else { scheduler.ip() };
        let chief = SocketAddr::new(ip, self.settings.hccl_chief_port(scheduler.port())?);
        // With several workers it is 0, as the original has it. A single worker may have any.
        let chief_device = match self.formed.worker_num {
            1 => self.state.member(&self.formed(), 0)?.device.id.unwrap_or(0),
            _ => 0,
        };
        Ok(HcclCm { chief, chief_device, worker_size: self.formed.worker_num, worker })
    }

    /// The HCCL rank table of its workers, as JSON text.
    pub fn rank_table(&self) -> Result<String> {
        let workers: Result<Vec<Member>> =
            (0..self.formed.worker_num).map(|index| self.state.member(&self.formed(), index)).collect();
        rank_table::text(&workers?)
    }

    /// Ends the waits of the program's calls that have begun.
    pub fn interrupt(&self) {
        self.state.program.interrupts.interrupt();
        self.state.nudge();
        self.finalizing.nudge();
        self.registry.groups().iter().for_each(|group| group.nudge());
        self.scheduler.iter().for_each(SchedulerThread::nudge);
    }

    /// Ends the job for everyone, with this code and reason.
    pub fn abort(&self, code: i32, reason: &str) -> Result<()> {
        let has_left = |view: &NodeView| match view.participation {
            Participation::Ongoing => false,
            Participation::Left(_) => true,
            Participation::Failed(_) | Participation::Ended => !view.epoch.is_aborted(),
        };
        if has_left(&self.state.view()) {
            return Err(Error::new(Status::State, "abort: this process has left its cluster, or is about to"));
        }
        self.state.ask(AgentCommand::Brain(Command::Abort { code, reason: reason.to_owned() }));
        let deadline = self.state.clock.now() + VERDICT_WAIT;
        let can_recover = self.state.recovery;
        let is_answered = |view: &NodeView| view.epoch.is_aborted() || (!can_recover && view.epoch.broken.is_some());
        // A scheduler that is known to be away is not waited for.
        let word = self.state.wait(deadline, |view| match is_answered(view) {
            false => view.away.is_some().then_some(false),
            is_told => Some(is_told),
        });
        if word == Some(true) {
            return Ok(());
        }
        // An abort by a node that counts as lost is ignored.
        let fenced = self.state.view().epoch.broken.clone().filter(|first| first.status == Status::Fenced);
        fenced.map_or_else(|| self.abort_without_scheduler(code, reason), |first| Err(first.into()))
    }

    /// Tells the others without the scheduler that the job is over.
    fn abort_without_scheduler(&self, code: i32, reason: &str) -> Result<()> {
        let formed = self.formed();
        let own = self.state.member(&formed, formed.index)?.culprit();
        let cause = Abort { code, reason: reason.to_owned() }.to_string();
        let (status, culprit, epoch) = (Status::Aborted, Some(own), formed.epoch);
        let failure = Failure { status, culprit, cause, epoch, group: None, sequence: 0 };
        self.state.ask(AgentCommand::Tell(failure.clone()));
        self.state.ask(AgentCommand::Brain(Command::Aborted(failure)));
        let deadline = self.state.clock.now() + ABORT_WAIT;
        let is_over = |view: &mut NodeView| match &view.untold {
            Some((_, goes_on)) if *goes_on || view.epoch.broken.is_none() => None,
            untold => untold.clone(),
        };
        let over = self.state.wait(deadline, is_over);
        let untold = over.or_else(|| self.state.view().untold.clone()).map(|(untold, _)| untold);
        let who = match &untold {
            Some(untold) if untold.is_empty() => return Ok(()),
            Some(untold) => {
                let others = formed.worker_num + formed.server_num - 1;
                format!("{} of {others} other nodes were not reached either", untold.len())
            }
            None => "the other nodes were not told either".to_owned(),
        };
        Err(Error::new(Status::Unreachable, format!("abort: the scheduler has not answered, and {who}")))
    }
}

/// Waits for the word of the brain, which keeps the time for forming.
fn await_forming(state: &NodeState) -> Result<Arc<Formed>> {
    let attention = state.program.interrupts.attention();
    let word =
        state.wait_attentively(Time::NEVER, &attention, |view| match (&view.participation, &view.epoch.formed) {
            (Participation::Failed(error), _) => Some(Err(error.clone())),
            (_, Some(formed)) => Some(Ok(Arc::clone(formed))),
            (Participation::Ongoing, None) => None,
            _ => Some(Err(Error::new(Status::Internal, "the agent thread has ended"))),
        });
    word.map_err(|why| in_call("init", &why))?.expect("a wait without limit ends with a word")
}

/// Where the node listens, which may have a scheduler beside it.
fn own_addresses(settings: &Settings, scheduler: Option<&SchedulerThread>) -> Result<OwnAddresses> {
    let mut own = OwnAddresses::of(settings);
    let instead = scheduler.map(|scheduler| port::address_instead(settings, scheduler.addresses())).transpose()?;
    own.instead = instead.flatten();
    Ok(own)
}

/// The node's registration: what it says of itself.
fn registration(settings: &Settings, incarnation: Incarnation) -> Result<Register> {
    let (role, given, rank) = match &settings.assignment {
        Assignment::Node { role, node_id, rank, .. } => (*role, node_id.clone(), *rank),
        Assignment::Alone { node_id } => (Role::Worker, node_id.clone(), None),
        Assignment::Scheduler { .. } => return Err(Error::config("these settings are a scheduler's")),
    };
    let host = identity::host_name(settings)?;
    Ok(Register {
        protocol_lowest: PROTOCOL_LOWEST,
        protocol_highest: PROTOCOL_HIGHEST,
        features: FEATURES,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        job_id: settings.job_id.clone(),
        role,
        node_id_given: given.is_some(),
        node_id: lasting_name(role, given.as_deref(), rank)
            .unwrap_or_else(|| identity::generated_node_id(&host, &incarnation)),
        rank,
        incarnation,
        host,
        process: identity::process(),
        addresses: Vec::new(),
        worker_num: settings.worker_num,
        server_num: settings.server_num,
        recovery: settings.enable_recovery,
        instance: None,
        told: Told::NOTHING,
        device: rank_table::device(settings),
        reentry: None,
        launch: settings.launch_id.as_deref().map(LaunchId::of),
        derived_job: settings.derived_job.as_ref().map(|job| job.mark().to_owned()),
    })
}

fn rank_word(formed: &Formed) -> &'static str {
    match own_role(formed) {
        Role::Server => "server rank",
        _ => "rank",
    }
}

/// A limit in milliseconds, as the C ABI counts: `i64::MAX` is without limit.
pub fn limit_ms(limit: Option<Duration>) -> i64 {
    limit.map_or(i64::MAX, |limit| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX))
}
