//! What holds for all messages: the versions of the protocol, and how long and how many things may be.

/// The lowest protocol that this library speaks.
pub const PROTOCOL_LOWEST: u16 = 1;
/// The highest protocol that this library speaks.
pub const PROTOCOL_HIGHEST: u16 = 1;
/// A feature bit of `Register`, which is taken up if `Formed` says so: the node tells what carries its groups' collectives.
pub const FEATURE_CARRIERS: u64 = 1;
/// All feature bits of `Register` that this library knows.
pub const FEATURES: u64 = FEATURE_CARRIERS;
/// A feature bit of a link's `Hello`: the link may be upgraded to two rings in memory that both nodes share.
pub const LINK_FEATURE_MEMORY: u64 = 1;
/// The longest frame payload before a node has registered.
pub const UNREGISTERED_PAYLOAD_MAX: u64 = 64 << 10;
/// The longest payload of a control message after registration.
pub const CONTROL_PAYLOAD_MAX: u64 = 1 << 20;
/// The longest node id, host name, host key, job id or version, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest sentence that travels, in bytes; a longer one is cut at a character border.
pub const SENTENCE_MAX: usize = 4096;
/// How many groups `Formed` lists of which other groups were made.
pub const CREATIONS_MAX: usize = 1024;
/// How many tokens a node may show.
pub const TOKENS_MAX: usize = 2;
/// How many processes one message of a launcher names at most, so that it keeps within [`UNREGISTERED_PAYLOAD_MAX`].
pub const ABANDONED_MAX: usize = 1024;
/// How many addresses a node may advertise. With [`FULL_TABLE_NODES`] and [`NAME_MAX`] it keeps `Formed` within
/// [`CONTROL_PAYLOAD_MAX`].
pub const ADDRESSES_MAX: usize = 8;
/// How many groups one heartbeat reports on.
pub const PROGRESS_MAX: usize = 1024;
/// How many messages one heartbeat names for which its node waits.
pub const WAITS_MAX: usize = 8;
/// How many groups one heartbeat names that are over and after which its node has gone on.
pub const GONE_ON_MAX: usize = 64;
/// For how many groups one heartbeat says what carries their collectives.
pub const CARRIERS_MAX: usize = 128;
/// Up to this many nodes `Formed` carries every member's address.
pub const FULL_TABLE_NODES: usize = 1024;
