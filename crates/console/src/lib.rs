//! What the commands share: output, exit codes, interruption, a client of the cache, and the
//! layout of the data directory.
//!
//! | module | purpose |
//! |---|---|
//! | [`out`] | results and notes on the terminal |
//! | [`exit`] | exit codes |
//! | [`interrupt`] | Ctrl-C between two steps |
//! | [`cache_client`] | a client of a cache, over RESP or the text protocol |
//! | [`layout`] | directories of the subsystems in the data directory |

pub mod cache_client;
pub mod exit;
pub mod interrupt;
pub mod layout;
pub mod out;
