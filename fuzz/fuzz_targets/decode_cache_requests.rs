//! Any bytes as RESP requests, and how they are cut into reads: the same requests either way.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_cache::fuzzing::requests(data));
