//! Many nodes in one process, as a scheduler sees them: each is a connection that registers, learns its place, and
//! leaves. They speak real frames, and look at everything that they are told; they send no heartbeats and open no links.

use muster::net::{limit, Connect, Poller, TcpTransport, Token, Transport};
use muster::types::{Device, HostName, Incarnation, Process, Role};
use muster::wire::{
    encode_frame, peek_frame, Formed, Message, Register, Told, CONTROL_PAYLOAD_MAX, FULL_TABLE_NODES, PROTOCOL_HIGHEST,
    PROTOCOL_LOWEST,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant};

/// How many connections are being made at a time.
const IN_FLIGHT: usize = 512;
/// How many nodes each host has; the last may have fewer.
const HOST_NODES: u32 = 8;
/// How long nothing may happen at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// How far a node is.
enum State {
    Connecting,
    Registered,
    /// It has its place, with this index.
    Formed(u32),
    Leaving,
}

struct Node {
    number: u32,
    link: TcpTransport,
    state: State,
    /// Bytes that came in and do not make a message yet.
    inbound: Vec<u8>,
}

/// The nodes of one process.
pub struct Nodes {
    /// The nodes' numbers, among all that the scheduler awaits.
    numbers: Range<u32>,
    all: u32,
    scheduler: SocketAddr,
    /// The address that these connections come from: each process has its own, so that no range of ports runs out.
    from: IpAddr,
    poller: Poller,
    /// The nodes by number, from the first on. Nodes that have left are gone.
    nodes: Vec<Option<Node>>,
    in_flight: usize,
    /// The ranks that were given, and when the first was given (in nanoseconds since the beginning).
    pub ranks: Vec<u32>,
    pub first_formed: Option<Instant>,
    left: usize,
    through: Vec<u8>,
}

impl Nodes {
    /// The nodes with these numbers, of `all`, in the `index`-th process.
    pub fn new(index: u8, numbers: Range<u32>, all: u32, scheduler: SocketAddr) -> Result<Nodes, String> {
        limit::room_for(u64::from(numbers.end - numbers.start), 0)
            .map_err(|error| format!("{}, or share the nodes among more --processes", error.message()))?;
        Ok(Nodes {
            nodes: Vec::with_capacity((numbers.end - numbers.start) as usize),
            numbers,
            all,
            scheduler,
            from: Ipv4Addr::new(127, 0, 0, 2 + index).into(),
            poller: Poller::new().map_err(|error| error.to_string())?,
            in_flight: 0,
            ranks: Vec::new(),
            first_formed: None,
            left: 0,
            through: vec![0; 64 << 10],
        })
    }

    /// Runs until each node has its place.
    pub fn form(&mut self) -> Result<(), String> {
        let wanted = (self.numbers.end - self.numbers.start) as usize;
        while self.ranks.len() < wanted {
            while self.nodes.len() < wanted && self.in_flight < IN_FLIGHT {
                self.start()?;
            }
            self.serve()?;
        }
        Ok(())
    }

    /// Runs until each node has left.
    pub fn leave(&mut self) -> Result<(), String> {
        for node in self.nodes.iter_mut().flatten() {
            let State::Formed(index) = node.state else { return Err(format!("node {} has no place", node.number)) };
            node.say(&Message::Leave, index)?;
            node.state = State::Leaving;
        }
        while self.left < self.nodes.len() {
            self.serve()?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        let at = self.nodes.len();
        let number = self.numbers.start + at as u32;
        let link = TcpTransport::start_connect(self.scheduler, Some(self.from)).and_then(|mut link| {
            link.register(self.poller.registry(), Token(at))?;
            Ok(link)
        });
        let link = link.map_err(|error| format!("node {number} cannot connect: {error}"))?;
        self.nodes.push(Some(Node { number, link, state: State::Connecting, inbound: Vec::new() }));
        self.in_flight += 1;
        Ok(())
    }

    /// Waits until something is ready, and deals with all that is.
    fn serve(&mut self) -> Result<(), String> {
        self.poller.poll(Some(PATIENCE)).map_err(|error| format!("cannot wait: {error}"))?;
        let ready: Vec<usize> = self.poller.ready().map(|ready| ready.token.0).collect();
        if ready.is_empty() {
            return Err(format!("nothing has happened for {} s", PATIENCE.as_secs()));
        }
        for at in ready {
            self.turn(at).map_err(|why| format!("node {}: {why}", self.numbers.start + at as u32))?;
        }
        Ok(())
    }

    /// One node's turn.
    fn turn(&mut self, at: usize) -> Result<(), String> {
        let Some(node) = self.nodes.get_mut(at).and_then(Option::as_mut) else { return Ok(()) };
        if matches!(node.state, State::Connecting) {
            match node.link.finish_connect() {
                Ok(Connect::Ready) => {}
                Ok(Connect::Pending) => return Ok(()),
                Err(error) => return Err(format!("cannot connect: {error}")),
            }
            node.say(&Message::Register(registration(node.number, self.all)), 0)?;
            node.state = State::Registered;
            self.in_flight -= 1;
            return Ok(()); // what comes in from now on is reported
        }
        loop {
            match node.link.read(&mut [IoSliceMut::new(&mut self.through)]) {
                Ok(0) if matches!(node.state, State::Leaving) => return Err("it was closed without a Bye".to_owned()),
                Ok(0) => return Err("the scheduler closed its connection".to_owned()),
                Ok(count) => node.inbound.extend_from_slice(&self.through[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(format!("its connection broke: {error}")),
            }
            let Some((frame, taken)) = peek_frame(&node.inbound, CONTROL_PAYLOAD_MAX).map_err(|error| error.0)? else {
                continue;
            };
            if node.inbound.len() > taken {
                return Err("it was sent more than one message".to_owned());
            }
            let message = Message::decode(frame.header.kind, &frame.payload).map_err(|error| error.0)?;
            node.inbound = Vec::new();
            match (message, &node.state) {
                (Message::Formed(formed), State::Registered) => {
                    self.first_formed.get_or_insert_with(Instant::now);
                    check(node.number, self.all, &formed)?;
                    self.ranks.push(formed.rank);
                    node.state = State::Formed(formed.index);
                }
                (Message::Bye, State::Leaving) => {
                    self.nodes[at] = None;
                    self.left += 1;
                    return Ok(());
                }
                (Message::Rejected(rejected), _) => return Err(format!("it was refused: {}", rejected.reason)),
                (Message::Verdict(verdict), _) => return Err(format!("the job is broken: {}", verdict.failure)),
                (other, _) => return Err(format!("it was sent a message of kind {} out of turn", other.kind())),
            }
        }
    }
}

impl Node {
    /// Sends a message that fits into the empty buffers of a connection.
    fn say(&mut self, message: &Message, index: u32) -> Result<(), String> {
        let mut frame = Vec::new();
        encode_frame(message.kind(), index, &message.encode(), &mut frame);
        match self.link.write(&[IoSlice::new(&frame)]) {
            Ok(count) if count == frame.len() => Ok(()),
            Ok(count) => Err(format!("only {count} of {} bytes were taken", frame.len())),
            Err(error) => Err(format!("it cannot send: {error}")),
        }
    }
}

fn host_of(number: u32) -> HostName {
    let name = format!("host-{:06}", number / HOST_NODES);
    HostName { key: format!("{name}/7d0f6f2c-6c8e-4b57-9d11-2f3f6a1c9e10"), name }
}

/// The registration of a node without an id or a rank of its own.
fn registration(number: u32, all: u32) -> Register {
    let mut incarnation = [0; 16];
    incarnation[..4].copy_from_slice(&number.to_le_bytes());
    let host = host_of(number);
    let [_, high, middle, low] = (number / HOST_NODES + 1).to_be_bytes();
    Register {
        protocol_lowest: PROTOCOL_LOWEST,
        protocol_highest: PROTOCOL_HIGHEST,
        features: 0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        job_id: None,
        role: Role::Worker,
        node_id: node_id(number),
        node_id_given: false,
        rank: None,
        incarnation: Incarnation(incarnation),
        host,
        process: Process { pid: 1000 + number % HOST_NODES, start_ticks: 1, pid_namespace: 1 },
        addresses: vec![SocketAddr::from(([10, high, middle, low], 40_000 + (number % HOST_NODES) as u16))],
        worker_num: all,
        server_num: 0,
        recovery: false,
        instance: None,
        told: Told::NOTHING,
        device: Device { id: Some(number % HOST_NODES), ip: None },
        reentry: None,
        launch: None,
        derived_job: None,
    }
}

fn node_id(number: u32) -> String {
    format!("{}-{}-{number:08x}", host_of(number).name, 1000 + number % HOST_NODES)
}

/// Checks that a node was told the truth.
fn check(number: u32, all: u32, formed: &Formed) -> Result<(), String> {
    let on_host = (all - number / HOST_NODES * HOST_NODES).min(HOST_NODES);
    if (formed.worker_num, formed.server_num, formed.local_size) != (all, 0, on_host) {
        return Err(format!(
            "it was told of {} workers, {} servers and {} nodes of its host, which are {all}, 0 and {on_host}",
            formed.worker_num, formed.server_num, formed.local_size
        ));
    }
    let (rank, local_rank) = (formed.rank, formed.local_rank);
    if rank >= all || formed.index != rank || local_rank >= on_host {
        return Err(format!("it was given rank {rank}, local rank {local_rank} and index {}", formed.index));
    }
    let peer = |rank: u32| formed.members.find(rank).filter(|member| member.rank == rank);
    let own = peer(rank).ok_or("it was not told of itself")?;
    if own.node_id != node_id(number) || own.host != host_of(number) || own.local_rank != local_rank {
        return Err(format!("it was told that rank {rank}, its own, is {:?} on {}", own.node_id, own.host.name));
    }
    let whole = all as usize <= FULL_TABLE_NODES;
    if peer((rank + 1) % all).is_none() || (whole && formed.members.len() != all as usize) {
        return Err(format!("it was told of {} members, not all that it needs", formed.members.len()));
    }
    Ok(())
}
