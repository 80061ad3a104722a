//! Any text as a `Range` header and as the target of a request: parts that lie within the file, and no
//! more of a query than came.
#![no_main]

use forebay_api::intake::fuzzing::{query, ranges};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((size, text)) = data.split_first_chunk::<8>() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    ranges(text, u64::from_le_bytes(*size));
    ranges(text, u64::from(size[0]));
    query(text);
});
