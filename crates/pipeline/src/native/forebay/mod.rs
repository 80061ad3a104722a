//! A running Forebay as a source: the documents of its collections and tables, and its events.
//!
//! | room | what it does |
//! |---|---|
//! | `settings`, `client` | how a server is reached, and what its answers mean |
//! | `source` | the streams: `collections/NAMESPACE`, `events`, `events/STREAM`, `events/FILTER` |
//! | `documents`, `fields` | documents in order of their ids, and columns of their fields |
//! | `events` | events in the order they were accepted in |
//!
//! Both are only ever added to, in an order that never changes: a document's id and an event's position
//! grow, and what is there stays where it is. So a range of either has the same rows in every reading, and
//! reading on behind the last one misses nothing and repeats nothing.

mod client;
mod documents;
mod events;
mod fields;
mod settings;
mod source;

pub use settings::Settings;
pub use source::ForebaySource;
