//! Tests of the host with real components, which `cargo xtask connectors` builds.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod acceptance;
mod cached;
mod components;
mod examine;
mod hostile;
mod hostile_changes;
mod installed;
mod kept;
mod transform;
