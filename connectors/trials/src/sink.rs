//! A destination that misbehaves: it stores nothing, and says so or not.

use std::cell::RefCell;

use forebay_guest::wit::destination::{
    ContentHash, Evolution, Guest, LedgerEntry, Load, OpenedTarget, Recorded, TargetSettings,
};
use forebay_guest::wit::types::{
    Column, ComponentSpec, DeadRow, Error, Form, InvalidSetting, Reach, Rows, Unit,
};

use crate::{endless, failed, setting};

struct Component;

thread_local! {
    static MODE: RefCell<String> = RefCell::default();
    static ROWS: RefCell<u64> = RefCell::default();
}

/// Number of tuples of one column of four bytes.
fn count(rows: &Rows) -> u64 {
    match rows {
        Rows::Tuples(tuples) => (tuples.len() / 10) as u64,
        Rows::Records(_) => 0,
    }
}

impl Guest for Component {
    fn spec() -> ComponentSpec {
        crate::spec()
    }

    fn preferred_form() -> Form {
        Form::Tuples
    }

    fn evolves() -> Evolution {
        Evolution {
            new_column: Vec::new(),
            removed_column: Vec::new(),
            type_change: Vec::new(),
            nullability_change: Vec::new(),
            on_replace: false,
        }
    }

    fn validate(config: String) -> Result<Reach, InvalidSetting> {
        crate::validate(&config)
    }

    fn check(_: String) -> Result<String, Error> {
        Ok("checked".to_owned())
    }

    fn last_load(_: String, _: TargetSettings) -> Result<Option<Recorded>, Error> {
        Ok(None)
    }

    fn forget(_: String, _: TargetSettings) -> Result<u64, Error> {
        Ok(0)
    }

    fn place(_: String, _: TargetSettings) -> Result<Option<String>, Error> {
        Ok(None)
    }

    fn claim(config: String, _: TargetSettings) -> Result<(), Error> {
        match setting(&config, "mode").as_str() {
            "fail-claim" => Err(failed("claim")),
            _ => Ok(()),
        }
    }

    fn open(config: String, _: TargetSettings, _: Vec<Column>) -> Result<OpenedTarget, Error> {
        MODE.set(setting(&config, "mode"));
        Ok(OpenedTarget { handle: Vec::new(), plan: Vec::new(), takes_tuples: true, stored: None })
    }

    fn attach(config: String, _: TargetSettings, _: Vec<Column>, _: Vec<u8>) -> Result<(), Error> {
        MODE.set(setting(&config, "mode"));
        Ok(())
    }

    fn prepare(_: Load) -> Result<(), Error> {
        Ok(())
    }

    fn begin(_: Load, _: Unit) -> Result<(), Error> {
        ROWS.set(0);
        Ok(())
    }

    fn write(rows: Rows, _: ContentHash, _: Vec<DeadRow>) -> Result<(), Error> {
        match MODE.with_borrow(Clone::clone).as_str() {
            "trap-write" => panic!("as asked"),
            "loop-write" => endless(),
            _ => {}
        }
        ROWS.with_borrow_mut(|all| *all += count(&rows));
        Ok(())
    }

    fn commit(entry: LedgerEntry) -> Result<LedgerEntry, Error> {
        let rows = ROWS.with_borrow(|rows| *rows);
        match MODE.with_borrow(Clone::clone).as_str() {
            "trap-commit" => panic!("as asked"),
            "lie-rows" => Ok(LedgerEntry { rows: rows - 1, ..entry }),
            // As many rows, but others.
            _ => Ok(LedgerEntry { rows, hash: format!("{:032x}", 7), ..entry }),
        }
    }

    fn finish(_: Load) -> Result<(), Error> {
        Ok(())
    }

    fn content() -> Result<ContentHash, Error> {
        Ok(ContentHash { rows: 0, sum: "not a number".to_owned() })
    }
}

forebay_guest::wit::destination_world::export_destination!(
    Component with_types_in forebay_guest::wit::destination_world
);
