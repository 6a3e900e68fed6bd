//! Finds the entry of a rank table that is this process's, and with it the process's rank.
//!
//! A rank that is known without the table (`RANK_ID`, a node id that is a number, a launcher's) leads to the entry.
//! Host and device must agree with the entry. Otherwise the entry is found by this host and `DEVICE_ID`. There is no
//! third way: an entry that is not found, or not without doubt, is an error.
//!
//! This host is the server whose id or address is one of `MS_WORKER_IP`, or is `MUSTER_HOST_ID`. If there is none, it
//! is the server whose id is the host's name, or whose address is one of this host's. Tested in `rank_entry_test.rs`.

use std::net::IpAddr;

use super::rank_table::{place, RankTable, Server};
use super::settings::{Assignment, Settings};
use super::shown::show;
use super::value::plain_decimal;
use super::{Key, Setting};
use crate::error::{Error, Result};
use crate::types::Role;

/// Servers that an error lists, at most.
const LISTED: usize = 8;

/// What the system says of this host.
pub struct Host<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether an address is one of its own.
    pub has: &'a dyn Fn(IpAddr) -> bool,
}

impl Settings {
    /// Takes a worker's rank from the rank table in these bytes. Every other process only makes sure that the table is
    /// right, and has as many ranks as there are workers.
    pub fn take_rank(&mut self, bytes: &[u8], host: &Host<'_>) -> Result<()> {
        let table = RankTable::parse(bytes).map_err(|why| self.rank_table_error(&why))?;
        self.as_many_as_workers(&table)?;
        let Assignment::Node { role: Role::Worker, rank, node_id, .. } = &self.assignment else { return Ok(()) };
        let found = match *rank {
            Some(rank) => {
                let named = node_id.as_deref().and_then(plain_decimal) == Some(u64::from(rank));
                self.agreed(&table, rank, if named { Key::NodeId } else { Key::RankId }, host)?
            }
            None => self.found(&table, host)?,
        };
        if let Assignment::Node { rank, .. } = &mut self.assignment {
            *rank = Some(found);
        }
        Ok(())
    }

    /// An error about the rank table's file; `why` follows its name.
    pub fn rank_table_error(&self, why: &str) -> Error {
        let path = self.rank_table_file.as_deref().unwrap_or_else(|| "".as_ref()).to_string_lossy();
        Error::config(format!("{} is {}, which {why}", self.origin(Key::RankTableFile), show(&path)))
    }

    fn as_many_as_workers(&self, table: &RankTable) -> Result<()> {
        let ranks = table.ranks();
        if ranks == self.worker_num as usize {
            return Ok(());
        }
        Err(self.rank_table_error(&match self.assignment {
            Assignment::Alone { .. } => format!(
                "has {ranks} ranks, but this process is a cluster of one: expected MS_ROLE to be {}, or {} to be unset",
                Key::Role.setting().kind.expectation(),
                self.origin(Key::RankTableFile)
            ),
            _ => format!(
                "has {ranks} ranks (devices of all servers), but {} is \"{}\": expected as many ranks as workers",
                self.origin(Key::WorkerNum),
                self.worker_num
            ),
        }))
    }

    /// The rank that is known without the table, if the table does not contradict it.
    fn agreed(&self, table: &RankTable, rank: u32, source: Key, host: &Host<'_>) -> Result<u32> {
        let source = self.origin(source);
        let Some((server, index)) = table.place_of(rank) else {
            let highest = table.ranks().saturating_sub(1);
            let why = format!("has no rank_id \"{rank}\" as {source} has it: expected a rank from 0 to {highest}");
            return Err(self.rank_table_error(&why));
        };
        let entry = place(server, index);
        let device = table.servers[server].devices[index];
        if let Some(own) = self.own_device().filter(|own| *own != device.id) {
            return Err(self.rank_table_error(&format!(
                "has rank_id \"{rank}\", which is that of {source}, at {entry} with device_id \"{}\", but {} is \
                 \"{own}\": expected the same device from both",
                device.id,
                self.origin(Key::DeviceId)
            )));
        }
        let here = self.here(table, host);
        match here.first() {
            Some(first) if !here.contains(&server) => Err(self.rank_table_error(&format!(
                "has rank_id \"{rank}\", which is that of {source}, at {entry} on the server {}, but this host is {}: \
                 expected the same server from both",
                show(&table.servers[server].id),
                named(*first, &table.servers[*first])
            ))),
            _ => Ok(rank),
        }
    }

    /// `DEVICE_ID`, if that itself was set: other launchers' local ranks count devices that need not begin with 0.
    fn own_device(&self) -> Option<u32> {
        let origin = self.origin(Key::DeviceId);
        let setting = Setting::of_variable(&origin).or_else(|| Setting::named(&origin));
        self.device_id.filter(|_| setting.is_some())
    }

    /// The rank of the entry for this host and this process's device.
    fn found(&self, table: &RankTable, host: &Host<'_>) -> Result<u32> {
        let (rank_id, device_id) = (self.origin(Key::RankId), self.origin(Key::DeviceId));
        let Some(own) = self.device_id else {
            return Err(self.rank_table_error(&format!(
                "can't tell this process's rank, because neither {rank_id} nor {device_id} is set: expected one of them"
            )));
        };
        let here = self.here(table, host);
        if here.is_empty() {
            let told = match self.worker_addresses.is_empty() {
                true => String::new(),
                false => format!("one of {}, ", self.origin(Key::WorkerIp)),
            };
            return Err(self.rank_table_error(&format!(
                "has no server that is {told}an address of this host or its name {}; it has {}: expected this host \
                 among them, or {rank_id} to be set",
                show(host.name),
                servers(table, 0..table.servers.len())
            )));
        }
        let at = |server: &usize| table.servers[*server].devices.iter().find(|device| device.id == own);
        let matches: Vec<(usize, u32)> =
            here.iter().filter_map(|server| at(server).map(|device| (*server, device.rank))).collect();
        match matches.as_slice() {
            [(_, rank)] => Ok(*rank),
            [] => Err(self.rank_table_error(&format!(
                "has no device_id \"{own}\" as {device_id} has it on this host, {}: expected one of {}",
                servers(table, here.iter().copied()),
                devices(here.iter().map(|server| &table.servers[*server]))
            ))),
            several => Err(self.rank_table_error(&format!(
                "has device_id \"{own}\" on several servers that are this host, {}: expected {} to be the address of \
                 one of them, or {rank_id} to be set",
                servers(table, several.iter().map(|(server, _)| *server)),
                self.origin(Key::WorkerIp)
            ))),
        }
    }

    /// The indexes of the table's servers that are this host. There is more than one only if the table gives one host's
    /// addresses to several servers.
    fn here(&self, table: &RankTable, host: &Host<'_>) -> Vec<usize> {
        let select = |is_this: &dyn Fn(&Server) -> bool| -> Vec<usize> {
            table.servers.iter().enumerate().filter(|(_, server)| is_this(server)).map(|(index, _)| index).collect()
        };
        let told = select(&|server| {
            self.host_id.as_ref() == Some(&server.id)
                || server.addresses.iter().any(|address| self.worker_addresses.contains(address))
        });
        if !told.is_empty() {
            return told;
        }
        select(&|server| server.id == host.name || server.addresses.iter().any(|address| (host.has)(*address)))
    }
}

fn named(index: usize, server: &Server) -> String {
    format!("{} (server_list[{index}])", show(&server.id))
}

fn servers(table: &RankTable, indexes: impl ExactSizeIterator<Item = usize>) -> String {
    let more = indexes.len().saturating_sub(LISTED);
    let listed: Vec<String> = indexes.take(LISTED).map(|index| named(index, &table.servers[index])).collect();
    join(&listed, more)
}

fn devices<'a>(servers: impl Iterator<Item = &'a Server>) -> String {
    let ids: Vec<String> =
        servers.flat_map(|server| &server.devices).map(|device| format!("\"{}\"", device.id)).collect();
    let shown = ids.len().min(2 * LISTED);
    join(&ids[..shown], ids.len() - shown)
}

fn join(shown: &[String], more: usize) -> String {
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}

#[cfg(test)]
#[path = "rank_entry_test.rs"]
mod tests;
