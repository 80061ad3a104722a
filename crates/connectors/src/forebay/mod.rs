//! A running Forebay as a source: the documents of its collections and tables, and its events.
//!
//! | module | purpose |
//! |---|---|
//! | `settings`, `client` | connection settings, requests and answers |
//! | `source` | the streams: `collections/NAMESPACE`, `events`, `events/STREAM`, `events/FILTER` |
//! | `documents`, `fields` | documents in order of their ids, and columns of their fields |
//! | `events` | events in the order in which they were accepted |
//!
//! Both are append-only, in an order that never changes: a document's id and an event's position
//! only increase. So a range of either has the same rows in every reading, and reading on after the
//! last one misses nothing and repeats nothing.

mod client;
mod documents;
mod events;
mod fields;
mod settings;
mod source;

pub use settings::Settings;
pub use source::ForebaySource;
