//! A destination of changes that misbehaves: it stores nothing, and says so or not.

use std::cell::RefCell;

use forebay_guest::wit::change_target::{Applied, Guest};
use forebay_guest::wit::changes::{Feed, FeedForm, FeedStream};
use forebay_guest::wit::types::{Error, TargetSettings};

use crate::{endless, failed, setting};

struct Component;

thread_local! {
    static MODE: RefCell<String> = RefCell::default();
}

fn applied(inserted: u64) -> Applied {
    Applied { inserted, updated: 0, deleted: 0 }
}

impl Guest for Component {
    fn forms() -> Vec<FeedForm> {
        vec![FeedForm::Log, FeedForm::Apply, FeedForm::Log]
    }

    fn check(config: String, _: Vec<FeedStream>, _: FeedForm) -> Result<(), Error> {
        match setting(&config, "mode").as_str() {
            "refuse-streams" => Err(failed("check the streams")),
            _ => Ok(()),
        }
    }

    fn recorded(_: String, _: String) -> Result<Option<Feed>, Error> {
        Ok(None)
    }

    fn replace(_: String, _: String, _: Option<Feed>, _: Option<Feed>) -> Result<(), Error> {
        Ok(())
    }

    fn copy_for(_: FeedForm) {}

    fn open(config: String, _: String, _: Feed, _: Vec<TargetSettings>) -> Result<(), Error> {
        MODE.set(setting(&config, "mode"));
        Ok(())
    }

    fn apply(_: Vec<u8>) -> Result<Vec<Applied>, Error> {
        Ok(match MODE.with_borrow(Clone::clone).as_str() {
            "trap-apply" => panic!("as asked"),
            "loop-apply" => endless(),
            "fail-apply" => return Err(failed("apply")),
            "more-rows" => vec![applied(2)],
            "all-rows" => vec![applied(u64::MAX), applied(u64::MAX)],
            "no-streams" => Vec::new(),
            _ => vec![applied(1)],
        })
    }

    fn advance(_: String) -> Result<(), Error> {
        Ok(())
    }
}

forebay_guest::wit::change_target_world::export_change_target!(
    Component with_types_in forebay_guest::wit::change_target_world
);
