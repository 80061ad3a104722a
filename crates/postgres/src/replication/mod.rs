//! Logical replication: what a PostgreSQL server sends of the changes to its tables.
//!
//! | module | |
//! |---|---|
//! | [`connection`] | a connection in replication mode, its commands and the stream of messages |
//! | [`session`] | the protocol of that connection, without a socket |
//! | [`envelope`] | the messages of the stream, and how far it was received |
//! | [`pgoutput`] | the changes in them |
//! | [`lsn`], [`error`] | positions in a server's log; what can be wrong |

pub mod connection;
pub mod envelope;
pub mod error;
pub mod lsn;
pub mod pgoutput;
pub mod session;

pub use connection::{CreatedSlot, Replication, StartOptions};
pub use lsn::Lsn;
