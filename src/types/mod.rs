//! The nouns that every other room speaks in. Plain values: no behaviour beyond parsing, printing and comparing.

mod call;
mod checksum_scope;
mod hook;
mod identity;
mod numeric;
mod received;
mod shared_memory;
mod shown;
mod time;

pub use call::{hash, Call, CallDigest, CallKind, NO_VALUE};
pub use checksum_scope::ChecksumScope;
pub use hook::Hook;
pub use identity::{
    Device, Epoch, GroupId, HostName, Incarnation, JobInstance, LaunchId, Process, Role, Secret, Token, TokenHash,
};
pub use numeric::{DType, ReduceOp};
pub use received::Received;
pub use shared_memory::SharedMemory;
pub use shown::{is_hidden, shown};
pub use time::Time;
