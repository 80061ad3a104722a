//! What this crate promises, against ClickHouse's engine. The oracle is SQL.
//!
//! | file | |
//! |---|---|
//! | `server` | a database of its own, a destination, rows, the steps of a load |
//! | `acceptance` | the promises of every destination |
//! | `values` | values at the bounds of their types, and beyond them |
//! | `interrupted` | requests and answers that are lost, one after the other |
//! | `runs` | several runs, loads and attempts at once |
//! | `large` | units that are more than one block |
//! | `tables` | tables of other programs, their columns, and names |
//! | `late` | statements that arrive late or again, and rows that are not seen |
//! | `refused` | what cannot be done, and how it is reported |
#![expect(clippy::unwrap_used, reason = "tests say what they mean by panicking")]

mod acceptance;
mod interrupted;
mod large;
mod late;
mod refused;
mod runs;
mod server;
mod tables;
mod values;
