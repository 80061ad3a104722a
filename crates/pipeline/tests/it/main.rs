//! Whole pipelines, from the file that describes them to what is at their destination.

#[cfg(feature = "sql")]
mod branches;
mod columns;
#[cfg(feature = "sql")]
mod dialect;
mod differential;
mod files;
#[cfg(feature = "sql")]
mod functions;
#[cfg(feature = "sql")]
mod generated;
mod interrupted;
mod lost_answers;
#[cfg(feature = "sql")]
mod meaning;
mod other_tools;
mod permissions;
mod registry;
mod rounds;
#[cfg(feature = "sql")]
mod transforms;
