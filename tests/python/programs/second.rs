//! Another Rust library in the same program: it has a panic of its own, and catches it.

#[no_mangle]
pub extern "C" fn second_catches_a_panic() -> i32 {
    std::panic::set_hook(Box::new(|_| ()));
    i32::from(std::panic::catch_unwind(|| panic!("on purpose")).is_err())
}
