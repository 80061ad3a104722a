//! The port as clients see it: signed requests to an open intake, without sockets.

mod objects;
mod security;
mod support;
