//! Streams split into records, and rejected records written to a file.

use std::io::{self, Read};

use forebay_events::input::{REJECT_RAW_MAX, Records, Reject, RejectWriter, Splitter};
use proptest::prelude::*;

/// A record with what is wrong with it.
type SplitRecord = (u64, Vec<u8>, Option<String>);

fn split(limit: usize, counted: bool, chunks: &[&[u8]]) -> Vec<SplitRecord> {
    let mut splitter = Splitter::new(limit, counted);
    let mut found = Vec::new();
    for chunk in chunks {
        let mut rest = *chunk;
        while let Some(record) = splitter.next(&mut rest) {
            let fault = record.fault.map(|fault| fault.to_string());
            found.push((record.line, record.bytes.to_vec(), fault));
        }
        assert!(rest.is_empty());
    }
    if let Some(record) = splitter.finish() {
        let fault = record.fault.map(|fault| fault.to_string());
        found.push((record.line, record.bytes.to_vec(), fault));
    }
    assert!(splitter.finish().is_none());
    found
}

fn good(lines: &[(u64, &str)]) -> Vec<SplitRecord> {
    lines.iter().map(|(line, text)| (*line, text.as_bytes().to_vec(), None)).collect()
}

#[test]
fn lines_end_with_either_line_end_and_the_last_may_have_none() {
    let lines = split(100, false, &[b"a\nb\r\n\n\r\n c\r\r\nd"]);
    assert_eq!(lines, good(&[(1, "a"), (2, "b"), (5, " c\r"), (6, "d")]));
    assert_eq!(split(100, false, &[]), vec![]);
    assert_eq!(split(100, false, &[b"\n\n"]), vec![]);
    assert_eq!(split(100, false, &[b"a\n"]), good(&[(1, "a")]));
}

#[test]
fn a_byte_order_mark_is_put_aside_at_the_very_start_only() {
    let mark = "\u{feff}";
    let lines = split(100, false, &[format!("{mark}a\n{mark}b").as_bytes()]);
    assert_eq!(lines, good(&[(1, "a"), (2, "\u{feff}b")]));
    assert_eq!(split(100, false, &[format!("{mark}\nb").as_bytes()]), good(&[(2, "b")]));
}

#[test]
fn a_line_beyond_the_limit_is_a_fault_and_the_next_one_is_read() {
    let long = "x".repeat(5_000);
    let text = format!("ok\n{long}\n0123456789\r\n0123456789a\nend");
    let expected = vec![
        (1, b"ok".to_vec(), None),
        (2, vec![b'x'; 1024], Some("the record has 5000 bytes; the maximum is 10".to_owned())),
        (3, b"0123456789".to_vec(), None),
        (4, b"0123456789a".to_vec(), Some("the record has 11 bytes; the maximum is 10".to_owned())),
        (5, b"end".to_vec(), None),
    ];
    assert_eq!(split(10, false, &[text.as_bytes()]), expected);
}

#[test]
fn counted_messages_may_have_line_ends_within() {
    let stream = b"9 <13>a: b\n11 <13>a: b\nc\n<13>a line\n5 <1>x";
    let records = split(100, true, &[stream]);
    let mut expected = good(&[(1, "<13>a: b\n"), (2, "<13>a: b\nc\n"), (3, "<13>a line")]);
    let cut = "the stream ends 1 bytes before the message does".to_owned();
    expected.push((4, b"<1>x".to_vec(), Some(cut)));
    assert_eq!(records, expected);
    // Not if this is not enabled, or if the stream begins differently.
    assert_eq!(split(100, false, &[b"3 <1>"]), good(&[(1, "3 <1>")]));
    assert_eq!(split(100, true, &[b"12 monkeys\n3 <1>"]), good(&[(1, "12 monkeys"), (2, "3 <1>")]));
    assert_eq!(split(100, true, &[b"123456"]), good(&[(1, "123456")]));
    assert_eq!(split(100, true, &[b"1\n"]), good(&[(1, "1")]));
    assert_eq!(split(100, true, &[b"1234567890 <1>"]), good(&[(1, "1234567890 <1>")]));
    let records = split(4, true, &[b"9 <13>a: b\n4 <1>x"]);
    assert_eq!(records[0].2.as_deref(), Some("the record has 9 bytes; the maximum is 4"));
    assert_eq!(records[1], (2, b"<1>x".to_vec(), None));
}

/// A reader of few bytes at a time that is interrupted, and fails once.
struct Slow<'a>(&'a [u8], u32);

impl Read for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.1 += 1;
        match self.1 {
            2 => Err(io::ErrorKind::Interrupted.into()),
            4 => Err(io::Error::other("the line is down")),
            _ => self.0.read(into.get_mut(..3).unwrap()),
        }
    }
}

#[test]
fn records_of_a_reader_go_on_after_an_error() {
    let mut records = Records::new(Slow(b"one\ntwo\nthree", 0), Splitter::new(100, false));
    let mut found = Vec::new();
    let mut errors = 0;
    loop {
        match records.next() {
            Ok(Some(record)) => found.push((record.line, record.bytes.to_vec(), record.fault)),
            Ok(None) => break,
            Err(_) => errors += 1,
        }
    }
    assert_eq!(errors, 1);
    let texts: Vec<&[u8]> = found.iter().map(|(_, bytes, _)| bytes.as_slice()).collect();
    assert_eq!(texts, [&b"one"[..], b"two", b"three"]);
    assert!(records.next().unwrap().is_none());
}

#[test]
fn rejects_are_written_as_ndjson_with_bounded_raw() {
    let mut writer = RejectWriter::new(Vec::new());
    let reject = Reject::new("no \"object\"");
    writer.write(7, &reject, b"{\"a\":\n").unwrap();
    writer.write(8, &reject, b"\xff\x00").unwrap();
    // The cut is within a character of two bytes.
    let long = format!("x{}", "\u{e9}".repeat(REJECT_RAW_MAX / 2));
    writer.write(9, &reject, long.as_bytes()).unwrap();
    assert_eq!(writer.count(), 3);
    let text = String::from_utf8(writer.finish().unwrap()).unwrap();
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows[0], r#"{"line":7,"reason":"no \"object\"","raw":"{\"a\":\n"}"#);
    assert_eq!(rows[1], r#"{"line":8,"reason":"no \"object\"","raw_base64":"/wA="}"#);
    let row: serde_json::Value = serde_json::from_str(rows[2]).unwrap();
    assert_eq!(row["raw"].as_str().unwrap().len(), REJECT_RAW_MAX - 1);
    assert_eq!(row["raw_size"], REJECT_RAW_MAX + 1);
}

proptest! {
    #[test]
    fn where_chunks_end_makes_no_difference(
        text in "(([0-9]{1,3} )?[<ab\r\n\u{feff}]{0,12}\n?){0,12}",
        limit in 1..12usize,
        counted: bool,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let bytes = text.as_bytes();
        let whole = split(limit, counted, &[bytes]);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&split(limit, counted, &single), &whole);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([bytes.len()]) {
            chunks.push(&bytes[from..cut]);
            from = cut;
        }
        prop_assert_eq!(&split(limit, counted, &chunks), &whole);
    }
}
