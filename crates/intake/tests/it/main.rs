//! The intake as its callers use it, without HTTP.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod altered;
mod changes;
mod columns;
mod concurrent;
mod crash;
mod crash_oracle;
mod edits;
mod elsewhere;
mod erasure;
mod feed;
mod flips;
mod forward_changes;
mod forward_crash;
mod forward_faults;
mod forwarding;
mod model;
mod object_storage;
mod quotas;
mod reclaim;
mod reclaim_crash;
mod requests;
mod rules;
mod running;
mod search;
mod support;
mod uploads;
mod views;
