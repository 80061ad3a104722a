//! An index over the inventory of an object store: the number of objects and bytes below any
//! prefix, by storage class, size and age, and their cost.
//!
//! Invariants:
//! - Every object is counted once at every prefix above it, including the empty one.
//! - A missing prefix is never mistaken for an existing one: the bytes of its name are compared.
//! - A damaged index is an error, never another number.
//!
//! # Example
//!
//! Indexes the files below a directory, and asks for the sum of a prefix.
//!
//! ```
//! use std::sync::Arc;
//!
//! use forebay_base::fs::{FileSystem, RealFs};
//! use forebay_inventory::builder::{Monitor, Options, build};
//! use forebay_inventory::index::Index;
//! use forebay_inventory::object::Classes;
//! use forebay_inventory::source::{Settings, open};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let files = tempfile::tempdir()?;
//! std::fs::create_dir(files.path().join("logs"))?;
//! std::fs::write(files.path().join("logs/a"), b"12345")?;
//! std::fs::write(files.path().join("logs/b"), b"678")?;
//!
//! let classes = Arc::new(Classes::new());
//! let from = format!("fs:{}", files.path().display()).parse()?;
//! let source = open(&[from], &Settings::new(Arc::clone(&classes)))?;
//! let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
//! let dir = tempfile::tempdir()?;
//! let to = dir.path().join("files.idx");
//! build(&fs, &*source, &classes, &to, &Options::default(), &Monitor::default())?;
//!
//! let index = Index::open(&to)?;
//! let logs = index.get(b"logs/")?.ok_or("the prefix exists")?;
//! let total = logs.total()?;
//! assert_eq!((total.objects, total.bytes), (2, 8));
//! assert!(index.get(b"log/")?.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! `examples/` has a program that prints the largest prefixes.
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
