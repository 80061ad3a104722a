//! The answer to a request to list a bucket: an error, or what it says.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_inventory::source::fuzzing::s3_listing(data));
