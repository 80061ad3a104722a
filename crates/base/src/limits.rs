//! Limits shared by several crates, and the error for exceeding one.
//!
//! Every queue, batch, body, key and depth has a limit. A limit that only one crate needs is in
//! that crate.

/// Maximum size of a name in bytes: a namespace, a column, a path component. What common file
/// systems allow.
pub const NAME_SIZE_MAX: usize = 255;

/// Maximum nesting depth of an accepted JSON document.
///
/// Recursive readers need a few hundred bytes of stack a level; real documents stay below 20.
pub const JSON_DEPTH_MAX: usize = 128;

/// Size in bytes of reads and writes between a file and memory where nothing else decides.
pub const IO_CHUNK_SIZE: usize = 256 << 10;

/// A value exceeds its limit.
///
/// ```
/// use forebay_base::limits::check;
/// let error = check("body_size_max", 10, 11).expect_err("over the bound");
/// assert_eq!(error.to_string(), "body_size_max is 10, found 11");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {max}, found {found}")]
pub struct Exceeded {
    /// The limit's name as written in the configuration.
    pub name: &'static str,
    /// The limit.
    pub max: u64,
    /// The value that exceeds it.
    pub found: u64,
}

/// Checks that `found` is at most `max`.
///
/// # Errors
/// [`Exceeded`] when it is greater.
pub fn check(name: &'static str, max: u64, found: u64) -> Result<(), Exceeded> {
    if found > max { Err(Exceeded { name, max, found }) } else { Ok(()) }
}
