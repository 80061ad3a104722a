//! The port as clients see it: signed requests to an open intake, without sockets.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod conditions;
mod objects;
mod parts;
mod presigned;
mod security;
mod support;
mod versions;
mod xml;
