//! What C programs hold of a cluster and of its groups.

use super::guard::Handle;
use crate::error::Result;
use crate::runtime::groups::group::Group;
use crate::runtime::groups::handle::GroupHandle;
use crate::runtime::groups::registry::Registry;
use crate::runtime::node::cluster::Cluster;
use crate::types::GroupId;
use std::ffi::CString;
use std::sync::Arc;

/// A node's cluster. Its calls are thread-safe.
pub struct muster_cluster_t {
    pub(super) handle: Handle<Cluster>,
    pub(super) node_id: CString,
    pub(super) world: muster_group_t,
    pub(super) servers: muster_group_t,
    pub(super) universe: muster_group_t,
}

impl muster_cluster_t {
    pub(super) fn new(cluster: Cluster) -> muster_cluster_t {
        let group = |id| muster_group_t::new(cluster.handle(id), cluster.registry(), true);
        let node_id = cluster.node_id().replace('\0', " ");
        muster_cluster_t {
            node_id: CString::new(node_id).expect("its zero bytes were just replaced"),
            world: group(GroupId::WORLD),
            servers: group(GroupId::SERVERS),
            universe: group(GroupId::UNIVERSE),
            handle: Handle::new(cluster),
        }
    }

    pub(super) fn with<R>(&self, body: impl FnOnce(&Cluster) -> Result<R>) -> Result<R> {
        self.handle.with("cluster", body)
    }
}

/// An ordered set of nodes with its own sequence of collectives. The built-in groups are borrowed from their cluster,
/// and live as long as it does. Groups that the program makes belong to the program, which frees them with
/// muster_group_free. Every rank must call a group's collectives in the same order.
pub struct muster_group_t {
    /// Shared with the calls that use the group: they may still run when muster_group_free has returned.
    pub(super) handle: Arc<Handle<(Arc<GroupHandle>, Arc<Registry>)>>,
    /// The group belongs to its cluster, and the caller does not free it.
    pub(super) borrowed: bool,
}

impl muster_group_t {
    pub(super) fn new(own: Arc<GroupHandle>, registry: &Arc<Registry>, borrowed: bool) -> muster_group_t {
        muster_group_t { handle: Arc::new(Handle::new((own, Arc::clone(registry)))), borrowed }
    }

    pub(super) fn with<R>(&self, body: impl FnOnce(&Group) -> Result<R>) -> Result<R> {
        self.with_registry(|_, group| body(group))
    }

    /// Runs `body` with what stands for the group in all epochs.
    pub(super) fn with_handle<R>(&self, body: impl FnOnce(&GroupHandle) -> Result<R>) -> Result<R> {
        let handle = Arc::clone(&self.handle);
        handle.with("group", |(own, _)| body(own))
    }

    /// Runs `body` with the group of the present epoch.
    pub(super) fn with_shared<R>(&self, body: impl FnOnce(&Arc<Group>) -> Result<R>) -> Result<R> {
        self.with_registry(|_, group| body(group))
    }

    /// Runs `body` with the cluster's table of groups and the group of the present epoch.
    pub(super) fn with_registry<R>(&self, body: impl FnOnce(&Arc<Registry>, &Arc<Group>) -> Result<R>) -> Result<R> {
        let handle = Arc::clone(&self.handle);
        handle.with("group", |(own, registry)| body(registry, &own.present()))
    }
}
