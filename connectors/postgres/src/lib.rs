//! PostgreSQL as a component: the connector of the process, over the host's connections.
#![cfg(target_family = "wasm")]

forebay_guest::source!(forebay_postgres::connector::Settings);
forebay_guest::destination!(forebay_postgres::connector::Settings);
forebay_guest::change_source!(forebay_postgres::connector::Settings);
forebay_guest::change_target!(forebay_postgres::connector::Settings);
