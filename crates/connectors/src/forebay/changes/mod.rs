//! A running Forebay as a destination: its event store, as a log of the changes of another database (decision 0027).
//!
//! | module | |
//! |---|---|
//! | `destination` | what the engine calls |
//! | `copy` | the rows that are there when a feed begins |
//! | `writer` | a unit of changes |
//! | `event` | rows and changes as events |
//! | `append` | requests that append them |
//! | `record` | how far a feed is |
//!
//! The store has one event under each id of a stream, and every event here has an id that follows from what it is. So
//! nothing has to be known of earlier attempts: what is sent again is stored once. `docs/formats/pipeline-events.md`
//! describes the events.

#![deny(clippy::indexing_slicing)]

mod append;
mod copy;
mod destination;
mod event;
mod record;
mod writer;

pub use destination::ForebayDestination;
