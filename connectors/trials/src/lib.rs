//! A component that misbehaves as its setting `mode` asks, for tests of what runs it. It speaks the contract without the
//! crate that keeps a connector from most of this.
#![cfg(target_family = "wasm")]

mod current;
mod mouth;
mod sink;
mod spring;

use forebay_guest::wit::types::{
    Attempt, Column, Committed, ComponentSpec, Error, Failure, InvalidSetting, Reach,
};

/// The value of a setting.
fn setting(config: &str, name: &str) -> String {
    let settings: serde_json::Value = serde_json::from_str(config).unwrap_or_default();
    settings[name].as_str().unwrap_or_default().to_owned()
}

fn failed(what: &str) -> Error {
    Error {
        failure: Failure::Refused(Attempt { what: what.to_owned(), cause: "as asked".to_owned() }),
        committed: Committed::No,
    }
}

fn spec() -> ComponentSpec {
    ComponentSpec {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        description: env!("CARGO_PKG_DESCRIPTION").to_owned(),
        settings: r#"{"type":"object"}"#.to_owned(),
    }
}

fn validate(config: &str) -> Result<Reach, InvalidSetting> {
    match setting(config, "mode").as_str() {
        "loop-validate" => endless(),
        "trap-validate" => panic!("as asked"),
        "refuse" => Err(InvalidSetting {
            field: "mode".to_owned(),
            found: "it is refused, as asked\u{1b}[31m\nand in two lines".to_owned(),
        }),
        _ => Ok(Reach { hosts: Vec::new(), paths: Vec::new() }),
    }
}

/// Computes without end.
fn endless() -> ! {
    let mut number = 0_u64;
    loop {
        number = std::hint::black_box(number.wrapping_mul(3).wrapping_add(1));
    }
}

/// Takes memory without end.
fn greedy() -> ! {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        taken.push(std::hint::black_box(vec![1; 1 << 20]));
    }
}

fn id() -> Column {
    Column {
        name: "id".to_owned(),
        sql_type: "integer".to_owned(),
        wire: "int4".to_owned(),
        nullable: false,
    }
}
