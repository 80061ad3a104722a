//! Any bytes as lines of the text protocol, and how they are cut into reads: the same answers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_cache::fuzzing::text_lines(data));
