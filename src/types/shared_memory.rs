//! Whether the ranks of one host share memory.

/// What the user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SharedMemory {
    /// They don't.
    #[default]
    Off = 0,
    /// They do where they can.
    Auto = 1,
    /// A group whose members are all on one host does, or its calls fail.
    Require = 2,
}

impl SharedMemory {
    /// Each value with its name in settings.
    pub const NAMES: [(SharedMemory, &'static str); 3] =
        [(SharedMemory::Off, "off"), (SharedMemory::Auto, "auto"), (SharedMemory::Require, "require")];

    /// The one with this number on the wire.
    pub fn from_code(code: u8) -> Option<SharedMemory> {
        SharedMemory::NAMES.iter().map(|(mode, _)| *mode).find(|mode| *mode as u8 == code)
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<SharedMemory> {
        SharedMemory::NAMES.iter().find(|(_, known)| name.eq_ignore_ascii_case(known)).map(|(mode, _)| *mode)
    }
}
