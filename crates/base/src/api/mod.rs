//! What the crates with HTTP routes share: the error body, the query string, and how a route is
//! described in `/openapi.json`.
//!
//! - [`problem`]: the body of every error.
//! - [`query`]: the decoded names and values of a query string.
//! - [`describe`]: operations, their parameters, and their answers by type.
//!
//! Behind the feature `api`, since most crates have no routes. Invariant: an answer is described by
//! the type that is serialised, never by a second one written beside it.

pub mod describe;
pub mod problem;
pub mod query;
