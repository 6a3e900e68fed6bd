//! The HCCL rank table, version 1.0, of a cluster that has formed: the text that `rank_table.rs` reads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{json, Map, Value};

use super::shown::show;

/// The longest server id, as HCCL has it.
const SERVER_ID_MAX_BYTES: usize = 64;

/// One worker, as a rank table tells of it.
#[derive(Clone, Debug)]
pub struct DeviceEntry {
    /// Its rank.
    pub rank: u32,
    /// Its node id, for sentences.
    pub node_id: String,
    /// What people call its host.
    pub host: String,
    /// What tells its host from every other.
    pub host_key: String,
    /// Where it is reached, if that is known.
    pub address: Option<IpAddr>,
    /// Its device on that host.
    pub device: u32,
    /// The device's address, if that is known.
    pub device_ip: Option<IpAddr>,
}

/// The table, as JSON text. The same entries give the same text; they come in order of rank. An error's words stand
/// alone.
pub fn text(entries: &[DeviceEntry]) -> Result<String, String> {
    let mut order: Vec<&str> = Vec::new();
    let mut hosts: BTreeMap<&str, Vec<&DeviceEntry>> = BTreeMap::new();
    for entry in entries {
        let there = hosts.entry(&entry.host_key).or_default();
        if there.is_empty() {
            order.push(&entry.host_key);
        }
        if let Some(other) = there.iter().find(|other| other.device == entry.device) {
            return Err(format!(
                "ranks {} (node id {}) and {} (node id {}) both work with device {} of host {}: expected each device once; \
                 set DEVICE_ID (device_id) for each",
                other.rank,
                show(&other.node_id),
                entry.rank,
                show(&entry.node_id),
                entry.device,
                entry.host
            ));
        }
        there.push(entry);
    }
    let mut taken = BTreeSet::new();
    let servers: Vec<Value> = order
        .iter()
        .map(|key| {
            let there = &hosts[key];
            let devices: Vec<Value> = there.iter().map(|entry| device(entry)).collect();
            json!({ "server_id": server_id(there, &mut taken), "device": devices, "host_nic_ip": "reserve" })
        })
        .collect();
    let table = json!({
        "version": "1.0",
        "server_count": servers.len().to_string(),
        "server_list": servers,
        "status": "completed",
    });
    serde_json::to_string_pretty(&table).map_err(|error| error.to_string())
}

fn device(entry: &DeviceEntry) -> Value {
    let mut object = Map::new();
    object.insert("device_id".to_owned(), entry.device.to_string().into());
    if let Some(ip) = entry.device_ip {
        object.insert("device_ip".to_owned(), ip.to_string().into());
    }
    object.insert("rank_id".to_owned(), entry.rank.to_string().into());
    Value::Object(object)
}

/// The host's address; its name if another host has the same address, as on loopback; a numbered name if another host
/// has that name, too.
fn server_id(there: &[&DeviceEntry], taken: &mut BTreeSet<String>) -> String {
    let name = cut(&there[0].host);
    let plain = there[0].address.map(|ip| ip.to_string()).into_iter().chain([name.to_owned()]);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let free = plain.chain(numbered).find(|id| !id.is_empty() && !taken.contains(id)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

/// The beginning of a name, short enough to leave room for a number.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(SERVER_ID_MAX_BYTES - 8);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::rank_table::RankTable;

    fn entry(rank: u32, host: &str, device: u32) -> DeviceEntry {
        let address = Some(IpAddr::from([10, 0, 0, host.len() as u8]));
        let (node_id, host_key) = (format!("w{rank}"), format!("{host}/boot"));
        DeviceEntry { rank, node_id, host: host.to_owned(), host_key, address, device, device_ip: None }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut entries = vec![entry(0, "bb", 1), entry(1, "a", 0), entry(2, "bb", 0), entry(3, "ccc", 7)];
        entries[1].device_ip = Some([192, 168, 1, 9].into());
        let text = text(&entries).unwrap();
        let table = RankTable::parse(text.as_bytes()).unwrap();
        let ids: Vec<&str> = table.servers.iter().map(|server| server.id.as_str()).collect();
        assert_eq!(ids, ["10.0.0.2", "10.0.0.1", "10.0.0.3"], "hosts in order of their first rank");
        for (rank, place, device) in [(0, (0, 0), 1), (2, (0, 1), 0), (1, (1, 0), 0), (3, (2, 0), 7)] {
            assert_eq!(table.place_of(rank), Some(place));
            assert_eq!(table.servers[place.0].devices[place.1].id, device);
        }
        assert!(text.contains("\"device_ip\": \"192.168.1.9\""), "{text}");
        assert_eq!(text.matches("device_ip").count(), 1, "what is not known is left out");
        assert!(text.contains("\"host_nic_ip\": \"reserve\""));
    }

    #[test]
    fn hosts_with_one_address_are_told_apart() {
        let mut entries = vec![entry(0, "a", 0), entry(1, "b", 0), entry(2, "b", 0)];
        entries[2].host_key = "b/another".to_owned();
        let long = "x".repeat(200);
        entries.push(entry(3, &long, 0));
        entries[3].address = None;
        let table = RankTable::parse(text(&entries).unwrap().as_bytes()).unwrap();
        let ids: Vec<&str> = table.servers.iter().map(|server| server.id.as_str()).collect();
        assert_eq!(ids, ["10.0.0.1", "b", "b-2", &long[..56]]);
    }

    #[test]
    fn a_device_belongs_to_one_rank() {
        let error = text(&[entry(0, "a", 3), entry(1, "b", 3), entry(2, "b", 3)]).unwrap_err();
        assert!(error.contains("ranks 1 (node id \"w1\") and 2") && error.contains("device 3 of host b"), "{error}");
    }
}
