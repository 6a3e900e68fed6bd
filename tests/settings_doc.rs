//! `docs/settings.md` is made from the table of settings, and says what the table says.

use std::path::Path;

#[test]
fn the_documentation_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/settings.md");
    let right = muster::config::settings_markdown();
    if std::env::var_os("MUSTER_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, right).expect("docs/settings.md can be written");
        return;
    }
    let found = std::fs::read_to_string(&path).expect("docs/settings.md can be read");
    assert!(
        found == right,
        "docs/settings.md is not what the table in src/config says; `MUSTER_BLESS=1 cargo test --test settings_doc` \
         writes it anew"
    );
}
