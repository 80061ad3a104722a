//! A running Forebay as a source: the documents of its collections and tables, its events, and what is known of its
//! files. As a destination of changes: its event store.
//!
//! | module | purpose |
//! |---|---|
//! | `settings`, `client` | connection settings, requests and answers |
//! | `source` | the streams: `collections/NAMESPACE`, `events`, `events/STREAM`, `events/FILTER`, `files`, `files/NAMESPACE`, `files/FILTER`, `inventories/NAME`, `inventories/NAME/FILTER` |
//! | `documents`, `fields` | documents in order of their ids, and columns of their fields |
//! | `events` | events in the order in which they were accepted |
//! | `files` | the catalogue of files, completely in each run |
//! | `rows` | columns that are chosen, and batches |
//! | `changes` | the destination: a log of changes, each of them an event |
//!
//! Documents and events are append-only, in an order that never changes: a document's id and an event's position
//! only increase. So a range of either has the same rows in every reading, and reading on after the
//! last one misses nothing and repeats nothing.

mod changes;
mod client;
mod documents;
mod events;
mod fields;
mod files;
mod inventories;
mod rows;
mod settings;
mod source;

pub use changes::ForebayDestination;
pub use settings::{DestinationSettings, Settings};
pub use source::ForebaySource;
