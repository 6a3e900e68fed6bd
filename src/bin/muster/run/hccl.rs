//! What the launcher's own environment says for HCCL.
//!
//! With MS_HCCL_CM_INIT=1 the workers of this host are told how HCCL starts by its cluster manager: the same values as
//! `muster_hccl_cm` gives. With RANK_TABLE_FILE the ranks are the table's, so the launcher gives none. Tested below, and
//! with real processes by `tests/python/test_run.py`.

use super::master::RESOLVE_WAIT;
use super::parse::RunOptions;
use muster::config::{hccl_chief_port, Config, Key, Value};
use muster::net::{interface, resolve};
use muster::runtime::first_of_interfaces;
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Whether a rank table gives the ranks. Each worker then finds its own by this host and its device.
pub fn has_rank_table() -> bool {
    set(&environment(), Key::RankTableFile).is_some()
}

/// The cluster manager's variables and their values; none if the setting is off, or is no flag: the workers report
/// that.
pub fn variables(
    options: &RunOptions,
    listener: Option<&TcpListener>,
    port: u16,
) -> Result<Vec<(&'static str, String)>, String> {
    let config = environment();
    if set(&config, Key::HcclCmInit) != Some(Value::Flag(true)) {
        return Ok(Vec::new());
    }
    let chief_port = hccl_chief_port(port, "--master_port").map_err(|error| error.message().to_owned())?;
    let chief = scheduler(options, listener, port)?;
    let worker = own_address(&config, chief)?;
    Ok(vec![
        ("CM_CHIEF_IP", chief.ip().to_string()),
        ("CM_CHIEF_PORT", chief_port.to_string()),
        ("CM_CHIEF_DEVICE", "0".to_owned()),
        ("CM_WORKER_SIZE", options.worker_num.to_string()),
        ("CM_WORKER_IP", worker.to_string()),
    ])
}

/// This host's address, as the workers have it.
pub fn address_of_host(options: &RunOptions, listener: Option<&TcpListener>, port: u16) -> Result<IpAddr, String> {
    own_address(&environment(), scheduler(options, listener, port)?)
}

/// The scheduler's address.
fn scheduler(options: &RunOptions, listener: Option<&TcpListener>, port: u16) -> Result<SocketAddr, String> {
    match listener.map(TcpListener::local_addr) {
        // If the scheduler listens at every address, workers are told the address at which nodes look for it.
        Some(Ok(address)) if address.ip().is_unspecified() => remote(&options.master_addr, port),
        Some(Ok(address)) => Ok(address),
        Some(Err(error)) => Err(format!("can't tell the scheduler's address: {error}")),
        None => remote(&options.master_addr, port),
    }
}

fn environment() -> Config {
    let mut config = Config::new();
    config.load_env(std::env::vars_os());
    config
}

/// The value in the environment, if it is right. If it is wrong, the processes report that which are started.
pub fn of_environment(key: Key) -> Option<Value> {
    set(&environment(), key)
}

/// The value in the environment, if it is of the setting's kind.
fn set(config: &Config, key: Key) -> Option<Value> {
    let setting = key.setting();
    setting.kind.parse(&config.get(setting.name).ok()??)
}

/// The scheduler's address if another host has it.
fn remote(host: &str, port: u16) -> Result<SocketAddr, String> {
    let addresses = resolve::resolve(host, port, RESOLVE_WAIT).map_err(|error| format!("--master_addr: {error}"))?;
    addresses.first().copied().ok_or_else(|| format!("--master_addr is {host:?}, which has no address"))
}

/// This host's address, as its workers choose it: the one that was set, the first of the interfaces that were set, or the one from
/// which the scheduler is reached.
fn own_address(config: &Config, chief: SocketAddr) -> Result<IpAddr, String> {
    if let Some(Value::Endpoints(told)) = set(config, Key::Advertise) {
        if let Some(first) = told.first() {
            return Ok(first.ip);
        }
    }
    if let Some(Value::Addresses(addresses)) = set(config, Key::WorkerIp) {
        if let Some(first) = addresses.first() {
            return Ok(*first);
        }
    }
    if let Some(Value::Interfaces(interfaces)) = set(config, Key::Ifname) {
        if let Some(first) = first_of_interfaces(&interfaces) {
            return Ok(first);
        }
    }
    interface::address_towards(chief).map_err(|error| {
        format!(
            "can't tell this host's address towards {chief}: {error}; set {}",
            Key::WorkerIp.setting().usual_variable()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_address_is_the_one_that_was_set_or_leads_to_the_scheduler() {
        let chief = "127.0.0.1:8118".parse().unwrap();
        let mut config = Config::new();
        assert_eq!(own_address(&config, chief).unwrap().to_string(), "127.0.0.1");
        let elsewhere = "192.0.2.1:8118".parse().unwrap();
        config.set("ifname", "=lo").unwrap();
        assert!(own_address(&config, elsewhere).unwrap().is_loopback(), "no route to the scheduler counts");
        config.set("ifname", "=nosuch0").unwrap();
        assert_eq!(own_address(&config, chief).unwrap().to_string(), "127.0.0.1", "the workers report that");
        config.set("worker_ip", "10.0.0.3,fd00::3").unwrap();
        assert_eq!(own_address(&config, chief).unwrap().to_string(), "10.0.0.3");
        config.set("advertise", "192.0.2.1:7000").unwrap();
        assert_eq!(own_address(&config, chief).unwrap().to_string(), "192.0.2.1");
        assert_eq!(remote("::1", 8118).unwrap().to_string(), "[::1]:8118");
    }
}
