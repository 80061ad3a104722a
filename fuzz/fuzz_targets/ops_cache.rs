//! Any bytes as what two clients of the cache send: no panic, no memory beyond its bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_cache::fuzzing::session(data));
