//! Every type, and values that are refused.

use std::sync::Arc;

use forebay_sdk::connector::Source;
use mysql_async::prelude::Queryable as _;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::server::{Database, database, open, table, text};

/// The types of the columns of a table, as the destination gets them.
async fn types(source: &Arc<dyn Source>, name: &str) -> Vec<String> {
    let open = open(source, name).await.unwrap();
    open.columns().iter().map(|column| column.sql_type.clone()).collect()
}

#[tokio::test]
async fn numbers_arrive_exactly_at_their_limits() {
    let Some(database) = database() else { return };
    database.run(
        "CREATE TABLE n (t TINYINT, tu TINYINT UNSIGNED, s SMALLINT, su SMALLINT UNSIGNED, m MEDIUMINT, \
         i INT, iu INT UNSIGNED, b BIGINT, bu BIGINT UNSIGNED, d DECIMAL(65,30), z INT(5) ZEROFILL, \
         f FLOAT, e DOUBLE, y YEAR, o BOOLEAN); \
         INSERT INTO n VALUES (-128, 0, -32768, 0, -8388608, -2147483648, 0, -9223372036854775808, 0, \
         -99999999999999999999999999999999999.999999999999999999999999999999, 7, 0.1, 0.1, 1901, TRUE), \
         (127, 255, 32767, 65535, 8388607, 2147483647, 4294967295, 9223372036854775807, \
         18446744073709551615, 0.000000000000000000000000000001, 42, 3.4e38, \
         1.7976931348623157e308, 2155, FALSE), \
         (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    );
    let source = database.source(json!({}));
    let found = types(&source, "n").await;
    let expected = [
        "smallint",
        "smallint",
        "smallint",
        "integer",
        "integer",
        "integer",
        "bigint",
        "bigint",
        "numeric(20,0)",
        "numeric(65,30)",
        "bigint",
        "real",
        "double precision",
        "smallint",
        "smallint",
    ];
    assert_eq!(found, expected);
    let rows = table(&source, "n").await.unwrap();
    let line = |row: &Value| -> String {
        let row = row.as_object().unwrap();
        row.values().map(Value::to_string).collect::<Vec<_>>().join(" ")
    };
    let by_name = |row: usize, name: &str| rows[row][name].to_string().trim_matches('"').to_owned();
    for (name, low, high) in [
        ("t", "-128", "127"),
        ("tu", "0", "255"),
        ("su", "0", "65535"),
        ("iu", "0", "4294967295"),
        ("b", "-9223372036854775808", "9223372036854775807"),
        ("bu", "0", "18446744073709551615"),
        (
            "d",
            "-99999999999999999999999999999999999.999999999999999999999999999999",
            "0.000000000000000000000000000001",
        ),
        ("z", "7", "42"),
        ("y", "1901", "2155"),
        ("o", "1", "0"),
    ] {
        assert_eq!((&*by_name(0, name), &*by_name(1, name)), (low, high), "{name}");
    }
    assert_eq!(by_name(1, "f").parse::<f32>().unwrap(), 3.4e38);
    assert_eq!(by_name(1, "e").parse::<f64>().unwrap(), f64::MAX);
    assert_eq!(by_name(0, "f").parse::<f32>().unwrap(), 0.1);
    assert!(line(&rows[2]).split(' ').all(|value| value == "null"), "{}", rows[2]);
}

#[tokio::test]
async fn times_arrive_in_utc_whatever_the_zone_of_the_server() {
    let Some(database) = crate::server::own_database() else { return };
    database.run(
        "CREATE TABLE w (d DATE, dt DATETIME(6), ts TIMESTAMP(3) NULL, t TIME(6)); \
         SET time_zone = '+05:30'; \
         INSERT INTO w VALUES ('1000-01-01', '9999-12-31 23:59:59.999999', '2024-02-29 05:30:00.125', '838:59:59'), \
         ('9999-12-31', '1000-01-01', '1970-01-01 05:30:01', '-838:59:59'), (NULL, NULL, NULL, '00:00:00.000001'); \
         SET GLOBAL time_zone = '-07:00', GLOBAL sql_mode = 'ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH'",
    );
    let rows = table(&database.source(json!({})), "w").await.unwrap();
    let expected = json!([
        { "d": "1000-01-01", "dt": "9999-12-31T23:59:59.999999", "ts": "2024-02-29T00:00:00.125000Z", "t": "PT3020399S" },
        { "d": "9999-12-31", "dt": "1000-01-01T00:00:00", "ts": "1970-01-01T00:00:01Z", "t": "PT-3020399S" },
        { "d": null, "dt": null, "ts": null, "t": "PT0.000001S" },
    ]);
    assert_eq!(Value::Array(rows), expected);
}

#[tokio::test]
async fn texts_and_bytes_arrive_as_they_are_in_any_character_set() {
    let Some(database) = database() else { return };
    database.run(
        "SET sql_mode = ''; CREATE TABLE s (c CHAR(5), v VARCHAR(9) CHARACTER SET latin1, g TEXT CHARACTER SET gbk, \
         u MEDIUMTEXT CHARACTER SET utf16, e ENUM('a''b,c','ü'), x SET('p','q','r'), j JSON, b BINARY(3), \
         vb VARBINARY(9), bl LONGBLOB, bi BIT(10), p POINT, uu UUID, i4 INET4, i6 INET6); \
         INSERT INTO s VALUES ('ab  ', 'é€', '中文', '𝄞', 'ü', 'r,p', '{\"b\": [1.10], \"a\": null}', x'01', \
         x'00ff5c', x'', b'1000000001', ST_GeomFromText('POINT(1 2)'), \
         '123e4567-e89b-12d3-a456-426614174000', '10.0.0.1', 'fe80::1'), \
         ('', '', '', '', '', '', NULL, NULL, NULL, NULL, b'0', NULL, NULL, NULL, NULL)",
    );
    // An empty enumeration is how a value that is none is stored.
    let source = database.source(json!({}));
    let rows = table(&source, "s").await.unwrap();
    let expected = json!({
        "c": "ab", "v": "é€", "g": "中文", "u": "𝄞", "e": "ü", "x": "p,r", "j": "{\"b\": [1.10], \"a\": null}",
        "b": "AQAA", "vb": "AP9c", "bl": "", "bi": "1000000001",
        "p": "AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA==", "uu": "123e4567-e89b-12d3-a456-426614174000",
        "i4": "10.0.0.1", "i6": "fe80::1",
    });
    assert_eq!(rows[0], expected);
    assert_eq!(rows[1]["bi"], "0000000000");
    let found = types(&source, "s").await;
    let expected = [
        "character varying(5)",
        "character varying(9)",
        "text",
        "text",
        "text",
        "text",
        "text",
        "bytea",
        "bytea",
        "bytea",
        "bit(10)",
        "bytea",
        "uuid",
        "inet",
        "inet",
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn types_of_the_settings_replace_the_others_and_refuse_what_they_cannot_hold() {
    let Some(database) = database() else { return };
    database.run(
        "CREATE TABLE o (id INT PRIMARY KEY, paid TINYINT(1), at TIME, code CHAR(36), raw BINARY(16), j LONGTEXT); \
         INSERT INTO o VALUES (1, 1, '12:30:00', UPPER('123e4567-e89b-12d3-a456-426614174000'), \
         x'123e4567e89b12d3a456426614174000', '{\"a\":1}'), (2, 2, '-00:00:01', 'x', NULL, NULL)",
    );
    let types =
        json!({ "paid": "boolean", "at": "time", "code": "uuid", "raw": "uuid", "j": "jsonb" });
    let source = database.source(json!({ "types": { "o": types } }));
    database.run("CREATE VIEW first AS SELECT * FROM o WHERE id = 1");
    let uuid = "123e4567-e89b-12d3-a456-426614174000";
    let of_view = database.source(json!({ "types": { "first": types } }));
    let expected = json!({ "id": 1, "paid": true, "at": "12:30:00", "code": uuid, "raw": uuid, "j": { "a": 1 } });
    assert_eq!(table(&of_view, "first").await.unwrap(), [expected]);
    let error = text(table(&source, "o").await);
    assert_eq!(
        error,
        "o, row id=\"2\", column \"paid\": \"2\" is not a valid boolean; specify another type in `types`"
    );
    let wrong = database.source(json!({ "types": { "o": { "nothing": "boolean" } } }));
    assert!(text(open(&wrong, "o").await).contains("no column \"nothing\""));
}

#[tokio::test]
async fn a_date_that_does_not_exist_is_refused_by_its_place_or_read_as_null() {
    let Some(database) = database() else { return };
    database.run(
        "SET sql_mode = 'ALLOW_INVALID_DATES'; \
         CREATE TABLE z (a INT, b INT, d DATE NOT NULL, dt DATETIME, ts TIMESTAMP(6) NULL, PRIMARY KEY (a, b)); \
         INSERT INTO z VALUES (1, 2, '2024-02-29', '0000-00-00', NULL)",
    );
    let strict = database.source(json!({}));
    let error = text(table(&strict, "z").await);
    assert_eq!(
        error,
        "z, row a=\"1\" b=\"2\", column \"dt\": \"0000-00-00 00:00:00.000000\" does not exist; set `zero_dates: \
         null` to read it as NULL"
    );
    let lenient = database.source(json!({ "zero_dates": "null" }));
    for (column, date) in
        [("d", "0000-00-00"), ("d", "2023-02-31"), ("d", "2023-02-00"), ("ts", "0000-00-00")]
    {
        database.run(&format!(
            "SET sql_mode = 'ALLOW_INVALID_DATES'; UPDATE z SET dt = NULL, d = '2024-02-29', ts = NULL; \
             UPDATE z SET {column} = '{date}'"
        ));
        let error = text(table(&strict, "z").await);
        assert!(error.contains("does not exist") && error.contains(column), "{date}: {error}");
        let rows = table(&lenient, "z").await.unwrap();
        assert_eq!(rows[0][column], Value::Null, "{date}");
    }
    assert!(open(&lenient, "z").await.unwrap().columns()[2].nullable);
}

#[tokio::test]
async fn a_row_that_is_larger_than_a_quarter_of_the_memory_is_refused() {
    let Some(database) = database() else { return };
    database.run("CREATE TABLE l (id INT PRIMARY KEY, big LONGTEXT); INSERT INTO l VALUES (1, REPEAT('x', 3000000))");
    let source = database.source(json!({}));
    let error = text(table(&source, "l").await);
    assert!(
        error.contains("a row is larger than 2097152 bytes") && error.contains("max_memory"),
        "{error}"
    );
}

/// A value of every kind.
type Values = (i64, u64, String, Vec<u8>, f64, i128);

/// A table of values of every kind, which are inserted by the driver.
async fn refill(database: &Database, rows: &[Values]) {
    let mut client = database.client().await;
    client.query_drop("TRUNCATE p").await.unwrap();
    for (at, (int, uint, text, bytes, float, decimal)) in rows.iter().enumerate() {
        let sql = "INSERT INTO p VALUES (?, ?, ?, ?, ?, ?, ?)";
        let values = (at, int, uint, text, bytes, float, decimal.to_string());
        client.exec_drop(sql, values).await.unwrap();
    }
    client.disconnect().await.unwrap();
}

#[test]
fn any_values_arrive_as_they_were_inserted() {
    let Some(database) = database() else { return };
    database.run(
        "CREATE TABLE p (id INT PRIMARY KEY, i BIGINT, u BIGINT UNSIGNED, t LONGTEXT COLLATE utf8mb4_bin, \
         b LONGBLOB, f DOUBLE, d DECIMAL(39,0))",
    );
    let source = database.source(json!({}));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    let float = any::<f64>().prop_filter("a server has no other", |float| float.is_finite());
    let row = (any::<i64>(), any::<u64>(), any::<String>(), bytes, float, any::<i128>());
    let mut runner =
        TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    runner
        .run(&prop::collection::vec(row, 0..8), |rows| {
            let found = runtime.block_on(async {
                refill(&database, &rows).await;
                table(&source, "p").await.unwrap()
            });
            prop_assert_eq!(found.len(), rows.len());
            for (found, (int, uint, text, bytes, float, decimal)) in found.iter().zip(&rows) {
                let plain = |name: &str| found[name].to_string().trim_matches('"').to_owned();
                prop_assert_eq!(plain("i"), int.to_string());
                prop_assert_eq!(plain("u"), uint.to_string());
                prop_assert_eq!(found["t"].as_str(), Some(text.as_str()));
                prop_assert_eq!(plain("d"), decimal.to_string());
                prop_assert_eq!(plain("f").parse::<f64>().unwrap(), *float);
                let decoded = base64(found["b"].as_str().unwrap());
                prop_assert_eq!(&decoded, bytes);
            }
            Ok(())
        })
        .unwrap();
}

/// Decodes standard base64.
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter(|it| *it != b'=');
    let values: Vec<usize> =
        digits.map(|it| DIGITS.iter().position(|digit| *digit == it).unwrap()).collect();
    let mut bytes = Vec::new();
    for group in values.chunks(4) {
        let number =
            group.iter().fold(0, |number, value| number << 6 | value) << (6 * (4 - group.len()));
        bytes.extend(
            (0..group.len() - 1).map(|at| u8::try_from(number >> (16 - 8 * at) & 0xff).unwrap()),
        );
    }
    bytes
}
