//! Reads Parquet files of any origin in bounded memory.
//!
//! A small file can declare anything: pages that expand a thousandfold, lists with more elements than
//! there are bytes, one long text that billions of rows name. The `parquet` crate allocates what a file
//! declares. Here every declaration is compared with a limit first: the footer ([`Footer`]) before it is
//! decoded, a page's header before its bytes are read, what a page expands to while it is expanded, and
//! the lengths within it before they are decoded.
//!
//! Invariants:
//! * The pages that a reader holds, what it decodes from them, and the columns of the batch that it makes
//!   take at most its limit ([`Batches`]). Texts and bytes are views of their pages, so a text that many
//!   rows name is there once.
//! * What does not fit is [`Exceeded`], which names the place, what was declared, and the limit. Before
//!   that the reader tries again with fewer rows in a batch.
//! * An Arrow schema in a footer is checked before it is converted ([`load`]).
//! * Nothing here knows what the rows mean or where the file is: that is the caller's [`ChunkReader`].
//!
//! [`ChunkReader`]: parquet::file::reader::ChunkReader

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod batches;
mod codec;
mod compact;
mod delta;
mod embedded;
mod error;
mod footer;
mod header;
mod leaf;
mod meter;
mod pages;

pub use batches::{Batches, Plan};
pub use embedded::load;
pub use error::{Exceeded, ReadError, What};
pub use footer::Footer;
pub use leaf::view_bytes;

#[cfg(test)]
mod tests;
