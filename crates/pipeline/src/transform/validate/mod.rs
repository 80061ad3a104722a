//! `validate`: rules the rows of a stream have to keep.

pub(super) mod settings;
