//! Every setting once: where it comes from, which value wins, and what it becomes.
//!
//! Owns the one table of settings ([`Setting`], `table.rs`), their sources (code, environment, other launchers), and
//! the way from raw text ([`Config`]) to validated [`Settings`]. After that nobody checks a setting again.
//! Documentation, help and suggestions are made from the same table.
//!
//! Invariants: what was set in code beats `MUSTER_` variables, which beat `MS_` variables, which beat those of another
//! launcher, which beat the default. Every stored value remembers its source, so that an error names the variable that
//! somebody has to mend. A secret is never shown, neither by `get` nor in an error nor by `Debug`.
//!
//! Deliberately not here: the environment and the rank table's bytes (they are passed in), name resolution and any other
//! question to the system, the agreement between nodes (membership).
//!
//! Tested in `sources_test.rs`, `settings_test.rs`, and beside each file; `tests/settings_doc.rs` holds the documentation
//! to the table.

mod derived;
mod docs;
mod environment;
mod hccl;
mod host_list;
mod host_slots;
mod json;
mod launcher;
mod launcher_remarks;
mod launchers;
mod nearest;
mod origin;
mod rank_entry;
mod rank_table;
mod rank_table_text;
mod reach;
mod reader;
mod remarks;
mod settings;
mod shown;
mod sources;
mod table;
mod tls;
mod value;

pub use derived::DerivedJob;
pub use docs::{settings_help, settings_markdown};
pub use hccl::hccl_chief_port;
pub use host_slots::{hosts_of_lines, hosts_of_words, HostSlots};
pub use json::parse as parse_json;
pub use launcher::DEFAULT_PORT;
pub use launchers::MASTER_ADDR;
pub use nearest::closest;
pub use rank_entry::Host;
pub use rank_table_text::{text as rank_table_text, DeviceEntry};
pub use reach::{is_of_many, Endpoint, Interfaces, Reach};
pub use settings::{Assignment, Settings, StoreLimits};
pub use sources::Config;
pub use table::{Key, Setting, NODES_LIMIT, TABLE};
pub use tls::{Lock, NameChecks, NamedFile, Password, PasswordSource, SetFile, TlsFile, TlsSettings};
pub use value::{whole, Kind, LogLevel, TlsVersion, Value};

/// The rank table's decoder, as a function of bytes.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_rank_table(bytes: &[u8]) {
    let _ = rank_table::RankTable::parse(bytes);
}

/// The launcher's decoders of hosts and their slots, as a function of bytes.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_host_slots(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for host in [hosts_of_lines(&text).ok(), hosts_of_words(&text).ok()].into_iter().flatten().flatten() {
        let is_odd = |c: char| c.is_whitespace() || ['=', '[', ']'].contains(&c);
        assert!(!host.name.is_empty() && !host.name.starts_with('-') && !host.name.contains(is_odd), "{host:?}");
        assert!(host.slots != Some(0) && !host.address().contains('@'), "{host:?}");
    }
}

/// The decoders of a hostfile and of a list of hosts, of which the first counts, as a function of bytes.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_host_lists(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(host) = host_list::of_file(&text) {
        assert!(!host.is_empty() && !host.contains(char::is_whitespace) && !host.contains('#'), "{host:?}");
    }
    if let Some(hosts) = host_list::of_list(&text) {
        assert!(!hosts.first.is_empty() && !hosts.first.contains(['[', ',']), "{:?}", hosts.first);
    }
}
