//! Number of arenas of the C library's allocator.
//!
//! Memory that is freed in small blocks stays with its arena, and glibc creates eight arenas for
//! each core. Two are enough for threads that keep a core busy. Measured with one client after the
//! other that fills the account with names, pooled on two cores: 187 MiB with sixteen, 163 MiB with
//! four.
//!
//! The threshold above which blocks are mapped separately is left to glibc. Fixed at
//! 1 MiB it would give memory back sooner (160 MiB instead of 396 after fifty subscribers that do
//! not read), but a SET of 2 MB then takes three times the CPU time, because of page faults.
#![expect(unsafe_code, reason = "settings of the C library; the contract is below")]

/// Sets the number of arenas. Must be called before other threads are started; a number in the
/// environment takes precedence.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn limit_arenas() {
    if std::env::var_os("MALLOC_ARENA_MAX").is_some() {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let arenas = libc::c_int::try_from(2 * cores).unwrap_or(libc::c_int::MAX);
    // SAFETY: this only stores a number inside the allocator, and takes its lock for that. If it
    // fails the default stays, with which memory is kept longer and everything works.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, arenas);
    }
}

/// Other allocators have no arenas.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn limit_arenas() {}
