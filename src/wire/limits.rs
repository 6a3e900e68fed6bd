//! What holds for all messages: the versions of the protocol, and how long and how many things may be.

/// The lowest protocol that this library speaks.
pub const PROTOCOL_LOWEST: u16 = 1;
/// The highest protocol that this library speaks.
pub const PROTOCOL_HIGHEST: u16 = 1;
/// What a node may offer in `Register` beyond the protocol, and is taken up where `Formed` says so: it tells what carries its groups.
pub const FEATURE_CARRIERS: u64 = 1;
/// All of that which this library knows.
pub const FEATURES: u64 = FEATURE_CARRIERS;
/// What a node may offer to upgrade a link to in its `Hello`: two rings in memory that both share.
pub const LINK_FEATURE_MEMORY: u64 = 1;
/// The longest frame payload before a node has registered.
pub const UNREGISTERED_PAYLOAD_MAX: u64 = 64 << 10;
/// The longest payload of a control message after registration.
pub const CONTROL_PAYLOAD_MAX: u64 = 1 << 20;
/// The longest node id, host name, host key, job id or version, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest sentence that travels, in bytes; a longer one is cut at a character border.
pub const SENTENCE_MAX: usize = 4096;
/// How many groups with groups made of them `Formed` lists.
pub const CREATIONS_MAX: usize = 1024;
/// How many tokens a node may show.
pub const TOKENS_MAX: usize = 2;
/// How many processes one word of a launcher names at most: it keeps within [`UNREGISTERED_PAYLOAD_MAX`].
pub const ABANDONED_MAX: usize = 1024;
/// How many addresses a node may advertise. With [`FULL_TABLE_NODES`] and [`NAME_MAX`] it keeps `Formed` within
/// [`CONTROL_PAYLOAD_MAX`].
pub const ADDRESSES_MAX: usize = 8;
/// How many groups one heartbeat reports on.
pub const PROGRESS_MAX: usize = 1024;
/// And on at most so many messages that are waited for.
pub const WAITS_MAX: usize = 8;
/// How many groups one heartbeat names after whose end its node has gone on.
pub const GONE_ON_MAX: usize = 64;
/// Of how many groups one heartbeat says what carries them.
pub const CARRIERS_MAX: usize = 128;
/// Up to this many nodes `Formed` carries every member's address.
pub const FULL_TABLE_NODES: usize = 1024;
