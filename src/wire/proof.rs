//! How two ends of a connection prove to each other that they know the job's secret, before the first message counts.

/// The dialler asks for a challenge; the payload is its nonce. The first frame of its connection.
pub const PROOF_ASK: u8 = 80;
/// The challenge: the accepter's nonce.
pub const PROOF_CHALLENGE: u8 = 81;
/// The MAC of a side's first message, which follows that message.
pub const PROOF_MAC: u8 = 82;
/// How long a nonce is.
pub const NONCE_BYTES: usize = 32;
