//! Any bytes as JSON that may become BSON: printed again, it is what came.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_mongodb::fuzzing::bson_from_json(data));
