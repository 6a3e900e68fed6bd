//! The C ABI: convert, call, convert. No logic lives here.
//!
//! Conventions, as the header's head tells users: status is `int32_t`; handles are made into a `T **out` and freed by
//! their `_free`, which accepts NULL; outputs are written only on success; every entry is a panic boundary ([`guard`]); a
//! handle that was inherited through `fork` answers with `MUSTER_ERR_FORKED`. Items are named as in C, for cbindgen.

#![allow(non_camel_case_types)]

mod about;
mod calls;
mod cluster;
mod collectives;
mod constants;
mod convert;
mod failure;
mod group;
mod guard;
mod handles;
mod interrupt;
mod life;
mod lists;
mod messages;
mod nonblocking;
mod operation;
mod prepare;
mod reductions;
mod request;
mod scheduler;
mod settings;
mod store;
mod store_bytes;

pub use about::*;
pub use cluster::*;
pub use collectives::*;
pub use constants::*;
pub use failure::*;
pub use group::*;
pub use handles::*;
pub use interrupt::*;
pub use life::*;
pub use lists::*;
pub use messages::*;
pub use nonblocking::*;
pub use operation::*;
pub use reductions::*;
pub use request::*;
pub use scheduler::*;
pub use settings::*;
pub use store::*;
pub use store_bytes::*;
