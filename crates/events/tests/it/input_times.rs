//! Which of several times in a record is the event's: none that a client or a local user chooses, where
//! the server or the logger states one.

use forebay_events::input::{Encoding, Format, Mapping, Parser};

use super::input::NOW_MS;
use super::input_products::described;

/// The source and time of a record under `auto`.
fn time(line: &str) -> String {
    described(&Parser::at(Format::Auto, NOW_MS).parse(line.as_bytes()).unwrap().unwrap())
}

/// The same with the time in a field that the operator names.
fn time_with_field(line: &str, field: &str) -> String {
    let mapping = Mapping { time_field: Some(field.to_owned()), ..Mapping::default() };
    let mut parser = Parser::at(Format::Auto, NOW_MS).with_mapping(mapping);
    described(&parser.parse(line.as_bytes()).unwrap().unwrap())
}

#[test]
fn a_name_in_an_access_log_does_not_choose_the_time() {
    let expected = "event 2023-10-10T11:55:36Z";
    let long = "x".repeat(2_000);
    for name in [
        "bob",
        "bob [01/Jan/2001:00:00:00 +0000]",
        "[01/Jan/2001:00:00:00 +0000] bob",
        "[01/Jan/2001:00:00:00 +0000] [bob",
        "[x",
        &format!("[01/Jan/2001:00:00:00 +0000] {long}"),
    ] {
        let line =
            format!("192.0.2.4 - {name} [10/Oct/2023:13:55:36 +0200] \"GET / HTTP/1.0\" 401 1");
        assert_eq!(time(&line), expected, "{name:.60}");
    }
    // What follows the time chooses nothing either.
    let line =
        "192.0.2.4 - - [10/Oct/2023:13:55:36 +0200] \"GET / [01/Jan/2001:00:00:00 +0000] \" 400 1";
    assert_eq!(time(line), expected);
}

#[test]
fn the_time_of_splunks_envelope_precedes_those_in_its_event() {
    let line = r#"{"time":1696946136,"host":"h1","event":{"time":"2020-01-01T00:00:00Z","a":1}}"#;
    assert_eq!(time(line), "event 2023-10-10T13:55:36Z");
    let text = r#"{"time":"1696946136.5","sourcetype":"x","event":{"ts":"2020-01-01T00:00:00Z"}}"#;
    assert_eq!(time(text), "event 2023-10-10T13:55:36.5Z");
    assert_eq!(time_with_field(line, "event.time"), "event 2020-01-01T00:00:00Z");
    // A record that is no such envelope, and one without its time.
    let other = r#"{"time":1696946136,"id":7,"event":{"time":"2020-01-01T00:00:00Z"}}"#;
    assert_eq!(time(other), "event 2020-01-01T00:00:00Z");
    let untimed = r#"{"host":"h1","event":{"time":"2020-01-01T00:00:00Z"}}"#;
    assert_eq!(time(untimed), "event 2020-01-01T00:00:00Z");
}

#[test]
fn a_message_does_not_replace_a_complete_header_s_time_of_another_day() {
    let expected = "event 2023-10-10T13:55:36Z";
    for message in [
        "2020-01-01T00:00:00Z hello",
        // One that is near is only mentioned.
        "2023-10-10T13:50:00Z hello",
        r#"{"timestamp":"2023-10-09T13:55:35Z"}"#,
        "type=X msg=audit(1577836800.123:1): x",
        r#"{"timestamp":"2020-01-01T00:00:00Z"}"#,
        "time=2020-01-01T00:00:00Z level=info",
        "192.0.2.4 - - [01/Jan/2020:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5",
    ] {
        for header in [
            "<34>1 2023-10-10T13:55:36Z host app - - -",
            "<34>1 2023-10-10T15:55:36+02:00 host app 7 - [a@1 b=\"c\"]",
            "<34>2023-10-10T13:55:36Z host app[1]:",
            "<34>Oct 10 2023 13:55:36 UTC host app[1]:",
            "2023-10-10T13:55:36Z host app[1]:",
        ] {
            let line = format!("{header} {message}");
            assert_eq!(time(&line), expected, "{line}");
        }
    }
    // A whole event has the time when it happened; a relay may have received it later.
    let line =
        r#"<34>1 2023-10-10T13:55:36Z host app - - - {"timestamp":"2023-10-10T13:50:00.5Z"}"#;
    assert_eq!(time(line), "event 2023-10-10T13:50:00.5Z");
}

#[test]
fn a_message_replaces_the_time_of_an_incomplete_header_within_a_day() {
    let json = |time: &str| format!(r#"{{"timestamp":"{time}"}}"#);
    let near = "event 2023-10-10T13:50:00.5Z";
    let own = "assumed 2023-10-10T13:55:36Z";
    for (header, has_year) in [
        ("<34>Oct 10 13:55:36 host app:", false),
        ("<34>Oct 10 2023 13:55:36 host app:", true),
        ("<34>1 2023-10-10T13:55:36 host app - - -", true),
        ("Oct 10 13:55:36 host app:", false),
    ] {
        // The day of another year is near only for a header without one.
        let other_year = if has_year { own } else { "event 2020-10-10T13:50:00.5Z" };
        for (message, expected) in [
            (json("2023-10-10T13:50:00.5Z"), near),
            ("2023-10-10T13:50:00.5Z hello".to_owned(), near),
            (json("2023-10-13T13:55:37Z"), own),
            (json("2020-01-01T00:00:00Z"), own),
            (json("2020-10-10T13:50:00.5Z"), other_year),
            ("2020-01-01T00:00:00Z hello".to_owned(), own),
            ("type=X msg=audit(1577836800.123:1): x".to_owned(), own),
        ] {
            assert_eq!(time(&format!("{header} {message}")), expected, "{header} {message}");
        }
    }
    // An offset without a year.
    let line = r#"<34>Oct 10 13:55:36 UTC host app: {"timestamp":"2023-10-10T13:50:00.5Z"}"#;
    assert_eq!(time(line), near);
}

#[test]
fn the_operator_may_name_the_field_of_a_message_that_has_the_time() {
    for line in [
        r#"<34>1 2023-10-10T13:55:36Z host app - - - {"seen":"2020-01-01T00:00:00Z"}"#,
        r#"2023-10-10T13:55:36Z host app[1]: {"seen":"2020-01-01T00:00:00Z"}"#,
        "<34>1 2023-10-10T13:55:36Z host app - - - level=info seen=2020-01-01T00:00:00Z",
    ] {
        assert_eq!(time(line), "event 2023-10-10T13:55:36Z", "{line}");
        assert_eq!(time_with_field(line, "seen"), "event 2020-01-01T00:00:00Z", "{line}");
    }
}

#[test]
fn text_in_utf_16_is_refused_and_not_cut_into_pieces() {
    for begin in [&b"\xff\xfe{\0"[..], b"\xfe\xff\0{"] {
        let error = Encoding::detect(begin).unwrap_err().to_string();
        assert!(error.contains("UTF-16") && error.contains("UTF-8"), "{error}");
    }
    assert!(Encoding::detect(b"\xef\xbb\xbf{}").unwrap().is_none());
}

#[test]
fn a_zone_beside_a_time_is_its_zone() {
    let known = [
        "[10-Oct-2023 13:55:36 Europe/Berlin] PHP Warning:  x",
        r#"{"timestamp":"2023-10-10 13:55:36","timezone":"Europe/Paris"}"#,
        r#"{"date":"2023-10-10","time":"13:55:36","tz":"Europe/Paris"}"#,
        r#"{"timestamp":"2023-10-10 13:55:36 Europe/Paris"}"#,
        "CEF:0|V|P|1|100|N|5|rt=Oct 10 2023 13:55:36 dtz=Europe/Paris",
        "CEF:0|V|P|1|100|N|5|dtz=+02:00 rt=Oct 10 2023 13:55:36",
    ];
    // Without the system's database of zones the time is not known.
    let found = match Mapping::zone("Europe/Paris") {
        Ok(_) => "event 2023-10-10T11:55:36Z",
        Err(_) => "received",
    };
    for line in known {
        let expected = if line.contains("dtz=+") { "event 2023-10-10T11:55:36Z" } else { found };
        assert_eq!(time(line), expected, "{line}");
    }
    for line in [
        "[10-Oct-2023 13:55:36 Europe/Atlantis] PHP Warning:  x",
        r#"{"timestamp":"2023-10-10 13:55:36","timezone":"Europe/Atlantis"}"#,
        "CEF:0|V|P|1|100|N|5|rt=Oct 10 2023 13:55:36 dtz=Europe/Atlantis",
    ] {
        assert_eq!(time(line), "received", "{line}");
    }
    // What is no zone changes nothing, and an offset in the time precedes it.
    let other = r#"{"timestamp":"2023-10-10 13:55:36","offset":12345}"#;
    assert_eq!(time(other), "assumed 2023-10-10T13:55:36Z");
    let zoned = r#"{"timestamp":"2023-10-10T13:55:36Z","timezone":"Europe/Paris"}"#;
    assert_eq!(time(zoned), "event 2023-10-10T13:55:36Z");
}

#[test]
fn a_local_time_that_exists_twice_or_never_is_assumed() {
    // Without the system's database of zones there is nothing to test.
    let Ok(zone) = Mapping::zone("Europe/Paris") else { return };
    let mapping = Mapping { zone: Some(zone), ..Mapping::default() };
    let local = |text: &str| {
        let mut parser = Parser::at(Format::Auto, NOW_MS).with_mapping(mapping.clone());
        let line = format!(r#"{{"timestamp":"{text}"}}"#);
        described(&parser.parse(line.as_bytes()).unwrap().unwrap())
    };
    for (text, expected) in [
        ("2022-10-30 01:59:59", "event 2022-10-29T23:59:59Z"),
        // The first of both: summer time.
        ("2022-10-30 02:00:00", "assumed 2022-10-30T00:00:00Z"),
        ("2022-10-30 02:59:59", "assumed 2022-10-30T00:59:59Z"),
        ("2022-10-30 03:00:00", "event 2022-10-30T02:00:00Z"),
        ("2022-03-27 01:59:59", "event 2022-03-27T00:59:59Z"),
        // As if the clock had not been set forward.
        ("2022-03-27 02:30:00", "assumed 2022-03-27T01:30:00Z"),
        ("2022-03-27 03:00:00", "event 2022-03-27T01:00:00Z"),
        ("2022-10-30T02:30:00+01:00", "event 2022-10-30T01:30:00Z"),
    ] {
        assert_eq!(local(text), expected, "{text}");
    }
}

#[test]
fn a_clock_that_was_never_set_has_no_time() {
    let line = "<189>45: *Mar  1 18:46:11.123: %SYS-5-CONFIG_I: Configured";
    assert_eq!(time(line), "received");
    let set = "<189>45: *Oct 10 2023 13:55:36.123: %SYS-5-CONFIG_I: Configured";
    assert_eq!(time(set), "assumed 2023-10-10T13:55:36.123Z");
}

#[test]
fn the_exact_value_of_powershell_precedes_its_local_time() {
    let line = r#"{"TimeCreated":{"value":"\/Date(1696946136123)\/","DateTime":"Tuesday, October 10, 2023 3:55:36 PM"},"Id":7}"#;
    assert_eq!(time(line), "event 2023-10-10T13:55:36.123Z");
}
