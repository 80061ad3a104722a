//! A CSV file of objects, compressed or not: errors, or objects within their limits.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_inventory::source::fuzzing::inventory_csv(data));
