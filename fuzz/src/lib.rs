//! What fuzz targets share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// What the last panic reported.
static REPORTED: Mutex<String> = Mutex::new(String::new());

/// Replaces the hook that ends the process at every panic, for a target whose subject makes errors of the
/// panics of a library.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|panic| {
        *REPORTED.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
}

/// Runs the target; ends the process where a panic leaves it, and prints what it reported.
pub fn without_panic(run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        eprintln!("{}", REPORTED.lock().unwrap_or_else(PoisonError::into_inner));
        std::process::abort();
    }
}
