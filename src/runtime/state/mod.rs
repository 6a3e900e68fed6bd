//! What a node knows: its roster, the first causes, what heartbeats tell of others. No group stands in it.

pub(crate) mod aftermath;
pub(crate) mod causes;
pub(crate) mod context;
pub(crate) mod group_end;
pub(crate) mod node_state;
pub(crate) mod over;
pub(crate) mod participation;
pub(crate) mod reduce_functions;
pub(crate) mod roster;
pub(crate) mod silence;
pub(crate) mod stragglers;
pub(crate) mod trace;
pub(crate) mod trace_file;
pub(crate) mod verdict;
