//! PostgreSQL from outside: the sink, with the promises all sinks share and its own, and the source and
//! the destination of pipelines.

#![expect(clippy::unwrap_used, reason = "what a test sets up itself either works or ends the test")]

mod conformance;
mod copying;
mod destination;
mod encodings;
mod exchange;
mod hostile;
mod odd;
mod pg;
mod pooler;
mod postgres;
mod replace;
mod replication;
mod source;
mod standby;
mod upsert;
