//! Any bytes as the end of a pack of blobs or its index: an error, or an index that would be written the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let members = forebay_intake::blobs::pack_end(data);
    assert!(members <= data.len() / 48);
});
