//! Records of every format, and the event fields they fill.

use forebay_events::input::{Format, Parser};
use forebay_events::{Draft, EventId, TimeSource};

/// 2024-03-01 12:00:00 UTC, the current time for the parsers.
pub(crate) const NOW_MS: i64 = 1_709_294_400_000;

/// A draft in a line: `format kind|host|ip|collector severity time`, `-` for what is missing.
pub(crate) fn describe(draft: &Draft<'_>) -> String {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let time = draft.timestamp_ns.map_or("-".to_owned(), |time| {
        jiff::Timestamp::from_nanosecond(time.into()).unwrap().to_string()
    });
    format!(
        "{} {}|{}|{}|{} {} {time}",
        draft.format,
        or_dash(&draft.kind),
        or_dash(&draft.host),
        draft.ip.map_or("-".to_owned(), |ip| ip.to_string()),
        or_dash(&draft.collector),
        draft.severity.name(),
    )
}

/// The result of each line: a description, `none` or `reject: reason`.
fn read(parser: &mut Parser, line: &[u8]) -> String {
    match parser.parse(line) {
        Ok(Some(draft)) => {
            assert_eq!(&*draft.raw, line, "the raw bytes are the line's");
            // Rows of a table name their columns.
            let table = matches!(&*draft.format, "zeek" | "w3c");
            assert!((table || draft.attributes.is_empty()) && draft.stream.is_empty());
            assert_eq!(draft.timestamp_ns.is_some(), draft.time_source != TimeSource::Unknown);
            describe(&draft)
        }
        Ok(None) => "none".to_owned(),
        Err(reject) => format!("reject: {reject}"),
    }
}

/// Checks lines as their format and, with `auto`, as the detected format.
fn check(format: Format, auto: bool, table: &[(&str, &str)]) {
    for (line, expected) in table {
        let formats = [format, Format::Auto];
        for format in formats.iter().take(1 + usize::from(auto)) {
            let found = read(&mut Parser::at(*format, NOW_MS), line.as_bytes());
            assert_eq!(found, *expected, "as {format}: {line}");
        }
    }
}

#[test]
fn formats_have_names_and_content_types() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
    }
    assert_eq!("ZEEK".parse::<Format>().unwrap(), Format::Zeek);
    let error = "yaml".parse::<Format>().unwrap_err().to_string();
    assert!(error.contains("\"yaml\"") && error.contains("suricata"), "{error}");
    let types = [
        ("application/x-ndjson", Some(Format::Ndjson)),
        ("Application/JSONL; charset=utf-8", Some(Format::Ndjson)),
        ("text/x-zeek", Some(Format::Zeek)),
        ("application/x-suricata+json", Some(Format::Suricata)),
        ("application/vnd.ocsf+json", Some(Format::Ocsf)),
        ("text/x-cef;v=0", Some(Format::Cef)),
        ("application/x-leef", Some(Format::Leef)),
        ("text/x-syslog", Some(Format::Syslog)),
        ("text/plain", Some(Format::Auto)),
        ("application/octet-stream", Some(Format::Raw)),
        ("application/json", None),
        ("image/png", None),
        ("", None),
    ];
    for (content_type, format) in types {
        assert_eq!(Format::from_content_type(content_type), format, "{content_type}");
    }
}

#[test]
fn ndjson_is_mapped_by_customary_names() {
    check(
        Format::Ndjson,
        true,
        &[
            (
                r#"{"timestamp":"2024-02-29T23:59:59.5+02:00","type":"login","host":"web-1","src_ip":"10.0.0.9","level":"warn","logger":"auth"}"#,
                "ndjson login|web-1|10.0.0.9|auth medium 2024-02-29T21:59:59.5Z",
            ),
            (
                r#" { "@timestamp" : 1709294400.123456789 , "event" : { "kind" : "alert", "id": 7 } , "host" : { "name" : "db-2" , "ip" : ["10.1.1.1"] }, "log":{"level":"error"}, "source":{"ip":"2001:db8::1"}, "agent":{"type":"filebeat"} } "#,
                "ndjson alert|db-2|2001:db8::1|filebeat high 2024-03-01T12:00:00.123456789Z",
            ),
            (
                r#"{"time":1709294400123,"@type":"a\u00e9\"b","hostname":"h","client_ip":"::ffff:10.2.3.4","severity":5}"#,
                "ndjson aé\"b|h|10.2.3.4|- critical 2024-03-01T12:00:00.123Z",
            ),
            (r#"{"level":50,"time":1709294400123456,"pid":4}"#, {
                "ndjson -|-|-|- high 2024-03-01T12:00:00.123456Z"
            }),
            (r#"{"ts":"1709294400123456789","event.kind":"k"}"#, {
                "ndjson k|-|-|- unknown 2024-03-01T12:00:00.123456789Z"
            }),
            (r"{}", "ndjson -|-|-|- unknown -"),
            // If the first value cannot be used, the next name is tried.
            (
                r#"{"timestamp":"soon","time":1500044400.5,"type":null,"kind":"k","ip":"?","src":"1.2.3.4"}"#,
                { "ndjson k|-|1.2.3.4|- unknown 2017-07-14T15:00:00.5Z" },
            ),
            // Of a repeated key the first counts.
            (r#"{"type":"a","type":"b"}"#, "ndjson a|-|-|- unknown -"),
            (r#"{"type":17,"severity":"nothing","level":"FATAL"}"#, { "ndjson 17|-|-|- fatal -" }),
            (r#"{"type":"a\nb","host":"\ud800"}"#, "ndjson -|-|-|- unknown -"),
        ],
    );
}

#[test]
fn ids_are_taken_where_they_are_ids() {
    let ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let uuid = "0191e4a8-7c3b-7c52-9b3d-0f2a6c1d4e5f";
    let lines = [
        (Format::Ndjson, format!(r#"{{"id":"{ulid}"}}"#), Some(ulid)),
        (Format::Ndjson, format!(r#"{{"id":12,"_id":"{uuid}"}}"#), Some(uuid)),
        (Format::Ndjson, format!(r#"{{"event":{{"id":"{uuid}"}}}}"#), Some(uuid)),
        (Format::Ndjson, format!(r#"{{"event_id":"{ulid}"}}"#), Some(ulid)),
        (Format::Ndjson, r#"{"id":"abc"}"#.to_owned(), None),
        (Format::Ocsf, format!(r#"{{"metadata":{{"uid":"{uuid}"}}}}"#), Some(uuid)),
        (Format::Ocsf, format!(r#"{{"id":"{ulid}"}}"#), None),
    ];
    for (format, line, expected) in lines {
        let draft = Parser::at(format, NOW_MS).parse(line.as_bytes()).unwrap().unwrap().id;
        assert_eq!(draft, expected.map(|id| id.parse::<EventId>().unwrap()), "{line}");
    }
}

#[test]
fn ocsf_is_mapped() {
    check(
        Format::Ocsf,
        true,
        &[
            (
                r#"{"class_uid":3002,"class_name":"Authentication","time":1709294400123,"severity_id":4,"metadata":{"version":"1.3.0","product":{"name":"Directory","vendor_name":"Example"}},"device":{"hostname":"dc-1","ip":"10.0.0.1"},"src_endpoint":{"ip":"10.0.0.77","port":4}}"#,
                "ocsf Authentication|dc-1|10.0.0.77|Directory high 2024-03-01T12:00:00.123Z",
            ),
            (
                r#"{"metadata":{"version":"1.1.0","product":{"vendor_name":"Example"}},"severity_id":99,"type_uid":400101,"device":{"ip":"10.0.0.1","name":"n"},"time":-1}"#,
                "ocsf 400101|n|10.0.0.1|Example other -",
            ),
            // Some producers write seconds, microseconds or text.
            (r#"{"class_uid":1001,"time":1709294400,"severity_id":1}"#, {
                "ocsf 1001|-|-|- informational 2024-03-01T12:00:00Z"
            }),
            (r#"{"class_uid":1001,"time":1709294400123456,"severity_id":1}"#, {
                "ocsf 1001|-|-|- informational 2024-03-01T12:00:00.123456Z"
            }),
            (r#"{"class_uid":1001,"time":0,"time_dt":"2024-03-01T12:00:00Z"}"#, {
                "ocsf 1001|-|-|- unknown 2024-03-01T12:00:00Z"
            }),
            (r#"{"class_uid":1001,"severity":"Medium","severity_id":42}"#, {
                "ocsf 1001|-|-|- medium -"
            }),
        ],
    );
}

#[test]
fn zeek_json_is_mapped() {
    check(
        Format::Zeek,
        true,
        &[
            (
                r#"{"_path":"conn","_system_name":"sensor-1","ts":1500044400.123456,"uid":"CHhAvVGS1DHFjwGM9","id.orig_h":"10.14.3.77","id.orig_p":49231,"id.resp_h":"93.184.216.34","proto":"tcp"}"#,
                "zeek conn|sensor-1|10.14.3.77|- unknown 2017-07-14T15:00:00.123456Z",
            ),
            // No float could hold these nanoseconds; `host` is what the client asked for.
            (
                r#"{"ts":1500044400.123456789,"uid":"C1","id.orig_h":"fe80::1","host":"example.test"}"#,
                "zeek -|-|fe80::1|- unknown 2017-07-14T15:00:00.123456789Z",
            ),
            (
                r#"{"_path":"notice","ts":"2017-07-14T15:00:00.000001Z","src":"10.1.1.1","id":{"resp_h":"10.9.9.9"},"proc":"worker-1"}"#,
                "zeek notice|-|10.1.1.1|worker-1 unknown 2017-07-14T15:00:00.000001Z",
            ),
        ],
    );
}

#[test]
fn zeek_tsv_is_mapped() {
    let log = [
        ("#separator \\x09", "none"),
        ("#set_separator\t,", "none"),
        ("#empty_field\t(empty)", "none"),
        ("#unset_field\t-", "none"),
        ("#path\tdns", "none"),
        ("#open\t2017-07-14-15-00-00", "none"),
        ("#fields\tts\tuid\tid.orig_h\tid.resp_h\tquery\tproc", "none"),
        ("#types\ttime\tstring\taddr\taddr\tstring\tstring", "none"),
        (
            "1500044400.000123\tC1\t10.0.0.1\t10.0.0.2\texample.test\tw\\x2d1",
            "zeek dns|-|10.0.0.1|w-1 unknown 2017-07-14T15:00:00.000123Z",
        ),
        ("-\tC2\t-\t10.0.0.2\t(empty)\t-", "zeek dns|-|10.0.0.2|- unknown -"),
        ("1500044400\tC3\t10.0.0.1", "reject: the row has 3 columns, but #fields names 6"),
        ("1500044400\tC4\t\t\t\t\t", "reject: the row has 7 columns, but #fields names 6"),
        ("soon\tC5\tnowhere\t\t\t", "zeek dns|-|-|- unknown -"),
        ("#close\t2017-07-14-16-00-00", "none"),
        // A second log after the first, as from `cat`.
        ("#separator ;", "none"),
        ("#path;conn", "none"),
        ("1;2", "reject: no #fields line precedes this row"),
        ("#fields;id.resp_h;ts;id.orig_h;_node_name", "none"),
        ("10.0.0.2;1.5;10.0.0.3;n1", "zeek conn|n1|10.0.0.3|- unknown 1970-01-01T00:00:01.5Z"),
    ];
    for format in [Format::Zeek, Format::Auto] {
        let mut parser = Parser::at(format, NOW_MS);
        for (line, expected) in log {
            if format == Format::Auto && line == "1;2" {
                continue;
            }
            assert_eq!(read(&mut parser, line.as_bytes()), expected, "as {format}: {line}");
        }
    }
    let found = read(&mut Parser::at(Format::Zeek, NOW_MS), b"#separator \\x0");
    assert!(found.starts_with("reject: #separator"), "{found}");
}

#[test]
fn suricata_is_mapped() {
    check(
        Format::Suricata,
        true,
        &[
            (
                r#"{"timestamp":"2017-07-14T15:00:00.123456+0000","flow_id":1327836194150542,"event_type":"alert","src_ip":"192.168.10.21","dest_ip":"203.0.113.9","alert":{"action":"allowed","signature":"X","severity":1},"host":"ids-1","sensor_name":"edge"}"#,
                "suricata alert|ids-1|192.168.10.21|edge high 2017-07-14T15:00:00.123456Z",
            ),
            (
                r#"{"timestamp":"2017-07-14T15:00:00.123456-0530","event_type":"stats","stats":{"uptime":8},"alert":{"severity":9}}"#,
                "suricata stats|-|-|- unknown 2017-07-14T20:30:00.123456Z",
            ),
            (
                r#"{"timestamp":"2017-07-14T15:00:00+0000","event_type":"dns","src_ip":"x","dest_ip":"10.0.0.1","alert":{"severity":3}}"#,
                "suricata dns|-|10.0.0.1|- low 2017-07-14T15:00:00Z",
            ),
        ],
    );
}

#[test]
fn cef_is_mapped() {
    check(
        Format::Cef,
        true,
        &[
            (
                "CEF:0|Example|Gateway|7.2|100|Traffic accept|7|rt=1709294400123 src=10.1.1.1 dst=10.2.2.2 msg=a b=c dvchost=fw-1 cs1Label=rule name",
                "cef 100|fw-1|10.1.1.1|Gateway high 2024-03-01T12:00:00.123Z",
            ),
            (
                "CEF:0|Ex\\|ample||1|a\\|b\\\\c|name|Very-High|msg=no src\\=9.9.9.9 here dst=10.2.2.2 end=Mar 01 2024 12:00:00.250 UTC shost=s\\=1",
                "cef a|b\\c|s=1|10.2.2.2|Ex|ample critical 2024-03-01T12:00:00.25Z",
            ),
            (
                "<134>Feb 29 08:00:00 gw-3 CEF:0|Example|Gateway|7.2||Login|3|c6a2=2001:db8::5 start=Feb 28 23:00:00",
                "cef Login|gw-3|2001:db8::5|Gateway low 2024-02-28T23:00:00Z",
            ),
            (
                "<134>1 2024-02-29T08:00:00.5Z gw-4 cefd - - - CEF:1|Example|Gateway|7.2|5|Login|10|",
                "cef 5|gw-4|-|Gateway critical 2024-02-29T08:00:00.5Z",
            ),
            ("Feb 29 08:00:00 gw-5 CEF:0|Example|Gateway|7.2|5|Login|11", {
                "cef 5|gw-5|-|Gateway unknown 2024-02-29T08:00:00Z"
            }),
            ("CEF:0|Example|Gateway|7.2|5", "reject: a CEF header has 7 parts, not 5"),
        ],
    );
    check(
        Format::Cef,
        false,
        &[
            ("CEF:x|a|b|c|d|e|5|", "reject: CEF: must be followed by a version number"),
            ("LEEF:1.0|a|b|c|d|", "reject: no CEF: at the start or after a syslog header"),
        ],
    );
}

#[test]
fn leef_is_mapped() {
    check(
        Format::Leef,
        true,
        &[
            (
                "LEEF:1.0|Example|Proxy|3.1|RequestDenied|devTime=1709294400123\tsrc=10.1.1.1\tdst=10.2.2.2\tsev=8\tidentHostName=p-1\turl=a=b",
                "leef RequestDenied|p-1|10.1.1.1|Proxy high 2024-03-01T12:00:00.123Z",
            ),
            (
                "LEEF:2.0|Example|Proxy|3.1|Login|^|devTime=2024/03/01 01:00:00 PM +0100^devTimeFormat=yyyy/MM/dd hh:mm:ss a Z^src=10.1.1.1^sev=2",
                "leef Login|-|10.1.1.1|Proxy low 2024-03-01T12:00:00Z",
            ),
            (
                "LEEF:2.0|Example|Proxy|3.1|Login|x5E|devTime=Mar 01 2024 12:00:00^sev=10",
                "leef Login|-|-|Proxy critical 2024-03-01T12:00:00Z",
            ),
            (
                "LEEF:2.0|Example|Proxy|3.1|Login|devTime=2024-03-01T12:00:00.5Z\tsev=5",
                "leef Login|-|-|Proxy medium 2024-03-01T12:00:00.5Z",
            ),
            (
                "<13>Feb 29 08:00:00 p-2 LEEF:1.0||Proxy|3.1|Login|devTime=29 feb 2024 07.30.15.25\tdevTimeFormat=dd MMM yyyy HH.mm.ss.SSS",
                "leef Login|p-2|-|Proxy unknown 2024-02-29T07:30:15.25Z",
            ),
            ("LEEF:1.0|Example|Proxy", "reject: a LEEF header has 5 parts, not 3"),
            ("LEEF:2.0|Example|Proxy|3|Login|xyz|a=b", {
                "reject: the delimiter is neither a character nor xHH"
            }),
            ("LEEF:9.0|a|b|c|d|", "reject: LEEF: must be followed by version 1 or 2"),
        ],
    );
}

#[test]
fn syslog_of_rfc_5424_is_mapped() {
    check(
        Format::Syslog,
        true,
        &[
            (
                "<34>1 2003-10-11T22:14:15.003Z mymachine.example.test su - ID47 - \u{feff}'su root' failed",
                "syslog su|mymachine.example.test|-|- critical 2003-10-11T22:14:15.003Z",
            ),
            (
                "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 - 8710 ID48 [a@1 x=\"]\\\"\" y=\"\"][b z=\"\\]\"] text",
                "syslog ID48|192.0.2.1|192.0.2.1|- low 2003-08-24T12:14:15.000003Z",
            ),
            ("<191>1 - - - - - -", "syslog -|-|-|- informational -"),
            ("<0>1 9999999-01-01T00:00:00Z h a - - [x]", "syslog a|h|-|- fatal -"),
            ("<34>1 2003-10-11T22:14:15.003Z host", "reject: the header ends at its HOSTNAME"),
            ("<34>1 - h a - - [x y=\"1\"", {
                "reject: STRUCTURED-DATA is neither - nor complete elements in []"
            }),
        ],
    );
    check(
        Format::Syslog,
        false,
        &[("<192>1 - - - - - -", "reject: the priority at byte 1 must be <0> to <191>")],
    );
}

#[test]
fn syslog_of_rfc_3164_is_mapped() {
    check(
        Format::Syslog,
        true,
        &[
            ("<38>Feb 29 08:00:00 web-1 sshd[123]: Failed password", {
                "syslog sshd|web-1|-|- informational 2024-02-29T08:00:00Z"
            }),
            // Not yet this year: last year's. A day ahead may be a clock that is wrong.
            ("<35>Dec  5 08:00:00.25 web-1 cron: x", {
                "syslog cron|web-1|-|- high 2023-12-05T08:00:00.25Z"
            }),
            ("<36>Mar  2 11:00:00 web-1 cron: x", {
                "syslog cron|web-1|-|- medium 2024-03-02T11:00:00Z"
            }),
            ("<37>Mar  1 11:00:00 root: no host", "syslog root|-|-|- low 2024-03-01T11:00:00Z"),
            ("<37>2024-03-01T11:00:00.5+01:00 h app: x", {
                "syslog app|h|-|- low 2024-03-01T10:00:00.5Z"
            }),
            ("<189>*Mar  1 2024 10:00:00: %SYS-5-CONFIG_I: Configured", {
                "syslog %SYS-5-CONFIG_I|-|-|- low 2024-03-01T10:00:00Z"
            }),
            ("<166>Mar 01 2024 10:00:00 asa-1 : %ASA-6-302013: Built", {
                "syslog %ASA-6-302013|asa-1|-|- informational 2024-03-01T10:00:00Z"
            }),
            ("Mar  1 11:00:00 h systemd[1]: Started x.", {
                "syslog systemd|h|-|- unknown 2024-03-01T11:00:00Z"
            }),
            ("<13>no time: at all", "syslog -|-|-|- low -"),
            ("<13>app: text", "syslog app|-|-|- low -"),
        ],
    );
    check(Format::Syslog, false, &[("plain text", "syslog -|-|-|- unknown -")]);
}

#[test]
fn any_line_is_taken_raw() {
    check(
        Format::Raw,
        true,
        &[("hello", "raw -|-|-|- unknown -"), ("# a comment", "raw -|-|-|- unknown -")],
    );
    check(Format::Raw, false, &[(r#"{"type":"x"}"#, "raw -|-|-|- unknown -")]);
}

#[test]
fn a_file_may_mix_formats_and_plain_lines_stay_plain() {
    let mut parser = Parser::at(Format::Auto, NOW_MS);
    let lines: [(&[u8], &str); 7] = [
        (br#"{"type":"a"}"#, "ndjson a|-|-|- unknown -"),
        (br#"{"_path":"x"}"#, "zeek x|-|-|- unknown -"),
        (b"<13>app: text", "syslog app|-|-|- low -"),
        (b"CEF:0|a|b|c|d|e|5|", "cef d|-|-|b medium -"),
        (b"just text about CEF:0|x", "raw -|-|-|- unknown -"),
        (b"<tag>no priority</tag>", "raw -|-|-|- unknown -"),
        (br#"{"type":"a""#, "reject: not a JSON object: EOF while parsing an object at byte 11"),
    ];
    for (line, expected) in lines {
        assert_eq!(read(&mut parser, line), expected);
    }
    let mut parser = Parser::at(Format::Auto, NOW_MS);
    for line in ["plain", "{braces: yes}", "CEF:0|but no more", "<13>1 -"] {
        assert_eq!(read(&mut parser, line.as_bytes()), "raw -|-|-|- unknown -", "{line}");
    }
}
