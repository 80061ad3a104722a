//! Real servers for tests: started in throw-away directories, gone with the test.
//!
//! Only tests depend on this crate, and it is written as one: what does not work panics, and says why.
//!
//! Invariants: nothing but what was started here is ended here; a test whose server is not installed is left
//! out loudly, and fails where `FOREBAY_REQUIRE_SERVICES=1`.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

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
