//! Any bytes as Parquet of a pipeline: errors, or batches of the columns that were found.
//!
//! The Parquet library panics on some damaged files; the pipeline returns errors for them.
#![no_main]

use forebay_fuzz::{keep_panics, without_panic};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: keep_panics(), |data: &[u8]| {
    without_panic(|| forebay_objects::fuzzing::parquet(data));
});
