//! A source that misbehaves.

use std::cell::RefCell;

use forebay_guest::wit::host::{self, Level};
use forebay_guest::wit::sockets::Connection;
use forebay_guest::wit::source::{Discovered, Guest, Opened, Opening};
use forebay_guest::wit::types::{
    Column, ComponentSpec, Error, InvalidSetting, Reach, Rows, StreamSettings, Unit,
};
use forebay_guest::wit::{metrics, outlet, state};

use crate::{endless, failed, greedy, id, setting};

struct Component;

thread_local! {
    static MODE: RefCell<(String, String)> = RefCell::default();
}

fn unit(name: &str) -> Unit {
    Unit { name: name.to_owned(), from: None, to: None, rows: None, bytes: None }
}

/// Tuples of `id`.
fn tuples(ids: std::ops::Range<i32>) -> Vec<u8> {
    let tuple = |id: i32| [&[0, 1, 0, 0, 0, 4][..], &id.to_be_bytes()].concat();
    ids.flat_map(tuple).collect()
}

/// Keeps values and counts, as a mode asks.
fn keep_and_count(mode: &str) -> Result<(), Error> {
    let put = |key: &str, size: usize| state::put(key, Some(&vec![7; size]));
    match mode {
        "keep" => {
            let before = state::get("runs")?.map_or(0, |value| value.len());
            put("runs", before + 1)?;
            metrics::set("runs_before", before as f64)?;
            for _ in 0..3 {
                metrics::add("opened", 2)?;
            }
            Ok(())
        }
        "keep-large" => put("large", 70 << 10),
        // More than a call may hand over.
        "keep-huge" => put("huge", 100 << 20),
        "keep-many" => (0..65).try_for_each(|key| put(&key.to_string(), 1)),
        "keep-more" => (0..5).try_for_each(|key| put(&key.to_string(), 16 << 10)),
        "keep-no-key" => put("", 1),
        "count-names" => (0..33).try_for_each(|number| metrics::add(&format!("n{number}"), 1)),
        "count-odd-name" => metrics::add("a{b=\"c\"} 1\n", 1),
        "count-nan" => metrics::set("nan", f64::NAN),
        "count-both" => metrics::add("both", 1).and_then(|()| metrics::set("both", 1.0)),
        _ => Ok(()),
    }
}

impl Guest for Component {
    fn spec() -> ComponentSpec {
        crate::spec()
    }

    fn validate(config: String) -> Result<Reach, InvalidSetting> {
        crate::validate(&config)
    }

    fn check(config: String) -> Result<String, Error> {
        match setting(&config, "mode").as_str() {
            "loop-check" => endless(),
            "trap-check" => panic!("as asked"),
            "connect" => {
                let (host, port) = (setting(&config, "host"), setting(&config, "port"));
                let port = port.parse().unwrap_or(1);
                Connection::connect(&host, port, 5_000).map(|_| "connected".to_owned())
            }
            "file" => host::read_file(&setting(&config, "path"))
                .map(|bytes| format!("read {} bytes", bytes.len())),
            "log" => {
                for line in 0..1_000_000 {
                    host::log(Level::Info, &format!("line {line}\n\u{1b}[2J"));
                }
                Ok("logged".to_owned())
            }
            "warn" => {
                for line in 0..1_000_000 {
                    host::warn(&format!("warning {line}"));
                }
                Ok("warned".to_owned())
            }
            // No stream is open.
            "keep-early" => state::put("k", Some(b"v")).map(|()| "kept".to_owned()),
            "time" => {
                let before = host::monotonic_ns();
                let (now, random) = (host::now_us(), host::random(1 << 20));
                let later = host::monotonic_ns() >= before;
                Ok(format!("{now} {} {later}", random.len()))
            }
            _ => Ok("checked".to_owned()),
        }
    }

    fn discover(config: String) -> Result<Vec<Discovered>, Error> {
        match setting(&config, "mode").as_str() {
            "huge-list" => {
                let one = Discovered {
                    name: String::new(),
                    columns: Vec::new(),
                    primary_key: Vec::new(),
                    rows: None,
                    bytes: None,
                };
                Ok(vec![one; 1_000_000])
            }
            _ => Ok(Vec::new()),
        }
    }

    fn place(_: String, _: StreamSettings) -> Result<Option<String>, Error> {
        Ok(None)
    }

    fn open(config: String, _: StreamSettings, _: Opening) -> Result<Opened, Error> {
        let mode = setting(&config, "mode");
        let mut opened = Opened {
            handle: vec![1],
            columns: vec![id()],
            units: vec![unit("a"), unit("b")],
            units_are_stable: true,
            cursor: None,
            notes: Vec::new(),
        };
        match mode.as_str() {
            "loop-open" => endless(),
            "memory-open" => greedy(),
            "trap-open" => panic!("as asked"),
            "fail-open" => return Err(failed("open")),
            "no-units" => opened.units.clear(),
            "many-units" => opened.units = (0..200_000).map(|n| unit(&n.to_string())).collect(),
            "sql-type" => {
                opened.columns = vec![Column {
                    sql_type: "integer); drop table victims; --".to_owned(),
                    ..id()
                }];
            }
            "odd-name" => {
                opened.columns =
                    vec![Column { name: "id\"); drop table victims; --".to_owned(), ..id() }];
            }
            "odd-wire" => {
                opened.columns = vec![Column { wire: "array:1:array".to_owned(), ..id() }]
            }
            "keeper" => opened.handle.clear(),
            _ => {}
        }
        keep_and_count(&mode)?;
        MODE.set((mode, config));
        Ok(opened)
    }

    fn attach(config: String, _: StreamSettings, _: Vec<u8>) -> Result<(), Error> {
        let mode = setting(&config, "mode");
        if mode == "trap-attach" {
            panic!("as asked");
        }
        MODE.set((mode, config));
        Ok(())
    }

    fn read(index: u32) -> Result<(), Error> {
        let mode = MODE.with_borrow(|(mode, _)| mode.clone());
        let first = i32::try_from(index).unwrap_or(0) * 100;
        outlet::send(&Rows::Tuples(tuples(first..first + 10)), &[])?;
        let sent = match mode.as_str() {
            "loop-read" => endless(),
            "memory-read" => greedy(),
            "trap-read" => panic!("as asked"),
            "fail-read" => return Err(failed("read")),
            "huge-batch" => Rows::Tuples(vec![0; 100 << 20]),
            "half-tuple" => Rows::Tuples(vec![0, 1, 0, 0, 0, 4, 7]),
            "two-fields" => Rows::Tuples([0, 2, 255, 255, 255, 255, 255, 255, 255, 255].to_vec()),
            "garbage" => Rows::Records((0..5_000_u32).flat_map(u32::to_le_bytes).collect()),
            _ => Rows::Tuples(tuples(first + 10..first + 20)),
        };
        outlet::send(&sent, &[])
    }
}

forebay_guest::wit::source_world::export_source!(
    Component with_types_in forebay_guest::wit::source_world
);
