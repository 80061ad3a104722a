//! Any bytes as a compressed value of the cache: what it claims or an error; and values come back.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_cache::fuzzing::compressed(data));
