//! Settings that connectors share.
//!
//! | module | purpose |
//! |---|---|
//! | [`streams`] | which rows of a stream are read, and how they are written to a target |
//! | [`text`] | texts with names of variables and files, and secrets |
//! | [`reach`], [`within`] | the servers and files that settings name, and the files that may be opened |

pub mod reach;
pub mod streams;
pub mod text;
pub mod within;

pub use reach::Reach;
pub use streams::{
    Compression, LoadMethod, NewColumn, NullabilityChange, OnDataError, RemovedColumn,
    SchemaEvolution, StreamSettings, SyncMode, TargetSettings, TypeChange, WriteMode,
};
pub use text::{Resolve, Secret, Text};
pub use within::Within;
