//! The engine that carries out a schedule over links: turns, waiting, what a failing call does.

pub(crate) mod call_log;
pub(crate) mod call_progress;
pub(crate) mod cause;
pub(crate) mod deadlines_behind;
mod drive;
pub(crate) mod engine;
pub(crate) mod failure;
mod hosts;
mod levels;
mod levels_woven;
pub(crate) mod peers;
pub(crate) mod queued_call;
pub(crate) mod revoke_check;
mod shared;
mod shared_checks;
mod shared_drive;
mod shared_flags;
#[cfg(all(test, loom))]
mod shared_loom_test;
mod shared_setup;
mod shared_wait;
pub(crate) mod standstill;
pub(crate) mod stop;
pub(crate) mod turns;
#[cfg(all(test, loom))]
mod turns_loom_test;
pub(crate) mod work;
