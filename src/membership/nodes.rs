//! Every node that the scheduler knows, by its key, and the ways to find one.
//!
//! A node's key is its turn of registration while the cluster forms, and its index from then on. Invariants: the ways to find a
//! node agree with the nodes; `present` counts the members. Tested through the whole brain.

use super::contract::ConnId;
use super::node::{Node, Place};
use super::ranks::canonical;
use super::standing::Presence;
use crate::error::Culprit;
use crate::types::{Epoch, Incarnation, Role, Time};
use crate::wire::Register;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Deref;

/// All nodes. It reads as a map from keys.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Each node is allocated by itself, for a tree leaves much of its room unused.
    by_key: BTreeMap<u32, Box<Node>>,
    by_incarnation: HashMap<Incarnation, u32>,
    /// The nodes' keys by canonical id.
    by_id: HashMap<String, u32>,
    /// How many are members still.
    present: usize,
    /// The nodes lost in this epoch, those included that have come back since.
    lost: BTreeSet<u32>,
    /// Lives that others have replaced.
    fenced: HashSet<Incarnation>,
}

impl Deref for Nodes {
    type Target = BTreeMap<u32, Box<Node>>;

    fn deref(&self) -> &Self::Target {
        &self.by_key
    }
}

impl Nodes {
    pub(super) fn get_mut(&mut self, key: u32) -> Option<&mut Node> {
        self.by_key.get_mut(&key).map(Box::as_mut)
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = (u32, &mut Node)> {
        self.by_key.iter_mut().map(|(key, node)| (*key, node.as_mut()))
    }

    /// The node whose life this is.
    pub(super) fn of_life(&self, life: Incarnation) -> Option<u32> {
        self.by_incarnation.get(&life).copied()
    }

    /// The node with this id, or with one that differs in leading zeros only.
    pub(super) fn named(&self, node_id: &str) -> Option<u32> {
        self.by_id.get(canonical(node_id)).copied()
    }

    /// One more member.
    pub(super) fn insert(&mut self, key: u32, node: Box<Node>) {
        self.enter(key, &node.register);
        self.by_key.insert(key, node);
        self.present += 1;
    }

    fn enter(&mut self, key: u32, register: &Register) {
        self.by_incarnation.insert(register.incarnation, key);
        self.by_id.insert(canonical(&register.node_id).to_string(), key);
    }

    fn strike(&mut self, register: &Register) {
        self.by_incarnation.remove(&register.incarnation);
        self.by_id.remove(canonical(&register.node_id));
    }

    /// A member that goes before the cluster is complete.
    pub(super) fn remove(&mut self, key: u32) -> Option<Box<Node>> {
        let node = self.by_key.remove(&key)?;
        self.strike(&node.register);
        self.present -= 1;
        Some(node)
    }

    /// The cluster is complete: each node gets its place, in the same order. Its index becomes its key.
    pub(super) fn take_places(&mut self, places: Vec<Place>, worker_num: u32) {
        for (mut node, place) in std::mem::take(&mut self.by_key).into_values().zip(places) {
            let first = if node.role() == Role::Server { worker_num } else { 0 };
            let index = first + place.rank;
            node.place = Some(place);
            node.lives.token = node.next_token();
            self.enter(index, &node.register);
            self.by_key.insert(index, node);
        }
    }

    /// Another life takes the place of a node; the life that had it is fenced. Returns the connection that the old life
    /// had, if any.
    pub(super) fn replace_life(&mut self, key: u32, register: Register) -> Option<ConnId> {
        let mut node = self.by_key.remove(&key)?;
        self.strike(&node.register);
        self.enter(key, &register);
        self.fenced.insert(node.register.incarnation);
        let last = std::mem::replace(&mut *node.register, register);
        node.lives.seat.come_back_after(last);
        node.presence.return_as_member();
        self.present += 1;
        let conn = node.attachment.release();
        self.by_key.insert(key, node);
        conn
    }

    /// The same life of a node counts once more. If another life waits for the next epoch, the node stays lost in this
    /// one.
    pub(super) fn counts_again(&mut self, key: u32) {
        let Some(node) = self.by_key.get_mut(&key).filter(|node| node.presence.is_lost()) else { return };
        node.presence.return_as_member();
        self.present += 1;
        if !node.is_back() {
            self.lost.remove(&key);
        }
    }

    /// A member is lost now.
    pub(super) fn lose(&mut self, key: u32, now: Time) {
        if let Some(node) = self.by_key.get_mut(&key) {
            node.presence.lose(now);
            self.present -= 1;
            self.lost.insert(key);
        }
    }

    /// A member ends in order.
    pub(super) fn leave(&mut self, key: u32) {
        if let Some(node) = self.by_key.get_mut(&key) {
            node.presence.leave();
            self.present -= 1;
        }
    }

    /// How many lives can be found.
    #[cfg(test)]
    pub(super) fn lives(&self) -> usize {
        self.by_incarnation.len()
    }

    /// How many are members.
    pub(super) fn present(&self) -> usize {
        self.present
    }

    /// The nodes that were lost in this epoch.
    pub(super) fn lost(&self) -> Vec<u32> {
        self.lost.iter().copied().collect()
    }

    pub(super) fn was_lost(&self, key: u32) -> bool {
        self.lost.contains(&key)
    }

    /// The nodes whose places another life has from the next epoch on.
    pub(super) fn with_another_life(&self) -> Vec<u32> {
        self.iter().filter(|(_, node)| node.is_back()).map(|(key, _)| *key).collect()
    }

    /// A new epoch: nobody is lost in it.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch) {
        self.lost.clear();
        self.by_key.values_mut().for_each(|node| node.begin_epoch(epoch));
    }

    /// Whether another life has this one's place.
    pub(super) fn is_fenced(&self, life: Incarnation) -> bool {
        self.fenced.contains(&life)
    }

    /// The lives that others have replaced. A life that loses its place only with the next epoch is not fenced in this
    /// one.
    pub(super) fn fenced(&self) -> Vec<Incarnation> {
        let earlier = self.values().filter_map(|node| node.lives.seat.earlier());
        let seated: BTreeSet<Incarnation> = earlier.map(|earlier| earlier.incarnation).collect();
        self.fenced.iter().filter(|life| !seated.contains(life)).copied().collect()
    }

    /// Takes up the fenced lives that a record tells of.
    pub(super) fn take_up_fenced(&mut self, fenced: Vec<Incarnation>) {
        self.fenced = fenced.into_iter().collect();
    }

    pub(super) fn conn(&self, key: u32) -> Option<ConnId> {
        self.get(&key)?.conn()
    }

    /// The connections of all nodes that have one.
    pub(super) fn conns(&self) -> Vec<ConnId> {
        self.values().filter_map(|node| node.conn()).collect()
    }

    /// A node, as a sentence names it.
    pub(super) fn in_words(&self, key: u32) -> String {
        self.get(&key).map_or_else(|| format!("node {key}"), |node| node.culprit().to_string())
    }

    pub(super) fn has_left(&self, key: u32) -> bool {
        self.get(&key).is_some_and(|node| node.presence == Presence::Left)
    }

    pub(super) fn is_confirmed_lost(&self, key: u32) -> bool {
        self.get(&key).is_some_and(|node| node.is_confirmed_lost())
    }

    /// When a node whose loss is confirmed was gone: its connection ended, or it was last heard.
    pub(super) fn gone_since(&self, key: u32) -> Time {
        let since = |node: &Node| node.attachment.detached().map_or(node.contact.heard, |gone| gone.since);
        self.get(&key).map_or(Time(0), |node| since(node))
    }

    /// Whether this is another node than `key`, connected and not known to be gone.
    pub(super) fn is_well(&self, named: Option<&Culprit>, key: u32) -> bool {
        let missed = named.and_then(|named| self.named(&named.node_id)).filter(|missed| *missed != key);
        let node = missed.and_then(|missed| self.get(&missed));
        node.is_some_and(|node| node.is_well())
    }
}
