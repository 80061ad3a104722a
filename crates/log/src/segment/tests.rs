//! Segment files are named, created and found again.

use super::*;

#[test]
fn only_canonical_names_are_segments() {
    assert_eq!(parse_file_name(&file_name(0xabc)), Some(0xabc));
    for name in ["abc.log", "0000000000000ABC.log", "0000000000000abc", "+000000000000abc.log"] {
        assert_eq!(parse_file_name(name), None, "{name}");
    }
}

#[test]
fn positions_passed_over_lead_to_the_next_segment() {
    let mut table = SegmentTable::default();
    let first = Segment { base: 1000, prev_end: 700, end: Some(1400) };
    let empty = Segment { base: 2000, prev_end: 1400, end: Some(2064) };
    let last = Segment { base: 3000, prev_end: 2064, end: None };
    for segment in [first, empty, last] {
        table.insert(segment);
    }
    assert_eq!(table.start(), Lsn(700));
    assert_eq!(table.locate(699), Location::Before(700));
    for position in [700, 999, 1000] {
        assert_eq!(table.locate(position), Location::In(first, 1064), "{position}");
    }
    assert_eq!(table.locate(1063), Location::Header);
    assert_eq!(table.locate(1399), Location::In(first, 1399));
    for position in [1400, 1999, 2000, 2064, 2999, 3000] {
        assert_eq!(table.locate(position), Location::In(last, 3064), "{position}");
    }
}
