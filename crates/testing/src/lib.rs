//! Real servers for tests: started in throw-away directories, gone with the test.
//!
//! Only tests depend on this crate, and it is written as one: what does not work panics, and says why.
//!
//! Invariants: nothing but what was started here is ended here; a test whose server is not installed is left
//! out loudly, and fails where `FOREBAY_REQUIRE_SERVICES=1`.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex, PoisonError, Weak};

mod ferret;
mod postgres;

pub use ferret::Ferret;
pub use postgres::Postgres;

/// Says that a test is left out.
///
/// # Panics
/// It must not be.
pub fn left_out(what: &str) {
    let required = std::env::var("FOREBAY_REQUIRE_SERVICES").is_ok_and(|it| it == "1");
    assert!(!required, "FOREBAY_REQUIRE_SERVICES=1, but {what}");
    say(&format!("SKIPPED: {what}"));
}

/// What all tests of a process share that run at the same time; started by the first of them, gone with the
/// last.
fn shared<T>(slot: &Mutex<Weak<T>>, start: impl FnOnce() -> Option<T>) -> Option<Arc<T>> {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = slot.upgrade() {
        return Some(running);
    }
    let started = Arc::new(start()?);
    *slot = Arc::downgrade(&started);
    Some(started)
}

/// A port of this machine that nobody has at the moment.
///
/// # Panics
/// There is none.
#[must_use]
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Says something about a test that is left out, or of what it leaves behind.
#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
fn say(text: &str) {
    eprintln!("{text}");
}
