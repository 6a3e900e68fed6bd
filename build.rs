//! Gives the shared library its SONAME, which carries the ABI number.

/// Must equal `MUSTER_ABI_VERSION` in the header; `tests/abi.rs` compares the two.
const ABI_VERSION: u32 = 1;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmuster.so.{ABI_VERSION}");
}
