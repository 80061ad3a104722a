//! The suites that every connector passes, with components in the place of the connectors.

use std::sync::Arc;

use forebay_pgcopy::ContentHash;
use forebay_sdk::acceptance::{self, columns, rows};
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::connector::{Destination, Form, Load, Source};
use forebay_sdk::hash::Hasher;
use forebay_sdk::settings::{
    FeedForm, LoadMethod, OnDataError, SchemaEvolution, TargetSettings, WriteMode,
};
use forebay_testing::Postgres;
use forebay_wasm::{Grants, WasmDestination};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::components::{context, loaded, runtime, source, stream};

fn grants() -> Grants {
    Grants { hosts: vec!["127.0.0.1".to_owned()], ..Grants::default() }
}

/// PostgreSQL as a destination, as a component.
fn destination(pg: &Postgres, database: &str) -> Option<Arc<dyn Destination>> {
    let config = json!({ "port": pg.port(), "database": database }).to_string();
    let loaded = loaded("postgres", grants())?;
    Some(Arc::new(WasmDestination::new(loaded, config.into(), Form::Tuples)))
}

/// Where the rows of a test are written.
fn target(into: &str) -> TargetSettings {
    TargetSettings {
        pipeline: "acceptance".into(),
        stream: format!("from.{into}"),
        into: into.into(),
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        on_data_error: OnDataError::Fail,
        schema_evolution: SchemaEvolution::default(),
        load_method: LoadMethod::Copy,
        feed: FeedForm::Apply,
    }
}

#[test]
fn what_is_committed_is_there_what_is_not_is_not_and_a_claim_is_one() {
    let Some(pg) = Postgres::start() else { return };
    let Some(destination) = destination(&pg, "postgres") else { return };
    let columns = columns();
    let (kept, given_up) = (rows(&columns, 0..300), rows(&columns, 300..400));
    let mut expected = Hasher::new(&columns).unwrap();
    expected.add(&kept).unwrap();
    runtime().block_on(async {
        acceptance::fill(&destination, "filled", &columns, &[&kept]).await.unwrap();
        let settings = target("filled");
        let (context, _cancel) = context();
        let open = destination.open(&settings, &columns, &context).await.unwrap();
        assert_eq!(open.content().await.unwrap(), expected.content());

        let (last, entries) = destination.last_load(&settings).await.unwrap().unwrap();
        assert!(last.is_finished && entries.len() == 1);
        let load = Load { id: "load-2".into(), is_finished: false, ..last };
        open.prepare(&load).await.unwrap();
        let mut writer = open.writer(&load, &load.units[0]).await.unwrap();
        writer.write(Batch::unbounded(Rows::Records(given_up))).await.unwrap();
        drop(writer);
        assert_eq!(open.content().await.unwrap(), expected.content());

        let held = destination.claim(&settings).await.unwrap();
        assert!(destination.claim(&settings).await.is_err());
        drop(held);
        destination.claim(&settings).await.unwrap();
        assert_eq!(destination.forget(&settings).await.unwrap(), 2);
        assert!(destination.last_load(&settings).await.unwrap().is_none());
    });
}

#[test]
fn postgresql_keeps_its_promises_as_a_source() {
    let Some(pg) = Postgres::start() else { return };
    let Some(destination) = destination(&pg, "postgres") else { return };
    let config = json!({ "port": pg.port(), "database": "postgres" });
    let source: Arc<dyn Source> = source("postgres", &config, grants()).unwrap();
    let columns = columns();
    let batches = [rows(&columns, 0..400), rows(&columns, 400..900)];
    let mut expected = Hasher::new(&columns).unwrap();
    batches.iter().for_each(|batch| expected.add(batch).unwrap());
    runtime().block_on(async {
        let batches: Vec<_> = batches.iter().collect();
        acceptance::fill(&destination, "filled", &columns, &batches).await.unwrap();
        let stream = stream("filled");
        acceptance::source(&source, &stream, expected.content()).await.unwrap();
    });
}

/// The content of rows, each a list of fields of a tuple: sources are compared with what they are described to be.
fn content<const N: usize>(rows: impl Iterator<Item = [Vec<u8>; N]>) -> ContentHash {
    let mut content = ContentHash::default();
    for fields in rows {
        let mut tuple = u16::try_from(N).unwrap().to_be_bytes().to_vec();
        for field in fields {
            tuple.extend_from_slice(&u32::try_from(field.len()).unwrap().to_be_bytes());
            tuple.extend_from_slice(&field);
        }
        content.add(&tuple);
    }
    content
}

/// The content of the rows `1, "number 1"` to `last`.
fn numbered(last: i64) -> ContentHash {
    content((1..=last).map(|id| [id.to_be_bytes().to_vec(), format!("number {id}").into_bytes()]))
}

#[test]
fn a_sequence_keeps_its_promises_as_a_source() {
    let config = json!({ "rows": 5_000, "rows_per_unit": 1_200 });
    let Some(sequence) = source("sequence", &config, Grants::default()) else { return };
    runtime().block_on(acceptance::source(&sequence, &stream("numbers"), numbered(5_000))).unwrap();
}

/// Number of records that the API of the tests has, and of each of its pages.
const RECORDS: (u32, u32) = (1_000, 150);

/// Serves pages of numbered records to anyone who connects; its port.
async fn api() -> u16 {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (lines, mut answers) = stream.into_split();
                let mut lines = BufReader::new(lines).lines();
                let mut from = 0;
                while let Ok(Some(line)) = lines.next_line().await {
                    if let Some((_, offset)) = line.split_once("offset=") {
                        from = offset.split([' ', '&']).next().unwrap().parse().unwrap();
                    } else if line.is_empty() {
                        answers.write_all(page(from).as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    port
}

/// An answer in chunks, as servers send what they do not know the size of.
fn page(from: u32) -> String {
    let (count, size) = RECORDS;
    let records = from + 1..=(from + size).min(count);
    let records = records.map(|id| json!({ "id": id, "name": format!("number {id}") }));
    let body = serde_json::Value::Array(records.collect()).to_string();
    let (one, other) = body.split_at(body.len() / 2);
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}{}0\r\n\r\n",
        chunk(one),
        chunk(other)
    )
}

#[test]
fn an_api_keeps_its_promises_as_a_source() {
    let runtime = runtime();
    let port = runtime.block_on(api());
    let streams = json!([{ "name": "numbers", "pagination": { "offset": {} } }]);
    let config = json!({ "url": format!("http://127.0.0.1:{port}"), "streams": streams });
    let Some(api) = source("http-json", &config, grants()) else { return };
    let expected = numbered(RECORDS.0.into());
    runtime.block_on(acceptance::source(&api, &stream("numbers"), expected)).unwrap();
    let Some(api) = source("http-json", &config, Grants::default()) else { return };
    let refused = runtime.block_on(api.check()).unwrap_err();
    assert!(format!("{refused:?}").contains("may not connect"), "{refused:?}");
}

#[test]
fn a_source_in_c_keeps_its_promises() {
    let config = json!({ "rows": 5_000, "rows_per_unit": 1_200 });
    let Some(ticks) = source("ticks", &config, Grants::default()) else { return };
    let expected = content((1..=5_000_i64).map(|id| {
        let at = id * 1_000_000;
        [id.to_be_bytes().to_vec(), at.to_be_bytes().to_vec(), format!("tick {id}").into_bytes()]
    }));
    runtime().block_on(async {
        acceptance::source(&ticks, &stream("ticks"), expected).await.unwrap();
        let open = acceptance::open_source(&ticks, &stream("ticks")).await.unwrap();
        let names: Vec<&str> = open.units().iter().map(|unit| unit.name.as_str()).collect();
        assert_eq!(names, ["1..1200", "1201..2400", "2401..3600", "3601..4800", "4801..5000"]);
        assert_eq!(open.cursor().unwrap().value, "5000");
    });
}
