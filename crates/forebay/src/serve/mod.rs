//! The life of the server around `forebay_api::serve`: what may be listened on, and the order of
//! starting and stopping.

mod guard;
mod run;

pub(crate) use forebay_api::Subsystem;
pub(crate) use run::{Open, Ports, run};
