//! The real `forebay` binary, end to end: started on a free port, spoken to over its sockets.

#![expect(clippy::unwrap_used, reason = "a test says what it means by panicking")]

mod auth;
mod cli;
mod http;
mod process;
mod support;
mod tls;
