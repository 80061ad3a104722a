//! Any body as multipart: read without waiting for anything, and the same wherever it is cut; and any
//! bytes without the boundary in them come out of a part as they went in.
#![no_main]

use forebay_api::intake::fuzzing::multipart;
use libfuzzer_sys::fuzz_target;

const BOUNDARY: &str = "----b0undary";

fn pieces(body: &[u8], size: usize) -> Vec<Vec<u8>> {
    body.chunks(size.max(1)).map(<[u8]>::to_vec).collect()
}

fuzz_target!(|data: &[u8]| {
    let [size, body @ ..] = data else { return };
    let size = usize::from(*size);
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let (whole, ended) = multipart(&kind, vec![body.to_vec()]).expect("waits for nothing");
    let (cut, cut_ended) = multipart(&kind, pieces(body, size)).expect("waits for nothing");
    assert_eq!((&whole, ended.is_ok()), (&cut, cut_ended.is_ok()), "{ended:?} {cut_ended:?}");

    let mark = format!("\r\n--{BOUNDARY}");
    if body.windows(mark.len()).any(|window| window == mark.as_bytes()) {
        return;
    }
    let head = "Content-Disposition: form-data; name=\"files\"; filename=\"a\"\r\n\r\n";
    let mut framed = format!("--{BOUNDARY}\r\n{head}").into_bytes();
    framed.extend_from_slice(body);
    framed.extend_from_slice(format!("{mark}--\r\n").as_bytes());
    let (parts, ended) = multipart(&kind, pieces(&framed, size)).expect("waits for nothing");
    ended.expect("a whole body");
    assert_eq!(parts, [(Some("files".to_owned()), Some("a".to_owned()), body.to_vec())]);
});
