//! A tree of files, as tests show one in place of /proc and /sys.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of one test's own. It is removed when this is dropped.
pub struct Tree(PathBuf);

impl Tree {
    /// A tree with these files.
    pub fn new(files: &[(&str, &str)]) -> Tree {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let tree = Tree(std::env::temp_dir().join(format!("muster-tree-{}-{number}", std::process::id())));
        std::fs::create_dir(&tree.0).unwrap();
        files.iter().for_each(|(path, text)| tree.write(path, text));
        tree
    }

    /// Writes one more file, with the folders above it.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The path of the tree.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}
