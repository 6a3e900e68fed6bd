//! The simulation: one world, with recovery and a disk as options of a plan.

mod recovery;
