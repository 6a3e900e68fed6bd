//! A node's agent thread: its brain, the control connection, the listening socket, and the mesh.
//!
//! Invariants: every input is followed by draining all outputs; everything readable is fed before the timer is. The
//! thread ends when the node has left, when forming failed, or when it is told to quit; then nothing of the thread is
//! left.

use super::agent_run::AgentRun;
use super::connection::{Attempt, Connection, CONTROL};
use super::own_addresses::OwnAddresses;
use super::whereabouts::{waking, Places, Whereabouts};
use crate::agent::{Agent, Command, Event, Input, Output};
use crate::error::{Error, Failure, Result, Status};
use crate::net::{Listener, Poller, Token};
use crate::runtime::base::control::ControlEnd;
use crate::runtime::groups::group::Group;
use crate::runtime::groups::registry::Registry;
use crate::runtime::links::address_lookup::{ask_for, is_for_links};
use crate::runtime::links::{
    handshake::leave, identities::Identities, mesh::Mesh, peers::turn_away, peers::MeshEvent, upgrade::Upgrade,
};
use crate::runtime::state::node_state::{AgentCommand, NodeState};
use crate::secret::Guard;
use crate::types::{Epoch, GroupId, Time};
use crate::wire::{Called, Formed, Heartbeat, Later, Message};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

const WAKER: Token = Token(0);
const LISTENER: Token = Token(2);
/// How often the sockets are looked at again before the timer is fed.
const DRAIN_ROUNDS: usize = 16;

/// What the thread needs besides what it shares.
pub struct Setup {
    /// The brain.
    pub agent: Agent,
    /// Where the scheduler may be.
    pub schedulers: Places,
    /// The addresses at which the node listens, and those which it tells the others.
    pub own: OwnAddresses,
    /// How long an operation on a group may take, in milliseconds.
    pub operation_timeout_ms: i64,
    /// The treatment of each connection, to the scheduler and to peers: how it is wrapped, what is demanded, and what
    /// is to be told of it.
    pub guard: Guard,
    /// What becomes of a link when its peer has let it in.
    pub upgrade: Upgrade,
}

/// The agent thread's state.
pub struct Node {
    state: Arc<NodeState>,
    registry: Arc<Registry>,
    setup: Setup,
    poller: Poller,
    inputs: VecDeque<Input>,
    feeding: bool,
    connection: Connection,
    /// Whether a link that is being made holds bytes of which the poller does not know.
    more: bool,
    listener: Option<Listener>,
    accept_again: Time,
    mesh: Mesh,
    /// When the sockets were last looked at: what had come by then was read, or stands in the line of strangers.
    looked_at: Time,
    armed: Time,
    run: AgentRun,
    /// Whether all nodes have been told that this node has ended the job.
    all_are_told: bool,
}

impl Node {
    /// A node that has not begun. Binds the addresses that are known by now.
    pub fn new(registry: Arc<Registry>, setup: Setup, incarnation: crate::types::Incarnation) -> Result<Node> {
        let (poller, state) = (Poller::new()?, Arc::clone(&registry.state));
        let watched = state.waker.register(poller.registry(), WAKER);
        watched.map_err(|error| Error::system("the agent thread's waker cannot be watched", &error))?;
        let identities = Identities::new(setup.guard.node_ids.is_some());
        let (logger, upgrade) = (Arc::clone(&state.logger), setup.upgrade.clone());
        let mesh = Mesh::new(incarnation, logger, Arc::clone(&setup.guard.wrap), upgrade, identities);
        let (whereabouts, poll) = (Whereabouts::new(setup.schedulers.clone(), waking(&state)), state.polling.set);
        let connection =
            Connection::new(Arc::clone(&setup.guard.to_scheduler), setup.guard.secret.clone(), whereabouts, poll);
        let mut node = Node {
            state,
            registry,
            setup,
            poller,
            inputs: VecDeque::new(),
            feeding: false,
            connection,
            more: false,
            listener: None,
            accept_again: Time::NEVER,
            mesh,
            looked_at: Time::default(),
            armed: Time::NEVER,
            run: AgentRun::Runs,
            all_are_told: false,
        };
        if let Some(listener) = node.setup.own.listen_at_once()? {
            node.listen(listener)?;
        }
        Ok(node)
    }

    /// Runs to the end. If it panics, nobody waits for it in vain.
    pub fn run_to_the_end(self) {
        let registry = Arc::clone(&self.registry);
        if catch_unwind(AssertUnwindSafe(|| self.run())).is_err() {
            let cause = "the agent thread panicked: a bug in this library; please report it".to_owned();
            let (epoch, group) = (Epoch::default(), None);
            let failure = Failure { status: Status::Internal, culprit: None, cause, epoch, group, sequence: 0 };
            // The cause must be known before calls see that this process takes part no more.
            registry.file(Event::Broken(failure.clone()));
            registry.file(Event::Failed(failure.into()));
            registry.state.end();
        }
    }

    fn run(mut self) {
        self.drain();
        while self.run.goes_on(&self.connection) {
            self.setup.guard.remarks.take().iter().for_each(|line| self.state.logger.warn(line));
            if let Err(error) = self.turn() {
                self.state.logger.error(error.message());
                self.registry.file(Event::Failed(error));
                break;
            }
        }
        if !self.run.is_over() {
            // A node that ends without leaving says so, if that is possible at once. Then nobody need find it out.
            self.send(Message::Gone);
            self.connection.write();
        }
        self.state.end();
    }

    fn turn(&mut self) -> Result<()> {
        self.feed_signs();
        let now = self.state.clock.now();
        // The mesh goes first: what it has found out may change when the brain wants to be woken.
        // A peer that has spoken in time is heard, also if this thread was not scheduled meanwhile.
        let links_at = self.mesh.expire(self.looked_at, now);
        let links_at = links_at.min(self.mesh.tell_on(self.looked_at, now, &self.poller));
        let links_at = links_at.min(self.mesh.dial_again(now, &self.poller));
        self.publish_untold();
        let dials_at = self.dial_on(now);
        let passed_on = self.pass_on();
        let next = self.armed.min(self.accept_again).min(self.connection.deadline()).min(links_at).min(dials_at);
        let looks_again =
            passed_on || self.has_more() || self.connection.lookout.looks_again(&self.state.polling, &self.state.clock);
        self.round(if looks_again { Some(Duration::ZERO) } else { self.state.clock.until(next) })?;
        let now = self.state.clock.now();
        if now >= self.armed {
            for _ in 0..DRAIN_ROUNDS {
                if !self.round(Some(Duration::ZERO))? {
                    break;
                }
            }
            self.feed_signs();
            self.armed = Time::NEVER;
            self.feed(Input::Timer);
        }
        if now >= self.accept_again {
            self.accept();
        }
        if let Some(input) = self.connection.expire(now) {
            self.feed(input);
        }
        Ok(())
    }

    /// Tries further addresses of a node or scheduler that does not answer at the first. Returns the time to come
    /// again.
    fn dial_on(&mut self, now: Time) -> Time {
        let (next, attempt) = self.connection.dial_on(now, &self.poller);
        self.connected(attempt);
        next.min(self.mesh.dial_on(now, &self.poller))
    }

    /// Sleeps at most so long, then serves what is ready. Returns whether anything was ready.
    fn round(&mut self, timeout: Option<Duration>) -> Result<bool> {
        let begun = self.state.clock.now();
        self.poller
            .poll(timeout)
            .map_err(|error| Error::system("the agent thread cannot wait for its sockets", &error))?;
        let ready: Vec<Token> = self.poller.ready().map(|ready| ready.token).collect();
        let any = !ready.is_empty() || self.has_more();
        if self.connection.more {
            self.serve_control();
        }
        for token in ready {
            match token {
                WAKER => {
                    self.obey();
                    let attempt = self.connection.hear_names(&self.poller);
                    self.connected(attempt);
                }
                CONTROL => self.serve_control(),
                LISTENER => self.accept(),
                token => {
                    if !self.mesh.ready(token, &self.poller) {
                        let attempt = self.connection.look_at_dial(&self.poller);
                        self.connected(attempt);
                    }
                }
            }
        }
        self.more = self.mesh.look_again(&self.poller);
        self.looked_at = begun;
        self.pass_on();
        Ok(any)
    }

    /// Whether there is more to read of which the poller does not know.
    fn has_more(&self) -> bool {
        self.more || self.connection.more
    }

    /// Does what the callers asked for.
    fn obey(&mut self) {
        self.state.waker.drain();
        while let Some(command) = self.state.next_command() {
            match command {
                AgentCommand::Brain(command) => {
                    match command {
                        Command::Leave => self.listener = None, // a node that leaves lets in nobody new
                        Command::Store { .. } => self.connection.lookout.stir(),
                        _ => {}
                    }
                    self.feed(Input::Command(command));
                }
                AgentCommand::Of(epoch, command) => {
                    if self.state.view().epoch.is_in(epoch) {
                        self.feed(Input::Command(command));
                    }
                }
                AgentCommand::Open(key) => {
                    let unknown = self.mesh.open(key, &self.poller);
                    self.locate(unknown);
                }
                AgentCommand::Tell(failure) => {
                    if self.state.view().epoch.is_in(failure.epoch) {
                        let gone = self.state.view().epoch.gone();
                        self.mesh.tell(failure, &gone, self.state.clock.now(), &self.poller);
                    }
                }
                AgentCommand::Free(group) => self.group_freed(group),
                AgentCommand::Quit => self.run.quit(),
            }
        }
    }

    /// Passes on what the mesh has found out. Returns whether there was anything.
    fn pass_on(&mut self) -> bool {
        let mut is_news = false;
        while let Some(event) = self.mesh.next_event() {
            is_news = true;
            self.pass(event);
        }
        is_news
    }

    fn pass(&mut self, event: MeshEvent) {
        match event {
            MeshEvent::Mail(id, channel, mail) => match self.registry.group(id) {
                Some(group) => group.deliver(channel, mail),
                None => turn_away(mail, Some(&leave())), // it has been freed since
            },
            MeshEvent::Revoked(failure) => self.registry.file(Event::Revoked(failure)),
            // An abort by a node that counts as lost is ignored.
            MeshEvent::Aborted(index, _) if self.state.view().epoch.lost.contains(&index) => {}
            MeshEvent::Locate(index) => self.locate(Some(index)),
            MeshEvent::Aborted(_, failure) => self.feed(Input::Command(Command::Aborted(failure))),
        }
    }

    /// For a call that waits until all nodes know of the job's end: publishes which nodes do not know yet.
    fn publish_untold(&mut self) {
        if let Some(untold) = self.mesh.untold().filter(|_| !self.all_are_told) {
            self.all_are_told = !untold.1;
            self.state.learn(|view| view.untold = Some(untold));
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &mut self.listener else { return };
        self.accept_again = self.mesh.accept(listener, &self.poller, self.state.clock.now());
    }

    /// Feeds the brain, and does what it wants done. The consequences (a connection that fails at once, or is lost)
    /// wait in `inputs` for their turn: one input, then all outputs, then the next.
    fn feed(&mut self, input: Input) {
        self.inputs.push_back(input);
        if !self.feeding {
            self.drain();
        }
    }

    fn drain(&mut self) {
        self.feeding = true;
        loop {
            while let Some(output) = self.setup.agent.next_output() {
                self.carry_out(output);
            }
            self.connection.write();
            let Some(input) = self.inputs.pop_front() else { break };
            self.setup.agent.handle(self.state.clock.now(), input);
        }
        self.feeding = false;
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Connect { place, within } => {
                let deadline = self.state.clock.now() + within;
                let attempt = self.connection.dial(place, deadline, &self.poller);
                self.connected(attempt);
            }
            Output::Disconnect => self.connection.give_up(self.state.clock.now()),
            Output::Send(message) => self.send(message),
            Output::SendHeartbeat { sequence, echoed } => {
                let (progress, gone_on) = (self.registry.progress(), self.state.aftermath.gone_on());
                let (waits, carriers) = (self.registry.message_waits(), Later(self.registry.carriers()));
                self.send(Message::Heartbeat(Heartbeat { sequence, echoed, progress, gone_on, waits, carriers }));
            }
            Output::SendCall { group, sequence } => {
                let call = self.registry.called(group, sequence);
                self.send(Message::Called(Called { group, sequence, call }));
            }
            Output::Arm(at) => self.armed = at,
            Output::Log { quiet: true, line } => self.state.logger.info(&line),
            Output::Log { quiet: false, line } => self.state.logger.warn(&line),
            Output::Tell(event) => self.tell(event),
            Output::Peer(index, what) => self.mesh.tell_peer(index, what, &self.poller),
        }
    }

    /// Feeds what was seen of other nodes; what the brain does about it may show more at once.
    fn feed_signs(&mut self) {
        while let Some(signs) = self.mesh.take_signs() {
            self.feed(Input::Peers(signs));
        }
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::Formed(formed) => self.form(Arc::new(*formed)),
            Event::GroupMade(made) => {
                let id = made.group;
                let made = self.registry.made(made, self.setup.operation_timeout_ms);
                self.group_made(made, id);
            }
            Event::MadeByMembers(wanted, outcome) => {
                let id = outcome.as_ref().ok().copied();
                let made = self.registry.made_by_members(wanted, outcome, self.setup.operation_timeout_ms);
                match (made, id) {
                    // Nobody waits. The group stays in use for when the program asks again; until then the others are told no.
                    (Ok(None), Some(id)) => self.mesh.remove(id, &self.poller),
                    (made, id) => self.group_made(made, id),
                }
            }
            Event::Located(ask, member) if is_for_links(ask) => {
                let unknown = self.mesh.located(&member, &self.poller);
                self.locate(unknown);
            }
            event => {
                if matches!(event, Event::Stored(..)) {
                    self.connection.lookout.stir();
                }
                if matches!(event, Event::Failed(_) | Event::Left(_)) {
                    self.run.is_over_now();
                }
                self.registry.file(event);
            }
        }
    }

    /// The cluster is complete, for the first time or in a new epoch: makes the groups, then tells the caller.
    fn form(&mut self, formed: Arc<Formed>) {
        self.connection.set_node(formed.index);
        let scheduler = self.connection.scheduler();
        self.state.learn(|view| view.scheduler = scheduler);
        let is_first = self.state.view().epoch.formed.is_none();
        self.state.aftermath.end();
        match self.registry.form(&formed, self.setup.operation_timeout_ms) {
            Ok(groups) => {
                let rosters = groups.iter().map(|group| Arc::clone(&group.context.roster));
                self.mesh.form(formed, rosters, &self.poller);
            }
            Err(error) if is_first => {
                self.run.is_over_now();
                self.registry.file(Event::Failed(error));
            }
            Err(error) => {
                let (status, cause) = (error.status(), format!("epoch {}: {}", formed.epoch.0, error.message()));
                let (culprit, epoch, group) = (None, formed.epoch, None);
                self.registry.file(Event::NotRecovered(Failure { status, culprit, cause, epoch, group, sequence: 0 }));
                self.run.quit(); // the others are in that epoch, and are told that this node is not
            }
        }
    }

    /// A group is made. From now on links to it are let in, unless nobody waits for it any more.
    fn group_made(&mut self, made: std::result::Result<Option<Arc<Group>>, Box<Failure>>, id: Option<GroupId>) {
        match (made, id) {
            (Ok(Some(group)), _) => self.mesh.add(&group.context.roster, &self.poller),
            (Err(failure), Some(id)) => {
                self.feed(Input::Command(Command::Revoke(*failure))); // the others have it, and would wait in it
                self.group_freed(id);
            }
            (_, Some(id)) => self.group_freed(id),
            (_, None) => {}
        }
    }

    /// Asks the scheduler where a member is, if a link to that member waits.
    fn locate(&mut self, index: Option<u32>) {
        if let Some(index) = index {
            self.feed(Input::Command(Command::Locate(ask_for(index), index)));
        }
    }

    /// This node does not use a group any more, or never did.
    fn group_freed(&mut self, id: GroupId) {
        self.mesh.remove(id, &self.poller);
        self.feed(Input::Command(Command::FreeGroup(id)));
        self.state.learn(|view| view.epoch.causes.forget(id)); // its end may have come since the program freed it
    }

    /// Tells the brain what has come of an attempt to connect, and where peers reach this node.
    fn connected(&mut self, attempt: Attempt) {
        match attempt {
            Attempt::Pending => {}
            Attempt::Failed(why) => self.feed(Input::ConnectFailed(why)),
            Attempt::Up(own) => match self.addresses(own) {
                Ok(addresses) => self.feed(Input::Connected(addresses)),
                Err(error) => {
                    self.run.is_over_now();
                    self.connection.drop_it();
                    self.registry.file(Event::Failed(error));
                }
            },
        }
    }

    fn send(&mut self, message: Message) {
        if let Some(end) = self.connection.send(message) {
            self.lose(&end);
        }
    }

    fn serve_control(&mut self) {
        let (attempt, (inputs, end)) = (self.connection.attempts, self.connection.read());
        // Once the brain has begun another attempt, neither the rest nor the end of this connection concerns it.
        let stays = inputs.into_iter().all(|input| {
            self.feed(input);
            self.connection.attempts == attempt
        });
        match end {
            Some(end) if stays => self.lose(&end),
            _ => self.connection.write(),
        }
    }

    fn lose(&mut self, end: &ControlEnd) {
        if let Some(input) = self.connection.lose(end, &self.state.logger) {
            self.feed(input);
        }
    }

    /// The addresses at which peers reach this node. Binds the address that reaches the scheduler, if nothing is bound
    /// yet.
    fn addresses(&mut self, own: SocketAddr) -> Result<Vec<SocketAddr>> {
        if self.listener.is_none() {
            self.listen(self.setup.own.listen_towards(own)?)?;
        }
        let bound = self.listener.as_ref().map(Listener::local_addresses).unwrap_or_default();
        Ok(self.setup.own.told(bound))
    }

    fn listen(&mut self, mut listener: Listener) -> Result<()> {
        let watched = listener.register(self.poller.registry(), LISTENER);
        watched.map_err(|error| Error::system("the node's port cannot be watched", &error))?;
        self.listener = Some(listener);
        Ok(())
    }
}

#[cfg(test)]
#[path = "agent_thread_test.rs"]
mod tests;
