//! Any bytes as an expanded block of a segment: an error, or rows that can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_events::fuzzing::segment_block(data));
