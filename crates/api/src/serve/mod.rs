//! The HTTP server: one listener, HTTP/1.1 over TCP or TLS, every subsystem's router behind it.
//!
//! ```text
//! listener  accept, connection limit ──► connection  one task each: hyper + deadlines
//!                                             │ request
//!                                        service  id, admission, key, router, errors, metrics
//!                                             │
//!                                        axum router: shell pages + Subsystem::router()
//! ```
//!
//! Invariants: nothing here waits without a deadline or queues without a limit; a request costs
//! no allocation of ours beyond its id; every error a client sees is a JSON problem with the
//! request's id; `/v1` needs a key as soon as keys exist; after a stop signal no new request is
//! started and running ones are finished within `server.shutdown_limit`.
//!
//! Subsystems are opened by the caller and passed in as [`Subsystem`](crate::Subsystem). It also
//! binds the address ([`bind`]), begins to accept ([`run`]), and decides when to stop ([`App::stop`]).

mod access;
mod app;
mod auth;
mod body;
mod connection;
mod followers;
mod gate;
mod http_metrics;
pub(crate) mod image;
mod listener;
mod login;
mod output;
mod pace;
mod parameters;
pub(crate) mod presign;
mod problem;
mod process_metrics;
mod protocol;
mod registry;
mod request_id;
mod service;
mod session;
mod shares;
mod shell_routes;
mod shutdown;
mod stripes;
mod whole;

#[cfg(test)]
mod tests;

pub(crate) use access::permits_target;
pub use app::{App, Settings};
pub(crate) use followers::Endless;
pub use listener::{bind, run, run_port};
pub use protocol::{Protocol, Refusal};
