//! The command `muster`.

fn main() {}
