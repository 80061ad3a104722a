//! Change data capture: a feed of tables of a PostgreSQL, read and applied (decision 0027).
//!
//! | module | |
//! |---|---|
//! | [`source`] | the feed at its source: slot, publication, snapshot |
//! | [`slot`] | the replication slot: its name and its state |
//! | [`identity`] | what a table is recognized by |
//! | [`tables`] | the tables of a feed in the source's catalog, and whether they can be followed |
//! | [`assemble`] | messages of pgoutput become units of whole transactions |
//! | [`collect`] | the changes of one table, added up or one by one |
//! | [`stream`] | the connection that receives them, while units are applied |
//! | [`redefine`] | other columns of a table: what became of its rows |
//! | [`record`] | the position, in the ledger of the destination |
//! | [`alter`] | other columns of a table at the destination |
//! | [`apply`] | a unit becomes statements in one transaction |
//! | [`staging`] | the rows of a unit, in a temporary table |
//! | [`bag`] | the rows of a unit of a table without a key |
//! | [`append`] | a log, in which each change is a row |
//! | [`send`] | rows that are encoded for a COPY |

mod alter;
mod append;
mod apply;
mod assemble;
mod bag;
mod collect;
mod identity;
mod record;
mod redefine;
mod send;
mod slot;
mod source;
mod staging;
mod stream;
mod tables;

pub(super) use record::Feeds;
