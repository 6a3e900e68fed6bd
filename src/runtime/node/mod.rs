//! A node of a cluster: the agent thread, joining, recovery, the store.

pub(crate) mod agent_run;
pub(crate) mod agent_thread;
pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod finalize;
pub(crate) mod own_addresses;
pub(crate) mod rank_table;
pub(crate) mod recover;
pub(crate) mod store;
pub(crate) mod whereabouts;
