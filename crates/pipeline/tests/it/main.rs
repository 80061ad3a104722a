//! Whole pipelines, from the file that describes them to what is at their destination.

mod files;
mod permissions;
mod registry;
mod rounds;
#[cfg(feature = "sql")]
mod transforms;
