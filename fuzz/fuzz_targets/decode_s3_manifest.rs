//! A manifest of an S3 Inventory: an error, or names that lead nowhere else.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_inventory::source::fuzzing::s3_manifest(data));
