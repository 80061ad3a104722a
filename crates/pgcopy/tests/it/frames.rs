//! Streams cut anywhere, cut short, and made by enemies.

use forebay_pgcopy::{Column, ContentHash, DecodeError, Decoder, HEADER, Splitter, TRAILER, Wire};

use crate::support::{named, stream, tuple};

fn columns() -> Vec<Column> {
    vec![named("id", Wire::Int4), named("name", Wire::Text), named("flag", Wire::Bool)]
}

fn tuples() -> Vec<Vec<u8>> {
    let long = "x".repeat(300);
    vec![
        tuple(&[Some(&7_i32.to_be_bytes()), Some(b"seven"), Some(&[1])]),
        tuple(&[None, None, None]),
        tuple(&[Some(&(-1_i32).to_be_bytes()), Some(long.as_bytes()), Some(&[0])]),
        tuple(&[Some(&0_i32.to_be_bytes()), Some(b""), None]),
    ]
}

fn hash() -> ContentHash {
    let mut hash = ContentHash::default();
    tuples().iter().for_each(|tuple| hash.add(tuple));
    hash
}

#[test]
fn every_cut_of_a_stream_gives_the_same_rows() {
    let whole = stream(&tuples().concat());
    let mut at_once = Decoder::new(&columns());
    at_once.push(&whole).unwrap();
    let (expected, hashed) = at_once.finish().unwrap().unwrap();
    assert_eq!(hashed, hash());
    for cut in 0..=whole.len() {
        let (mut decoder, mut splitter) = (Decoder::new(&columns()), Splitter::new());
        let mut out = Vec::new();
        for piece in [&whole[..cut], &whole[cut..]] {
            decoder.push(piece).unwrap();
            splitter.push(piece, &mut out).unwrap();
        }
        assert_eq!(decoder.finish().unwrap().unwrap(), (expected.clone(), hash()), "cut at {cut}");
        assert_eq!((out, splitter.take_hash()), (tuples().concat(), hash()), "cut at {cut}");
        splitter.finish().unwrap();
    }
}

#[test]
fn a_stream_of_single_bytes_gives_the_same_rows() {
    let (mut decoder, mut splitter) = (Decoder::new(&columns()), Splitter::new());
    let mut out = Vec::new();
    for byte in stream(&tuples().concat()) {
        decoder.push(&[byte]).unwrap();
        splitter.push(&[byte], &mut out).unwrap();
    }
    assert!(decoder.is_finished() && splitter.is_finished());
    assert_eq!(decoder.finish().unwrap().unwrap().1, hash());
    assert_eq!(out, tuples().concat());
}

#[test]
fn taking_in_between_gives_every_row_once() {
    let mut decoder = Decoder::without_header(&columns());
    let (mut rows, mut sum) = (0, ContentHash::default());
    for tuple in tuples() {
        decoder.push(&tuple[..3]).unwrap();
        decoder.push(&tuple[3..]).unwrap();
        assert_eq!(decoder.rows(), 1);
        assert!(decoder.size() > 0);
        let (batch, hash) = decoder.take().unwrap();
        rows += batch.num_rows();
        sum.merge(hash);
    }
    assert_eq!((rows, sum), (4, hash()));
    assert!(decoder.finish().unwrap().is_none());
}

#[test]
fn a_stream_cut_short_is_an_error() {
    let whole = stream(&tuples().concat());
    for end in 0..whole.len() {
        let mut decoder = Decoder::new(&columns());
        decoder.push(&whole[..end]).unwrap();
        assert!(matches!(decoder.finish(), Err(DecodeError::Unfinished { .. })), "at {end}");
    }
    let mut bare = Decoder::without_header(&columns());
    bare.push(&tuples().concat()[..5]).unwrap();
    let error = bare.finish().unwrap_err();
    assert_eq!(error.to_string(), "the stream ended after 0 rows, inside a row");
}

#[test]
fn what_is_no_binary_copy_is_refused() {
    let refused = |bytes: &[u8]| Decoder::new(&columns()).push(bytes).unwrap_err().to_string();
    let text = b"1\tseven\tt\n2\t\\N\tf\n3\t\t\n";
    assert_eq!(refused(text), "not a stream of binary COPY: its signature is missing");
    let mut flags = HEADER.to_vec();
    flags[12] = 1;
    assert!(refused(&flags).contains("flags"));
    let mut extension = HEADER.to_vec();
    extension[15] = 0x7f;
    assert!(refused(&extension).contains("length of its header"));
}

#[test]
fn an_extension_of_the_header_is_passed_over() {
    let mut bytes = HEADER.to_vec();
    bytes[18] = 3;
    bytes.extend_from_slice(b"abc");
    bytes.extend_from_slice(&tuples()[0]);
    bytes.extend_from_slice(TRAILER);
    for cut in 0..bytes.len() {
        let mut decoder = Decoder::new(&columns());
        decoder.push(&bytes[..cut]).unwrap();
        decoder.push(&bytes[cut..]).unwrap();
        assert_eq!(decoder.finish().unwrap().unwrap().1.rows, 1);
    }
}

#[test]
fn errors_name_the_row_and_the_column() {
    let mut decoder = Decoder::without_header(&columns());
    decoder.push(&tuples()[0]).unwrap();
    decoder.take().unwrap();
    let bad = tuple(&[None, Some(b"x"), Some(&[2])]);
    let error = decoder.push(&[tuples()[1].clone(), bad].concat()).unwrap_err();
    assert_eq!(error.to_string(), "row 3, column \"flag\"");
    assert!(matches!(decoder.push(&[]), Err(DecodeError::GivenUp)));
    assert!(matches!(decoder.take(), Err(DecodeError::GivenUp)));
}

#[test]
fn a_text_that_is_no_utf8_names_its_row() {
    let mut decoder = Decoder::without_header(&columns());
    let bad = tuple(&[None, Some(b"\xc3"), None]);
    let split = tuple(&[None, Some(b"\xa4"), None]);
    decoder.push(&tuples()[0]).unwrap();
    decoder.take().unwrap();
    decoder.push(&[tuples()[0].clone(), bad, split].concat()).unwrap();
    assert_eq!(decoder.take().unwrap_err().to_string(), "row 3, column \"name\"");
}

#[test]
fn wrong_counts_and_lengths_are_refused() {
    let refused = |bytes: &[u8]| {
        let mut decoder = Decoder::without_header(&columns());
        decoder.push(bytes).unwrap_err().to_string()
    };
    assert_eq!(refused(&tuple(&[None])), "row 1 has 1 fields, expected 3");
    assert_eq!(refused(TRAILER), "row 1 has -1 fields, expected 3");
    assert_eq!(refused(&[0x80, 0]), "row 1 has -32768 fields, expected 3");
    let negative = [&[0, 3, 255, 255, 255, 255][..], &(-2_i32).to_be_bytes()].concat();
    assert_eq!(refused(&negative), "row 1, field 2: invalid length -2");
    let huge = [&[0, 3][..], &i32::MAX.to_be_bytes()].concat();
    assert_eq!(refused(&huge), "row 1, field 1: invalid length 2147483647");
    let gibibyte = ((1 << 30) - 1_i32).to_be_bytes();
    assert_eq!(
        refused(&[&[0, 3][..], &gibibyte].concat()),
        "row 1 is larger than 1073741823 bytes"
    );
}

#[test]
fn the_splitter_holds_rows_to_the_first_ones_columns() {
    let (mut splitter, mut out) = (Splitter::new(), Vec::new());
    let tuples = [tuple(&[None, None]), tuple(&[None])].concat();
    let error = splitter.push(&stream(&tuples), &mut out).unwrap_err();
    assert_eq!(error.to_string(), "row 2 has 1 fields, expected 2");
}

#[test]
fn nothing_may_follow_the_trailer() {
    let mut decoder = Decoder::new(&columns());
    decoder.push(&stream(&tuples()[0])).unwrap();
    decoder.push(&[]).unwrap();
    let error = decoder.push(&[0]).unwrap_err();
    assert_eq!(error.to_string(), "there are bytes after the trailer, which follows 1 rows");
}

#[test]
fn null_in_a_column_without_is_refused() {
    let column = Column { nullable: false, ..named("id", Wire::Int4) };
    let mut decoder = Decoder::without_header(&[column]);
    let error = decoder.push(&tuple(&[None])).unwrap_err();
    assert_eq!(error.to_string(), "row 1, column \"id\"");
}

#[test]
fn tables_without_columns_have_rows() {
    let mut decoder = Decoder::new(&[]);
    decoder.push(&stream(&[0, 0, 0, 0])).unwrap();
    let (batch, hash) = decoder.finish().unwrap().unwrap();
    assert_eq!((batch.num_rows(), hash.rows), (2, 2));
}

#[test]
fn a_large_batch_does_not_make_the_next_ones_large() {
    let mut decoder = Decoder::without_header(&columns());
    let large = vec![b'x'; 32 << 20];
    decoder.push(&tuple(&[None, Some(&large), None])).unwrap();
    assert!(decoder.take().unwrap().0.get_array_memory_size() >= large.len());
    for _ in 0..2 {
        decoder.push(&tuples()[0]).unwrap();
        assert!(decoder.take().unwrap().0.get_array_memory_size() < 4096);
    }
}

#[test]
fn the_size_is_that_of_the_batch() {
    let columns = [named("short", Wire::Text), named("long", Wire::Numeric)];
    let mut decoder = Decoder::without_header(&columns);
    // One digit of base 10,000, and 131,068 zeros.
    let number = [0, 1, 127, 255, 0, 0, 0, 0, 0, 1];
    for rows in 1..2000 {
        decoder.push(&tuple(&[Some(b"x"), (rows % 50 == 0).then_some(&number[..])])).unwrap();
        let measured = decoder.size();
        if rows % 500 == 0 {
            let size = decoder.take().unwrap().0.get_array_memory_size();
            assert!(measured > size / 2 && measured < size * 2, "{measured} for {size}");
            assert!(decoder.size() < 100, "what was taken is gone");
        }
    }
}
