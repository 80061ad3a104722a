//! An index over the inventory of an object store: the number of objects and bytes below any
//! prefix, by storage class, size and age, and their cost.
//!
//! Invariants:
//! - Every object is counted once at every prefix above it, including the empty one.
//! - A missing prefix is never mistaken for an existing one: the bytes of its name are compared.
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
