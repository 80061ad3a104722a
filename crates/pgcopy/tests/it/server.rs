//! Tables of a real PostgreSQL, there and back: the copy's bytes are the original's.

use std::pin::pin;
use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::DataType;
use bytes::Bytes;
use forebay_pgcopy::catalog::{self, PgType};
use forebay_pgcopy::{Column, Decoder, Encoder, HEADER, Splitter, TRAILER, Wire, column};
use forebay_testing::Postgres;
use futures_util::{SinkExt as _, TryStreamExt as _};
use tokio_postgres::{Client, NoTls};

use crate::casts::{batch, forms};

/// Types of every kind, and values at the edges of each.
const TYPES: &[(&str, &[&str])] = &[
    ("bool", &["t", "f"]),
    ("\"char\"", &["a", "\\377"]),
    ("int2", &["-32768", "32767", "0"]),
    ("int4", &["-2147483648", "2147483647", "0"]),
    ("int8", &["-9223372036854775808", "9223372036854775807", "0"]),
    ("oid", &["0", "4294967295"]),
    ("xid", &["4294967295"]),
    ("xid8", &["18446744073709551615"]),
    ("tid", &["(7,8)"]),
    ("regclass", &["pg_class"]),
    ("regtype", &["mood"]),
    ("float4", &["NaN", "Infinity", "-Infinity", "-0", "1.17549435e-38", "3.4028235e38"]),
    ("float8", &["NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e308"]),
    ("money", &["-92233720368547758.08", "92233720368547758.07", "0.01"]),
    ("numeric", &["NaN", "Infinity", "-Infinity", "0", "0.000", "-1.50", "1e131071", "1e-16383"]),
    ("numeric", &["10000", "99990000", "0.0001", "0.00010000", "-123456789.123456789", "12345678"]),
    ("numeric(10,2)", &["0", "-99999999.99", "99999999.99", "0.01", "10000", "12345.6", "NaN"]),
    ("numeric(10,2)", &["0", "-99999999.99", "99999999.99", "0.01", "10000", "12345.6"]),
    ("numeric(19,4)", &["999999999999999.9999", "-0.0001", "123456789012345"]),
    ("numeric(38,10)", &["9999999999999999999999999999.9999999999", "-1", "1e20", "0.0000000001"]),
    ("numeric(38,38)", &["0.99999999999999999999999999999999999999", "1e-38"]),
    ("numeric(38,37)", &["9.9999999999999999999999999999999999999", "-5"]),
    ("numeric(76,20)", &["-1e55", "1e-20", "12345678901234567890123456789012345678901.5"]),
    ("numeric(76,76)", &["1e-76", "-0.1234567890123456789012345678901234567890123456789012345"]),
    ("numeric(80,2)", &["1e77", "0.5"]),
    ("numeric(5,-2)", &["1234567", "49"]),
    ("numeric(3,5)", &["0.00999", "-0.00001"]),
    ("text", &["", "grün 🌊", "a\tb\nc\\N"]),
    ("varchar(20)", &["", "exactly 20 characters"]),
    ("char(5)", &["ab", "abcde"]),
    ("name", &["a_name"]),
    ("xml", &["<a b=\"c\"/>"]),
    ("json", &["{\"a\": 1, \"a\":  2.0}", "null"]),
    ("jsonb", &["{\"b\": [1.00, null], \"a\": \"\\u00e9\"}", "null"]),
    ("bytea", &["\\x00ff", ""]),
    ("date", &["0044-03-15 BC", "infinity", "-infinity", "4714-11-24 BC", "5874897-12-31"]),
    ("time", &["24:00:00", "00:00:00.000001", "13:45:06"]),
    ("timetz", &["00:00:00+15:59:59", "24:00:00-15:59", "13:45:06.789+05:30", "01:02:03.4-00:01"]),
    (
        "timestamp",
        &["4714-11-24 00:00:00 BC", "infinity", "-infinity", "1969-12-31 23:59:59.999999"],
    ),
    ("timestamptz", &["4714-11-24 00:00:00+00 BC", "infinity", "294246-12-31 23:59:59.999999+00"]),
    ("interval", &["1 mon -2 days 03:04:05.000006", "-178000000 years", "2562047:47:16.854775"]),
    ("uuid", &["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("inet", &["10.1.2.3", "10.1.2.3/8", "0.0.0.0/0", "::1", "2001:db8::1/32", "::ffff:1.2.3.4"]),
    ("cidr", &["10.0.0.0/8", "10.1.2.3/32", "::/0", "2001:db8::/32"]),
    ("macaddr", &["08:00:2b:01:02:03"]),
    ("macaddr8", &["08:00:2b:01:02:03:04:ff"]),
    ("bit(3)", &["101", "000"]),
    ("bit varying(20)", &["", "1", "11111111", "101010101"]),
    ("mood", &["happy", "so-so"]),
    ("price", &["1.5", "-0.01"]),
    ("int4[]", &["{}", "{1,NULL,3}", "{-1}"]),
    ("text[]", &["{}", "{\"\",NULL,\"a,b\",NULL}"]),
    ("numeric(10,2)[]", &["{1.5,NULL}"]),
    ("numeric[]", &["{1.5,NaN}"]),
    ("timestamptz[]", &["{infinity,2024-01-01}"]),
    ("uuid[]", &["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"]),
    ("bool[]", &["{t,f,NULL}"]),
    ("jsonb[]", &["{1,\"{}\"}"]),
    ("inet[]", &["{::1,10.0.0.0/8}"]),
    ("bit(2)[]", &["{01,NULL}"]),
    ("mood[]", &["{happy,NULL}"]),
    ("price[]", &["{1.5}"]),
    ("int2vector", &["1 2 3"]),
    ("oidvector", &["1 2"]),
    ("point", &["(1,-2.5)"]),
    ("line", &["{1,2,3}"]),
    ("lseg", &["[(0,0),(1,1)]"]),
    ("box", &["(1,1),(0,0)"]),
    ("path", &["[(0,0),(1,1)]", "((0,0),(1,1))"]),
    ("polygon", &["((0,0),(1,1),(2,0))"]),
    ("circle", &["<(0,0),2>"]),
    ("tsvector", &["'a':1A 'b':2"]),
    ("tsquery", &["'a' & !'b':*"]),
    ("jsonpath", &["$.a[*] ? (@ > 1)"]),
    ("pg_lsn", &["16/B374D848"]),
    ("pg_snapshot", &["10:20:10,14"]),
    ("int4range", &["empty", "[1,5)", "(,)"]),
    ("numrange", &["[1.50,2.0]"]),
    ("tstzmultirange", &["{}", "{[2024-01-01,2024-02-01),[2024-03-01,)}"]),
    ("pair", &["(1,\"a,b\")", "(,)"]),
    ("pair[]", &["{\"(1,x)\",NULL}"]),
    ("int4range[]", &["{\"[1,2)\"}"]),
    ("box[]", &["{(1,1),(0,0);(2,2),(1,1)}"]),
    ("point[]", &["{\"(1,2)\"}"]),
];

const SETUP: &str = "
    create type mood as enum ('happy', 'so-so');
    create domain price as numeric(10,2) check (value > -10);
    create type pair as (number int, word text);";

/// A connection with its own schema: the server is shared.
async fn connect(schema: &str) -> Option<(Arc<Postgres>, Client)> {
    let server = Postgres::shared()?;
    let config = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", server.port());
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    let setup = format!("create schema {schema}; set search_path = {schema}; {SETUP}");
    client.batch_execute(&setup).await.unwrap();
    Some((server, client))
}

/// All of a table, or of a query in parentheses.
async fn copy_out(client: &Client, of: &str) -> Vec<Bytes> {
    let stream = client.copy_out(&format!("copy {of} to stdout (format binary)")).await.unwrap();
    stream.try_collect().await.unwrap()
}

async fn copy_in(client: &Client, table: &str, tuples: &[u8]) {
    let sink = client.copy_in(&format!("copy {table} from stdin (format binary)")).await.unwrap();
    let mut sink = pin!(sink);
    let stream = Bytes::from([HEADER, tuples, TRAILER].concat());
    sink.send(stream).await.unwrap();
    sink.finish().await.unwrap();
}

/// A type as the catalogue has it.
async fn pg_type(client: &Client, oid: u32, typmod: i32) -> PgType {
    let query = "select format_type(oid, $2), typtype::text, typcategory::text, typbasetype,
        case when typcategory = 'A' and typlen = -1 then typelem else 0 end, typtypmod
        from pg_type where oid = $1";
    let row = client.query_one(query, &[&oid, &typmod]).await.unwrap();
    let first = |column| row.get::<_, String>(column).chars().next().unwrap();
    let (base, element): (u32, u32) = (row.get(3), row.get(4));
    let mut parts = Vec::new();
    for (part, typmod) in [(base, row.get(5)), (element, typmod)] {
        let is_part = part != 0;
        parts.push(match is_part {
            true => Some(Box::new(Box::pin(pg_type(client, part, typmod)).await)),
            false => None,
        });
    }
    let (element, basetype) = (parts.pop().unwrap(), parts.pop().unwrap());
    let (typtype, category) = (first(1), first(2));
    PgType { oid, name: row.get(0), typtype, category, basetype, element, typmod }
}

/// The columns of a table.
async fn columns(client: &Client, table: &str) -> Vec<Column> {
    let query = "select attname::text, atttypid, atttypmod, attnotnull from pg_attribute
        where attrelid = $1::text::regclass and attnum > 0 order by attnum";
    let mut columns = Vec::new();
    for row in client.query(query, &[&table]).await.unwrap() {
        let of = pg_type(client, row.get(1), row.get(2)).await;
        columns.push(Column {
            name: row.get(0),
            wire: catalog::wire(&of, true),
            sql_type: of.name,
            nullable: !row.get::<_, bool>(3),
        });
    }
    columns
}

/// A table with a column for each of `TYPES`, a row for each value, and one of NULLs.
async fn make_table(client: &Client) {
    let columns: Vec<_> =
        TYPES.iter().enumerate().map(|(index, (sql, _))| format!("c{index} {sql}")).collect();
    let create = format!("create table t ({})", columns.join(", "));
    client.batch_execute(&create).await.unwrap();
    let rows = TYPES.iter().map(|(_, values)| values.len()).max().unwrap();
    for row in 0..=rows {
        let values: Vec<_> = TYPES
            .iter()
            .map(|(sql, values)| match values.get(row) {
                Some(value) => format!("'{}'::{sql}", value.replace('\'', "''")),
                None => "null".to_owned(),
            })
            .collect();
        let insert = format!("insert into t values ({})", values.join(", "));
        client.batch_execute(&insert).await.unwrap();
    }
}

#[tokio::test]
async fn a_table_of_every_type_is_the_same_after_a_copy() {
    let Some((_server, client)) = connect("every_type").await else { return };
    make_table(&client).await;
    let mut columns = columns(&client, "t").await;
    // One of its values is NaN, which no decimal holds.
    let nan = columns.iter_mut().find(|column| column.sql_type == "numeric(10,2)").unwrap();
    nan.wire = Wire::Numeric;
    let original = copy_out(&client, "t").await;
    let (mut decoder, mut splitter) = (Decoder::new(&columns), Splitter::new());
    let mut tuples = Vec::new();
    for piece in &original {
        decoder.push(piece).unwrap();
        splitter.push(piece, &mut tuples).unwrap();
    }
    let (batch, hash) = decoder.finish().unwrap().unwrap();
    assert_eq!(hash, splitter.take_hash());
    let encoder = Encoder::new(&batch.schema(), &columns).unwrap();
    for (index, column) in columns.iter().enumerate() {
        let one = batch.project(&[index]).unwrap();
        let encoder = Encoder::new(&one.schema(), std::slice::from_ref(column)).unwrap();
        let copied = copy_out(&client, &format!("(select c{index} from t)")).await.concat();
        let mut out = HEADER.to_vec();
        encoder.encode(&one, 0..one.num_rows(), &mut out).unwrap();
        assert_eq!([&out, TRAILER].concat(), copied, "{}", column.sql_type);
    }
    let mut encoded = Vec::new();
    let again = encoder.encode(&batch, 0..batch.num_rows(), &mut encoded).unwrap();
    assert_eq!((again, &encoded), (hash, &tuples));
    client.batch_execute("create table copied (like t)").await.unwrap();
    copy_in(&client, "copied", &encoded).await;
    assert!(copy_out(&client, "copied").await.concat() == original.concat());
}

#[tokio::test]
async fn only_types_without_an_arrow_form_are_opaque() {
    let Some((_server, client)) = connect("forms").await else { return };
    make_table(&client).await;
    let columns = columns(&client, "t").await;
    let opaque = columns.iter().filter(|column| column.wire == Wire::Opaque);
    let opaque: Vec<_> = opaque.map(|column| column.sql_type.as_str()).collect();
    let expected = [
        "\"char\"",
        "xid8",
        "tid",
        "int2vector",
        "oidvector",
        "point",
        "line",
        "lseg",
        "box",
        "path",
        "polygon",
        "circle",
        "tsvector",
        "tsquery",
        "jsonpath",
        "pg_lsn",
        "pg_snapshot",
        "int4range",
        "numrange",
        "tstzmultirange",
        "pair",
        "pair[]",
        "int4range[]",
        "box[]",
        "point[]",
    ];
    assert_eq!(opaque, expected);
}

/// Expressions over a number `n` whose text PostgreSQL writes, and whose text is made here.
const TEXTS: &[(&str, Wire)] = &[
    ("((random() - 0.5) * power(10, n % 40))::numeric", Wire::Numeric),
    ("round(power(10::numeric, n % 60 - 30) * (n - 400), n % 35)", Wire::Numeric),
    ("trunc(power(10::numeric, n % 9)) * (n % 10000)", Wire::Numeric),
    ("(time '00:00' + n * interval '1:01:01.010101')::timetz at time zone interval '-11:59' +
        n * interval '41 seconds'", Wire::TimeTz),
    ("set_masklen(inet '0.0.0.0' + (random() * 4294967295)::int8, n % 33)", Wire::Inet),
    ("set_masklen(inet '::' + (random() * 4294967295)::int8 * (n % 3), n % 129)", Wire::Inet),
    ("(select string_agg(case when random() < 0.5 then '0' else to_hex(n * 37 * g % 65536) end, ':')
        from generate_series(1, 8) g)::inet", Wire::Inet),
    ("network(set_masklen((select string_agg(case when random() < 0.7 then '0' else to_hex(g) end, ':')
        from generate_series(1, 8) g)::inet, n % 129))", Wire::Cidr),
    ("lpad(to_hex(n * 7919), 12, '0')::macaddr", Wire::MacAddr { bytes: 6 }),
    ("lpad(to_hex(n * 7919), 16, 'f')::macaddr8", Wire::MacAddr { bytes: 8 }),
    ("substring((n * 7919)::bit(31)::varbit from 1 for n % 31)", Wire::Bits),
    ("n::text", Wire::Text),
];

#[tokio::test]
async fn texts_made_here_are_those_postgresql_writes() {
    let Some((_server, client)) = connect("texts").await else { return };
    for (index, (expression, wire)) in TEXTS.iter().enumerate() {
        let create = format!(
            "create temporary table t{index} as select value, format('%s', value) as written
             from (select ({expression}) as value from generate_series(1, 800) n
                   offset 0) made"
        );
        client.batch_execute(&create).await.unwrap_or_else(|error| panic!("{create}: {error:?}"));
        let column = |name: &str, wire: &Wire| Column {
            name: name.into(),
            sql_type: String::new(),
            wire: wire.clone(),
            nullable: true,
        };
        let columns = [column("value", wire), column("written", &Wire::Text)];
        let mut decoder = Decoder::new(&columns);
        let original = copy_out(&client, &format!("t{index}")).await;
        original.iter().for_each(|piece| decoder.push(piece).unwrap());
        let (batch, hash) = decoder.finish().unwrap().unwrap();
        assert_eq!(batch.num_rows(), 800);
        assert_eq!(batch.column(0), batch.column(1), "{expression}");
        let encoder = Encoder::new(&batch.schema(), &columns).unwrap();
        assert_eq!(encoder.hash(&batch).unwrap(), hash, "{expression}");
    }
}

#[tokio::test]
async fn what_arrow_has_arrives() {
    let Some((_server, client)) = connect("arrow").await else { return };
    for (index, array) in forms().into_iter().enumerate() {
        let batch = batch(array);
        let columns = column::columns(&batch.schema()).unwrap();
        let sql = &columns[0].sql_type;
        client.batch_execute(&format!("create table t{index} (c {sql})")).await.unwrap();
        let encoder = Encoder::new(&batch.schema(), &columns).unwrap();
        let mut tuples = Vec::new();
        encoder.encode(&batch, 0..batch.num_rows(), &mut tuples).unwrap();
        copy_in(&client, &format!("t{index}"), &tuples).await;
        let stored = copy_out(&client, &format!("t{index}")).await.concat();
        assert_eq!(stored, [HEADER, &tuples, TRAILER].concat(), "{sql}");
    }
    let texts = [
        ("t11", "{1970-01-01,1970-01-02,1969-12-31}"),
        ("t12", "{00:00:00,00:00:01,23:59:59}"),
        ("t13", "{\"1970-01-01 00:00:00\",NULL,\"1969-12-31 23:59:59.999\"}"),
        (
            "t14",
            "{\"1970-01-01 00:00:00+00\",\"1970-01-01 00:00:00.000001+00\",\
                 \"1969-12-31 23:59:59.999999+00\"}",
        ),
        ("t15", "{00:00:00,00:00:01,-00:00:01}"),
    ];
    client.batch_execute("set timezone = 'UTC'").await.unwrap();
    for (table, expected) in texts {
        let query = format!("select array_agg(c)::text from {table}");
        let row = client.query_one(&query, &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), expected, "{table}");
    }
}

#[tokio::test]
async fn an_array_that_lost_its_null_is_read_and_written_without_the_flag() {
    let Some((_server, client)) = connect("flags").await else { return };
    let setup =
        "create table t (c int4[]); insert into t values ('{1,null}'); update t set c[2] = 2;
        create table copied (like t)";
    client.batch_execute(setup).await.unwrap();
    let columns = columns(&client, "t").await;
    let original = copy_out(&client, "t").await.concat();
    let mut decoder = Decoder::new(&columns);
    decoder.push(&original).unwrap();
    let (batch, _) = decoder.finish().unwrap().unwrap();
    let mut tuples = Vec::new();
    let encoder = Encoder::new(&batch.schema(), &columns).unwrap();
    encoder.encode(&batch, 0..1, &mut tuples).unwrap();
    copy_in(&client, "copied", &tuples).await;
    let copied = copy_out(&client, "copied").await.concat();
    assert_eq!(copied, [HEADER, &tuples, TRAILER].concat(), "as the server writes it itself");
    assert_ne!(copied, original, "the flag of the original is stale");
}

#[tokio::test]
async fn decimals_of_a_server_are_its_texts_and_come_back_the_same() {
    let Some((_server, client)) = connect("decimals").await else { return };
    for (precision, scale) in
        [(4, 2), (15, 2), (18, 0), (19, 18), (38, 9), (38, 38), (60, 30), (76, 1)]
    {
        let table = format!("t{precision}_{scale}");
        let random = format!(
            "create table {table} as
             select value, value::text written from (
                 select (case when n % 3 = 0 then -1 else 1 end * trunc(
                     (select string_agg(floor(random() * 10 + g * 0)::text, '')
                         from generate_series(1, 1 + n % {precision}) g where n > 0)::numeric
                 ) / power(10::numeric, {scale}))::numeric({precision}, {scale}) as value
                 from generate_series(1, 500) n offset 0
             ) made"
        );
        client.batch_execute(&random).await.unwrap_or_else(|error| panic!("{random}: {error:?}"));
        let columns = columns(&client, &table).await;
        assert_eq!(columns[0].wire, Wire::Decimal { precision, scale });
        let original = copy_out(&client, &table).await;
        let mut decoder = Decoder::new(&columns);
        original.iter().for_each(|piece| decoder.push(piece).unwrap());
        let (batch, hash) = decoder.finish().unwrap().unwrap();
        let written = cast(batch.column(0), &DataType::Utf8).unwrap();
        assert_eq!(written.as_ref(), batch.column(1).as_ref(), "{table}");
        let encoder = Encoder::new(&batch.schema(), &columns).unwrap();
        assert_eq!(encoder.hash(&batch).unwrap(), hash, "{table}");
    }
}
