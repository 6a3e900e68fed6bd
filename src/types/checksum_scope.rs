//! Which data between nodes carries checksums.

/// What the user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChecksumScope {
    /// Nothing.
    Nothing = 0,
    /// What goes over the network.
    #[default]
    Network = 1,
    /// What goes through memory that the ranks of a host share, too.
    All = 2,
}

impl ChecksumScope {
    const KINDS: [ChecksumScope; 3] = [ChecksumScope::Nothing, ChecksumScope::Network, ChecksumScope::All];

    /// The one with this number on the wire.
    pub fn from_code(code: u8) -> Option<ChecksumScope> {
        ChecksumScope::KINDS.into_iter().find(|scope| *scope as u8 == code)
    }

    /// Whether what goes over the network carries them.
    pub fn has_network(self) -> bool {
        self != ChecksumScope::Nothing
    }

    /// Whether what goes through shared memory carries them.
    pub fn has_memory(self) -> bool {
        self == ChecksumScope::All
    }
}
