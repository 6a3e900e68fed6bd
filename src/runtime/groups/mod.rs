//! Groups as a caller holds them: handles, creation, and how a group's use ends.

pub(crate) mod by_members;
pub(crate) mod create;
pub(crate) mod group;
pub(crate) mod handle;
pub(crate) mod parting;
pub(crate) mod registry;
