//! The schedules of all ranks run against each other in memory.
