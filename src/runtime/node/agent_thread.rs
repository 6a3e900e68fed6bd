//! A node's agent thread: its brain, the control connection, the listening socket, and the mesh.
//!
//! Invariants: every input is followed by draining all outputs; everything readable is fed before the timer is. The
//! thread ends when the node has left, when forming failed, or when it is told to quit; then nothing of it is left.

use crate::agent::{Agent, Command, Event, Input, Output};
use crate::error::{Error, Failure, Result, Status};
use crate::net::{Listener, Poller, Token, Transport};
use crate::runtime::base::control::{ControlEnd, ControlLink, FIRST_READ_BYTES};
use crate::runtime::groups::handle;
use crate::runtime::links::address_lookup::{ask_for, is_for_links};
use crate::runtime::links::{dial::Dial, dial::Dialled, mesh::Mesh, mesh::Wrap};
use crate::runtime::state::node_state::{Shared, ToNode};
use crate::types::{Epoch, GroupId, Time};
use crate::wire::{Called, Formed, GroupMade, Heartbeat, Message};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

const WAKER: Token = Token(0);
const CONTROL: Token = Token(1);
const LISTENER: Token = Token(2);
const FIRST_DIAL: usize = 16;
/// How long a connection that the brain has given up may take to write what was sent before.
const LINGER: Duration = Duration::from_secs(1);
/// How often the sockets are looked at again before the timer is fed.
const DRAIN_ROUNDS: usize = 16;

/// What the thread needs besides what it shares.
pub struct Setup {
    /// The brain.
    pub agent: Agent,
    /// Where the scheduler may be: the addresses of each place.
    pub schedulers: Vec<Vec<SocketAddr>>,
    /// The addresses that the user told the node to bind; empty: the one that reaches the scheduler.
    pub own: Vec<IpAddr>,
    /// How the listening socket's addresses are named in an error.
    pub own_setting: String,
    /// How long an operation on a group may take, in milliseconds.
    pub operation_timeout_ms: i64,
    /// Wraps each link's transport.
    pub wrap: Wrap,
}

enum Control {
    None,
    Dialling(Dial, Time),
    Up(ControlLink),
    /// Given up by the brain; what was sent before still goes out.
    Lingering(ControlLink, Time),
}

/// The agent thread's state.
pub struct Node {
    shared: Arc<Shared>,
    setup: Setup,
    poller: Poller,
    inputs: VecDeque<Input>,
    feeding: bool,
    control: Control,
    /// Which of the scheduler's places it tries, or is connected to.
    place: usize,
    more: bool,
    listener: Option<Listener>,
    accept_again: Time,
    mesh: Mesh,
    armed: Time,
    next_dial: usize,
    through: Vec<u8>,
    quit: bool,
    over: bool,
    /// Of the job's end, which this node tells of itself.
    all_are_told: bool,
}

impl Node {
    /// A node that has not begun. Binds the addresses that the user named.
    pub fn new(shared: Arc<Shared>, setup: Setup, incarnation: crate::types::Incarnation) -> Result<Node> {
        let poller = Poller::new()?;
        let watched = shared.waker.register(poller.registry(), WAKER);
        watched.map_err(|error| Error::system("the agent thread's waker cannot be watched", &error))?;
        let mesh = Mesh::new(incarnation, Arc::clone(&shared.logger), Arc::clone(&setup.wrap));
        let mut node = Node {
            shared,
            setup,
            poller,
            inputs: VecDeque::new(),
            feeding: false,
            control: Control::None,
            place: 0,
            more: false,
            listener: None,
            accept_again: Time::NEVER,
            mesh,
            armed: Time::NEVER,
            next_dial: FIRST_DIAL,
            through: vec![0; FIRST_READ_BYTES],
            quit: false,
            over: false,
            all_are_told: false,
        };
        if !node.setup.own.is_empty() {
            let own = node.setup.own.clone();
            node.listen(&own)?;
        }
        Ok(node)
    }

    /// Runs to the end; should it panic, nobody waits for it in vain.
    pub fn run_to_the_end(self) {
        let shared = Arc::clone(&self.shared);
        if catch_unwind(AssertUnwindSafe(|| self.run())).is_err() {
            let cause = "the agent thread panicked: a bug in this library; please report it".to_owned();
            let (epoch, group) = (Epoch::default(), None);
            let failure = Failure { status: Status::Internal, culprit: None, cause, epoch, group, sequence: 0 };
            shared.file(Event::Failed(failure.clone().into()));
            shared.file(Event::Broken(failure));
            shared.end();
        }
    }

    fn run(mut self) {
        self.drain();
        while !self.quit && (!self.over || !matches!(self.control, Control::None)) {
            if let Err(error) = self.turn() {
                self.shared.logger.error(error.message());
                self.shared.file(Event::Failed(error));
                break;
            }
        }
        if !self.over {
            // Whoever ends without leaving says so, if that is possible at once; nobody need find it out.
            self.send(Message::Gone);
            self.write();
        }
        self.shared.end();
    }

    fn turn(&mut self) -> Result<()> {
        self.feed_signs();
        let now = self.shared.clock.now();
        let deadline = match &self.control {
            Control::Dialling(_, deadline) | Control::Lingering(_, deadline) => *deadline,
            Control::None | Control::Up(_) => Time::NEVER,
        };
        let next = self
            .armed
            .min(self.accept_again)
            .min(deadline)
            .min(self.mesh.expire(now))
            .min(self.mesh.tell_on(now, &self.poller));
        self.publish_untold();
        self.round(if self.more { Some(Duration::ZERO) } else { self.shared.clock.until(next) })?;
        let now = self.shared.clock.now();
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
        match &self.control {
            Control::Dialling(_, deadline) if now >= *deadline => {
                self.control = Control::None;
                self.feed(Input::ConnectFailed("no answer in time".to_owned()));
            }
            Control::Lingering(_, deadline) if now >= *deadline => self.control = Control::None,
            _ => {}
        }
        Ok(())
    }

    /// Sleeps at most so long, then serves what is ready. Returns whether anything was.
    fn round(&mut self, timeout: Option<Duration>) -> Result<bool> {
        self.poller
            .poll(timeout)
            .map_err(|error| Error::system("the agent thread cannot wait for its sockets", &error))?;
        let ready: Vec<Token> = self.poller.ready().map(|ready| ready.token).collect();
        let any = !ready.is_empty() || self.more;
        if self.more {
            self.serve_control();
        }
        for token in ready {
            match token {
                WAKER => self.obey(),
                CONTROL => self.serve_control(),
                LISTENER => self.accept(),
                token => {
                    if !self.mesh.ready(token, &self.poller) {
                        self.look_at_dial();
                    }
                }
            }
        }
        let held = self.mesh.look_again(&self.poller);
        self.more = self.more || held;
        Ok(any)
    }

    /// Does what the callers asked for.
    fn obey(&mut self) {
        self.shared.waker.drain();
        while let Some(command) = self.shared.next_command() {
            match command {
                ToNode::Brain(command) => {
                    if matches!(command, Command::Leave) {
                        self.listener = None; // nobody new is let in by one who leaves
                    }
                    self.feed(Input::Command(command));
                }
                ToNode::Of(epoch, command) => {
                    if self.shared.learnt().is_in(epoch) {
                        self.feed(Input::Command(command));
                    }
                }
                ToNode::Open(key) => {
                    let unknown = self.mesh.open(key, &self.poller);
                    self.locate(unknown);
                }
                ToNode::Tell(failure) => {
                    if self.shared.learnt().is_in(failure.epoch) {
                        self.mesh.tell(failure, self.shared.clock.now(), &self.poller);
                    }
                }
                ToNode::Free(group) => self.group_freed(group),
                ToNode::Quit => self.quit = true,
            }
        }
    }

    /// A call that waits for all to be told of the job's end learns how far that is.
    fn publish_untold(&mut self) {
        if let Some(untold) = self.mesh.untold().filter(|_| !self.all_are_told) {
            self.all_are_told = !untold.1;
            self.shared.learn(|learnt| learnt.untold = Some(untold));
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &mut self.listener else { return };
        let now = self.shared.clock.now();
        let stopped = self.mesh.accept(listener, &self.poller, now);
        self.accept_again = if stopped { now + crate::net::listener::EXHAUSTED_PAUSE } else { Time::NEVER };
    }

    /// Feeds the brain, and does what it wants done. What comes of that (a connection that fails at once, or is lost)
    /// waits in `inputs` for its turn: one input, then all outputs, then the next.
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
            self.write();
            let Some(input) = self.inputs.pop_front() else { break };
            self.setup.agent.handle(self.shared.clock.now(), input);
        }
        self.feeding = false;
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Connect { place, within } => self.connect(place, within),
            Output::Disconnect => self.disconnect(),
            Output::Send(message) => self.send(message),
            Output::SendHeartbeat { sequence, echoed } => {
                let (progress, gone_on) = (self.shared.progress(), self.shared.aftermath.gone_on());
                let waits = self.shared.message_waits();
                self.send(Message::Heartbeat(Heartbeat { sequence, echoed, progress, gone_on, waits }));
            }
            Output::SendCall { group, sequence } => {
                let groups = self.shared.learnt().groups();
                let call = groups.iter().find(|known| known.id() == group).and_then(|known| known.called(sequence));
                self.send(Message::Called(Called { group, sequence, call }));
            }
            Output::Arm(at) => self.armed = at,
            Output::Log { quiet: true, line } => self.shared.logger.info(&line),
            Output::Log { quiet: false, line } => self.shared.logger.warn(&line),
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
            Event::GroupMade(made) => self.group_made(made),
            Event::Located(ask, member) if is_for_links(ask) => {
                let unknown = self.mesh.located(&member, &self.poller);
                self.locate(unknown);
            }
            event => {
                self.over = matches!(event, Event::Failed(_) | Event::Left(_)) || self.over;
                self.shared.file(event);
            }
        }
    }

    /// The cluster is complete, for the first time or in a new epoch: makes the groups, then tells the caller.
    fn form(&mut self, formed: Arc<Formed>) {
        if let Control::Up(link) = &mut self.control {
            link.set_node(formed.index);
        }
        let scheduler = self.setup.schedulers[self.place].first().copied();
        self.shared.learn(|learnt| learnt.scheduler = scheduler);
        let is_first = self.shared.learnt().formed.is_none();
        self.shared.aftermath.end();
        match handle::form(&self.shared, &formed, self.setup.operation_timeout_ms) {
            Ok(groups) => self.mesh.form(formed, &groups, &self.poller),
            Err(error) if is_first => {
                self.over = true;
                self.shared.file(Event::Failed(error));
            }
            Err(error) => {
                let (status, cause) = (error.status(), format!("epoch {}: {}", formed.epoch.0, error.message()));
                let (culprit, epoch, group) = (None, formed.epoch, None);
                self.shared.file(Event::NotRecovered(Failure { status, culprit, cause, epoch, group, sequence: 0 }));
                self.quit = true; // the others are in that epoch, and are told that this node is not
            }
        }
    }

    /// A group is made: links to it are let in from now on, unless nobody waits for it any more.
    fn group_made(&mut self, made: GroupMade) {
        let id = made.group;
        match (handle::made(&self.shared, made, self.setup.operation_timeout_ms), id) {
            (Ok(Some(group)), _) => self.mesh.add(&group, &self.poller),
            (Err(failure), Some(id)) => {
                self.feed(Input::Command(Command::Revoke(*failure))); // the others have it, and would wait in it
                self.group_freed(id);
            }
            (_, Some(id)) => self.group_freed(id),
            (_, None) => {}
        }
    }

    /// Asks the scheduler where a member is, to which a link waits.
    fn locate(&mut self, index: Option<u32>) {
        if let Some(index) = index {
            self.feed(Input::Command(Command::Locate(ask_for(index), index)));
        }
    }

    /// This node does not use a group any more, or never did.
    fn group_freed(&mut self, id: GroupId) {
        self.mesh.remove(id, &self.poller);
        self.feed(Input::Command(Command::FreeGroup(id)));
    }

    fn connect(&mut self, place: usize, within: Duration) {
        self.place = place;
        let deadline = self.shared.clock.now() + within;
        let next_dial = &mut self.next_dial;
        let dial = Dial::start(&self.setup.schedulers[place], &self.poller, || {
            // Tokens go round well below the mesh's; what is still reported of an old one does no harm.
            *next_dial =
                FIRST_DIAL + (*next_dial + 1 - FIRST_DIAL) % (crate::runtime::links::mesh::FIRST_TOKEN - FIRST_DIAL);
            Token(*next_dial)
        });
        self.control = Control::Dialling(dial, deadline);
        self.look_at_dial();
    }

    fn look_at_dial(&mut self) {
        let Control::Dialling(dial, _) = &mut self.control else { return };
        match dial.look(&self.poller) {
            Dialled::Pending => {}
            Dialled::Failed(why) => {
                self.control = Control::None;
                self.feed(Input::ConnectFailed(why.to_string()));
            }
            Dialled::Ready(mut transport) => {
                if let Err(error) = transport.register(self.poller.registry(), CONTROL) {
                    self.control = Control::None;
                    return self.feed(Input::ConnectFailed(format!("it cannot be watched: {error}")));
                }
                let own = transport.local_address().ip();
                self.control = Control::Up(ControlLink::new(Box::new(transport)));
                if let Control::Up(link) = &mut self.control {
                    link.trust(); // it is the scheduler that we chose
                }
                match self.addresses(own) {
                    Ok(addresses) => self.feed(Input::Connected(addresses)),
                    Err(error) => {
                        self.over = true;
                        self.control = Control::None;
                        self.shared.file(Event::Failed(error));
                    }
                }
            }
        }
    }

    /// Where peers reach this node; binds the address that reaches the scheduler if nothing is bound yet.
    fn addresses(&mut self, own: IpAddr) -> Result<Vec<SocketAddr>> {
        if self.listener.is_none() {
            self.listen(&[own])?;
        }
        Ok(self.listener.as_ref().map(Listener::local_addresses).unwrap_or_default())
    }

    fn listen(&mut self, own: &[IpAddr]) -> Result<()> {
        let addresses: Vec<SocketAddr> = own.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
        let bound = Listener::bind(&addresses);
        let mut listener = bound
            .map_err(|error| Error::new(error.status(), format!("{}: {}", self.setup.own_setting, error.message())))?;
        let watched = listener.register(self.poller.registry(), LISTENER);
        watched.map_err(|error| Error::system("the node's port cannot be watched", &error))?;
        self.listener = Some(listener);
        Ok(())
    }

    fn disconnect(&mut self) {
        let deadline = self.shared.clock.now() + LINGER;
        self.control = match std::mem::replace(&mut self.control, Control::None) {
            Control::Up(link) => Control::Lingering(link, deadline),
            _ => Control::None,
        };
    }

    fn send(&mut self, message: Message) {
        let Control::Up(link) = &mut self.control else { return };
        if let Err(end) = link.queue(message) {
            self.lose(&end);
        }
    }

    fn write(&mut self) {
        let (Control::Up(link) | Control::Lingering(link, _)) = &mut self.control else { return };
        let goes = link.write();
        match &self.control {
            Control::Lingering(link, _) if !goes || !link.has_outbound() && link.transport.unsent() == 0 => {
                self.control = Control::None;
            }
            _ => self.more |= !goes,
        }
    }

    fn serve_control(&mut self) {
        self.more = false;
        let Control::Up(link) = &mut self.control else { return self.write() };
        let mut arrivals = Vec::new();
        let heard = link.read(&mut self.through, &mut arrivals);
        self.more = heard.as_ref().is_ok_and(|heard| heard.more);
        if heard.as_ref().map_or(!arrivals.is_empty(), |heard| heard.any) {
            self.feed(Input::Heard);
        }
        for arrival in arrivals {
            match arrival {
                Ok(message) => self.feed(Input::Received(message)),
                Err((_, _, error)) => return self.lose(&ControlEnd::Garbage(error.0)),
            }
        }
        match heard {
            Ok(_) => self.write(),
            Err(end) => self.lose(&end),
        }
    }

    /// The control connection has ended; the brain decides what that means.
    fn lose(&mut self, end: &ControlEnd) {
        if matches!(self.control, Control::Up(_)) {
            self.control = Control::None;
            let reason = end.reason().to_owned();
            if matches!(end, ControlEnd::Garbage(_)) {
                self.shared.logger.warn(&format!("the connection to the scheduler is closed, and made anew: {reason}"));
            }
            let is_strange = matches!(end, ControlEnd::Strange(_));
            self.feed(if is_strange { Input::Strange(reason) } else { Input::Closed(reason) });
        } else {
            self.control = Control::None;
        }
    }
}

#[cfg(test)]
#[path = "agent_thread_test.rs"]
mod tests;
