//! Any text as a pipeline file: an error with its place, or a pipeline that has a stream.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| {
    forebay_pipeline::fuzzing::pipeline_file(data, &forebay_connectors::registry());
});
