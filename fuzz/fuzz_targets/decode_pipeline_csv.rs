//! Any bytes as CSV of a pipeline: errors, or batches of the columns that were found.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_objects::fuzzing::csv(data));
