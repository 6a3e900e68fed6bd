//! The HCCL rank table, version 1.0: JSON that says which rank runs on which device of which server.
//!
//! Owns the way from a file's bytes to a [`RankTable`] that is known to be right: server ids are unique, device ids are
//! unique within their server, and the ranks are 0 to n-1, each once. The first irregularity is an error that names the
//! entry, as in `server_list[1].device[3].rank_id`, what it is, and what would be right. Values are strings, as HCCL
//! wants them. HCCL would refuse a number in the place of a string, so this code refuses it, too. Fields that say
//! nothing about ranks are left alone.
//!
//! Deliberately not here: reading the file (runtime), and which entry is this process's (`rank_entry.rs`).
//! Tested in `rank_table_test.rs`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value};

use super::shown::show;
use super::value::plain_decimal;
use super::{json, NODES_LIMIT};

/// The one version that is known; later ones describe hardware of other kinds.
const VERSION: &str = "1.0";

/// The status of a finished table.
const COMPLETED: &str = "completed";

/// The longest server id, as HCCL has it.
const SERVER_ID_MAX_BYTES: usize = 64;

/// Further fields of a server in which its addresses may stand. Makers of tables differ there.
const ADDRESS_FIELDS: [&str; 5] = ["host_ip", "server_ip", "container_ip", "pod_ip", "host_nic_ip"];

/// The texts that stand in an address field that is not used.
const NO_ADDRESS: [&str; 2] = ["", "reserve"];

/// A table without irregularities.
#[derive(Debug)]
pub struct RankTable {
    /// Its servers, in the table's order; at least one.
    pub servers: Vec<Server>,
}

/// A host of the table.
#[derive(Debug)]
pub struct Server {
    /// Its name: an address, or any text.
    pub id: String,
    /// The addresses that the table gives it, in its id and in other fields.
    pub addresses: Vec<IpAddr>,
    /// Its devices, in the table's order; at least one.
    pub devices: Vec<Device>,
}

/// A device, and the rank that runs on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Its number on its server.
    pub id: u32,
    /// The rank.
    pub rank: u32,
}

/// The value that was read; or what is wrong, in words that follow the file's name and "has".
type Parsed<T> = Result<T, String>;

impl RankTable {
    /// Reads the table from a file's bytes. An error's words follow the file's name.
    pub fn parse(bytes: &[u8]) -> Parsed<RankTable> {
        let value = json::parse(bytes)?;
        let root = Entry { path: String::new(), value: &value };
        root.object()?;
        root.constant("version", VERSION)?;
        root.constant("status", COMPLETED)?;
        let list = root.field("server_list", "a list of servers")?.list("a list of at least one server")?;
        let count = root.field("server_count", "the number of servers, in quotes")?;
        if count.whole("the number of servers")? as usize != list.len() {
            return Err(format!("{}, which is the length of server_list", count.wrong(&in_quotes(list.len()))));
        }
        let table = RankTable { servers: list.iter().map(server).collect::<Parsed<_>>()? };
        table.check_server_ids()?;
        table.check_ranks()?;
        Ok(table)
    }

    /// How many ranks the table has; they are numbered from 0.
    pub fn ranks(&self) -> usize {
        self.servers.iter().map(|server| server.devices.len()).sum()
    }

    /// The indexes of the server and the device that this rank runs on.
    pub fn place_of(&self, rank: u32) -> Option<(usize, usize)> {
        self.places().find(|(_, _, device)| device.rank == rank).map(|(server, device, _)| (server, device))
    }

    fn places(&self) -> impl Iterator<Item = (usize, usize, Device)> + '_ {
        self.servers
            .iter()
            .enumerate()
            .flat_map(|(at, server)| server.devices.iter().enumerate().map(move |(index, device)| (at, index, *device)))
    }

    fn check_server_ids(&self) -> Parsed<()> {
        let mut seen = BTreeMap::new();
        for (index, server) in self.servers.iter().enumerate() {
            if let Some(first) = seen.insert(&server.id, index) {
                return Err(format!(
                    "has server_list[{index}].server_id {}, as has server_list[{first}]: expected each server once",
                    show(&server.id)
                ));
            }
        }
        Ok(())
    }

    fn check_ranks(&self) -> Parsed<()> {
        let ranks = self.ranks();
        let highest = ranks.saturating_sub(1);
        let mut seen = BTreeMap::new();
        for (server, index, device) in self.places() {
            let name = format!("{}.rank_id", place(server, index));
            let rank = device.rank;
            if rank as usize > highest {
                return Err(format!(
                    "has {name} \"{rank}\": expected a rank from 0 to {highest}, because the table has {ranks} devices"
                ));
            }
            if let Some(first) = seen.insert(rank, place(server, index)) {
                return Err(format!(
                    "has {name} \"{rank}\", as has {first}.rank_id: expected each rank from 0 to {highest} once"
                ));
            }
        }
        Ok(())
    }
}

/// How an error names a device.
pub fn place(server: usize, device: usize) -> String {
    format!("server_list[{server}].device[{device}]")
}

fn server(entry: &Entry<'_>) -> Parsed<Server> {
    let expected = format!("1 to {SERVER_ID_MAX_BYTES} bytes of text that name the server");
    let id = entry.field("server_id", &expected)?;
    let name = id.text(&expected)?;
    if name.trim().is_empty() || name.len() > SERVER_ID_MAX_BYTES {
        return Err(id.wrong(&expected));
    }
    let mut addresses: Vec<IpAddr> = name.parse().into_iter().collect();
    for field in ADDRESS_FIELDS {
        addresses.extend(address(entry, field)?);
    }
    let list = entry.field("device", "a list of devices")?.list("a list of at least one device")?;
    let devices = list.iter().map(device).collect::<Parsed<Vec<Device>>>()?;
    let mut seen = BTreeMap::new();
    for (index, device) in devices.iter().enumerate() {
        if let Some(first) = seen.insert(device.id, index) {
            let path = &entry.path;
            return Err(format!(
                "has {path}.device[{index}].device_id \"{}\", as has {path}.device[{first}]: expected each device of a \
                 server once",
                device.id
            ));
        }
    }
    Ok(Server { id: name.to_string(), addresses, devices })
}

fn device(entry: &Entry<'_>) -> Parsed<Device> {
    address(entry, "device_ip")?;
    let number = |name: &str, what: &str| entry.field(name, &format!("{what}, in quotes"))?.whole(what);
    Ok(Device { id: number("device_id", "the device's number")?, rank: number("rank_id", "the rank")? })
}

/// An address that need not be there, but must be one if it is.
fn address(entry: &Entry<'_>, name: &str) -> Parsed<Option<IpAddr>> {
    let Some(field) = entry.optional(name)? else { return Ok(None) };
    let text = field.text("an IP address")?;
    if NO_ADDRESS.contains(&text) {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| field.wrong("an IP address"))
}

fn in_quotes(number: usize) -> String {
    format!("\"{number}\"")
}

/// A value of the table, and the name of its entry.
struct Entry<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Entry<'a> {
    fn object(&self) -> Parsed<&'a Map<String, Value>> {
        self.value.as_object().ok_or_else(|| self.wrong("an object"))
    }

    fn child(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_string()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    fn optional(&self, name: &str) -> Parsed<Option<Entry<'a>>> {
        Ok(self.object()?.get(name).map(|value| Entry { path: self.child(name), value }))
    }

    fn field(&self, name: &str, expected: &str) -> Parsed<Entry<'a>> {
        self.optional(name)?.ok_or_else(|| format!("has no {}: expected {expected}", self.child(name)))
    }

    /// A field that must have this value.
    fn constant(&self, name: &str, expected: &str) -> Parsed<()> {
        let expected = format!("{expected:?}");
        let field = self.field(name, &expected)?;
        match show(field.text(&expected)?) == expected {
            true => Ok(()),
            false => Err(field.wrong(&expected)),
        }
    }

    fn list(&self, expected: &str) -> Parsed<Vec<Entry<'a>>> {
        let list = self.value.as_array().filter(|list| !list.is_empty()).ok_or_else(|| self.wrong(expected))?;
        let entry = |(index, value): (usize, &'a Value)| Entry { path: format!("{}[{index}]", self.path), value };
        Ok(list.iter().enumerate().map(entry).collect())
    }

    fn text(&self, expected: &str) -> Parsed<&'a str> {
        let in_quotes = if self.value.is_number() { " in quotes" } else { "" };
        self.value.as_str().ok_or_else(|| self.wrong(&format!("{expected}{in_quotes}")))
    }

    /// A plain decimal number in quotes; `what` names what it is the number of.
    fn whole(&self, what: &str) -> Parsed<u32> {
        let expected = format!("{what}, a whole number from 0 to {}", NODES_LIMIT - 1);
        let number = plain_decimal(self.text(&expected)?).filter(|number| *number < NODES_LIMIT);
        number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| self.wrong(&expected))
    }

    /// The sentence about a value that is not what it should be.
    fn wrong(&self, expected: &str) -> String {
        let found = match self.value {
            Value::String(text) => show(text),
            Value::Number(number) => format!("the number {number}"),
            Value::Null => "null".to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::Array(list) if list.is_empty() => "an empty list".to_string(),
            Value::Array(_) => "a list".to_string(),
            Value::Object(_) => "an object".to_string(),
        };
        match self.path.as_str() {
            "" => format!("is {found}: expected {expected}"),
            path => format!("has {path} {found}: expected {expected}"),
        }
    }
}

#[cfg(test)]
#[path = "rank_table_test.rs"]
mod tests;
