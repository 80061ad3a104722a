//! Delta tables as a destination of pipelines.
//!
//! | module | purpose |
//! |---|---|
//! | `store` | the directory of a table as the store of its log |
//! | `table`, `commit`, `rearrange` | the log: versions, records, commits and their conflicts |
//! | `ledger` | the record of loads in the log |
//! | `types`, `columns` | how values and columns of a stream are stored |
//! | `target`, `writer`, `encoding`, `destination` | the contract of a destination |
//! | `merge`, `removed` | upkeep: few files, and none that no reader needs |
//!
//! Every commit has the rows, the record of the unit that they are, and the number of the stream's
//! transaction. `docs/formats/pipeline-delta.md` has the argument why rows are there exactly once.

mod columns;
mod commit;
mod destination;
mod encoding;
mod ledger;
mod merge;
mod rearrange;
mod removed;
mod store;
mod table;
mod target;
#[cfg(test)]
mod tests;
mod types;
mod writer;

pub(super) use destination::DeltaTables;
