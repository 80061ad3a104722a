//! An object, and batches of them for the way from a source to the index.

mod batch;
mod class;
mod month;

pub use batch::{Batch, BatchFull};
pub use class::{ClassId, Classes, TooManyClasses};
pub use month::Month;

/// The version kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The current version, which a reader of the key gets; the only one in a bucket without
    /// versions.
    Current,
    /// An earlier one, still stored and billed.
    Noncurrent,
    /// A marker that the key was deleted; it has no bytes.
    DeleteMarker,
}

/// An object without its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// Bytes, below 2^63.
    pub size: u64,
    /// Distinguishes versions of one key: a hash of the version's id, 0 without versions.
    pub version: u64,
    /// When it was last modified.
    pub modified: Month,
    /// Its storage class.
    pub class: ClassId,
    /// Its version kind.
    pub kind: Kind,
}
