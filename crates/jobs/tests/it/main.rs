//! What a queue promises: accepted jobs survive, run, and are known.

mod api;
mod crash;
mod support;
