//! The contract from outside: what fits a column, and how names are made.

#![expect(clippy::unwrap_used, reason = "what a test sets up itself either works or ends the test")]

mod column;
mod names;
