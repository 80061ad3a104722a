//! Any body as documents: wherever the stream is cut, the same documents come out at the same places,
//! byte for byte as they stand there, and none is larger than the limit.
#![no_main]

use forebay_intake::documents::{
    DocumentError,
    frame::{DocumentPosition, Framed, Framer, Framing},
};
use libfuzzer_sys::fuzz_target;

type Cut = (Vec<(DocumentPosition, Result<Vec<u8>, DocumentError>)>, Result<(), DocumentError>);

fn cut<'a>(framing: Framing, limit: usize, pieces: impl Iterator<Item = &'a [u8]>) -> Cut {
    let mut framer = Framer::new(framing, limit);
    let mut found = Vec::new();
    let mut each = |(place, framed): Framed<'_>| -> Result<(), DocumentError> {
        found.push((place, framed.map(<[u8]>::to_vec)));
        Ok(())
    };
    let mut ended = Ok(());
    for piece in pieces {
        ended = framer.push(piece, &mut each);
        if ended.is_err() {
            break;
        }
    }
    let ended = ended.and_then(|()| framer.finish(&mut each));
    (found, ended)
}

fuzz_target!(|data: &[u8]| {
    let [flags, size, body @ ..] = data else { return };
    let framing = if flags & 1 == 0 { Framing::Lines } else { Framing::Values };
    let limit = usize::from(flags >> 1);
    let whole = cut(framing, limit, std::iter::once(body));
    let size = usize::from(*size).max(1);
    assert_eq!(whole, cut(framing, limit, body.chunks(size)), "in pieces of {size}");
    let mut index = 0;
    for (place, framed) in &whole.0 {
        assert_eq!(place.index, index);
        index += 1;
        let start = usize::try_from(place.byte).expect("within the body");
        let lines = body[..start].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(place.line, lines as u64 + 1);
        if let Ok(document) = framed {
            assert!(body[start..].starts_with(document));
            assert!(document.len() <= limit && !document.is_empty());
        }
    }
});
