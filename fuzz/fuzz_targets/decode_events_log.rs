//! Any bytes as an entry of the event store's log: an error, or an entry that encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_events::fuzzing::log_entry(data));
