//! What the routes promise, without a socket.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod events;
mod intake;
mod uploads;
