//! Bounds shared by several crates, and the error for meeting one.
//!
//! Every queue, batch, body, key and depth has a bound; a bound that only one crate needs lives there.

/// Most bytes in one name: a namespace, a column, a path component. What common file systems allow.
pub const NAME_SIZE_MAX: usize = 255;

/// Deepest nesting of a JSON document that is taken in.
///
/// Recursive readers need a few hundred bytes of stack a level; real documents stay below 20.
pub const JSON_DEPTH_MAX: usize = 128;

/// Bytes moved at a time between a file and memory where nothing else decides.
pub const IO_CHUNK_SIZE: usize = 256 << 10;

/// A bound was met.
///
/// ```
/// use forebay_base::limits::check;
/// let error = check("body_size_max", 10, 11).expect_err("over the bound");
/// assert_eq!(error.to_string(), "body_size_max is 10, found 11");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {max}, found {found}")]
pub struct Exceeded {
    /// The bound's name as configuration spells it.
    pub name: &'static str,
    /// The greatest value allowed.
    pub max: u64,
    /// The value met.
    pub found: u64,
}

/// Checks that `found` is at most `max`.
///
/// # Errors
/// [`Exceeded`] when it is greater.
pub fn check(name: &'static str, max: u64, found: u64) -> Result<(), Exceeded> {
    if found > max { Err(Exceeded { name, max, found }) } else { Ok(()) }
}
