//! An index over the inventory of an object store: how many objects and bytes lie below any prefix, of
//! which storage class, size and age, and what they cost.
//!
//! Invariants:
//! - Every object is counted at every prefix above it, the empty one included, once.
//! - A prefix that is not there is never taken for one that is: the bytes of its name are compared.
//! - A damaged index is an error, never another number.
#![deny(missing_docs, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod builder;
pub mod cost;
pub mod diff;
pub mod export;
pub mod format;
pub mod index;
pub mod load;
mod map;
pub mod object;
pub mod render;
pub mod small;
pub mod source;
