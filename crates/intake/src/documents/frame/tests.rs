//! Documents come out byte for byte wherever the stream is cut.

use proptest::prelude::*;

use super::*;

type Cut = Vec<(u64, u64, Result<Vec<u8>, String>)>;

fn cut(framing: Framing, pieces: &[&[u8]]) -> Result<Cut, DocumentError> {
    let mut framer = Framer::new(framing, 64);
    let mut out = Vec::new();
    let mut each = |(place, framed): Framed<'_>| -> Result<(), DocumentError> {
        let framed = framed.map(<[u8]>::to_vec).map_err(|error| error.to_string());
        out.push((place.line, place.byte, framed));
        Ok(())
    };
    for piece in pieces {
        framer.push(piece, &mut each)?;
    }
    framer.finish(&mut each)?;
    Ok(out)
}

fn texts(framing: Framing, body: &str) -> Vec<String> {
    let cut = cut(framing, &[body.as_bytes()]).unwrap();
    cut.into_iter().map(|(_, _, text)| String::from_utf8(text.unwrap()).unwrap()).collect()
}

#[test]
fn lines_are_documents_and_blank_ones_are_nothing() {
    let body = "\u{FEFF}{\"a\":1}\r\n\n  {\"b\":2} \n{\"c\":3}";
    assert_eq!(texts(Framing::Lines, body), ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
    let places: Vec<_> = cut(Framing::Lines, &[body.as_bytes()]).unwrap();
    assert_eq!(places.iter().map(|cut| cut.0).collect::<Vec<_>>(), [1, 3, 4]);
}

#[test]
fn an_array_an_object_and_objects_in_a_row_are_documents() {
    assert_eq!(
        texts(Framing::Values, " [ {\"a\":[1,{}]} , 5,\"x,]\" ] "),
        ["{\"a\":[1,{}]}", "5", "\"x,]\""]
    );
    assert_eq!(texts(Framing::Values, "{\n\"a\": \"}\\\"\"\n}"), ["{\n\"a\": \"}\\\"\"\n}"]);
    assert_eq!(texts(Framing::Values, "{}{} {}"), ["{}", "{}", "{}"]);
    assert_eq!(texts(Framing::Values, "[]"), Vec::<String>::new());
    assert_eq!(texts(Framing::Values, "  "), Vec::<String>::new());
    assert_eq!(texts(Framing::Values, "12"), ["12"]);
}

#[test]
fn a_broken_body_says_where() {
    for body in ["[{},]", "[,{}]", "[{} {}]", "[{}", "{\"a\":", "[{}] x", "\"a", "}", "[{}}"] {
        let error = cut(Framing::Values, &[body.as_bytes()]).unwrap_err();
        assert!(matches!(error, DocumentError::Broken { .. }), "{body}: {error}");
    }
}

#[test]
fn a_document_beyond_its_limit_spoils_only_itself() {
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(100));
    let lines = format!("{{}}\n{long}\n{{}}\n");
    for pieces in [vec![lines.as_bytes()], lines.as_bytes().chunks(7).collect()] {
        let cut = cut(Framing::Lines, &pieces).unwrap();
        assert_eq!(cut.iter().map(|cut| cut.2.is_ok()).collect::<Vec<_>>(), [true, false, true]);
    }
    let array = format!("[{{}},{long},{{}}]");
    let cut = cut(Framing::Values, &array.as_bytes().chunks(9).collect::<Vec<_>>()).unwrap();
    assert_eq!(cut.iter().map(|cut| cut.2.is_ok()).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn white_space_around_a_document_counts_neither_for_its_size_nor_for_its_place() {
    let fits = format!("{{\"a\":\"{}\"}}", "x".repeat(56));
    let body = format!("\u{FEFF}  {fits}{}\r\n \t{fits} \n{fits} x", " ".repeat(70));
    for size in [1, 3, 63, 64, 65, 200, body.len()] {
        let pieces: Vec<_> = body.as_bytes().chunks(size).collect();
        let cut = cut(Framing::Lines, &pieces).unwrap();
        assert_eq!(cut.iter().map(|cut| cut.2.is_ok()).collect::<Vec<_>>(), [true, true, false]);
        for (line, byte, _) in &cut {
            let at = usize::try_from(*byte).unwrap();
            assert!(body[at..].starts_with(&fits), "line {line}, byte {byte}");
        }
    }
}

#[test]
fn only_a_whole_byte_order_mark_at_the_beginning_is_passed_over() {
    for framing in [Framing::Lines, Framing::Values] {
        for (body, documents) in [
            (&b"\xEF\xBB\xBF{}"[..], &[(3, &b"{}"[..])][..]),
            (b"\xEF\xBB\xBF", &[]),
            (b"\xEF\xBB{}", &[(0, b"\xEF\xBB{}")]),
            (b"\xEF\xBB", &[(0, b"\xEF\xBB")]),
            (b"\n\xEF\xBB\xBF1", &[(1, b"\xEF\xBB\xBF1")]),
        ] {
            for size in 1..=body.len() {
                let pieces: Vec<_> = body.chunks(size).collect();
                let cut = cut(framing, &pieces).unwrap();
                let found: Vec<_> =
                    cut.iter().map(|cut| (cut.1, cut.2.as_deref().unwrap())).collect();
                assert_eq!(found, documents, "{framing:?} of {body:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn where_the_stream_is_cut_changes_nothing(
        body in "[\\[\\]{}\",:\\\\ a\n1]{0,60}",
        at in 0usize..90,
        lines in any::<bool>(),
    ) {
        let framing = if lines { Framing::Lines } else { Framing::Values };
        let at = at.min(body.len());
        let whole = cut(framing, &[body.as_bytes()]);
        let parts = cut(framing, &[&body.as_bytes()[..at], &body.as_bytes()[at..]]);
        prop_assert_eq!(format!("{whole:?}"), format!("{parts:?}"));
    }

    #[test]
    fn elements_of_any_array_come_out_as_they_went_in(
        texts in proptest::collection::vec("[a-z\\\\\"{}\\[\\], ]{0,10}", 0..8),
        space in "[ \n\t]{0,3}",
    ) {
        let elements: Vec<String> =
            texts.iter().map(|text| serde_json::json!({ "k": text }).to_string()).collect();
        let body = format!("[{}]", elements.join(&format!("{space},{space}")));
        prop_assert_eq!(super::tests::texts(Framing::Values, &body), elements);
    }
}
