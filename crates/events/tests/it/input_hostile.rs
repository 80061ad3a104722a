//! Hostile records: truncated, nested, oversized, out of range, not text.

use forebay_events::event::Draft;
use forebay_events::input::sample::Samples;
use forebay_events::input::{Format, Parser, Reject};
use forebay_events::{Batch, EventId};
use proptest::prelude::*;

use super::input::{NOW_MS, describe};

fn parse(format: Format, line: &[u8]) -> Result<Option<Draft<'_>>, Reject> {
    Parser::at(format, NOW_MS).parse(line)
}

fn described(format: Format, line: &[u8]) -> String {
    describe(&parse(format, line).unwrap().unwrap())
}

#[test]
fn what_is_no_json_object_is_rejected_with_its_place() {
    let table: [(&[u8], &str); 12] = [
        (b"", "EOF while parsing a value at byte 0"),
        (b"[1]", "invalid type: sequence, expected an object at byte 0"),
        (b"\"a\"", "invalid type: string"),
        (br#"{"type":"a""#, "EOF while parsing an object at byte 11"),
        (br#"{"type":"a"} {"#, "trailing characters at byte 14"),
        (br#"{"type":}"#, "expected value at byte 9"),
        (br#"{"x":[1,}"#, "expected value at byte 9"),
        (br#"{"x":01}"#, "invalid number at byte 7"),
        (br#"{"x":tru}"#, "expected ident at byte 9"),
        (b"{\"x\":\"a\nb\"}", "control character"),
        (b"{\"x\":\"a\x00b\"}", "control character"),
        (b"{\"x\":\"\xff\"}", "invalid UTF-8 at byte 7"),
    ];
    for format in [Format::Ndjson, Format::Ocsf, Format::Suricata] {
        for (line, reason) in table {
            let found = parse(format, line).unwrap_err().to_string();
            assert!(found.contains(reason), "{found:?} for {:?}", String::from_utf8_lossy(line));
        }
    }
}

#[test]
fn deep_nesting_is_read_without_recursion() {
    let deep = |open: &str, inner: &str, close: &str| {
        format!(r#"{{"x":{}{inner}{},"type":"t"}}"#, open.repeat(10_000), close.repeat(10_000))
    };
    assert!(described(Format::Auto, deep("[", "", "]").as_bytes()).starts_with("ndjson t|"));
    let objects = deep(r#"{"host":"#, "1", "}");
    assert!(described(Format::Auto, objects.as_bytes()).starts_with("ndjson t|"));
    // Also below a key that is looked at.
    let host = objects.replacen("\"x\"", "\"host\"", 1);
    assert!(described(Format::Auto, host.as_bytes()).starts_with("ndjson t|-|"));
    assert!(parse(Format::Auto, "[".repeat(10_000).as_bytes()).is_ok());
    assert!(parse(Format::Auto, "{\"a\":".repeat(10_000).as_bytes()).is_err());
}

#[test]
fn what_is_too_large_for_a_field_stays_in_the_raw_bytes() {
    let long = "k".repeat(10 * 1024 * 1024);
    let line = format!(r#"{{"{long}":1,"type":"t","host":"{long}"}}"#);
    let draft = parse(Format::Ndjson, line.as_bytes()).unwrap().unwrap();
    assert_eq!((&*draft.kind, &*draft.host, draft.raw.len()), ("t", "", line.len()));
    let fits = "h".repeat(255);
    let line = format!(r#"{{"host":"{fits}","type":"{fits}x"}}"#);
    assert!(described(Format::Ndjson, line.as_bytes()).starts_with(&format!("ndjson -|{fits}|")));
    // Two bytes a letter: 128 of them are too many.
    let line = format!("<13>1 - {} app - - -", "\u{e9}".repeat(128));
    assert!(described(Format::Syslog, line.as_bytes()).starts_with("syslog app|-|"));
    let line = format!("CEF:0|v|{long}|1|{long}|name|5|dvchost={long}");
    assert!(described(Format::Cef, line.as_bytes()).starts_with("cef name|-|-|v medium"));
}

#[test]
fn no_record_costs_more_than_its_length() {
    // If any of these took time quadratic in its length, this would take minutes.
    let heads = [
        "",
        "{\"a\":",
        "CEF:0|v|p|1|id|n|5|a=",
        "LEEF:2.0|v|p|1|id|^|",
        "<13>1 - h a - - [a ",
        "<13>",
        "#fields\t",
        "#Fields: ",
        "<Event><System>",
        "{\"Records\":[",
        "1,2024/03/01 12:00:00,",
        "a=b ",
    ];
    let parts = [
        "=",
        "\\=",
        " =",
        "a=",
        " a=",
        " src=",
        "a",
        " ",
        "EF:",
        " CEF:",
        "|",
        "\t",
        "[",
        "{\"host\":",
        "\"",
        "\\",
        "]",
        "1",
        ":",
    ];
    for head in heads {
        for part in parts {
            let line = format!("{head}{}", part.repeat(300_000 / part.len()));
            for format in Format::ALL {
                take(&mut Parser::at(format, NOW_MS), line.as_bytes());
            }
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_kept_where_the_format_allows() {
    let line = b"<13>Mar  1 11:00:00 h\xff app: \x00\xfe";
    assert_eq!(described(Format::Syslog, line), "syslog app|-|-|- low 2024-03-01T11:00:00Z");
    let line = b"<13>1 - h a\xff - id\x01 - \xff\x00";
    assert_eq!(described(Format::Syslog, line), "syslog -|h|-|- low -");
    assert_eq!(described(Format::Raw, b"\xff\x00"), "raw -|-|-|- unknown -");
    assert_eq!(described(Format::Auto, b"\x00\xff{"), "raw -|-|-|- unknown -");
    let line = b"CEF:0|v|p\xff|1|id|n|5|src=1.2.3.4 msg=\xff dvchost=h\x00";
    assert_eq!(described(Format::Cef, line), "cef id|-|1.2.3.4|v medium -");
}

#[test]
fn times_and_numbers_out_of_range_are_left_out() {
    let times = [
        "1e400",
        "-1e400",
        "1e19",
        "9223372036854775808",
        "99999999999999999999999999999999",
        "\"9999999-01-01T00:00:00Z\"",
        "\"9999-01-01T00:00:00Z\"",
        "\"1600-01-01T00:00:00Z\"",
        "\"2023-02-29T00:00:00Z\"",
        "\"2024-13-01T00:00:00Z\"",
        "\"2024-00-01T00:00:00Z\"",
        "\"2024-01-01T24:00:00Z\"",
        "\"2024-01-01T00:00:00+24:00\"",
        "\"2024-01-01T00:00:00Zulu\"",
        "\"2024-01-01T00:00:00.\"",
        "\"2024-01-01T\"",
        "\"\"",
        "\"-\"",
        "\"1.2.3\"",
        // No log has these: the source knows no time.
        "0",
        "-0.5",
        "1.5",
        "-1500044400",
        "4102444800",
        "\"1970-01-01T00:00:00Z\"",
        "\"0001-01-01T00:00:00Z\"",
        "\"1601-01-01T00:00:00Z\"",
        "\"2100-01-01T00:00:00Z\"",
        // A day is not a time, and a date may be read in two ways.
        "\"2017-07-14\"",
        "\"10/11/2023 14:32:52\"",
        "\"10/11/2023 02:32:52 PM\"",
        "\"10/11/23 14:32:52\"",
        "\"14:32:52\"",
        // Zones of more than one meaning.
        "\"2023-10-11 14:32:52 IST\"",
        "\"Wed Oct 11 14:32:52 CST 2023\"",
        "\"0x10\"",
        "true",
        "[1]",
        "{\"a\":1}",
    ];
    for time in times {
        let line = format!(r#"{{"timestamp":{time},"type":"t"}}"#);
        assert_eq!(described(Format::Ndjson, line.as_bytes()), "ndjson t|-|-|- unknown -");
    }
    let lines = [
        r#"{"class_uid":1,"severity_id":7}"#,
        r#"{"class_uid":1,"severity_id":256}"#,
        r#"{"class_uid":1,"severity_id":-1}"#,
        r#"{"class_uid":1,"severity_id":1e1}"#,
    ];
    for line in lines {
        assert_eq!(described(Format::Auto, line.as_bytes()), "ocsf 1|-|-|- unknown -");
    }
}

#[test]
fn times_are_exact_to_the_nanosecond() {
    let times = [
        ("1500044400.123456789", 1_500_044_400_123_456_789),
        ("1500044400.1234567899999", 1_500_044_400_123_456_789),
        ("1.5000444001e9", 1_500_044_400_100_000_000),
        ("15000444001E-1", 1_500_044_400_100_000_000),
        ("1500044400123", 1_500_044_400_123_000_000),
        ("1500044400123.4567", 1_500_044_400_123_456_700),
        ("1500044400123456", 1_500_044_400_123_456_000),
        ("1500044400123456789", 1_500_044_400_123_456_789),
        ("\"2099-12-31T23:59:59.999999999Z\"", 4_102_444_799_999_999_999),
        ("\"1980-01-01T00:00:00Z\"", 315_532_800_000_000_000),
        // Windows and .NET.
        ("131445180001234567", 1_500_044_400_123_456_700),
        ("636356412001234567", 1_500_044_400_123_456_700),
        ("\"2016-12-31T23:59:60Z\"", 1_483_228_800_000_000_000),
        ("\"2017-07-14 17:00:00,5 +02\"", 1_500_044_400_500_000_000),
        ("\"Jul 14 2017 15:00:00.25 GMT\"", 1_500_044_400_250_000_000),
    ];
    for (time, expected) in times {
        let line = format!(r#"{{"timestamp":{time}}}"#);
        let draft = parse(Format::Ndjson, line.as_bytes()).unwrap().unwrap();
        assert_eq!(draft.timestamp_ns, Some(expected), "{time}");
    }
}

#[test]
fn samples_are_what_they_say_and_the_same_for_a_seed() {
    let now = 1_600_000_000_000_000_000;
    for wanted in Format::ALL {
        let (mut samples, mut again) = (Samples::new(wanted, 7), Samples::new(wanted, 7));
        let mut parser = Parser::at(Format::Auto, NOW_MS);
        let mut batch = Batch::new("sample");
        let mut last = 0;
        for _ in 0..500 {
            let mut line = Vec::new();
            let format = samples.next_into(&mut line);
            assert_eq!(line, again.next_line());
            let draft = parser.parse(&line).unwrap().unwrap();
            assert_eq!(draft.format, format.name(), "{}", String::from_utf8_lossy(&line));
            let plain = matches!(format, Format::Raw | Format::Text);
            assert!((format == Format::Raw) == draft.timestamp_ns.is_none());
            assert_eq!(draft.kind.is_empty(), plain, "{}", String::from_utf8_lossy(&line));
            let time = draft.timestamp_ns.unwrap_or(last);
            // Some formats write seconds only.
            assert!(time > last - 1_010_000_000, "times go up, about");
            last = time;
            batch.push(&draft, now).unwrap();
        }
        assert_ne!(Samples::new(wanted, 8).next_line(), Samples::new(wanted, 7).next_line());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_parser_panic(lines in prop::collection::vec(any::<Vec<u8>>(), 1..8)) {
        for format in Format::ALL {
            let mut parser = Parser::at(format, NOW_MS);
            for line in &lines {
                take(&mut parser, line);
            }
        }
    }

    #[test]
    fn no_mutation_of_a_record_makes_a_parser_panic_or_an_event_that_cannot_be_stored(
        seed: u64,
        kind in 0..Format::ALL.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 0..6),
    ) {
        let mut line = Samples::new(Format::ALL[kind], seed).next_line();
        for (place, byte, change) in changes {
            let place = place.index(line.len().max(1)).min(line.len());
            match change {
                0 => line.truncate(place),
                1 => line.insert(place, byte),
                2 if place < line.len() => line[place] = byte,
                _ => line.extend_from_within(place..),
            }
        }
        for format in Format::ALL {
            take(&mut Parser::at(format, NOW_MS), &line);
        }
    }

    #[test]
    fn fields_of_zeek_logs_never_panic(
        lines in prop::collection::vec("(#fields\t|#separator |#path\t|#unset_field\t)?[a-z.\t\\\\x0-9_-]{0,30}", 1..8),
    ) {
        let mut parser = Parser::at(Format::Zeek, NOW_MS);
        for line in &lines {
            take(&mut parser, line.as_bytes());
        }
    }

    #[test]
    fn times_agree_with_another_reader(seconds in 315_532_800i64..4_102_444_800, nanos in 0..1_000_000_000i32) {
        let time = jiff::Timestamp::new(seconds, nanos).unwrap();
        let line = format!(r#"{{"timestamp":"{time}"}}"#);
        let draft = parse(Format::Ndjson, line.as_bytes()).unwrap().unwrap();
        prop_assert_eq!(draft.timestamp_ns.map(i128::from), Some(time.as_nanosecond()));
    }

    #[test]
    fn json_is_taken_exactly_where_another_reader_takes_an_object(text in "[{}\\[\\]\",:a0-9eE.\\\\u -]{0,24}") {
        let line = format!("{{\"host\":{text}}}");
        let other = serde_json::from_str::<serde::de::IgnoredAny>(&line).is_ok();
        prop_assert_eq!(parse(Format::Ndjson, line.as_bytes()).is_ok(), other, "{}", line);
    }
}

/// Parses, and stores what came of it, also of an envelope.
fn take(parser: &mut Parser, line: &[u8]) {
    parser.parse_each(line, &mut |draft| {
        if let Ok(draft) = draft {
            Batch::new("s").push(&draft, 1).unwrap();
        }
    });
    if let Ok(Some(draft)) = parser.parse(line) {
        assert_eq!(&*draft.raw, line);
        let id = Batch::new("s").push(&draft, 1).unwrap();
        assert!(draft.id.is_none_or(|given| given == id) && id != EventId(0));
    }
}
