//! Any bytes as an entry of the log of jobs: an error, or an entry that encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_jobs::fuzzing::log_entry(data));
