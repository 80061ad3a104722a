//! `sql`: a query over whole streams.

pub(super) mod settings;
