//! Changes of rows in transit, from a source that reports what happens to its tables.
//!
//! | module | |
//! |---|---|
//! | `decoded` | changes as Arrow, for destinations that do not read tuples |
//! | [`bag`] | what several changes of a table without a key amount to |
//! | [`encoded`] | a unit of changes as bytes, between a component and its host |
//! | [`feed`] | the traits of sources that report changes and of destinations that apply them |
//! | [`log`] | changes one by one, as a destination appends them to a log |
//! | [`net`] | what several changes of one table amount to for each key |
//! | [`row`] | a row of a change, of which large values may be missing because they are as they were |

pub mod bag;
#[cfg(not(target_family = "wasm"))]
pub mod decoded;
pub mod encoded;
pub mod feed;
pub mod log;
pub mod net;
pub mod row;

pub use bag::{BagChanges, BagEffect};
pub use log::{ChangeLog, Commit, LoggedChange, Operation};
pub use net::{Effect, NetChanges};
pub use row::{ChangedRow, Field, RowKey};
