//! Records that hold several events, and streams with lines that are none.

use forebay_events::input::{Format, Parser};

use super::input::{NOW_MS, describe};

/// Each event of the lines: a description, its raw bytes and attributes, or `reject: reason`.
fn events(format: Format, lines: &[&str]) -> Vec<(String, String, String)> {
    let mut parser = Parser::at(format, NOW_MS);
    let mut found = Vec::new();
    for line in lines {
        parser.parse_each(line.as_bytes(), &mut |draft| {
            found.push(match draft {
                Ok(draft) => {
                    let raw = String::from_utf8(draft.raw.to_vec()).unwrap();
                    let attributes = draft.attributes.iter().map(|(key, value)| match value {
                        forebay_events::Value::Text(text) => format!("{key}={text}"),
                        other => format!("{key}={other:?}"),
                    });
                    let attributes: Vec<String> = attributes.collect();
                    (describe(&draft), raw, attributes.join(" "))
                }
                Err(reject) => (format!("reject: {reject}"), String::new(), String::new()),
            });
        });
    }
    found
}

fn descriptions(lines: &[&str]) -> Vec<String> {
    events(Format::Auto, lines).into_iter().map(|(found, ..)| found).collect()
}

#[test]
fn a_bulk_body_is_its_documents() {
    let lines = [
        r#"{"index":{"_index":"logs","_id":"0191e4a8-7c3b-7c52-9b3d-0f2a6c1d4e5f"}}"#,
        r#"{"@timestamp":"2024-03-01T12:00:00Z","type":"a"}"#,
        r#"{ "create" : { } }"#,
        r#"{"index":{"_index":"a document that looks like an action"}}"#,
        r#"{"delete":{"_index":"logs","_id":"1"}}"#,
        r#"{"update":{"_index":"logs","_id":"1","retry_on_conflict":3}}"#,
        r#"{"doc":{"type":"changed"}}"#,
        r#"{"index":{"_id":7,"routing":"x","pipeline":"y"}}"#,
        r#"{"type":"b"}"#,
        r#"{"type":"no action precedes this"}"#,
    ];
    for format in [Format::Auto, Format::Ndjson] {
        let found = events(format, &lines);
        let texts: Vec<&str> = found.iter().map(|(text, ..)| text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "ndjson a|-|-|- unknown 2024-03-01T12:00:00Z",
                "ndjson -|-|-|- unknown -",
                "reject: events are never removed: the _bulk action delete is not supported",
                "reject: events are never changed: the _bulk action update is not supported",
                "ndjson b|-|-|- unknown -",
                "reject: an action line of a _bulk body is missing here",
            ]
        );
        assert_eq!(found[0].1, lines[1]);
        assert_eq!(found[0].2, "_id=0191e4a8-7c3b-7c52-9b3d-0f2a6c1d4e5f _index=logs");
        assert_eq!(found[4].2, "_id=7");
    }
    // Only a stream that begins with an action is such a body.
    let found = descriptions(&[r#"{"type":"a"}"#, r#"{"index":{"_index":"logs"}}"#]);
    assert_eq!(found.len(), 2);
    assert_eq!(descriptions(&[r#"{"index":{"name":"not a member of an action"}}"#]).len(), 1);
    assert_eq!(descriptions(&[r#"{"index":7}"#, "{}"]).len(), 2);
}

#[test]
fn lists_in_an_envelope_are_its_elements() {
    let cloudtrail = r#"{"Records":[{"eventTime":"2024-03-01T12:00:00Z","eventName":"A"}, {"eventTime":"2024-03-01T12:00:01Z","eventName":"B"}]}"#;
    let found = events(Format::Auto, &[cloudtrail]);
    assert_eq!(found[0].0, "ndjson A|-|-|- unknown 2024-03-01T12:00:00Z");
    assert_eq!(found[1].1, r#"{"eventTime":"2024-03-01T12:00:01Z","eventName":"B"}"#);
    let audit = r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[{"verb":"get","requestReceivedTimestamp":"2024-03-01T12:00:00.5Z"},{"verb":"list","requestReceivedTimestamp":"2024-03-01T12:00:00.6Z"}]}"#;
    assert_eq!(
        descriptions(&[audit]),
        [
            "ndjson get|-|-|- unknown 2024-03-01T12:00:00.5Z",
            "ndjson list|-|-|- unknown 2024-03-01T12:00:00.6Z"
        ]
    );
    let azure = r#"{"records":[{"time":"2024-03-01T12:00:00Z","operationName":"x"}]}"#;
    assert_eq!(descriptions(&[azure]), ["ndjson x|-|-|- unknown 2024-03-01T12:00:00Z"]);
    let graph = r#"{"@odata.context":"c","value":[{"createdDateTime":"2024-03-01T12:00:00Z"},{}]}"#;
    assert_eq!(descriptions(&[graph]).len(), 2);
    let watch = r#"{"messageType":"DATA_MESSAGE","owner":"1","logGroup":"g","logStream":"s","logEvents":[{"id":"1","timestamp":1709294400123,"message":"a line"},{"id":"2","timestamp":1709294400124,"message":"{\"type\":\"t\"}"}]}"#;
    let found = events(Format::Auto, &[watch]);
    assert_eq!(found[0].0, "raw -|-|-|- unknown 2024-03-01T12:00:00.123Z");
    assert_eq!(
        (found[0].1.as_str(), found[0].2.as_str()),
        ("a line", "logGroup=g logStream=s owner=1")
    );
    assert_eq!(found[1].0, "ndjson t|-|-|- unknown 2024-03-01T12:00:00.124Z");
    // An event that has a list is an event.
    for event in [
        r#"{"time":"2024-03-01T12:00:00Z","Records":[{"a":1}]}"#,
        r#"{"kind":"order","items":[{"a":1},{"a":2}]}"#,
        r#"{"ts":"2024-03-01T12:00:00Z","value":[{"a":1}]}"#,
        r#"{"value":[1,2]}"#,
        r#"{"Records":7}"#,
    ] {
        assert_eq!(descriptions(&[event]).len(), 1, "{event}");
    }
    assert_eq!(descriptions(&[r#"{"Records":[]}"#]).len(), 0);
    assert_eq!(
        descriptions(&[r#"{"Records":[{"a":1},7]}"#]),
        [
            "ndjson -|-|-|- unknown -",
            "reject: element 2: not a JSON object: invalid type: integer `7`, expected an object at byte 1"
        ]
    );
}

#[test]
fn a_loki_push_is_its_lines() {
    let push = r#"{"streams":[{"stream":{"job":"shop","host":"web-1","level":"warn"},"values":[["1709294400123456789","level=info order=1"],["1709294400123456790","say \"hi\"",{"trace":"t1"}]]},{"stream":{},"values":[["1709294400000000000","{\"type\":\"t\",\"timestamp\":\"2020-01-01T00:00:00Z\"}"]]}]}"#;
    let found = events(Format::Auto, &[push]);
    assert_eq!(found[0].0, "kv shop|web-1|-|- informational 2024-03-01T12:00:00.123456789Z");
    assert_eq!(found[1].0, "raw shop|web-1|-|- medium 2024-03-01T12:00:00.12345679Z");
    assert_eq!(found[1].1, "say \"hi\"");
    assert_eq!(found[1].2, "host=web-1 job=shop level=warn trace=t1");
    assert_eq!(found[2].0, "ndjson t|-|-|- unknown 2024-03-01T12:00:00Z");
}

#[test]
fn a_declared_level_precedes_what_a_word_of_a_text_suggests() {
    for (line, with_label, without) in [
        ("2020-01-01T00:00:00Z info started", "high", "informational"),
        ("2020-01-01T00:00:00Z other time", "high", "unknown"),
        ("2020-01-01T00:00:00Z low disk", "high", "unknown"),
        ("2020-01-01T00:00:00Z high load", "high", "unknown"),
        ("2020-01-01T00:00:00Z [HIGH] load", "high", "high"),
        ("plain text", "high", "unknown"),
        ("level=info order=1", "informational", "informational"),
    ] {
        for (label, expected) in [(r#""level":"error""#, with_label), ("", without)] {
            let push = format!(
                r#"{{"streams":[{{"stream":{{{label}}},"values":[["1709294400123456789","{line}"]]}}]}}"#
            );
            let found = descriptions(&[&push]);
            assert!(found[0].contains(&format!(" {expected} ")), "{line} {label}: {found:?}");
        }
    }
}

#[test]
fn a_bad_element_of_an_envelope_is_one_reject_and_affects_no_other() {
    let push = r#"{"streams":[{"stream":{},"values":[["1709294400123456789","l1"],[1],["1709294400123456789","l2"],["1709294400123456789","l3",{"t":7}],"l4"]},{"stream":{}},7,{"stream":{"job":7},"values":[["1709294400123456789","l5"]]},{"stream":{},"values":[["1709294400123456789","l6"]]}]}"#;
    let line = "raw -|-|-|- unknown 2024-03-01T12:00:00.123456789Z";
    assert_eq!(
        descriptions(&[push]),
        [
            line,
            "reject: value 2 of stream 1: not a valid value of Loki: it is not [time, line]",
            line,
            "reject: value 4 of stream 1: not a valid set of labels: invalid type: integer `7`, expected a string",
            "reject: value 5 of stream 1: not a valid value of Loki: invalid type: string \"l4\", expected a sequence",
            "reject: stream 2: not a valid Loki stream: missing field `values`",
            "reject: stream 3: not a valid Loki stream: it is not an object",
            "reject: value 1 of stream 4: not a valid set of labels: invalid type: integer `7`, expected a string",
            line,
        ]
    );
    let logs = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"1709294400123456789"},7,{"timeUnixNano":"1709294400123456789"}]},7]},{"resource":7,"scopeLogs":[{"logRecords":[{}]}]},7,{"scopeLogs":[{"logRecords":[{"timeUnixNano":"1709294400123456789"}]}]}]}"#;
    let record = "otlp -|-|-|- unknown 2024-03-01T12:00:00.123456789Z";
    let places: Vec<String> = descriptions(&[logs])
        .into_iter()
        .map(|found| found.split(": ").take(2).collect::<Vec<_>>().join(": "))
        .collect();
    assert_eq!(
        places,
        [
            record,
            "reject: record 2 of scope 1 of resource 1",
            record,
            "reject: scope 2 of resource 1",
            "reject: record 1 of scope 1 of resource 2",
            "reject: resource 3",
            record,
        ]
    );
    let watch = r#"{"logGroup":"g","logEvents":[{"timestamp":1709294400123,"message":"a"},{"timestamp":1},{"timestamp":1709294400123,"message":"b"}]}"#;
    let event = "raw -|-|-|- unknown 2024-03-01T12:00:00.123Z";
    let missing = "reject: element 2: not a valid event of CloudWatch: missing field `message`";
    assert_eq!(descriptions(&[watch]), [event, missing, event]);
}

#[test]
fn a_rejected_element_has_its_own_bytes_not_those_of_the_envelope() {
    let envelopes = [
        (r#"{"Records":[{"a":1}, 7 ,{"a":2}]}"#, "7"),
        (r#"{"streams":[{"stream":{},"values":[["1709294400123456789","l1"],[ 1 ]]}]}"#, "[ 1 ]"),
        (r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}, [7] ]}]}]}"#, "[7]"),
        (r#"{"logEvents":[{"message":"a"},{"message":7}]}"#, r#"{"message":7}"#),
    ];
    for (envelope, expected) in envelopes {
        let mut rejected = Vec::new();
        Parser::at(Format::Auto, NOW_MS).parse_each(envelope.as_bytes(), &mut |draft| {
            rejected.extend(draft.err().map(|reject| reject.element));
        });
        assert_eq!(rejected, [Some(expected.as_bytes().to_vec())], "{envelope}");
    }
}

#[test]
fn otlp_logs_are_their_records() {
    let logs = r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}},{"key":"host.name","value":{"stringValue":"web-1"}},{"key":"pid","value":{"intValue":"42"}}]},"scopeLogs":[{"scope":{"name":"orders"},"logRecords":[{"timeUnixNano":"1709294400123456789","severityNumber":17,"eventName":"order.failed","body":{"stringValue":"no stock"},"attributes":[{"key":"client.address","value":{"stringValue":"10.0.0.9"}}]},{"timeUnixNano":"0","observedTimeUnixNano":1709294400000000000,"severityText":"WARN","body":{"stringValue":"x"}}]}]}]}"#;
    let found = events(Format::Auto, &[logs]);
    assert_eq!(found.len(), 2);
    assert_eq!(
        found[0].0,
        "otlp order.failed|web-1|10.0.0.9|shop high 2024-03-01T12:00:00.123456789Z"
    );
    assert!(found[0].1.starts_with(r#"{"timeUnixNano":"1709294400123456789""#), "{}", found[0].1);
    assert_eq!(found[0].2, "service.name=shop host.name=web-1 pid=Integer(42) scope.name=orders");
    assert_eq!(found[1].0, "otlp -|web-1|-|shop medium 2024-03-01T12:00:00Z");
    let traces = descriptions(&[r#"{"resourceSpans":[{"scopeSpans":[]}]}"#]);
    assert!(traces[0].starts_with("reject: traces and metrics"), "{traces:?}");
    let metrics = descriptions(&[r#"{"resourceMetrics":[{"scopeMetrics":[]}]}"#]);
    assert!(metrics[0].starts_with("reject: traces and metrics"), "{metrics:?}");
}

#[test]
fn rows_of_tables_name_their_columns() {
    let zeek = [
        "#separator \\x09",
        "#path\tdns",
        "#fields\tts\tuid\tquery",
        "1709294400.5\tC1\texample.test",
    ];
    let found = events(Format::Auto, &zeek);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].2, "fields=ts uid query");
    // A part of a log without its header is refused where it is declared.
    let found = events(Format::Zeek, &zeek[3..]);
    assert_eq!(found[0].0, "reject: no #fields line precedes this row");
    let iis = [
        "#Software: Microsoft Internet Information Services 10.0",
        "#Version: 1.0",
        "#Fields: date time s-computername s-ip cs-method cs-uri-stem c-ip sc-status",
        "2024-03-01 12:00:00 IIS-1 10.0.0.1 GET /index.html 192.0.2.4 200",
        "2024-03-01 12:00:01 IIS-1 10.0.0.1 GET /",
    ];
    let found = events(Format::Auto, &iis);
    assert_eq!(found[0].0, "w3c -|IIS-1|192.0.2.4|- unknown 2024-03-01T12:00:00Z");
    assert_eq!(
        found[0].2,
        "fields=date time s-computername s-ip cs-method cs-uri-stem c-ip sc-status"
    );
    assert_eq!(found[1].0, "reject: the row has 6 columns, but #Fields: names 8");
    let cloudfront = [
        "#Version: 1.0",
        "#Fields: date time x-edge-location sc-bytes c-ip",
        "2024-03-01\t12:00:00\tFRA1\t512\t192.0.2.4",
    ];
    assert_eq!(descriptions(&cloudfront), ["w3c -|-|192.0.2.4|- unknown 2024-03-01T12:00:00Z"]);
}

#[test]
fn an_ingest_counts_what_has_no_time_and_stores_where_each_time_is_from() {
    use std::sync::Arc;

    use forebay_base::clock::SystemClock;
    use forebay_base::fs::RealFs;
    use forebay_events::ingest::{Ingest, Mistimed};
    use forebay_events::input::{ENVELOPE_SIZE_MAX, RECORD_SIZE_MAX, Record, Splitter};
    use forebay_events::query::Query;
    use forebay_events::{Options, Store};

    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(SystemClock::new());
    let (store, _) = Store::open(Arc::new(RealFs), clock, dir.path(), Options::balanced()).unwrap();
    let large = "x".repeat(RECORD_SIZE_MAX / 2);
    let too_large = "x".repeat(RECORD_SIZE_MAX);
    let mut lines = vec![
        r#"{"time":"2024-03-01T12:00:00Z","n":0}"#.to_owned(),
        r#"{"time":"2024-03-01 12:00:01","n":1}"#.to_owned(),
        r#"{"n":2}"#.to_owned(),
        // An envelope may be larger than a record, its events may not.
        format!(
            r#"{{"Records":[{{"a":"{large}"}},{{"a":"{large}"}},{{"a":"{too_large}"}},{{"a":"{large}"}}]}}"#
        ),
        format!(r#"{{"a":"{too_large}"}}"#),
    ];
    lines.push(String::new());
    let text = lines.join("\n");
    let mut splitter = Splitter::new(ENVELOPE_SIZE_MAX, true);
    let mut ingest = Ingest::new(&store, Format::Auto, "s");
    let (now_ns, mut rest, mut rejects) = (1_709_300_000_000_000_000, text.as_bytes(), Vec::new());
    while let Some(record) = splitter.next(&mut rest) {
        let Record { line, bytes, fault } = record;
        let record = Record { line, bytes, fault };
        let mut reject =
            |line, reject: &_, raw: &[u8]| rejects.push((line, format!("{reject}"), raw.len()));
        ingest.record(&store, &record, now_ns, &mut reject).unwrap();
    }
    let summary = ingest.finish(&store).unwrap();
    assert_eq!((summary.accepted, summary.rejected), (6, 2));
    assert_eq!((summary.mistimed, summary.assumed), (4, 1));
    let Mistimed { line, reason } = summary.first_mistimed.unwrap();
    assert!(line == 3 && reason.contains("time_field"), "{line}: {reason}");
    let reason =
        |size: usize| format!("the record has {size} bytes; the maximum is {RECORD_SIZE_MAX}");
    let size = RECORD_SIZE_MAX + 8;
    assert_eq!(rejects, [(4, reason(size), 1024), (5, reason(size), 1024)]);
    let mut found = store.scan(Query::default());
    let mut sources = Vec::new();
    while let Some(record) = found.next().unwrap() {
        let event = record.event();
        sources.push((event.tags.time_source.name(), event.timestamp_ns == now_ns));
    }
    let received = ("received", true);
    assert_eq!(
        sources,
        [("event", false), ("assumed", false), received, received, received, received]
    );
    store.close().unwrap();
}
