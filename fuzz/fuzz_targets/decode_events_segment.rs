//! A segment's file edited at will, its checksums made to fit again: errors, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forebay_events::fuzzing::segment(data));
