//! Queries over streams: right whatever batches the rows come in, and refused before anything is read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_pgcopy::{Column, Wire};
use forebay_sdk::connector::{Cursor, SourceStream};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::error::ConnectorError::{Refused, Unsupported};

use crate::transform::testing::{Memory, apply, batch, column, read, read_some, rows};

const MEMORY: usize = 16 << 20;

fn decimal() -> Wire {
    Wire::Decimal { precision: 10, scale: 2 }
}

fn order_columns() -> Vec<Column> {
    vec![
        column("id", Wire::Int8, "bigint"),
        column("customer", Wire::Int8, "bigint"),
        column("amount", decimal(), "numeric(10,2)"),
    ]
}

/// Orders 0 to `count`, in batches and units of these sizes. Every seventh has no amount.
fn orders(count: usize, batch_rows: usize, unit_batches: usize) -> Memory {
    let rows: Vec<String> = (0..count)
        .map(|id| {
            let amount =
                if id % 7 == 0 { "null".into() } else { format!("{}.{:02}", id % 100, id % 97) };
            format!("[{id}, {}, {amount}]", id % 13)
        })
        .collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let batches: Vec<_> =
        rows.chunks(batch_rows).map(|rows| batch(&order_columns(), rows)).collect();
    let units = batches.chunks(unit_batches).map(<[_]>::to_vec).collect();
    Memory::new(order_columns(), units)
}

fn customers() -> Memory {
    let columns = vec![column("id", Wire::Int8, "bigint"), column("name", Wire::Text, "text")];
    Memory::of(columns, &[r#"[1, "ann"]"#, r#"[2, "bob"]"#, r#"[99, "zoe"]"#])
}

fn sql(query: &str, into: Option<&str>) -> String {
    let into = into.map(|into| format!(", into: {into}")).unwrap_or_default();
    format!("- sql: {{ query: {}{into} }}", serde_json::to_string(query).unwrap())
}

/// The rows of the first stream that comes out.
async fn query(query: &str, streams: Vec<(&str, Memory)>) -> Vec<String> {
    let streams = apply(&sql(query, Some("result")), streams, MEMORY).await.unwrap();
    let stream = &streams[0].1;
    assert_eq!(stream.units().len(), 1);
    let read = read(stream, 0).await;
    read.result.unwrap();
    rows(stream.columns(), &read.batches)
}

#[tokio::test]
async fn aggregates_are_over_the_whole_stream_whatever_its_batches() {
    let text = "select customer, count(*) as n, count(amount) as with_amount, sum(amount) as total \
                from orders group by customer order by customer";
    let whole = query(text, vec![("orders", orders(1000, 1000, 1))]).await;
    assert_eq!(whole.len(), 13);
    let mut expected = [(0_u32, 0_u32, 0_u64); 13];
    for id in 0..1000_u32 {
        let of = &mut expected[id as usize % 13];
        of.0 += 1;
        if id % 7 != 0 {
            of.1 += 1;
            of.2 += u64::from(id % 100 * 100 + id % 97);
        }
    }
    for (customer, (count, amounts, cents)) in expected.into_iter().enumerate() {
        let total = format!("{}.{:02}", cents / 100, cents % 100);
        assert_eq!(whole[customer], format!("[{customer},{count},{amounts},{total}]"));
    }
    for (batch_rows, unit_batches) in [(1, 100), (7, 3), (64, 1)] {
        let again = query(text, vec![("orders", orders(1000, batch_rows, unit_batches))]).await;
        assert_eq!(again, whole, "{batch_rows} {unit_batches}");
    }
}

#[tokio::test]
async fn joins_see_both_streams_and_others_flow_on_untouched() {
    let text = "select c.name, o.id, o.amount from customers c left join orders o \
                on o.customer = c.id and o.id < 20 order by c.name, o.id";
    let streams = vec![
        ("before", customers()),
        ("orders", orders(100, 9, 4)),
        ("customers", customers()),
        ("after", customers()),
    ];
    let streams = apply(&sql(text, Some("named")), streams, MEMORY).await.unwrap();
    let names: Vec<&str> = streams.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["before", "named", "after"]);
    let read = read(&streams[1].1, 0).await;
    read.result.unwrap();
    assert_eq!(
        rows(streams[1].1.columns(), &read.batches),
        [
            r#"["ann",1,1.01]"#,
            r#"["ann",14,null]"#,
            r#"["bob",2,2.02]"#,
            r#"["bob",15,15.15]"#,
            r#"["zoe",null,null]"#,
        ]
    );
    assert_eq!(read.context.moved.rows_read.load(Ordering::Relaxed), 103);
}

#[tokio::test]
async fn what_does_not_fit_into_memory_is_spilled_and_the_result_is_right() {
    // Some 30 MB of rows on either side, in 8 MiB.
    let pad = "x".repeat(200);
    let columns = || vec![column("k", Wire::Int8, "bigint"), column("pad", Wire::Text, "text")];
    let side = |from: u64| {
        let batches = (0..64_u64).map(|part| {
            let rows: Vec<String> = (0..2048_u64)
                .map(|row| {
                    let key = (part * 2048 + row) * 48_271 % 131_101 + from;
                    format!("[{key}, \"{key}{pad}\"]")
                })
                .collect();
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            batch(&columns(), &rows)
        });
        Memory::new(columns(), vec![batches.collect()])
    };
    let text = "select l.k, count(*) as n, max(r.pad) as pad from l join r on l.k = r.k \
                group by l.k order by l.k";
    let streams = vec![("l", side(0)), ("r", side(1000))];
    let streams = apply(&sql(text, Some("both")), streams, 8 << 20).await.unwrap();
    let read = read(&streams[0].1, 0).await;
    read.result.unwrap();
    // Keys are 0 to 131100 but a few, once; those of the other side are a thousand more.
    let keys: std::collections::BTreeSet<u64> =
        (0..131_072_u64).map(|row| row * 48_271 % 131_101).collect();
    assert_eq!(keys.len(), 131_072);
    let expected: Vec<String> = keys
        .iter()
        .filter(|key| **key >= 1000 && keys.contains(&(**key - 1000)))
        .map(|key| format!("[{key},1,\"{key}{pad}\"]"))
        .collect();
    assert_eq!(rows(streams[0].1.columns(), &read.batches), expected);
}

/// Rows with a key and some hundred bytes, in batches.
fn keyed(count: u64, key: impl Fn(u64) -> u64) -> Memory {
    let columns = vec![column("k", Wire::Int8, "bigint"), column("pad", Wire::Text, "text")];
    let pad = "x".repeat(100);
    let all: Vec<u64> = (0..count).collect();
    let batches = all.chunks(2048).map(|rows| {
        let rows: Vec<String> =
            rows.iter().map(|row| format!("[{}, \"{row}{pad}\"]", key(*row))).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        batch(&columns, &rows)
    });
    let batches = batches.collect();
    Memory::new(columns, vec![batches])
}

#[tokio::test]
async fn joins_of_many_rows_with_equal_keys_are_right_within_their_memory() {
    let text = "select count(*) as n, min(l.pad) as a, max(r.pad) as b, sum(l.k) as s \
                from l join r on l.k = r.k";
    let count = 300_000;
    for (name, left, right, expected) in [
        ("unique", keyed(count, |row| row), keyed(count, |row| row), count),
        (
            "shuffled",
            keyed(count, |row| row * 7919 % 300_007),
            keyed(count, |row| row * 31 % 300_007),
            0,
        ),
        ("many to few", keyed(count, |row| row % 10), keyed(10, |row| row), count),
        ("few to many", keyed(10, |row| row), keyed(count, |row| row % 10), count),
        ("one key", keyed(3, |_| 1), keyed(count, |_| 1), 3 * count),
    ] {
        let streams = vec![("l", left), ("r", right)];
        let streams = apply(&sql(text, Some("both")), streams, 32 << 20).await.unwrap();
        let read = read(&streams[0].1, 0).await;
        let result = read.result;
        assert!(result.is_ok(), "{name}: {:?}", result.err().map(|e| e.to_string()));
        let found = rows(streams[0].1.columns(), &read.batches);
        if expected > 0 {
            assert!(found[0].starts_with(&format!("[{expected},")), "{name}: {found:?}");
        }
    }
}

#[tokio::test]
async fn columns_that_are_passed_on_keep_their_types_and_those_computed_have_their_own() {
    let columns = || {
        vec![
            column("id", Wire::Uuid, "uuid"),
            column("data", Wire::Jsonb, "jsonb"),
            column("mood", Wire::Text, "public.mood"),
            column("exact", Wire::Numeric, "numeric"),
            column("at", Wire::TimestampTz, "timestamp with time zone"),
            column("amount", decimal(), "numeric(10,2)"),
        ]
    };
    let row = r#"["67e55044-10b1-426f-9247-bb680e5fe0c8", {"a": 1}, "sad", 1.5, "2024-02-29T12:00:00Z", 19.99]"#;
    let text = r#"
        with both as (select * from one union all select * from two)
        select b.id as key, data, mood, mood::text as said, exact, at, amount * 1.1 as more,
               cast(amount as double precision) as about, count(*) over () as n, at::date as day,
               row_number() over () as "row", at + interval '1 day' as next
        from both b where amount > 1 limit 1"#;
    let streams = vec![("one", Memory::of(columns(), &[row])), ("two", Memory::of(columns(), &[]))];
    let streams = apply(&sql(text, Some("both")), streams, MEMORY).await.unwrap();
    let stream = &streams[0].1;
    let types: Vec<(&str, &str)> = stream
        .columns()
        .iter()
        .map(|column| (column.name.as_str(), column.sql_type.as_str()))
        .collect();
    assert_eq!(
        types,
        [
            ("key", "uuid"),
            ("data", "jsonb"),
            ("mood", "public.mood"),
            ("said", "text"),
            ("exact", "numeric"),
            ("at", "timestamp with time zone"),
            ("more", "numeric(13,3)"),
            ("about", "double precision"),
            ("n", "bigint"),
            ("day", "date"),
            ("row", "bigint"),
            ("next", "timestamp with time zone"),
        ]
    );
    let read = read(stream, 0).await;
    read.result.unwrap();
    assert_eq!(
        rows(stream.columns(), &read.batches),
        [
            r#"["67e55044-10b1-426f-9247-bb680e5fe0c8",{"a": 1},"sad","sad",1.5,"2024-02-29T12:00:00Z",21.989,19.99,1,"2024-02-29",1,"2024-03-01T12:00:00Z"]"#
        ]
    );
    for (batch, column) in read.batches[0].columns().iter().zip(stream.columns()) {
        assert_eq!(*batch.data_type(), column.wire.data_type(), "{}", column.name);
    }
}

#[tokio::test]
async fn a_uuid_is_compared_with_texts_and_stays_a_uuid() {
    let columns = || vec![column("id", Wire::Uuid, "uuid"), column("as_text", Wire::Text, "text")];
    let row = r#"["67e55044-10b1-426f-9247-bb680e5fe0c8","67e55044-10b1-426f-9247-bb680e5fe0c8"]"#;
    let streams = vec![("t", Memory::of(columns(), &[row, "[null, null]"]))];
    let text = "select a.id, max(b.id) as top, count(*) as n from t a join t b on a.id = b.as_text \
                where a.id = '67e55044-10b1-426f-9247-bb680e5fe0c8' group by a.id \
                union all select id, null, 0 from t where id is null";
    let streams = apply(&sql(text, None), streams, MEMORY).await.unwrap();
    let stream = &streams[0].1;
    let types: Vec<&str> = stream.columns().iter().map(|it| it.sql_type.as_str()).collect();
    assert_eq!(types, ["uuid", "text", "bigint"]);
    let read = read(stream, 0).await;
    read.result.unwrap();
    let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    assert_eq!(
        rows(stream.columns(), &read.batches),
        [format!("[\"{id}\",\"{id}\",1]"), "[null,null,0]".to_owned()]
    );
}

#[tokio::test]
async fn numerics_without_bounds_are_numbers_and_not_texts() {
    let columns = || vec![column("v", Wire::Numeric, "numeric")];
    let rows_of = ["[9]", "[10.50]", "[null]", "[-0.00000000000000000001]", "[10.5]"];
    let text = "select max(v) as top, sum(v) as total, count(distinct v) as n, \
                sum(v * 1.1) as more from t where v < 100";
    let streams = vec![("t", Memory::of(columns(), &rows_of))];
    let streams = apply(&sql(text, None), streams, MEMORY).await.unwrap();
    let stream = &streams[0].1;
    let types: Vec<&str> = stream.columns().iter().map(|it| it.sql_type.as_str()).collect();
    assert_eq!(types, ["numeric", "numeric", "bigint", "numeric"]);
    let read = read(stream, 0).await;
    read.result.unwrap();
    assert_eq!(
        rows(stream.columns(), &read.batches),
        ["[10.5,29.99999999999999999999,3,32.999999999999999999989]"]
    );
    let text = "select v as w from t order by v desc nulls last";
    let streams = vec![("t", Memory::of(columns(), &rows_of))];
    assert_eq!(
        query(text, streams).await,
        ["[10.5]", "[10.5]", "[9]", "[-0.00000000000000000001]", "[null]"]
    );
    let streams = vec![("t", Memory::of(columns(), &[r#"["NaN"]"#]))];
    let streams = apply(&sql("select v + 1 as v from t", None), streams, MEMORY).await.unwrap();
    let error = crate::transform::testing::read(&streams[0].1, 0).await.result.unwrap_err();
    assert!(error.to_string().contains("NaN"), "{error}");
}

#[tokio::test]
async fn columns_of_different_types_in_sql_come_together() {
    let named = |sql_type| vec![column("name", Wire::Text, sql_type)];
    let streams = vec![
        ("a", Memory::of(named("character varying(10)"), &[r#"["x"]"#])),
        ("b", Memory::of(named("public.mood"), &[r#"["sad"]"#])),
    ];
    let text = "select name from a union all select name from b";
    let streams = apply(&sql(text, Some("both")), streams, MEMORY).await.unwrap();
    let stream = &streams[0].1;
    assert_eq!(stream.columns()[0].sql_type, "text");
    let read = read(stream, 0).await;
    assert_eq!(rows(stream.columns(), &read.batches), [r#"["x"]"#, r#"["sad"]"#]);
}

#[tokio::test]
async fn queries_that_cannot_be_are_refused_before_anything_is_read() {
    for (text, into, expected) in [
        ("select amont from orders", None, "amount"),
        ("select * from order_lines", None, "orders, customers"),
        ("select * from information_schema.tables", Some("x"), "information_schema"),
        ("select * from 'orders.csv'", Some("x"), "orders.csv"),
        ("select * from other.orders", Some("x"), "other.orders"),
        ("select from orders", None, ""),
        ("selct 1", Some("x"), "selct"),
        ("select 1 as a; select 2 as a", Some("x"), "single"),
        ("select o.id, c.id from orders o, customers c", Some("x"), "AS"),
        ("select * from orders o join customers c on o.customer = c.id", Some("x"), "AS"),
        ("select o.id from orders o, customers c", None, "into"),
        ("select id from orders", Some("customers"), "customers"),
        ("select 1 as one", None, "into"),
        ("select struct(id, customer) as both from orders", None, "both"),
        ("insert into orders select * from customers", Some("x"), "SELECT"),
        ("create table x as select * from orders", Some("x"), "SELECT"),
        ("create external table x stored as csv location '/etc/passwd'", Some("x"), "SELECT"),
        ("copy orders to '/tmp/x.csv'", Some("x"), "SELECT"),
        ("explain select * from orders", Some("x"), "SELECT"),
        ("set datafusion.execution.batch_size = 1", Some("x"), "SELECT"),
        ("show tables", Some("x"), "SELECT"),
        ("select * into x from orders", Some("y"), ""),
    ] {
        let orders = orders(10, 10, 1);
        let ended = Arc::clone(&orders.ended);
        let streams = vec![("orders", orders), ("customers", customers())];
        let error = match apply(&sql(text, into), streams, MEMORY).await {
            Err(error @ (Unsupported { .. } | Refused { .. })) => error,
            Err(error) => panic!("{text}: {error:?}"),
            Ok(_) => panic!("{text}"),
        };
        let said = forebay_base::error_chain::chain(&error).to_string();
        assert!(said.contains(expected), "{text}: {said}");
        assert_eq!(ended.load(Ordering::Relaxed), 0, "{text}");
    }
}

#[tokio::test]
async fn names_that_are_not_plain_stand_in_quotes() {
    let columns =
        || vec![column("User Id", Wire::Int4, "integer"), column("b", Wire::Int4, "integer")];
    let text = r#"select "User Id" + 1 as "Σ ""x""" from "Some Orders""#;
    let streams = vec![("Some Orders", Memory::of(columns(), &["[1, 2]"]))];
    let streams = apply(&sql(text, None), streams, MEMORY).await.unwrap();
    assert_eq!(streams[0].0, "Some Orders", "the result takes the place of what it is made of");
    assert_eq!(streams[0].1.columns()[0].name, "Σ \"x\"");
    assert_eq!(
        query(r"select b from public.t", vec![("t", Memory::of(columns(), &["[1, 2]"]))]).await,
        ["[2]"]
    );
}

#[tokio::test]
async fn the_error_of_a_stream_is_the_error_of_the_query() {
    let mut orders = orders(1000, 10, 10);
    orders.fails = Some(3);
    let text = "select customer, sum(amount) as total from orders group by customer";
    let streams = apply(&sql(text, None), vec![("orders", orders)], MEMORY).await.unwrap();
    let read = read(&streams[0].1, 0).await;
    let error = read.result.unwrap_err();
    assert!(matches!(error, ConnectorError::Unreachable { .. }), "{error:?}");
    assert!(read.batches.is_empty(), "no total of a part");
}

#[tokio::test]
async fn values_that_cannot_be_computed_name_the_query() {
    let text = "select 1 / (id - 5) as x from orders";
    let streams =
        apply(&sql(text, None), vec![("orders", orders(10, 10, 1))], MEMORY).await.unwrap();
    let error = read(&streams[0].1, 0).await.result.unwrap_err();
    let ConnectorError::Data { place, found } = error else { panic!("{error:?}") };
    assert_eq!(place, "the query for orders");
    assert!(found.contains("zero"), "{found}");
}

#[tokio::test]
async fn streams_end_when_the_query_or_the_reader_needs_no_more_of_them() {
    for (text, batches) in
        [("select id from orders limit 3", usize::MAX), ("select id from orders", 1)]
    {
        let orders = orders(10_000, 10, 10_000);
        let ended = Arc::clone(&orders.ended);
        let streams = apply(&sql(text, None), vec![("orders", orders)], MEMORY).await.unwrap();
        let read = read_some(&streams[0].1, 0, batches).await;
        assert_eq!(ended.load(Ordering::SeqCst), 1, "{text}");
        if batches == usize::MAX {
            read.result.unwrap();
            assert_eq!(rows(streams[0].1.columns(), &read.batches), ["[0]", "[1]", "[2]"]);
        } else {
            assert!(matches!(read.result, Err(ConnectorError::Stopped)));
        }
    }
}

#[tokio::test]
async fn rows_put_aside_below_a_query_come_out_once() {
    let yaml = format!(
        "- validate: {{ stream: orders, on_failure: dlq, rules: [{{ not_null: amount }}] }}\n{}",
        sql("select count(*) as n from orders a join orders b on a.id = b.id", Some("pairs"))
    );
    let streams = apply(&yaml, vec![("orders", orders(700, 50, 2))], MEMORY).await.unwrap();
    let read = read(&streams[0].1, 0).await;
    read.result.unwrap();
    assert_eq!(rows(streams[0].1.columns(), &read.batches), ["[600]"]);
    assert_eq!(read.dead.len(), 100);
}

#[tokio::test]
async fn the_cursor_of_one_stream_passes_and_joins_of_incremental_ones_are_refused() {
    let cursor = Cursor::new("17".into(), None);
    let incremental = || {
        let mut orders = orders(10, 5, 1);
        orders.cursor = Some(cursor.clone());
        orders
    };
    let text = "select id from orders where amount > 1";
    let streams = apply(&sql(text, None), vec![("orders", incremental())], MEMORY).await.unwrap();
    assert_eq!(streams[0].1.cursor(), Some(cursor.clone()));
    assert!(!streams[0].1.units_are_stable());
    let notes = streams[0].1.notes();
    assert!(notes.iter().any(|note| note.contains("since the last run")), "{notes:?}");
    let text = "select o.id from orders o join customers c on o.customer = c.id";
    let streams = vec![("orders", incremental()), ("customers", customers())];
    let Err(error) = apply(&sql(text, Some("x")), streams, MEMORY).await else { panic!() };
    assert!(error.to_string().contains("incrementally"), "{error}");
}

#[tokio::test]
async fn the_result_can_be_read_again_and_is_the_same() {
    // No order is asked for, and sums of floats depend on theirs.
    let text = "select customer, sum(cast(amount as double precision)) as total, \
                first_value(id) over (partition by customer) as first from orders \
                group by customer, id limit 50";
    let streams = vec![("orders", orders(5000, 37, 11))];
    let streams = apply(&sql(text, None), streams, MEMORY).await.unwrap();
    let stream: &Arc<dyn SourceStream> = &streams[0].1;
    let first = read(stream, 0).await;
    first.result.unwrap();
    let second = read(stream, 0).await;
    let rows_of = |batches: &[_]| rows(stream.columns(), batches);
    assert_eq!(rows_of(&first.batches), rows_of(&second.batches));
    assert_eq!(rows_of(&first.batches).len(), 50);
}

#[tokio::test]
async fn sides_of_a_union_come_one_after_another() {
    for (text, count) in [
        ("select id from a union all select id from b union all select id from a", 600),
        ("select id from a union all select id from b limit 250", 250),
        ("select id from (select id from a union all select id from b) where id % 2 = 0", 200),
    ] {
        let streams = vec![("a", orders(200, 7, 3)), ("b", orders(200, 30, 1))];
        let rows = query(text, streams).await;
        let step = if count == 200 { 2 } else { 1 };
        let expected = (0..3).flat_map(|_| (0..200).step_by(step)).take(count);
        assert_eq!(rows, expected.map(|id| format!("[{id}]")).collect::<Vec<_>>(), "{text}");
    }
}

#[tokio::test]
async fn a_sorted_union_keeps_the_order_of_equal_rows() {
    let text = "select a % 2 as k, n from (select id as a, 1 as n from x union all \
                select id as a, 2 as n from y) order by k, n limit 150";
    let streams = || vec![("x", orders(200, 7, 3)), ("y", orders(200, 30, 1))];
    let first = query(text, streams()).await;
    assert_eq!(first.len(), 150);
    assert_eq!(first, query(text, streams()).await);
}

#[tokio::test]
async fn a_stream_that_is_named_more_than_once_is_read_once() {
    for (text, expected) in [
        ("select count(*) as n from orders a join orders b on a.customer = b.customer", "[772]"),
        (
            "with o as (select * from orders) select count(*) as n from o \
             where amount > (select avg(amount) from o)",
            "[43]",
        ),
        // Both sides come in order, and are wanted in turn.
        (
            "with n as (select id, row_number() over () as row from orders) \
             select count(*) as n from n a join n b on a.row + 1 = b.row and b.id = a.id + 1",
            "[99]",
        ),
        (
            "with recursive chain(id) as (select 1 union all select o.id from orders o \
             join chain c on o.id = c.id * 2) select count(*) as n from chain",
            "[7]",
        ),
    ] {
        let orders = orders(100, 9, 3);
        let ended = Arc::clone(&orders.ended);
        let units = orders.units().len();
        assert_eq!(query(text, vec![("orders", orders)]).await, [expected], "{text}");
        assert_eq!(ended.load(Ordering::SeqCst), units, "{text}");
    }
}

#[tokio::test]
async fn a_stream_that_is_named_twice_fails_and_ends_like_any_other() {
    let text = "select a.id from orders a join orders b on a.id = b.id";
    let mut failing = orders(1000, 10, 10);
    failing.fails = Some(3);
    let streams = apply(&sql(text, None), vec![("orders", failing)], MEMORY).await.unwrap();
    let error = read(&streams[0].1, 0).await.result.unwrap_err();
    assert!(matches!(error, ConnectorError::Unreachable { .. }), "{error:?}");
    let orders = orders(1000, 10, 10);
    let ended = Arc::clone(&orders.ended);
    let streams = apply(&sql(text, None), vec![("orders", orders)], MEMORY).await.unwrap();
    let read = read_some(&streams[0].1, 0, 0).await;
    assert!(matches!(read.result, Err(ConnectorError::Stopped)), "{:?}", read.result);
    assert!(ended.load(Ordering::SeqCst) <= 10);
}

#[tokio::test]
async fn queries_follow_one_another() {
    let yaml = format!(
        "{}\n{}\n- mask: {{ columns: {{ total: redact }} }}",
        sql("select customer, sum(amount) as total from orders group by customer", Some("totals")),
        sql("select count(*) as n, max(total) as total from totals", None),
    );
    let streams = apply(&yaml, vec![("orders", orders(100, 10, 1))], MEMORY).await.unwrap();
    assert_eq!(streams[0].0, "totals");
    let read = read(&streams[0].1, 0).await;
    read.result.unwrap();
    assert_eq!(rows(streams[0].1.columns(), &read.batches), ["[13,0.00]"]);
}

/// A query that would take longer than anybody waits: a hundred rows, joined with themselves nine times.
fn endless() -> String {
    let joins: String = (1..10).map(|at| format!(" cross join orders o{at}")).collect();
    sql(&format!("select count(*) as n, sum(o1.id) as s from orders o0{joins}"), Some("result"))
}

/// That query, begun: it has read all its rows and only computes.
async fn begun() -> (
    forebay_sdk::run::Context,
    forebay_sdk::run::Cancel,
    tokio::task::JoinHandle<forebay_sdk::connector::Result<()>>,
) {
    let orders = orders(100, 100, 1);
    let read = Arc::clone(&orders.ended);
    let streams = apply(&endless(), vec![("orders", orders)], MEMORY).await.unwrap();
    let stream = Arc::clone(&streams[0].1);
    let (context, cancel) = forebay_sdk::run::Context::new("test");
    let budget = forebay_sdk::run::Budget::new(1 << 20);
    let (mut outlet, mut inlet) = forebay_sdk::run::Outlet::new(budget, context.clone()).unwrap();
    let reading = tokio::spawn(async move { stream.read(0, &mut outlet).await });
    drop(tokio::spawn(async move { while let Ok(Some(_)) = inlet.recv().await {} }));
    // The only thread of this runtime is free while the query computes.
    while read.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    (context, cancel, reading)
}

/// Waits until nothing of a query is left, its thread included.
async fn ended(context: &forebay_sdk::run::Context) {
    while Arc::strong_count(&context.phases) > 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_query_without_an_end_is_cancelled_at_once_and_its_thread_ends() {
    let (context, cancel, reading) = begun().await;
    cancel.cancel();
    assert!(matches!(reading.await.unwrap(), Err(ConnectorError::Stopped)));
    ended(&context).await;
}

#[tokio::test]
async fn an_abandoned_query_ends() {
    let (context, _cancel, reading) = begun().await;
    // As `limits.timeout_seconds` does when it drops the reading.
    reading.abort();
    assert!(reading.await.unwrap_err().is_cancelled());
    ended(&context).await;
}
