//! Splitting of lines.

use super::*;

#[test]
fn lines_are_found_wherever_the_input_is_cut() {
    let input = b"SET a 1\r\nGET a\n\nGET b";
    for cut in 0..=input.len() {
        let mut lines = Lines::new();
        let mut found = Vec::new();
        let mut at = 0;
        for end in [cut, input.len()] {
            while let Line::Whole { consumed, line } = lines.next(&input[at..end], 64) {
                found.push(line);
                at += consumed;
            }
        }
        assert_eq!(found, [&b"SET a 1"[..], b"GET a", b""], "cut at {cut}");
        assert_eq!(&input[at..], b"GET b");
    }
}

#[test]
fn a_line_of_the_limit_passes_and_one_byte_more_does_not() {
    let mut lines = Lines::new();
    assert!(matches!(lines.next(b"1234567\n", 8), Line::Whole { consumed: 8, .. }));
    assert_eq!(lines.next(b"12345678\n", 8), Line::TooLong);
    assert_eq!(Lines::new().next(b"1234567", 8), Line::Partial);
    assert_eq!(
        Lines::new().next(b"12345678", 8),
        Line::TooLong,
        "reported before all of it has arrived"
    );
}
