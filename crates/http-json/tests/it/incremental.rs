//! Cursors: what a later run reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_sdk::connector::{Cursor, Division, Result, Source, SourceStream};
use forebay_sdk::run::Context;
use serde_json::{Value, json};

use crate::reading::{opening, rows, source, stream};
use crate::server::{Server, json as body};

/// Opens the stream incrementally.
async fn open(
    source: &Arc<dyn Source>,
    since: Option<Cursor>,
    division: Division,
) -> Result<(Arc<dyn SourceStream>, Vec<String>)> {
    let (context, _cancel) = Context::new("test");
    let stream = stream(json!({ "sync_mode": "incremental", "cursor_field": "at" }));
    let open = source.open(&stream, &opening(since, division), &context).await?;
    Ok((open, context.warnings()))
}

async fn ids(open: &Arc<dyn SourceStream>) -> Vec<i64> {
    let rows = rows(open).await.unwrap();
    rows.iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

/// A server with records `id = at`, from after the parameter `since` up to a number, three a page.
fn counting(last: Arc<AtomicU32>, is_inclusive: bool) -> Server {
    Server::start(move |request| {
        let number = |name| request.parameter(name).and_then(|it| it.parse().ok());
        let from = match number("since") {
            None => 1,
            Some(since) if is_inclusive => since,
            Some(since) => since + 1,
        };
        let from = from + number("offset").unwrap_or(0);
        let to = (from + 2).min(last.load(Ordering::Relaxed));
        let records: Vec<_> = (from..=to).map(|id| json!({ "id": id, "at": id })).collect();
        body(&Value::Array(records).to_string())
    })
}

#[tokio::test]
async fn a_later_run_reads_what_is_new() {
    for is_inclusive in [false, true] {
        let last = Arc::new(AtomicU32::new(7));
        let server = counting(Arc::clone(&last), is_inclusive);
        let settings = json!({ "cursor_param": "since", "pagination": { "offset": {} } });
        let source = source(&server, settings, json!({}));
        let (first, _) = open(&source, None, Division::Stable).await.unwrap();
        let cursor = first.cursor().unwrap();
        assert_eq!((&*cursor.value, cursor.rows_at), ("7", Some(1)));
        assert!(!first.units_are_stable());
        assert_eq!(ids(&first).await, (1..=7).collect::<Vec<_>>());
        assert_eq!(ids(&first).await, (1..=7).collect::<Vec<_>>(), "as long as it is open");
        assert_eq!(server.requests().len(), 4, "the rows were kept");

        let (none, _) = open(&source, Some(cursor.clone()), Division::Stable).await.unwrap();
        assert!(none.units().is_empty() && none.cursor().unwrap().is_at(&cursor));
        last.store(9, Ordering::Relaxed);
        let (second, _) = open(&source, Some(cursor.clone()), Division::Stable).await.unwrap();
        assert_eq!(second.units()[0].name, "at after 7");
        assert_eq!(ids(&second).await, [8, 9]);
        assert_eq!(second.cursor().unwrap().value, "9");
        let repeated = if is_inclusive { vec![7, 8, 9] } else { vec![8, 9] };
        let (upsert, _) = open(&source, Some(cursor), Division::Any).await.unwrap();
        assert_eq!(ids(&upsert).await, repeated);
    }
}

#[tokio::test]
async fn rows_that_do_not_fit_in_memory_are_requested_again_up_to_the_cursor() {
    let last = Arc::new(AtomicU32::new(400));
    let server = counting(Arc::clone(&last), false);
    let columns = json!([{ "name": "id", "type": "bigint" }, { "name": "at", "type": "bigint" }]);
    let settings = json!({ "pagination": { "offset": {} }, "columns": columns });
    let source = source(&server, settings, json!({}));
    let (context, _cancel) = Context::new("test");
    let stream = stream(json!({ "sync_mode": "incremental", "cursor_field": "at" }));
    let opening =
        forebay_sdk::connector::Opening { memory: 2_000, ..opening(None, Division::Stable) };
    let open = source.open(&stream, &opening, &context).await.unwrap();
    assert!(open.notes()[0].contains("second time"), "{:?}", open.notes());
    last.store(500, Ordering::Relaxed);
    assert_eq!(open.cursor().unwrap().value, "400");
    assert_eq!(ids(&open).await, (1..=400).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_server_that_knows_no_cursor_is_read_whole_and_old_records_are_left_out() {
    let server = Server::start(|_| {
        body(
            r#"[{"id": 1, "at": "2026-01-01T00:00:00Z"}, {"id": 2, "at": "2026-01-01T02:00:00+01:00"},
                 {"id": 3, "at": null}, {"id": 4, "at": "2026-01-01T00:30:00Z"}]"#,
        )
    });
    let source = source(&server, json!({}), json!({}));
    let (first, warnings) = open(&source, None, Division::Stable).await.unwrap();
    assert_eq!((ids(&first).await, warnings), (vec![1, 2, 3, 4], vec![]));
    assert_eq!(first.cursor().unwrap().value, "2026-01-01T02:00:00+01:00");
    let since = Cursor { rows_at: Some(1), ..Cursor::new("2026-01-01T00:00:00Z".into(), None) };
    let (second, warnings) = open(&source, Some(since), Division::Stable).await.unwrap();
    assert_eq!(ids(&second).await, [2, 4]);
    assert!(warnings[0].contains("1 rows of s"), "{warnings:?}");
}

#[tokio::test]
async fn what_cannot_be_read_exactly_once_is_refused() {
    let server = Server::start(|_| {
        body(r#"[{"id": 1, "at": 5}, {"id": 2, "at": 5}, {"id": 3, "at": "x"}]"#)
    });
    let columns = json!([{ "name": "id", "type": "bigint" }, { "name": "at", "type": "bigint" }]);
    let bad = source(&server, json!({ "columns": columns }), json!({}));
    let error = open(&bad, None, Division::Stable).await.err().unwrap().to_string();
    assert!(error.contains("s page 1 record 3"), "{error}");

    let server = Server::start(|_| body(r#"[{"id": 1, "at": 5}, {"id": 2, "at": 5}]"#));
    let source = source(&server, json!({}), json!({}));
    let since = Cursor { rows_at: Some(1), ..Cursor::new("5".into(), None) };
    let error =
        open(&source, Some(since.clone()), Division::Stable).await.err().unwrap().to_string();
    assert!(error.contains("1 rows with at"), "{error}");
    let (upsert, _) = open(&source, Some(since), Division::Any).await.unwrap();
    assert_eq!(ids(&upsert).await, [1, 2]);
    let wrong = Some(Cursor::new("x".into(), None));
    assert!(open(&source, wrong, Division::Stable).await.is_err());

    let (context, _cancel) = Context::new("test");
    let tie =
        json!({ "sync_mode": "incremental", "cursor_field": "at", "tie_breaker_field": "id" });
    let refused = source.open(&stream(tie), &opening(None, Division::Stable), &context).await;
    assert!(refused.err().unwrap().to_string().contains("tie_breaker_field"));
    let none = json!({ "sync_mode": "incremental", "cursor_field": "nowhere" });
    assert!(source.open(&stream(none), &opening(None, Division::Stable), &context).await.is_err());
    // The units of an unfinished load are named, so that one that is complete can end.
    let (first, _) = open(&source, None, Division::Stable).await.unwrap();
    let division = Division::As(first.units().to_vec());
    let (again, _) = open(&source, None, division).await.unwrap();
    assert_eq!(again.units(), first.units());
    assert!(rows(&again).await.unwrap_err().to_string().contains("--from-scratch"));
}
