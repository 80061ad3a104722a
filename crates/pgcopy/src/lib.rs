//! Codecs between Arrow and PostgreSQL's binary COPY, in both directions.
//!
//! Pure: bytes and batches in, batches and bytes out. The caller owns the connection.
//!
//! | room | what it does |
//! |---|---|
//! | [`mod@column`] | what a column is on the wire, in Arrow and in SQL |
//! | [`hash`] | the content hash: the same for the same rows in any order |
//! | [`catalog`] | from a type in a server's catalogue to its form on the wire |
//! | `frame` | where a tuple ends, in bytes that are cut anywhere |
//! | [`Splitter`] | whole tuples as they are, counted and hashed |
//! | [`Unchecked`] | tuples as they are, for a receiver that checks them |
//! | [`Decoder`] | binary COPY to Arrow |
//! | [`Encoder`] | Arrow to binary COPY |
//! | [`TypeName`] | the name of a type, parsed: one that may enter a statement |
//! | [`quote_identifier`] | any name, quoted: it may enter a statement, too |
//! | [`text`] | types Arrow has none for, to the text PostgreSQL writes, and back |
//!
//! Invariants:
//! * What is decoded and encoded again has the same bytes, for every type. (But for an array which says
//!   that it may have NULLs and has none: it is encoded as a server writes it when it is given the array.)
//! * Bytes from a server never panic: they are an error that names row and column.

pub mod catalog;
pub mod column;
mod decimal;
mod decode;
mod encode;
mod error;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod hash;
mod quote;
mod split;
pub mod text;
mod time;
mod type_name;
mod unchecked;

pub use column::{Column, UnfitType, Wire};
pub use decode::Decoder;
pub use encode::Encoder;
pub use error::{CellError, DecodeError, EncodeError};
pub use frame::{HEADER, TRAILER};
pub use hash::ContentHash;
pub use quote::quote_identifier;
pub use split::{Splitter, hash_tuples};
pub use type_name::TypeName;
pub use unchecked::Unchecked;
