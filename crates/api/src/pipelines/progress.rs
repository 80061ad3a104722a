//! What the command line and the server share of a run: its name, its progress, and the time.

use std::sync::atomic::Ordering;

use forebay_pipeline::state::Progress;
use forebay_sdk::run::Context;

/// Progress of a run.
#[must_use]
pub fn progress(context: &Context) -> Progress {
    let moved = &context.moved;
    Progress {
        rows_read: moved.rows_read.load(Ordering::Relaxed),
        rows_committed: moved.rows_committed.load(Ordering::Relaxed),
        bytes_read: moved.bytes_read.load(Ordering::Relaxed),
    }
}

/// Returns the time in milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    use forebay_base::clock::Clock as _;
    forebay_base::clock::SystemClock::new().now_ms()
}

/// Maximum number of characters in the name of a run.
const NAME_MAX: usize = 128;

/// Parses the name of a run, as `--once` accepts it.
///
/// # Errors
/// The form of a valid name.
pub fn run_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    match text.len() {
        1..=NAME_MAX if text.chars().all(is_plain) => Ok(text.to_owned()),
        _ => Err(format!("must be 1 to {NAME_MAX} of a-z A-Z 0-9 . _ : -")),
    }
}
