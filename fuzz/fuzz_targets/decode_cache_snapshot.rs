//! Any bytes as the blocks of a snapshot of the cache, their checksums left out: errors, or blocks
//! that encode to the same bytes; never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_cache::persist::fuzzing::snapshot_blocks(data));
