//! The cache's behaviour through its public interface.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod check;
mod commands_blocking;
mod commands_differential;
mod commands_model;
mod commands_odd;
mod commands_random;
mod commands_replay;
mod commands_server;
mod commands_support;
mod commands_transcript;
mod compat;
mod corrupt;
mod crash;
mod crash_concurrent;
mod crash_engine;
mod crash_large;
mod crash_model;
mod full;
mod health;
mod image;
mod kill;
mod power;
