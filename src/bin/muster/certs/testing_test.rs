//! A folder of a test's own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The folder is removed when this is dropped.
pub struct TestFolder {
    pub path: PathBuf,
}

impl TestFolder {
    pub fn new() -> TestFolder {
        let name = format!("muster-certs-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        TestFolder { path }
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
