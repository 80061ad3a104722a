//! What an index promises, against a plain map over all prefixes of all keys.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod answers;
mod crash;
mod damage;
mod export;
mod golden;
mod limits;
mod oracle;
mod trees;
mod versions;
