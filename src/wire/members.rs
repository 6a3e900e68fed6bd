//! The nodes of a cluster, as each node is told of them.
//!
//! A table keeps the bytes that it has on the wire. So a table for all nodes is made once. A node needs only two or three of its
//! peers at first, and does not make thousands of strings. A table that comes in is checked at once: every table here is valid.

use super::codec::{take_name, take_text, Decoder, Encoder, Wire, WireError};
use super::{ADDRESSES_MAX, NAME_MAX};
use crate::error::Culprit;
use crate::types::{Device, HostName, Process, Role};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// The fewest bytes that a member takes: index, role, two ranks, three empty texts, process, no address, no device.
const MEMBER_BYTES_LEAST: usize = 4 + 1 + 4 + 4 + 3 * 2 + 20 + 4 + 2;

/// A node as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its place among all nodes: workers by rank, then servers by rank.
    pub index: u32,
    /// Worker or server.
    pub role: Role,
    /// Its rank in its role's rank space.
    pub rank: u32,
    /// Its place among those of its role on its host.
    pub local_rank: u32,
    /// Its id.
    pub node_id: String,
    /// Its host.
    pub host: HostName,
    /// Its process.
    pub process: Process,
    /// Where it can be reached.
    pub addresses: Vec<SocketAddr>,
    /// The device that it works with.
    pub device: Device,
}

impl Member {
    /// How a failure names this node.
    pub fn culprit(&self) -> Culprit {
        Culprit {
            role: self.role,
            rank: Some(self.rank),
            node_id: self.node_id.clone(),
            host: self.host.name.clone(),
            pid: self.process.pid,
            last_call: None,
        }
    }
}

impl Wire for Member {
    fn put(&self, to: &mut Encoder) {
        self.index.put(to);
        self.role.put(to);
        self.rank.put(to);
        self.local_rank.put(to);
        self.node_id.put(to);
        self.host.put(to);
        self.process.put(to);
        self.addresses.put(to);
        self.device.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Member {
            index: Wire::take(from)?,
            role: Wire::take(from)?,
            rank: Wire::take(from)?,
            local_rank: Wire::take(from)?,
            node_id: take_name(from, "node id")?,
            host: Wire::take(from)?,
            process: Wire::take(from)?,
            addresses: take_addresses(from)?,
            device: Wire::take(from)?,
        })
    }
}

impl Member {
    /// Checks a member as [`take`](Wire::take) does, but makes no value.
    fn look_through(from: &mut Decoder<'_>) -> Result<(), WireError> {
        u32::take(from)?;
        Role::take(from)?;
        u32::take(from)?;
        u32::take(from)?;
        for what in ["node id", "host name", "host key"] {
            take_text(from, NAME_MAX, what)?;
        }
        Process::take(from)?;
        (0..count_addresses(from)?).try_for_each(|_| SocketAddr::take(from).map(drop))?;
        Device::take(from).map(drop)
    }
}

/// Members, mostly in order of index. Clones share them.
#[derive(Clone)]
pub struct Members(Arc<Table>);

struct Table {
    /// The members as they lie on the wire.
    bytes: Vec<u8>,
    /// Where each member begins, and where the last ends.
    starts: Vec<u32>,
    /// All members, once somebody has asked for them.
    all: OnceLock<Vec<Arc<Member>>>,
}

impl Members {
    /// A table of these members.
    pub fn new(all: Vec<Arc<Member>>) -> Members {
        let (mut to, mut starts) = (Encoder::default(), vec![0]);
        for member in &all {
            member.put(&mut to);
            starts.push(start(to.bytes.len()));
        }
        Members(Arc::new(Table { bytes: to.bytes, starts, all: all.into() }))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.starts.len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The member with this index. The members must be in order of index.
    pub fn find(&self, index: u32) -> Option<Member> {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from.midpoint(to);
            match self.index_at(middle).cmp(&index) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Equal => return Some(self.at(middle)),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    /// Whether there is a member with this index.
    pub fn has(&self, index: u32) -> bool {
        (0..self.len()).any(|at| self.index_at(at) == index)
    }

    /// Whether each index is higher than the one before, and below `limit`.
    pub fn are_in_order_below(&self, limit: u64) -> bool {
        let mut next = 0;
        (0..self.len()).all(|at| {
            let index = u64::from(self.index_at(at));
            let is_next = index >= next && index < limit;
            next = index + 1;
            is_next
        })
    }

    fn bytes_at(&self, at: usize) -> &[u8] {
        &self.0.bytes[self.0.starts[at] as usize..self.0.starts[at + 1] as usize]
    }

    fn index_at(&self, at: usize) -> u32 {
        u32::take(&mut Decoder::new(self.bytes_at(at))).expect("it was looked through, and the index comes first")
    }

    fn at(&self, at: usize) -> Member {
        Member::take(&mut Decoder::new(self.bytes_at(at))).expect("it was looked through")
    }
}

/// All members. They are decoded at the first use.
impl Deref for Members {
    type Target = [Arc<Member>];

    fn deref(&self) -> &[Arc<Member>] {
        self.0.all.get_or_init(|| (0..self.len()).map(|at| Arc::new(self.at(at))).collect())
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Members) -> bool {
        (&self.0.bytes, &self.0.starts) == (&other.0.bytes, &other.0.starts)
    }
}

impl Eq for Members {}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A node's addresses: at most [`ADDRESSES_MAX`], of at least seven bytes each.
pub(super) fn take_addresses(from: &mut Decoder<'_>) -> Result<Vec<SocketAddr>, WireError> {
    (0..count_addresses(from)?).map(|_| Wire::take(from)).collect()
}

pub(super) fn count_addresses(from: &mut Decoder<'_>) -> Result<usize, WireError> {
    from.count(ADDRESSES_MAX, 7, "addresses")
}

impl Wire for Members {
    fn put(&self, to: &mut Encoder) {
        start(self.len()).put(to);
        to.bytes.extend_from_slice(&self.0.bytes);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        let count = from.count(usize::MAX, MEMBER_BYTES_LEAST, "members")?;
        let (mut looked, mut starts) = (from.clone(), Vec::with_capacity(count + 1));
        starts.push(0);
        for _ in 0..count {
            Member::look_through(&mut looked)?;
            starts.push(start(from.left() - looked.left()));
        }
        let bytes = from.bytes(from.left() - looked.left())?.to_vec();
        Ok(Members(Arc::new(Table { bytes, starts, all: OnceLock::new() })))
    }
}

fn start(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("messages are far below 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::super::golden_test::member;
    use super::*;

    fn sent(all: &[Member]) -> Vec<u8> {
        let mut to = Encoder::default();
        Members::new(all.iter().cloned().map(Arc::new).collect()).put(&mut to);
        to.bytes
    }

    fn received(bytes: &[u8]) -> Result<Members, WireError> {
        let mut from = Decoder::new(bytes);
        let members = Members::take(&mut from)?;
        from.finish().map(|()| members)
    }

    #[test]
    fn one_is_found_by_its_index_and_no_other_is_made() {
        let all: Vec<Member> = [3, 7, 8, 20].map(|index| Member { index, ..member(index) }).into();
        let members = received(&sent(&all)).unwrap();
        for index in 0..30 {
            assert_eq!(members.find(index).as_ref(), all.iter().find(|member| member.index == index));
            assert_eq!(members.has(index), members.find(index).is_some());
        }
        assert!(members.0.all.get().is_none(), "nobody wanted all");
        assert!(members.iter().map(|member| &**member).eq(&all));
        assert_eq!((members.len(), members.is_empty()), (4, false));
        assert!(received(&sent(&[])).unwrap().is_empty());
    }

    #[test]
    fn what_is_looked_through_is_what_can_be_taken() {
        let bytes =
            sent(&[member(0), Member { host: HostName { name: "h\u{e9}".into(), key: "".into() }, ..member(1) }]);
        for at in 4..bytes.len() {
            for damage in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= damage;
                let taken = <Vec<Member>>::take(&mut Decoder::new(&damaged)).ok();
                let looked = Members::take(&mut Decoder::new(&damaged)).ok();
                let looked = looked.map(|looked| looked.iter().map(|member| Member::clone(member)).collect::<Vec<_>>());
                assert_eq!(looked, taken, "byte {at}, {damage:#x}");
            }
            assert!(received(&bytes[..at]).is_err(), "cut at {at}");
        }
        let named = |length| received(&sent(&[Member { node_id: "n".repeat(length), ..member(0) }]));
        assert!(named(NAME_MAX).is_ok());
        assert!(named(NAME_MAX + 1).is_err());
    }
}
