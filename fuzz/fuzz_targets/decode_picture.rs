//! Any bytes as a picture of any format: an error, or a small picture that can be decoded.
#![no_main]

use forebay_intake::thumbnails::decode;
use libfuzzer_sys::fuzz_target;

const TYPES: [&str; 5] = ["image/bmp", "image/gif", "image/jpeg", "image/png", "image/webp"];

fuzz_target!(|data: &[u8]| {
    let Some((&first, picture)) = data.split_first() else { return };
    let Some(mime) = TYPES.get(usize::from(first) % TYPES.len()) else { return };
    let Some(small) = decode(picture, mime, 32) else { return };
    let again = decode(&small.bytes, small.mime, 32);
    assert!(again.is_some(), "a thumbnail of {mime} cannot be decoded");
});
