//! `mask`: values that must not be seen at the destination.

pub(super) mod settings;
