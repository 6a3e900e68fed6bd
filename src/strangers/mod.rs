//! Connections that have proved nothing yet: how many a port holds, which of them has to go, whose turn it is, and what the log says of
//! strangers.
//!
//! The scheduler's brain and a node's mesh use both alike. Nothing here knows a socket, a clock or a message.

mod crowd;
mod line;
mod nuisances;

pub use crowd::Crowd;
pub use line::Line;
pub use nuisances::{Kind, Nuisances, WINDOW};
