//! Any bytes as an entry of the cache's command log: an error, or an entry that encodes to the same
//! bytes; never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_cache::persist::fuzzing::log_entry(data));
