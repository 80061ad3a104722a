//! Any bytes as a spill segment or its lines: errors, or commits that come back as they were.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let whole = forebay_intake::documents::forward::spill_segment(data);
    assert!(whole <= data.len() as u64);
});
