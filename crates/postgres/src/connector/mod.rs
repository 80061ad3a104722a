//! PostgreSQL, as a source and as a destination.
//!
//! From the bottom: `sql` (quoting), `settings`, `connect`, `types` and `catalog` (the server's
//! objects); `money`, `columns`, `units`, `incremental`, `origin`, `horizon`, `read`, `source` (reading); `ledger`, `known`, `evolve`,
//! `tuples`, `insert`, `dead`, `load`, `kept`, `exchange`, `replace`, `target`, `destination` (writing).

mod catalog;
mod columns;
mod connect;
mod dead;
mod destination;
mod evolve;
mod exchange;
mod feed;
mod horizon;
mod incremental;
mod insert;
mod kept;
mod known;
mod ledger;
mod load;
mod money;
mod origin;
mod place;
mod read;
mod replace;
mod settings;
mod source;
mod sql;
mod target;
mod tuples;
mod types;
mod units;

pub use connect::Server;
pub use destination::PostgresDestination;
pub use settings::{Settings, Tls};
pub use source::PostgresSource;

/// Size of a page in bytes on nearly all servers. Only estimates depend on it.
const PAGE_SIZE: u64 = 8192;

/// The column with the time at which a row was deleted at the source of a feed, where such rows stay.
const DELETED_AT: &str = "_deleted_at";
