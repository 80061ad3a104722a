//! What is known of one object, and many of them on their way from a source to the index.

mod batch;
mod class;
mod month;

pub use batch::{Batch, BatchFull};
pub use class::{ClassId, Classes, TooManyClasses};
pub use month::Month;

/// Which version of its key an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The one a reader of the key gets; the only one in a bucket without versions.
    Current,
    /// An earlier one, still stored and still paid for.
    Noncurrent,
    /// A marker that says the key was deleted; it has no bytes.
    DeleteMarker,
}

/// One object but for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// Bytes, below 2^63.
    pub size: u64,
    /// What tells versions of one key apart: a hash of the version's id, 0 where there are no versions.
    pub version: u64,
    /// When it was last modified.
    pub modified: Month,
    /// Its storage class.
    pub class: ClassId,
    /// Which version it is.
    pub kind: Kind,
}
