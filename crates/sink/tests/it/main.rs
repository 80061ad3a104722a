//! The contract from outside: what fits a column, and how names are made.

mod column;
mod names;
