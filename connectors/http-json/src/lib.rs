//! JSON APIs as a component: the connector of the process, over the host's connections.
#![cfg(target_family = "wasm")]

forebay_guest::source!(forebay_http_json::Settings);
