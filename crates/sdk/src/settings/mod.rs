//! Settings that connectors share.
//!
//! | module | purpose |
//! |---|---|
//! | [`streams`] | which rows of a stream are read, and how they are written to a target |
//! | [`evolves`] | which settings of `schema_evolution` a destination honours |
//! | [`text`] | texts with names of variables and files, and secrets |
//! | [`reach`], [`within`] | the servers and files that settings name, and the files that may be opened |

pub mod evolves;
pub mod reach;
pub mod streams;
pub mod text;
#[cfg(not(target_family = "wasm"))]
pub mod within;

pub use evolves::Evolves;
pub use reach::{Reach, permits_host};
pub use streams::{
    Compression, DeletedRows, FeedForm, LoadMethod, NewColumn, NullabilityChange, OnDataError,
    OnLost, RemovedColumn, SchemaEvolution, StreamSettings, SyncMode, TargetSettings, TypeChange,
    WriteMode,
};
pub use text::{Resolve, Secret, Text};
#[cfg(not(target_family = "wasm"))]
pub use within::Within;
