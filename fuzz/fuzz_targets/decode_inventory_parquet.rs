//! Any bytes as Parquet of an inventory: errors, or keys and sizes within their limits.
//!
//! The Parquet library panics on some damaged files; the inventory returns errors for them.
#![no_main]

use forebay_fuzz::{keep_panics, without_panic};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: keep_panics(), |data: &[u8]| {
    without_panic(|| forebay_inventory::source::fuzzing::inventory_parquet(data));
});
