//! A source of changes that misbehaves. Its positions are numbers; each unit inserts the row of its number.

use std::cell::RefCell;

use forebay_guest::wit::change_source::{
    Attached, CreatedFeed, FeedHealth, Following, Guest, Idle, Lag,
};
use forebay_guest::wit::changes::{Feed, FeedColumn, FeedOrigin, FeedStream};
use forebay_guest::wit::types::{Error, StreamSettings};

use crate::{endless, failed, greedy, setting};

struct Component;

thread_local! {
    /// The mode, and how many units were returned.
    static STATE: RefCell<(String, u32)> = RefCell::default();
}

/// The position at which it ends.
const PRESENT: &str = "3";

fn stream(name: &str, sql_type: &str) -> FeedStream {
    let id = FeedColumn {
        name: "id".to_owned(),
        sql_type: sql_type.to_owned(),
        is_key: true,
        number: 1,
        wire: Some("int4".to_owned()),
    };
    FeedStream { stream: name.to_owned(), columns: vec![id], from: None, known_by: Vec::new() }
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes()[..], bytes].concat()
}

/// A unit that inserts a row into a stream.
fn unit(position: &str, stream: u32, row: &[u8]) -> Vec<u8> {
    let mut unit = vec![1, 1];
    unit.extend(sized(position.as_bytes()));
    unit.extend(1_u64.to_le_bytes());
    unit.push(0);
    unit.extend(0_u32.to_le_bytes());
    unit.extend(1_u32.to_le_bytes());
    unit.extend(stream.to_le_bytes());
    unit.push(0);
    unit.extend(1_u64.to_le_bytes());
    unit.push(0);
    unit.extend(1_u32.to_le_bytes());
    unit.push(0);
    unit.extend(sized(row));
    unit.push(0);
    unit
}

/// The only field of a row.
fn row(number: u32) -> Vec<u8> {
    [4_u32.to_be_bytes(), number.to_be_bytes()].concat()
}

fn created(config: &str, streams: &[StreamSettings]) -> Result<CreatedFeed, Error> {
    let mode = setting(config, "mode");
    let of = |stream_of: &StreamSettings| match mode.as_str() {
        "other-streams" => stream("another", "integer"),
        "feed-type" => stream(&stream_of.name, "integer); drop table victims; --"),
        _ => stream(&stream_of.name, "integer"),
    };
    let position = match mode.as_str() {
        "odd-position" => "0\n\u{1b}[2J".to_owned(),
        _ => "0".to_owned(),
    };
    let streams = streams.iter().map(of).collect();
    Ok(CreatedFeed { position, snapshot: "s".to_owned(), streams })
}

impl Guest for Component {
    fn name(
        _: String,
        pipeline: String,
        _: Vec<StreamSettings>,
        _: Option<FeedOrigin>,
    ) -> Result<FeedOrigin, Error> {
        let text = || "trials".to_owned();
        Ok(FeedOrigin { server: text(), database: text(), slot: pipeline, publication: text() })
    }

    fn create(
        config: String,
        _: FeedOrigin,
        streams: Vec<StreamSettings>,
    ) -> Result<CreatedFeed, Error> {
        created(&config, &streams)
    }

    fn extend(
        config: String,
        _: FeedOrigin,
        _: Vec<StreamSettings>,
        further: Vec<StreamSettings>,
    ) -> Result<CreatedFeed, Error> {
        created(&config, &further)
    }

    fn read_at(_: Option<String>) {}

    fn attach(
        config: String,
        feed: Feed,
        _: Vec<StreamSettings>,
        _: u64,
    ) -> Result<Attached, Error> {
        let mode = setting(&config, "mode");
        match mode.as_str() {
            "lost" => return Ok(Attached::Lost("it forgot\u{1b}[31m everything".to_owned())),
            "trap-follow" => panic!("as asked"),
            "odd-present" => return Ok(Attached::Present("x".repeat(100_000))),
            _ => {}
        }
        let at = feed.position.and_then(|at| at.parse().ok()).unwrap_or(0);
        STATE.set((mode, at));
        Ok(Attached::Present(PRESENT.to_owned()))
    }

    fn next(_: u32) -> Result<Following, Error> {
        let (mode, number) = STATE.with_borrow_mut(|(mode, number)| {
            *number += 1;
            (mode.clone(), *number)
        });
        let position = number.to_string();
        if number < 2 {
            return Ok(Following::Unit(unit(&position, 0, &row(number))));
        }
        Ok(match mode.as_str() {
            "loop-next" => endless(),
            "memory-next" => greedy(),
            "trap-next" => panic!("as asked"),
            "fail-next" => return Err(failed("follow")),
            "back" => Following::Unit(unit("0", 0, &row(number))),
            "same" => Following::Idle(Idle { position: "1".to_owned(), at_us: 0 }),
            "no-position" => Following::Idle(Idle { position: String::new(), at_us: 0 }),
            "unknown-stream" => Following::Unit(unit(&position, 7, &row(number))),
            "missing-field" => Following::Unit(unit(&position, 0, &[])),
            "more-fields" => Following::Unit(unit(&position, 0, &row(number).repeat(2))),
            "half-field" => Following::Unit(unit(&position, 0, &row(number)[..6])),
            "cut-unit" => {
                let mut unit = unit(&position, 0, &row(number));
                unit.truncate(unit.len() - 1);
                Following::Unit(unit)
            }
            "huge-unit" => Following::Unit(vec![1; 100 << 20]),
            _ => Following::Unit(unit(&position, 0, &row(number))),
        })
    }

    fn keep_alive(_: u32) -> Result<(), Error> {
        match STATE.with_borrow(|(mode, _)| mode.clone()).as_str() {
            "trap-keep-alive" => panic!("as asked"),
            _ => Ok(()),
        }
    }

    fn confirm(_: String) -> Result<(), Error> {
        match STATE.with_borrow(|(mode, _)| mode.clone()).as_str() {
            "trap-confirm" => panic!("as asked"),
            _ => Ok(()),
        }
    }

    fn behind() -> Lag {
        Lag { bytes: None, current_us: None }
    }

    fn is_reached(position: String, wanted: String) -> bool {
        match STATE.with_borrow(|(mode, _)| mode.clone()).as_str() {
            "always-reached" => true,
            "never-reached" => false,
            _ => position.parse::<i64>().ok() >= wanted.parse::<i64>().ok(),
        }
    }

    fn health(_: String, _: FeedOrigin) -> Result<FeedHealth, Error> {
        Err(failed("look up a feed"))
    }

    fn remove(_: String, _: FeedOrigin) -> Result<bool, Error> {
        Ok(false)
    }
}

forebay_guest::wit::change_source_world::export_change_source!(
    Component with_types_in forebay_guest::wit::change_source_world
);
