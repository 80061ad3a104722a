//! Configuration: the sources of settings and their order of precedence.
//!
//! **A flag beats the environment, the environment beats the file, the file beats the default.**
//! That holds for every setting; `forebay config show` prints the source of each value.
//!
//! Invariants: every value is checked at start, wherever it came from, and a wrong one stops the
//! process with exit code 2 naming its source; an unknown key in the file is refused with file,
//! line and the nearest known key; nothing else in the workspace reads files, environment or
//! arguments for settings.

mod anchors;
mod blobs;
mod cache;
mod database;
mod error;
mod events;
mod file;
mod inventory;
mod nearest;
mod origin;
mod pipelines;
mod resolve;
mod rules;
mod settings;
mod show;
mod sources;
mod tls;
mod value;
mod webhooks;

#[cfg(test)]
mod tests;

pub(crate) use anchors::{Anchor, Anchors, SyslogAddress, Witnesses, anchor, public};
pub(crate) use cache::OutputLimit;
pub(crate) use database::{DatabaseKind, DatabaseTls};
pub(crate) use events::{Preset, mappings};
pub(crate) use resolve::{Flags, Resolved};
pub(crate) use settings::Config;
#[cfg(test)]
pub(crate) use settings::find;
pub(crate) use show::{show_human, show_json, template};
pub(crate) use value::{Auth, CacheNetwork, CacheServer, LogFormat};
