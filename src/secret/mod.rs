//! The job's secret: a process that knows it belongs to the job, and proves that on each connection without sending it.
//!
//! | file | what it owns |
//! | --- | --- |
//! | [`key`] | the secret, and what is derived from it |
//! | [`session`] | what two ends say to each other before they believe the other's first message |
//! | [`link`] | a transport that does that, around any other |
//! | [`kept`] | where `muster run` leaves the secret that it has made |
//! | [`blocking`] | the proof for the command, which asks and waits |
//!
//! Invariants: with a secret no connection is ever made without its proof, on both planes; the secret is in no message and in no log.
//! TLS, where it is on, lies below: the proof is made inside it.
//!
//! Deliberately absent: what a message means. `docs/security.md` says what the proof is good for, and what not; `docs/protocol.md`
//! has its bytes.

pub mod blocking;
pub mod kept;
mod key;
pub mod link;
pub mod session;

pub use key::JobSecret;

use crate::config::{Assignment, Password, Settings};
use crate::error::Result;
use crate::net::{host, resolve, Side, TcpTransport, Transport, Wrap};
use crate::tls::{self, Remarks};
use link::ProvedTransport;
use session::Session;
use std::sync::Arc;
use std::time::Duration;

/// What a process puts around its connections, what it proves, and what its user should know.
pub struct Guard {
    /// TLS and the proof, where they are set.
    pub wrap: Wrap,
    /// TLS and the proof for a connection to the scheduler.
    pub to_scheduler: Wrap,
    /// Set if nodes' certificates must carry their node ids: the setting that demands it, by the name that the user knows.
    pub node_ids: Option<String>,
    /// The secret, if there is one.
    pub secret: Option<Arc<JobSecret>>,
    /// What its user should know now, one sentence each.
    pub warnings: Vec<String>,
    /// What its user should know later.
    pub remarks: Remarks,
}

impl Guard {
    /// A guard that only uses this wrap, for all connections.
    pub fn of(wrap: Wrap) -> Guard {
        let to_scheduler = Arc::clone(&wrap);
        let (warnings, remarks) = (Vec::new(), Remarks::default());
        Guard { wrap, to_scheduler, node_ids: None, secret: None, warnings, remarks }
    }

    /// The same guard for another part of this process, without the remarks for the user.
    pub fn shared(&self) -> Guard {
        let (node_ids, secret) = (self.node_ids.clone(), self.secret.clone());
        Guard { node_ids, secret, ..Guard::of(Arc::clone(&self.wrap)) }
    }
}

/// Reads what the settings name. Everything that is wrong with it is an error now, and not at the first connection.
pub fn open(settings: &Settings) -> Result<Guard> {
    let scheduler = match &settings.assignment {
        Assignment::Node { host, hosts_scheduler: false, .. } => Some(host.as_str()),
        _ => None,
    };
    let tls = tls::open(settings.tls.as_ref(), scheduler)?;
    let secret = match JobSecret::read(&settings.job_secret)? {
        None => left_by_a_run(settings).as_ref().map(JobSecret::of),
        given => given,
    };
    let job = settings.derived_job.as_ref().map(|job| job.mark());
    let [wrap, to_scheduler] = [&tls.wrap, &tls.to_scheduler]
        .map(|wrap| secret.as_ref().map_or_else(|| Arc::clone(wrap), |secret| around(wrap, secret, job)));
    let node_ids = settings.tls.as_ref().and_then(|tls| tls.names.node_ids.clone());
    Ok(Guard { wrap, to_scheduler, node_ids, secret, warnings: tls.warnings, remarks: tls.remarks })
}

/// How long the scheduler's name is looked up, to know whether it is this host's.
const LOOK_UP: Duration = Duration::from_secs(2);

/// The secret of a run, for a process that belongs to the run and was started beside it.
fn left_by_a_run(settings: &Settings) -> Option<Password> {
    let directory = settings.recovery_path.as_deref().filter(|_| settings.enable_recovery);
    let of_recovery = directory.and_then(kept::of_recovery);
    of_recovery.or_else(|| match &settings.assignment {
        Assignment::Node { host, ports, hosts_scheduler: false, .. } => {
            let port = *ports.first()?;
            let kept = kept::of_port(port)?; // few hosts have such a file: others look nothing up
            is_its_scheduler(&kept, host, port).then_some(kept.secret)
        }
        _ => None,
    })
}

/// Whether a run's scheduler is what listens at a host's port, by the host's name or an address.
fn is_its_scheduler(run: &kept::OfRun, host: &str, port: u16) -> bool {
    resolve::resolve(host, port, LOOK_UP).is_ok_and(|addresses| addresses.iter().any(|address| run.is_at(address)))
}

/// A wrap that adds the proof to `wrap`. `derived_job` marks the job that a launcher tells, if one does.
pub fn around(wrap: &Wrap, secret: &Arc<JobSecret>, derived_job: Option<&str>) -> Wrap {
    let (wrap, secret, job) = (Arc::clone(wrap), Arc::clone(secret), derived_job.map(str::to_owned));
    Arc::new(move |transport: TcpTransport, side: Side| -> Box<dyn Transport> {
        let nonce = host::random_bytes().map_err(|error| error.to_string());
        let session = nonce.map(|nonce| Session::new(Arc::clone(&secret), side, nonce).of_derived_job(job.as_deref()));
        Box::new(ProvedTransport::new(wrap(transport, side), session))
    })
}
