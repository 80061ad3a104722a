//! Any bytes as a stream of binary COPY, cut in any way: the same error, or the same rows, which stay the
//! same when they are encoded and decoded again; never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_pgcopy::fuzzing::stream(data));
