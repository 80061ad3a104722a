//! Whole pipelines, from the file that describes them to what is at their destination.

#[cfg(feature = "sql")]
mod differential;
mod files;
mod interrupted;
mod permissions;
mod registry;
mod rounds;
#[cfg(feature = "sql")]
mod transforms;
