//! A value is stored exactly or not at all.

use std::borrow::Cow;

use forebay_sink::column::Fit;
use forebay_sink::{ColumnType, Value};
use proptest::prelude::*;

/// JSON numbers as RFC 8259 writes them, near the limits of everything more often than not.
fn number() -> impl Strategy<Value = String> {
    let edge = prop::sample::select(vec![
        "0",
        "-0",
        "1",
        "-1",
        "9007199254740992",
        "9007199254740993",
        "-9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "1e400",
        "-1e400",
        "1e-400",
        "0e-400",
        "1.7976931348623157e308",
        "5e-324",
        "1.0",
        "1e2",
        "0.1",
        "170141183460469231731687303715884105728",
    ]);
    prop_oneof![
        edge.prop_map(str::to_owned),
        "-?(0|[1-9][0-9]{0,22})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_filter("finite", |it| it.is_finite()).prop_map(|it| format!("{it:?}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_number_is_kept_exactly_or_not_at_all(text in number()) {
        let value = Value::Number(&text);
        for ty in [ColumnType::Decimal, ColumnType::Json] {
            prop_assert_eq!(ty.fit(value), Fit::Text(Cow::Borrowed(text.as_str())));
        }
        for ty in [ColumnType::Boolean, ColumnType::Text, ColumnType::Bytes] {
            prop_assert_eq!(ty.fit(value), Fit::Conflict);
        }
        let whole = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
        match ColumnType::Integer.fit(value) {
            Fit::Integer(0) if text == "-0" => {}
            Fit::Integer(number) => prop_assert_eq!(number.to_string(), &*text),
            Fit::Conflict => prop_assert!(!whole || text.parse::<i64>().is_err()),
            other => prop_assert!(false, "{:?}", other),
        }
        match ColumnType::Real.fit(value) {
            Fit::Real(number) if whole => {
                // Printed in full, a double that is whole shows each of its digits.
                prop_assert_eq!(format!("{number:.0}"), &*text);
            }
            Fit::Real(number) => {
                prop_assert_eq!(Ok(number), text.parse());
                let zero = text.split(['e', 'E']).next().is_none_or(|it| !it.contains(['1', '2', '3', '4', '5', '6', '7', '8', '9']));
                prop_assert!(number.is_finite() && (number != 0.0 || zero));
            }
            Fit::Conflict => {}
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn a_binary_integer_is_a_double_only_when_it_is_one(number in any::<i64>()) {
        let printed = number.to_string();
        let expected = ColumnType::Real.fit(Value::Number(&printed));
        prop_assert_eq!(ColumnType::Real.fit(Value::Integer(number)), expected);
    }
}

#[test]
fn null_fits_everywhere_and_nothing_else_does() {
    for ty in ColumnType::ALL {
        assert_eq!(ty.fit(Value::Null), Fit::Null);
        assert_eq!(ColumnType::from_name(ty.name()), Some(ty));
    }
    assert_eq!(ColumnType::from_name("varchar"), None);
    let fits = |value| ColumnType::ALL.iter().filter(|ty| ty.fit(value) != Fit::Conflict).count();
    assert_eq!(fits(Value::Boolean(true)), 2, "boolean, json");
    assert_eq!(fits(Value::Text("x")), 2, "text, json");
    assert_eq!(fits(Value::Bytes(b"x")), 1, "bytes");
    assert_eq!(fits(Value::Json("[]")), 1, "json");
    assert_eq!(fits(Value::Real(f64::NAN)), 0);
    assert_eq!(fits(Value::Real(f64::INFINITY)), 0);
}

#[test]
fn text_in_a_json_column_is_a_json_string() {
    let fit = ColumnType::Json.fit(Value::Text("say \"hi\"\n"));
    assert_eq!(fit, Fit::Text(Cow::Borrowed(r#""say \"hi\"\n""#)));
}
