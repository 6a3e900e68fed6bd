//! The file of a trace: one event of the Chrome trace format a line, so that Perfetto opens it as it is, also where its
//! end is missing. `muster trace merge` lays the files of all ranks beside each other. docs/tracing.md describes the
//! format for readers.
//!
//! Times are in microseconds since this node learnt that its first epoch is complete.

use super::roster::own_role;
use crate::net::fork::Guarded;
use crate::net::host;
use crate::runtime::base::clock::Clock;
use crate::types::{Call, Epoch, GroupId, HostName, JobInstance, Role, Time};
use crate::wire::Formed;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The format of these files.
const VERSION: u32 = 1;

/// A file grows to so many bytes; what does not fit is counted.
const BYTES_MAX: u64 = 256 << 20;

/// Servers stand below workers.
const FIRST_SERVER: u32 = 1_000_000;

/// The node of which a trace tells.
#[derive(Clone)]
pub(crate) struct About {
    pub job: JobInstance,
    pub role: Role,
    pub rank: u32,
    pub restarts: u32,
    pub node_id: String,
    /// The host's name, and a key that tells the host from every other.
    pub host: String,
    pub host_key: String,
}

/// One collective, as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub call: Call,
    pub sequence: u64,
    /// The longer of this rank's buffers.
    pub bytes: u64,
    pub called: Time,
    /// When its turn came.
    pub begun: Time,
    pub ended: Time,
    pub is_ok: bool,
}

/// The group and rank where a collective was called.
pub(crate) struct CallSite {
    pub group: GroupId,
    pub epoch: Epoch,
    /// This node's rank in the group.
    pub rank: u32,
}

/// An open file.
pub(crate) struct TraceFile {
    path: PathBuf,
    /// None once it could not be written.
    file: Option<Guarded<File>>,
    zero: Time,
    process: u32,
    /// The text that is to be written next.
    text: String,
    bytes: u64,
    /// Groups that have been named.
    named: BTreeSet<GroupId>,
    /// How many collectives have found no room in the file.
    left_out: u64,
}

impl About {
    /// The description of this node, once its cluster is complete.
    pub(crate) fn of(formed: &Formed, node_id: &str, host: HostName) -> About {
        let Formed { instance: job, rank, restarts, .. } = *formed;
        let (role, node_id) = (own_role(formed), node_id.to_owned());
        About { job, role, rank, restarts, node_id, host: host.name, host_key: host.key }
    }
}

/// The file with this name, empty. No link that somebody has planted is followed, and no pipe is waited for.
fn emptied(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.nlink() > 1 {
        return Err(io::Error::other("it is not a plain file, or it has a second name (a hard link): remove it"));
    }
    file.set_len(0)?;
    Ok(file)
}

impl TraceFile {
    /// Makes the file of this node in a folder, with its head, which tells even of a node that is killed at once. The
    /// file of another life stays.
    pub(crate) fn create(folder: &Path, about: &About, zero: Time, clock: &Clock) -> io::Result<TraceFile> {
        let job: String = about.job.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join(format!("{}.{}_{}.{}.json", &job[..8], about.role, about.rank, about.restarts));
        let file = Guarded::create(|| emptied(&path)).map_err(|error| named(&path, &error))?;
        let process = about.rank + if about.role == Role::Server { FIRST_SERVER } else { 0 };
        let (text, file, named) = ("[\n".to_owned(), Some(file), BTreeSet::new());
        let mut trace = TraceFile { path, file, zero, process, text, bytes: 0, named, left_out: 0 };
        // The host's time at the trace's time 0: so the traces of one host need no other clock.
        let host_ns = host::monotonic_ns().saturating_sub(clock.now().since(zero).as_nanos() as u64);
        let args = json!({
            "version": VERSION,
            "muster": env!("CARGO_PKG_VERSION"),
            "job": job,
            "role": about.role.to_string(),
            "rank": about.rank,
            "restarts": about.restarts,
            "node_id": about.node_id,
            "host": about.host,
            "clock": format!("{} {:x}", about.host_key, host::time_namespace()),
            "clock_ns": host_ns,
            "pid": std::process::id(),
        });
        trace.line("M", "muster_trace", 0, json!({ "args": args }));
        let name = format!("{} {} on {} (pid {})", about.role, about.rank, about.host, std::process::id());
        trace.line("M", "process_name", 0, json!({ "args": { "name": name } }));
        trace.line("M", "process_sort_index", 0, json!({ "args": { "sort_index": process } }));
        trace.flush(false)?;
        Ok(trace)
    }

    /// An epoch has begun.
    pub(crate) fn epoch(&mut self, epoch: Epoch, at: Time) {
        let event = json!({ "ts": self.ts(at), "s": "p", "args": { "epoch": epoch.0 } });
        self.line("i", &format!("epoch {}", epoch.0), 0, event);
    }

    /// A collective has ended.
    pub(crate) fn collective(&mut self, site: &CallSite, entry: &Entry) {
        if self.bytes + self.text.len() as u64 >= BYTES_MAX {
            self.left_out += 1;
            return;
        }
        self.name(site.group);
        let Entry { call, sequence, bytes, called, begun, ended, is_ok } = entry;
        let args = json!({
            "epoch": site.epoch.0,
            "group": site.group.0,
            "sequence": sequence,
            "rank": site.rank,
            "bytes": bytes,
            "count": call.count,
            "dtype": call.dtype.map(|dtype| dtype.to_string()),
            "op": call.op.map(|op| op.to_string()),
            "root": call.root,
            "called": self.ts(*called),
            "ok": is_ok,
        });
        let (ts, dur) = (self.ts(*begun), us(ended.since(*begun).as_nanos() as i64));
        let event = json!({ "cat": "collective", "ts": ts, "dur": dur, "args": args });
        self.line("X", call.kind.name(), site.group.0, event);
    }

    /// Notes that so many collectives of a group found no room in memory.
    pub(crate) fn dropped(&mut self, site: &CallSite, count: u64, at: Time) {
        if count > 0 {
            self.name(site.group);
            let event = json!({ "ts": self.ts(at), "s": "t", "args": { "dropped": count } });
            self.line("i", &format!("{count} not recorded"), site.group.0, event);
        }
    }

    /// Writes what there is; after the last of it, the file's end. After an error nothing is written any more.
    pub(crate) fn flush(&mut self, is_last: bool) -> io::Result<()> {
        if is_last {
            let left_out = self.left_out;
            self.line("M", "muster_trace_end", 0, json!({ "args": { "left_out": left_out } }));
            self.text.truncate(self.text.len() - ",\n".len());
            self.text.push_str("\n]\n");
        }
        let text = std::mem::take(&mut self.text);
        let Some(file) = &mut self.file else { return Ok(()) };
        self.bytes += text.len() as u64;
        let written = file.write_all(text.as_bytes());
        if written.is_err() {
            self.file = None;
        }
        written.map_err(|error| named(&self.path, &error))
    }

    /// For tests: from now on the file is as long as it may be.
    #[cfg(test)]
    pub(crate) fn skip_to_the_end(&mut self) {
        self.bytes = BYTES_MAX;
    }

    /// For tests: a file into which nothing can be written.
    #[cfg(test)]
    pub(crate) fn on_a_full_disk() -> TraceFile {
        let path = PathBuf::from("/dev/full");
        let file = Guarded::create(|| OpenOptions::new().write(true).open(&path)).expect("every Linux has it");
        let (text, file, named) = ("[\n".to_owned(), Some(file), BTreeSet::new());
        TraceFile { path, file, zero: Time::default(), process: 0, text, bytes: 0, named, left_out: 0 }
    }

    fn name(&mut self, group: GroupId) {
        if self.named.insert(group) {
            self.line("M", "thread_name", group.0, json!({ "args": { "name": group.to_string() } }));
            self.line("M", "thread_sort_index", group.0, json!({ "args": { "sort_index": group.0 } }));
        }
    }

    fn line(&mut self, phase: &str, name: &str, thread: u32, mut event: Value) {
        event["ph"] = phase.into();
        event["name"] = name.into();
        event["pid"] = self.process.into();
        event["tid"] = thread.into();
        self.text.push_str(&event.to_string());
        self.text.push_str(",\n");
    }

    fn ts(&self, at: Time) -> Value {
        us(at.0 as i64 - self.zero.0 as i64)
    }
}

/// Nanoseconds as the format has them: in microseconds.
fn us(ns: i64) -> Value {
    (ns as f64 / 1000.0).into()
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_head_is_in_the_file_before_anything_is_recorded() {
        let folder = std::env::temp_dir().join(format!("muster-head-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let about = About {
            job: JobInstance([0xab; 16]),
            role: Role::Worker,
            rank: 3,
            restarts: 1,
            node_id: "3".to_owned(),
            host: "h".to_owned(),
            host_key: "key".to_owned(),
        };
        let trace = TraceFile::create(&folder, &about, Time::default(), &Clock::start()).unwrap();
        let text = fs::read_to_string(folder.join("abababab.worker_3.1.json")).unwrap();
        let head: Value = serde_json::from_str(text.lines().nth(1).unwrap().trim_end_matches(',')).unwrap();
        assert_eq!((&head["name"], &head["args"]["rank"]), (&json!("muster_trace"), &json!(3)));
        drop(trace);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn after_an_error_nothing_is_written_and_there_is_no_further_error() {
        let mut trace = TraceFile::on_a_full_disk();
        let error = trace.flush(false).unwrap_err();
        assert_eq!((error.kind(), error.to_string().starts_with("/dev/full: ")), (io::ErrorKind::StorageFull, true));
        trace.epoch(Epoch(2), Time::default());
        assert!(trace.flush(false).is_ok() && trace.flush(true).is_ok());
    }

    #[test]
    fn a_trace_goes_into_no_file_that_has_another_name() {
        let folder = std::env::temp_dir().join(format!("muster-trace-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (kept, trace) = (folder.join("kept"), folder.join("trace"));
        fs::write(&kept, "kept").unwrap();
        fs::write(&trace, "an older trace").unwrap();
        assert_eq!(emptied(&trace).unwrap().metadata().unwrap().len(), 0);
        fs::remove_file(&trace).unwrap();
        std::os::unix::fs::symlink(&kept, &trace).unwrap();
        assert!(emptied(&trace).is_err(), "a symbolic link");
        fs::remove_file(&trace).unwrap();
        fs::hard_link(&kept, &trace).unwrap();
        assert!(emptied(&trace).is_err_and(|error| error.to_string().contains("hard link")), "a hard link");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
        fs::remove_dir_all(&folder).unwrap();
    }
}
