//! Reads the rank table (`RANK_TABLE_FILE`), and has the settings take this process's rank from it; also makes the text
//! of a table for a cluster that has formed.
//!
//! `config` knows what a table says. This file asks the system: for the file's bytes, this host's name and addresses.
//! Tested below, and with real processes by `tests/python/test_rank_table.py`.

use crate::config::{rank_table_text, DeviceEntry, Host, Settings};
use crate::error::{Error, Result, Status};
use crate::net::fork::beyond_standard;
use crate::net::{file, host, interface};
use crate::types::Device;
use crate::wire::Member;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The largest file that is read: a table for a million devices fits.
const FILE_MAX_BYTES: u64 = 128 << 20;
/// The file in which a host with Ascend devices has their addresses.
const DEVICE_ADDRESSES: &str = "/etc/hccn.conf";

/// Takes a worker's rank from the table, where one is set; otherwise does nothing.
pub fn take_rank(settings: &mut Settings) -> Result<()> {
    let Some(path) = settings.rank_table_file.clone() else { return Ok(()) };
    let bytes = read(&path).map_err(|why| settings.rank_table_error(&why))?;
    let name = host::name()?;
    settings.take_rank(&bytes, &Host { name: &name, has: &|ip| interface::is_local(SocketAddr::new(ip, 0)) })
}

/// The device that this process works with, as far as the settings and the host tell.
pub fn device(settings: &Settings) -> Device {
    let id = settings.device_id;
    let known = || {
        id.and_then(|id| {
            let text = beyond_standard(|| std::fs::read_to_string(DEVICE_ADDRESSES)).ok()?.ok()?;
            device_ip(&text, id)
        })
    };
    Device { id, ip: settings.device_ip.or_else(known) }
}

/// Reads a device's address from the text of that file: lines like `address_0=192.168.100.101`.
fn device_ip(text: &str, device: u32) -> Option<IpAddr> {
    let name = format!("address_{device}");
    let value = text.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| key.trim() == name)?.1;
    value.trim().parse().ok()
}

/// The text of the table of a cluster's workers, which come in order of rank.
pub fn text(workers: &[Member]) -> Result<String> {
    let entry = |member: &Member| DeviceEntry {
        rank: member.rank,
        node_id: member.node_id.clone(),
        host: member.host.name.clone(),
        host_key: member.host.key.clone(),
        address: member.addresses.first().map(SocketAddr::ip),
        device: member.device.id.unwrap_or(member.local_rank),
        device_ip: member.device.ip,
    };
    let entries: Vec<DeviceEntry> = workers.iter().map(entry).collect();
    rank_table_text(&entries).map_err(|why| Error::new(Status::State, format!("no rank table can be made: {why}")))
}

fn read(path: &Path) -> std::result::Result<Vec<u8>, String> {
    file::read(path, FILE_MAX_BYTES).map_err(|why| format!("{why}: expected a file in JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Assignment, Config};
    use std::path::PathBuf;

    fn settings(path: &Path) -> Settings {
        let mut config = Config::new();
        config.load_env([
            ("MS_ROLE", "MS_WORKER"),
            ("MS_SCHED_HOST", "127.0.0.1"),
            ("MS_SCHED_PORT", "8118"),
            ("MS_WORKER_NUM", "2"),
            ("DEVICE_ID", "5"),
            ("RANK_TABLE_FILE", path.to_str().expect("a path of these tests is UTF-8")),
        ]);
        config.settings().expect("these settings are right")
    }

    fn written(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("muster-rank-table-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("the temporary folder can be written");
        path
    }

    #[test]
    fn a_worker_finds_its_rank_by_an_address_of_this_host() {
        let table = r#"{"version": "1.0", "status": "completed", "server_count": "2", "server_list": [
            {"server_id": "192.0.2.1", "device": [{"device_id": "5", "rank_id": "0"}]},
            {"server_id": "127.0.0.1", "device": [{"device_id": "5", "rank_id": "1"}]}]}"#;
        let path = written("found", table);
        let mut settings = settings(&path);
        take_rank(&mut settings).unwrap();
        assert!(matches!(settings.assignment, Assignment::Node { rank: Some(1), .. }), "{:?}", settings.assignment);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_devices_address_is_found_in_the_hosts_file() {
        let text = "address_0=192.168.1.1\nnetmask_0=255.255.255.0\n address_1 = fd00::7 \naddress_10=nonsense\n";
        assert_eq!(device_ip(text, 0), Some([192, 168, 1, 1].into()));
        assert_eq!(device_ip(text, 1), Some("fd00::7".parse().unwrap()));
        assert_eq!(device_ip(text, 10), None);
        assert_eq!(device_ip(text, 2), None);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        for (path, why) in
            [("/nowhere/table.json", "can't be read: "), ("/tmp", "is no file"), ("/dev/zero", "is no file")]
        {
            let error = take_rank(&mut settings(Path::new(path))).unwrap_err();
            let expected = format!("RANK_TABLE_FILE is {path:?}, which {why}");
            assert!(error.message().starts_with(&expected) && error.message().contains("expected"), "{error}");
        }
    }
}
