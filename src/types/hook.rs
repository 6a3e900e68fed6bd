//! What the program is asked while one of its calls waits.

use std::fmt;
use std::sync::Arc;

/// The program's function. It returns 0 if the call is to wait on, and anything else if the call is to end. None:
/// nobody is asked.
#[derive(Clone, Default)]
pub struct Hook(Option<Arc<dyn Fn() -> i32 + Send + Sync>>);

impl Hook {
    /// Asks this function.
    pub fn new(function: impl Fn() -> i32 + Send + Sync + 'static) -> Hook {
        Hook(Some(Arc::new(function)))
    }

    /// Whether anybody is to be asked.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// What the program says.
    pub fn ask(&self) -> i32 {
        self.0.as_ref().map_or(0, |function| function())
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { "Hook" } else { "no Hook" })
    }
}
