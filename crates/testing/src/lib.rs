//! Real servers for tests: started in temporary directories, removed after the test. Directories
//! in memory for those that need no server.
//!
//! Only tests depend on this crate, and it is written like one: failures panic with the reason.
//!
//! Invariants: only processes started here are stopped here; a test whose server is not installed
//! is skipped with a message, and fails if `FOREBAY_REQUIRE_SERVICES=1`.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

mod clickhouse;
mod ferret;
mod http_proxy;
mod mariadb;
mod postgres;
mod versity;

pub use clickhouse::ClickHouse;
pub use ferret::Ferret;
pub use http_proxy::{Fate, HttpProxy};
pub use mariadb::MariaDb;
pub use postgres::Postgres;
pub use versity::Versity;

/// Reports that a test is skipped.
///
/// # Panics
/// If services are required.
pub fn left_out(what: &str) {
    let required = std::env::var("FOREBAY_REQUIRE_SERVICES").is_ok_and(|it| it == "1");
    assert!(!required, "FOREBAY_REQUIRE_SERVICES=1, but {what}");
    say(&format!("SKIPPED: {what}"));
}

/// Returns a program that `cargo xtask setup` installs, or `None`, and the test is skipped.
///
/// * `dir`: the directory of the tool.
/// * `program`: its name in `bin` there.
///
/// # Panics
/// If services are required and it is not installed.
#[must_use]
pub fn tool(dir: &str, program: &str) -> Option<PathBuf> {
    let program = tools().join(dir).join("bin").join(program);
    if program.is_file() {
        return Some(program);
    }
    left_out(&format!("{dir} is not installed: cargo xtask setup"));
    None
}

/// The directory in which `cargo xtask setup` installs what it builds.
fn tools() -> PathBuf {
    if let Some(tools) = std::env::var_os("FOREBAY_TOOLS") {
        return tools.into();
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    cache.unwrap_or_else(|| home.join(".cache")).join("forebay").join("tools")
}

/// Returns the value shared by all concurrent tests of a process; the first test creates it, the
/// last one drops it.
fn shared<T>(slot: &Mutex<Weak<T>>, start: impl FnOnce() -> Option<T>) -> Option<Arc<T>> {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = slot.upgrade() {
        return Some(running);
    }
    let started = Arc::new(start()?);
    *slot = Arc::downgrade(&started);
    Some(started)
}

/// Ports below those that the system assigns, so that a server restarted on its port does not find
/// a connection or a server of another test there.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Returns a local port that is free now, each port only once per process.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id().wrapping_mul(127) % u32::from(PORTS.end - PORTS.start);
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let all = PORTS.skip(first.try_into().unwrap()).chain(PORTS);
    loop {
        let port = all.clone().nth(NEXT.fetch_add(1, Ordering::Relaxed).into()).unwrap();
        if is_free(&port) {
            return port;
        }
    }
}

/// Free space below which a directory in memory is not used: all tests of a process share it.
const MEMORY_MIN: u64 = 512 << 20;

/// Creates a directory in memory, or on the disk if memory has too little space: for tests that
/// sync often and do not measure the disk.
///
/// # Panics
/// If it cannot be created.
#[must_use]
pub fn memory_directory() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let has_space = rustix::fs::statvfs(memory)
        .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) >= MEMORY_MIN);
    let inside = has_space.then(|| tempfile::tempdir_in(memory).ok()).flatten();
    inside.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// Prints a message about a skipped test, or about what a test leaves behind.
#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
fn say(text: &str) {
    eprintln!("{text}");
}
