//! The HCCL rank table, version 1.0, of a cluster that has formed: the text that `rank_table.rs` reads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{json, Map, Value};

use super::show;

/// The longest server id, as HCCL has it.
const SERVER_ID_MAX_BYTES: usize = 64;

/// One worker, as a rank table tells of it.
#[derive(Clone, Debug)]
pub struct Seat {
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

/// The table, as JSON text; the same for the same seats. Seats come in order of rank. An error's words stand alone.
pub fn text(seats: &[Seat]) -> Result<String, String> {
    let mut order: Vec<&str> = Vec::new();
    let mut hosts: BTreeMap<&str, Vec<&Seat>> = BTreeMap::new();
    for seat in seats {
        let there = hosts.entry(&seat.host_key).or_default();
        if there.is_empty() {
            order.push(&seat.host_key);
        }
        if let Some(other) = there.iter().find(|other| other.device == seat.device) {
            return Err(format!(
                "ranks {} (node id {}) and {} (node id {}) both work with device {} of host {}: expected each device once; \
                 set DEVICE_ID (device_id) for each",
                other.rank,
                show(&other.node_id),
                seat.rank,
                show(&seat.node_id),
                seat.device,
                seat.host
            ));
        }
        there.push(seat);
    }
    let mut taken = BTreeSet::new();
    let servers: Vec<Value> = order
        .iter()
        .map(|key| {
            let there = &hosts[key];
            let devices: Vec<Value> = there.iter().map(|seat| device(seat)).collect();
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

fn device(seat: &Seat) -> Value {
    let mut entry = Map::new();
    entry.insert("device_id".to_owned(), seat.device.to_string().into());
    if let Some(ip) = seat.device_ip {
        entry.insert("device_ip".to_owned(), ip.to_string().into());
    }
    entry.insert("rank_id".to_owned(), seat.rank.to_string().into());
    Value::Object(entry)
}

/// The host's address; its name where another host has the same address, as on loopback; a numbered one where that is
/// another's, too.
fn server_id(there: &[&Seat], taken: &mut BTreeSet<String>) -> String {
    let name = cut(&there[0].host);
    let plain = there[0].address.map(|ip| ip.to_string()).into_iter().chain([name.to_owned()]);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let free = plain.chain(numbered).find(|id| !id.is_empty() && !taken.contains(id)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

/// As much of a name as leaves room for a number.
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

    fn seat(rank: u32, host: &str, device: u32) -> Seat {
        let address = Some(IpAddr::from([10, 0, 0, host.len() as u8]));
        let (node_id, host_key) = (format!("w{rank}"), format!("{host}/boot"));
        Seat { rank, node_id, host: host.to_owned(), host_key, address, device, device_ip: None }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut seats = vec![seat(0, "bb", 1), seat(1, "a", 0), seat(2, "bb", 0), seat(3, "ccc", 7)];
        seats[1].device_ip = Some([192, 168, 1, 9].into());
        let text = text(&seats).unwrap();
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
        let mut seats = vec![seat(0, "a", 0), seat(1, "b", 0), seat(2, "b", 0)];
        seats[2].host_key = "b/another".to_owned();
        let long = "x".repeat(200);
        seats.push(seat(3, &long, 0));
        seats[3].address = None;
        let table = RankTable::parse(text(&seats).unwrap().as_bytes()).unwrap();
        let ids: Vec<&str> = table.servers.iter().map(|server| server.id.as_str()).collect();
        assert_eq!(ids, ["10.0.0.1", "b", "b-2", &long[..56]]);
    }

    #[test]
    fn a_device_belongs_to_one_rank() {
        let error = text(&[seat(0, "a", 3), seat(1, "b", 3), seat(2, "b", 3)]).unwrap_err();
        assert!(error.contains("ranks 1 (node id \"w1\") and 2") && error.contains("device 3 of host b"), "{error}");
    }
}
