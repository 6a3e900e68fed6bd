//! What a process says of itself: its host, its process, its random names.

use super::identity_store::lasting_name;
use crate::config::{Assignment, Key, Settings};
use crate::error::{Error, Result};
use crate::net::host;
use crate::types::{HostName, Incarnation, Process};

/// The host, as the cluster groups by it: `MUSTER_HOST_ID`, or host name and boot id together.
pub fn host_name(settings: &Settings) -> Result<HostName> {
    host_of(settings.host_id.as_deref())
}

/// The host of processes that have this `MUSTER_HOST_ID`, or have none.
pub fn host_of(host_id: Option<&str>) -> Result<HostName> {
    let name = host::name()?;
    let key = host_id.map_or_else(|| format!("{name}/{}", host::boot_id()), str::to_owned);
    Ok(HostName { name, key })
}

/// This process.
pub fn process() -> Process {
    Process { pid: std::process::id(), start_ticks: host::own_start_ticks(), pid_namespace: host::pid_namespace() }
}

/// The random name of a new life.
pub fn incarnation() -> Result<Incarnation> {
    host::random_bytes().map(Incarnation)
}

/// The node id of a process that was given none.
pub fn generated_node_id(host: &HostName, incarnation: &Incarnation) -> String {
    let random = u32::from_le_bytes(incarnation.0[..4].try_into().expect("4 of 16 bytes"));
    let mut name: String = host.name.chars().take(128).collect();
    name.retain(|c| !c.is_control());
    format!("{name}-{}-{random:08x}", std::process::id())
}

/// Notes which node id this node's certificate must carry, where certificates must carry node ids. A process that makes
/// up its id has no certificate for it.
pub fn demand_own_id(settings: &mut Settings) -> Result<()> {
    let id = match &settings.assignment {
        Assignment::Node { role, node_id, rank, .. } => lasting_name(*role, node_id.as_deref(), *rank),
        Assignment::Alone { node_id } => node_id.clone(),
        Assignment::Scheduler { .. } => return Ok(()),
    };
    let Some(names) = settings.tls.as_mut().map(|tls| &mut tls.names) else { return Ok(()) };
    let Some(flag) = &names.node_ids else { return Ok(()) };
    if id.is_none() {
        let setting = Key::NodeId.setting().variable();
        return Err(Error::config(format!(
            "{flag} is on, but this node has neither a node id ({setting}) nor a rank from its launcher: expected an id that \
             its certificate carries (muster certs node DIR --node_id=ID)"
        )));
    }
    names.own_id = id;
    Ok(())
}
