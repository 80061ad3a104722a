//! The intake as its callers use it, without HTTP.

mod altered;
mod flips;
mod support;
