//! What is written is read back, and what is no value is refused.

use arrow::array::Array;
use arrow::datatypes::IntervalMonthDayNano;
use forebay_pgcopy::Wire;
use proptest::prelude::*;

use super::read::Builder;
use super::write::Cells;
use super::{time, types};

/// The values of a type by their texts, through an array and back, as text and as JSON.
fn check(type_name: &str, texts: &[(&str, &str, &str)]) {
    let column = types::column("x", type_name).unwrap();
    let mut builder = Builder::new(&column);
    for (given, ..) in texts {
        builder.text(given).unwrap_or_else(|wanted| panic!("{type_name} {given}: {wanted}"));
    }
    builder.null();
    let array = builder.finish();
    assert_eq!(*array.data_type(), column.wire.data_type());
    let cells = Cells::new(array.as_ref(), &column).unwrap();
    assert!(cells.is_null(texts.len()));
    let (mut from_text, mut from_json) = (Builder::new(&column), Builder::new(&column));
    for (row, (given, text, json)) in texts.iter().enumerate() {
        let mut out = Vec::new();
        cells.text(row, &mut out);
        assert_eq!(String::from_utf8(out.clone()).unwrap(), *text, "{type_name} {given} as text");
        from_text.text(text).unwrap();
        out.clear();
        cells.json(row, &mut out);
        assert_eq!(String::from_utf8(out.clone()).unwrap(), *json, "{type_name} {given} as JSON");
        from_json.json(json).unwrap();
    }
    from_text.null();
    from_json.null();
    assert_eq!(&array, &from_text.finish(), "{type_name} from text");
    assert_eq!(&array, &from_json.finish(), "{type_name} from JSON");
}

#[test]
fn every_type_is_read_back_as_it_was_written() {
    check("boolean", &[("t", "true", "true"), ("0", "false", "false")]);
    check("smallint", &[("-32768", "-32768", "-32768")]);
    check("bigint", &[("9223372036854775807", "9223372036854775807", "9223372036854775807")]);
    check("oid", &[("4294967295", "4294967295", "4294967295")]);
    check("real", &[("1.1", "1.1", "1.1"), ("NaN", "NaN", "\"NaN\""), ("1e-10", "1e-10", "1e-10")]);
    check("double precision", &[("0.1", "0.1", "0.1"), ("-inf", "-Infinity", "\"-Infinity\"")]);
    check("double precision", &[("-0", "-0.0", "-0.0"), ("1e300", "1e300", "1e300")]);
    check("numeric(6,2)", &[("-0.05", "-0.05", "-0.05"), ("1234.5", "1234.50", "1234.50")]);
    check("numeric(6,2)", &[("1.2e2", "120.00", "120.00"), ("0", "0.00", "0.00")]);
    check(
        "numeric(50,3)",
        &[(
            "-12345678901234567890123456789012345678901.5",
            "-12345678901234567890123456789012345678901.500",
            "-12345678901234567890123456789012345678901.500",
        )],
    );
    check("numeric", &[("1.10", "1.10", "1.10"), ("NaN", "NaN", "\"NaN\""), ("+01", "1", "1")]);
    check(
        "numeric",
        &[("1.5e3", "1500", "1500"), ("-15e-3", "-0.015", "-0.015"), ("-0", "0", "0")],
    );
    check(
        "text",
        &[("", "", "\"\""), ("a\"\\\n\u{1}ü", "a\"\\\n\u{1}ü", "\"a\\\"\\\\\\n\\u0001ü\"")],
    );
    check("json", &[("{\"a\": [1]}", "{\"a\": [1]}", "{\"a\": [1]}"), ("null", "null", "null")]);
    check("bytea", &[("AP8=", "AP8=", "\"AP8=\""), ("", "", "\"\"")]);
    let uuid = "0a1b2c3d-0000-4000-8000-00000000ffff";
    check("uuid", &[(uuid, uuid, &format!("\"{uuid}\""))]);
    check(
        "time",
        &[
            ("24:00", "24:00:00", "\"24:00:00\""),
            ("01:02:03.000004", "01:02:03.000004", "\"01:02:03.000004\""),
        ],
    );
    check("bigint[]", &[("[1,null,-3]", "[1,null,-3]", "[1,null,-3]"), ("[]", "[]", "[]")]);
    check("text[]", &[("[\"a,\\\"\",null]", "[\"a,\\\"\",null]", "[\"a,\\\"\",null]")]);
}

#[test]
fn times_beyond_four_digits_of_years_and_infinities_are_kept() {
    check(
        "date",
        &[
            ("2000-02-29", "2000-02-29", "\"2000-02-29\""),
            ("-4712-01-01", "-4712-01-01", "\"-4712-01-01\""),
            ("+294276-12-31", "+294276-12-31", "\"+294276-12-31\""),
            ("+5874897-12-31", "+5874897-12-31", "\"+5874897-12-31\""),
            ("infinity", "infinity", "\"infinity\""),
            ("-infinity", "-infinity", "\"-infinity\""),
        ],
    );
    check(
        "timestamptz",
        &[
            (
                "1970-01-01 02:00:00.5+02",
                "1970-01-01T00:00:00.500000Z",
                "\"1970-01-01T00:00:00.500000Z\"",
            ),
            (
                "1969-12-31T23:59:59.999999-00:30",
                "1970-01-01T00:29:59.999999Z",
                "\"1970-01-01T00:29:59.999999Z\"",
            ),
            ("-infinity", "-infinity", "\"-infinity\""),
        ],
    );
    check(
        "timestamp",
        &[("-0043-03-15T12:00:00", "-0043-03-15T12:00:00", "\"-0043-03-15T12:00:00\"")],
    );
    check(
        "interval",
        &[
            ("P1Y2M3W4DT5H6M7.5S", "P14M25DT18367.5S", "\"P14M25DT18367.5S\""),
            ("P-1M2DT-0.000001S", "P-1M2DT-0.000001S", "\"P-1M2DT-0.000001S\""),
            ("PT0S", "PT0S", "\"PT0S\""),
        ],
    );
}

#[test]
fn what_is_no_value_is_refused_and_said() {
    for (type_name, text) in [
        ("boolean", "yes"),
        ("smallint", "32768"),
        ("bigint", "1.0"),
        ("bigint", ""),
        ("numeric(4,2)", "123.00"),
        ("numeric(4,2)", "0.001"),
        ("numeric(4,2)", "1e99999"),
        ("numeric", "1e99999"),
        ("numeric", "."),
        ("numeric", "0x10"),
        ("date", "2001-02-29"),
        ("date", "01-02-03"),
        ("date", "+5881580-07-11"),
        ("date", "+9999999-01-01"),
        ("timestamp", "+5874897-12-31T00:00:00"),
        ("time", "25:00"),
        ("time", "01:02:03.0000001"),
        ("timestamp", "2020-01-01T00:00:00Z"),
        ("timestamptz", "2020-01-01T00:00:00"),
        ("timestamptz", "2020-01-01T00:00:00+2"),
        ("interval", "P"),
        ("interval", "PT1D"),
        ("interval", "P99999999999M"),
        ("uuid", "0a1b"),
        ("bytea", "AP8"),
        ("bigint[]", "[1,\"x\"]"),
        ("bigint[]", "1"),
    ] {
        let column = types::column("x", type_name).unwrap();
        let refused = Builder::new(&column).text(text);
        assert!(
            refused.is_err_and(|wanted| wanted.contains(" is not a valid ")),
            "{type_name} {text}"
        );
    }
    assert!(types::column("x", "numeric(10").is_none() && types::column("x", "blub").is_none());
    for (type_name, oid) in [
        ("text[]", Some(25)),
        ("json[]", Some(114)),
        ("char(3)[]", Some(1042)),
        ("varchar(10)[]", Some(1043)),
        ("numeric(5,2)[]", Some(1700)),
        ("inet[]", Some(869)),
        ("int[][]", None),
    ] {
        let element_oid = types::column("x", type_name).map(|column| match column.wire {
            Wire::Array { element_oid, .. } => element_oid,
            other => panic!("{type_name}: {other:?}"),
        });
        assert_eq!(element_oid, oid, "{type_name}");
    }
}

proptest! {
    #[test]
    fn any_time_is_read_back(days: i32, us: i64, time_us in 0..=86_400_000_000_i64, tz: bool) {
        let text = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            String::from_utf8(out).unwrap()
        };
        prop_assert_eq!(time::read_date(&text(&|out| time::write_date(days, out))), Some(days));
        prop_assert_eq!(
            time::read_timestamp(&text(&|out| time::write_timestamp(us, tz, out)), tz), Some(us));
        prop_assert_eq!(time::read_time(&text(&|out| time::write_time(time_us, out))), Some(time_us));
    }

    #[test]
    fn any_interval_is_read_back(months: i32, days: i32, nanoseconds: i64) {
        let interval = IntervalMonthDayNano { months, days, nanoseconds };
        let mut out = Vec::new();
        time::write_interval(interval, &mut out);
        prop_assert_eq!(time::read_interval(&String::from_utf8(out).unwrap()), Some(interval));
    }

    #[test]
    fn no_text_makes_a_panic(text in ".{0,40}") {
        for type_name in ["numeric", "numeric(5,-2)", "numeric(60,3)", "date", "timestamptz", "interval", "time", "int[]"] {
            if let Some(column) = types::column("x", type_name) {
                drop(Builder::new(&column).text(&text));
                drop(Builder::new(&column).json(&text));
            }
        }
    }
}
