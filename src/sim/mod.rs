//! A simulated network and clock that drive the real brains.
