//! What drives a real server over real sockets: the tour, which shows that nothing is lost, and the
//! benchmarks, which measure the parts against the machine.
//!
//! | module | purpose |
//! |---|---|
//! | [`tour`] | real files, documents and events, with a server that is killed in the middle |
//! | [`mod@bench`] | figures of each subsystem, and with the feature `peers` of its rivals |
//! | [`child`] | a server in a child process: this same program |
//! | `s3` | a server with its S3-compatible port, and signed requests |
//!
//! Invariant: a server is used through its public interface; only benchmarks of a library, and the
//! check of the sizes on disk, open a directory themselves.

pub mod bench;
pub mod child;
mod s3;
pub mod tour;
