//! `muster bench forming`: a scheduler alone, with many nodes over real sockets from a few processes.
//!
//! This process starts one `muster scheduler` and the processes that hold the nodes ([`super::nodes`]), and looks at
//! the scheduler from outside. It measures from the start of the first of these processes until the last node has its
//! place. Then all leave, and the scheduler must end well.

use super::ended::{read, Ended};
use super::nodes::Nodes;
use super::options::{count, format, Format, FORMAT};
use crate::cli::table::{option, Command as Described, Takes};
use crate::cli::words::Words;
use crate::sys;
use crate::voice::print;
use muster::config::{Key, NODES_LIMIT};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The word before what each of the processes is told to do.
const PART: &str = "--part";
/// How long forming, or leaving, may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a process that should end is looked at.
const LOOK: Duration = Duration::from_millis(2);
const MOST_PROCESSES: u64 = 64;

struct FormingOptions {
    nodes: u32,
    processes: u32,
    iterations: u32,
    format: Format,
}

/// The figures of one forming.
struct Figures {
    /// The time until the first node was told its place, so that all had registered.
    registered_s: f64,
    /// The time until the last node was told its place.
    formed_s: f64,
    /// The time until all had left and the scheduler had ended.
    left_s: f64,
    scheduler_cpu_s: f64,
    before_kib: u64,
    formed_kib: u64,
}

/// `muster bench forming`.
pub const COMMAND: Described = Described {
    name: "muster bench forming",
    summary: "time how long a scheduler takes to form a cluster",
    about: "Times a scheduler alone: N nodes that a few processes hold, one connection each, from the processes' \
            start until each node has its place. Also shows how the scheduler's resident memory grows meanwhile (the \
            kernel's for its sockets not counted).",
    options: &[
        option("nodes", Takes::Value("N"), "1000", "how many nodes register"),
        option("processes", Takes::Value("N"), "2", "how many processes hold them"),
        option("iters", Takes::Value("N"), "1", "how often forming is timed").letter('n'),
        FORMAT,
    ],
    exit_codes: &[
        ("0", "all is measured"),
        ("1", "the scheduler or a process with nodes failed, or standard output cannot be written"),
        ("2", "usage"),
    ],
    ..Described::BLANK
};

/// Runs it with the words after `forming`.
pub fn command(words: Vec<OsString>) -> Result<(), Ended> {
    if words.first().is_some_and(|word| word == PART) {
        let words: Vec<String> = words[1..].iter().map(|word| word.to_string_lossy().into_owned()).collect();
        return take_part(&words).map_err(Ended::failed);
    }
    let options = parse(&read(&COMMAND, words)?).map_err(Ended::usage)?;
    let mut found = Vec::new();
    for _ in 0..options.iterations {
        found.push(once(&options).map_err(Ended::failed)?);
    }
    print(&report(&options, &found)).map_err(Ended::failed)
}

fn parse(words: &Words) -> Result<FormingOptions, String> {
    let nodes = count(words, "nodes", 1000, NODES_LIMIT)? as u32;
    Ok(FormingOptions {
        nodes,
        processes: (count(words, "processes", 2, MOST_PROCESSES)? as u32).min(nodes),
        iterations: count(words, "iters", 1, 1000)? as u32,
        format: format(words)?,
    })
}

fn report(options: &FormingOptions, found: &[Figures]) -> String {
    let median = |figure: &dyn Fn(&Figures) -> f64| {
        let mut figures: Vec<f64> = found.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let (nodes, processes, iterations) = (options.nodes, options.processes, options.iterations);
    let growth = |figures: &Figures| figures.formed_kib as f64 - figures.before_kib as f64;
    let formed = median(&|figures| figures.formed_s);
    let named: [(&str, String); 11] = [
        ("nodes", nodes.to_string()),
        ("processes", processes.to_string()),
        ("iterations", iterations.to_string()),
        ("registered_s", format!("{:.4}", median(&|figures| figures.registered_s))),
        ("formed_s", format!("{formed:.4}")),
        ("nodes_per_s", format!("{:.0}", f64::from(nodes) / formed)),
        ("scheduler_cpu_s", format!("{:.4}", median(&|figures| figures.scheduler_cpu_s))),
        ("before_kib", format!("{:.0}", median(&|figures| figures.before_kib as f64))),
        ("formed_kib", format!("{:.0}", median(&|figures| figures.formed_kib as f64))),
        ("bytes_per_node", format!("{:.0}", median(&growth) * 1024.0 / f64::from(nodes))),
        ("left_s", format!("{:.4}", median(&|figures| figures.left_s))),
    ];
    let joined = |each: &dyn Fn(&(&str, String)) -> String| named.iter().map(each).collect::<Vec<_>>().join(",");
    match options.format {
        Format::Csv => {
            format!("{}\n{}\n", joined(&|(name, _)| (*name).to_owned()), joined(&|(_, value)| value.clone()))
        }
        Format::Json => format!("{{{}}}\n", joined(&|(name, value)| format!("\"{name}\":{value}"))),
        Format::Text => {
            let [.., registered, formed, rate, cpu, before, after, bytes, left] = &named;
            format!(
                "# a scheduler and {nodes} nodes in {processes} processes (medians of {iterations})\nall registered after \
                 {} s, all told their places after {} s: {} nodes/s\nthe scheduler computed for {} s\nits resident memory: \
                 {} KiB before, {} KiB when formed: {} bytes a node\nall left within {} s\n",
                registered.1, formed.1, rate.1, cpu.1, before.1, after.1, bytes.1, left.1
            )
        }
    }
}

/// A child that is killed when this process ends, and when this value is dropped.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // The standard library leaves a child alone that has ended, and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Started {
    fn new(command: &mut Command, listener: Option<&TcpListener>, what: &str) -> Result<Started, String> {
        let (parent, listener) = (std::process::id() as i32, listener.map(AsRawFd::as_raw_fd));
        // SAFETY: between fork and exec only calls that are safe there are made.
        unsafe { command.pre_exec(move || sys::prepare_child(Some(parent), listener)) };
        command.spawn().map(Started).map_err(|error| format!("{what} cannot be started: {error}"))
    }

    /// Waits until the child has ended. It must end well.
    fn finish(&mut self, deadline: Instant, what: &str) -> Result<(), String> {
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("{what} ended with {status}")),
                Ok(None) if Instant::now() >= deadline => return Err(format!("{what} does not end")),
                Ok(None) => std::thread::sleep(LOOK),
                Err(error) => return Err(format!("{what} cannot be waited for: {error}")),
            }
        }
    }
}

/// The scheduler, and a thread that keeps what it says.
struct SchedulerProcess {
    process: Started,
    address: SocketAddr,
    said: Option<JoinHandle<String>>,
}

impl SchedulerProcess {
    fn start(nodes: u32) -> Result<SchedulerProcess, String> {
        let cannot = |error: std::io::Error| format!("the scheduler's port cannot be bound: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot)?;
        sys::widen_backlog(&listener).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let mut command = this_program()?;
        // The environment of this process must not count. The nodes send no heartbeats: none may be missed.
        command.arg("scheduler").env_clear();
        for (key, value) in [
            (Key::SchedHost, address.ip().to_string()),
            (Key::SchedPort, address.port().to_string()),
            (Key::SchedFd, listener.as_raw_fd().to_string()),
            (Key::WorkerNum, nodes.to_string()),
            (Key::ClusterTimeout, PATIENCE.as_secs().to_string()),
            (Key::NodeTimeout, (2 * PATIENCE).as_secs().to_string()),
        ] {
            command.env(key.setting().variable(), value);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Started::new(&mut command, Some(&listener), "the scheduler")?;
        let said = process.0.stderr.take().map(|pipe| std::thread::spawn(|| read_all(pipe)));
        Ok(SchedulerProcess { process, address, said })
    }

    /// Waits until the scheduler serves: it then closes a connection that we end.
    fn await_serving(&self) -> std::io::Result<()> {
        let mut stranger = TcpStream::connect(self.address)?;
        stranger.set_read_timeout(Some(PATIENCE))?;
        stranger.shutdown(Shutdown::Write)?;
        stranger.read(&mut [0]).map(drop)
    }

    /// User memory alone, in KiB; what the kernel holds for its sockets is not part of it.
    fn resident_kib(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/status", self.process.0.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        kib.ok_or_else(|| format!("{path} does not tell VmRSS"))
    }

    fn computed_s(&self) -> Result<f64, String> {
        let ns = sys::computed_ns(self.process.0.id() as i32);
        ns.map(|ns| ns as f64 / 1e9).map_err(|error| format!("the scheduler's time is not known: {error}"))
    }

    /// Ends the scheduler, if it has not ended. Returns what it said last.
    fn last_words(mut self) -> String {
        drop(self.process);
        let said = self.said.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        said.lines().last().map_or_else(String::new, |line| format!(" (the scheduler: {line})"))
    }
}

fn read_all(mut pipe: ChildStderr) -> String {
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes); // what could be read is there
    String::from_utf8_lossy(&bytes).into_owned()
}

fn this_program() -> Result<Command, String> {
    let path = std::env::current_exe().map_err(|error| format!("where this program lies is not known: {error}"))?;
    let mut command = Command::new(path);
    command.arg0("muster");
    Ok(command)
}

fn once(options: &FormingOptions) -> Result<Figures, String> {
    let mut scheduler = SchedulerProcess::start(options.nodes)?;
    form(options, &mut scheduler).map_err(|why| why + &scheduler.last_words())
}

fn form(options: &FormingOptions, scheduler: &mut SchedulerProcess) -> Result<Figures, String> {
    scheduler.await_serving().map_err(|error| format!("the scheduler does not serve: {error}"))?;
    let (before_kib, computed) = (scheduler.resident_kib()?, scheduler.computed_s()?);
    let (tell, told) = mpsc::channel();
    let begun = sys::monotonic_ns();
    let mut parts = Vec::new();
    for index in 0..options.processes {
        parts.push(start_part(options, index, scheduler.address, &tell)?);
    }
    let since = |ns: u64| ns.saturating_sub(begun) as f64 / 1e9;
    let all = hear(&told, options.processes)?;
    let registered_s = since(all.iter().map(|part| part.first_ns).min().unwrap_or(begun));
    let formed_s = since(all.iter().map(|part| part.last_ns).max().unwrap_or(begun));
    let (formed_kib, scheduler_cpu_s) = (scheduler.resident_kib()?, scheduler.computed_s()? - computed);
    each_has_its_own(options.nodes, all.into_iter().flat_map(|part| part.ranks).collect())?;
    let leaving = Instant::now();
    for part in &mut parts {
        drop(part.0.stdin.take()); // it waits for the end of its input
    }
    for part in &mut parts {
        part.finish(leaving + PATIENCE, "a process with nodes")?;
    }
    scheduler.process.finish(leaving + PATIENCE, "the scheduler")?;
    let left_s = leaving.elapsed().as_secs_f64();
    Ok(Figures { registered_s, formed_s, left_s, scheduler_cpu_s, before_kib, formed_kib })
}

/// What a process says when all its nodes have their places.
struct Told {
    first_ns: u64,
    last_ns: u64,
    ranks: Vec<u32>,
}

fn start_part(options: &FormingOptions, index: u32, to: SocketAddr, tell: &Sender<String>) -> Result<Started, String> {
    let border = |index: u32| (u64::from(options.nodes) * u64::from(index) / u64::from(options.processes)) as u32;
    let mut command = this_program()?;
    command.args(["bench", "forming", PART, &index.to_string()]);
    command.args([border(index), border(index + 1), options.nodes].map(|number| number.to_string()));
    command.arg(to.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut part = Started::new(&mut command, None, "a process with nodes")?;
    if let Some(out) = part.0.stdout.take() {
        let tell = tell.clone();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(out).read_line(&mut line); // empty where it has ended; nobody listens after a failure
            let _ = tell.send(line);
        });
    }
    Ok(part)
}

/// Hears what all processes say.
fn hear(told: &Receiver<String>, processes: u32) -> Result<Vec<Told>, String> {
    let deadline = Instant::now() + PATIENCE;
    let one = |_| {
        let line = told.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let line = line.map_err(|_| format!("the cluster did not form within {} s", PATIENCE.as_secs()))?;
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first_ns)), Some(Ok(last_ns))) = (numbers.next(), numbers.next()) else {
            return Err("a process with nodes failed".to_owned()); // it has said why
        };
        let ranks = numbers.map_while(Result::ok).map(|rank| rank as u32).collect();
        Ok(Told { first_ns, last_ns, ranks })
    };
    (0..processes).map(one).collect()
}

/// Checks that no two nodes have the same rank, and that none is missing.
fn each_has_its_own(nodes: u32, mut ranks: Vec<u32>) -> Result<(), String> {
    ranks.sort_unstable();
    match ranks.into_iter().eq(0..nodes) {
        true => Ok(()),
        false => Err("the nodes' ranks are not all different".to_owned()),
    }
}

/// Runs as one process with nodes: `index first end all address`.
fn take_part(words: &[String]) -> Result<(), String> {
    let [index, first, end, all, address] = words else { return Err("this part is muster's own".to_owned()) };
    let wrong = |word: &String| format!("{word:?} is no part of a forming");
    let number = |word: &String| word.parse::<u32>().map_err(|_| wrong(word));
    let process = index.parse().map_err(|_| wrong(index))?;
    let scheduler = address.parse().map_err(|_| wrong(address))?;
    let mut nodes = Nodes::new(process, number(first)?..number(end)?, number(all)?, scheduler)?;
    nodes.form()?;
    let last = sys::monotonic_ns();
    let first = last - nodes.first_formed.map_or(0, |at| at.elapsed().as_nanos() as u64);
    let ranks: Vec<String> = nodes.ranks.iter().map(u32::to_string).collect();
    let mut out = std::io::stdout().lock();
    let told = writeln!(out, "{first} {last} {}", ranks.join(" ")).and_then(|()| out.flush());
    told.map_err(|error| format!("nobody listens: {error}"))?;
    std::io::stdin().read_to_end(&mut Vec::new()).map_err(|error| format!("nobody says when to leave: {error}"))?;
    nodes.leave()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_are_missing_or_given_twice_are_noticed() {
        assert!(each_has_its_own(4, vec![2, 0, 3, 1]).is_ok());
        for wrong in [vec![0, 1, 2], vec![0, 1, 2, 2], vec![0, 1, 2, 4], vec![0, 1, 2, 3, 3]] {
            assert!(each_has_its_own(4, wrong).is_err());
        }
    }
}
