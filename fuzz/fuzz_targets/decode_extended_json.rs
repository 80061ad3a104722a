//! Any text as extended JSON: an error, or a value that is written and read again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| forebay_mongodb::connector::fuzzing::extended_json(data));
