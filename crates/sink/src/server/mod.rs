//! The parts that the sinks in database servers share.
//!
//! | module | |
//! |---|---|
//! | [`book`] | what a sink knows about itself: position, namespaces, the open transaction |
//! | [`job`] | a write to a namespace, abandoned with its transaction if anything fails |
//! | `driver` (a feature) | the network thread |

pub mod book;
#[cfg(feature = "driver")]
pub mod driver;
pub mod job;
