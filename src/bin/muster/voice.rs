//! What the command says where it must not wait: its lines for a terminal, a pipe or a file that may take nothing. Each goes out as
//! a whole, in order; what is not taken is dropped and counted, and the end waits for [`PATIENCE`] at most.
//! Tested by `tests/python/test_stalled_output.py`.

use muster::config::LogLevel;
use muster::runtime::base::outlet::{Holder, Outlet};
use std::os::fd::RawFd;
use std::time::Duration;

/// How long a reader may take nothing, before the command goes without it.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// A standard stream.
pub struct Voice {
    outlet: &'static Outlet,
    _holder: Holder,
}

impl Voice {
    /// On standard error.
    pub fn error() -> Voice {
        Voice::on(libc::STDERR_FILENO)
    }

    /// On standard output.
    pub fn output() -> Voice {
        Voice::on(libc::STDOUT_FILENO)
    }

    fn on(descriptor: RawFd) -> Voice {
        let outlet: &'static Outlet =
            Box::leak(Box::new(Outlet::new(descriptor, |_, _, text| text.to_owned(), dropped)));
        Voice { outlet, _holder: outlet.hold() }
    }

    /// Says this, as it is.
    pub fn say(&self, text: impl Into<String>) {
        self.outlet.put(LogLevel::Info, "".into(), text.into());
    }
}

impl Drop for Voice {
    fn drop(&mut self) {
        self.outlet.flush(PATIENCE);
    }
}

fn dropped(texts: u64) -> String {
    let messages = if texts == 1 { "1 message was".to_owned() } else { format!("{texts} messages were") };
    format!("muster: {messages} dropped here: nobody read this output\n")
}
