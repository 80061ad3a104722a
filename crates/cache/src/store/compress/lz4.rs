//! LZ4 blocks, by the reference library (Collet's `lz4`, in C).
//!
//! It writes into memory that need not be zeroed first, directly to the destination, and
//! decompresses a quarter faster than the implementations in Rust (decision 0008).
//!
//! Invariant: a vector's length grows only over bytes the library has written.

#![expect(unsafe_code, reason = "calls of a C library, and lengths set after what it wrote")]

use std::ffi::c_int;

/// Appends `value` compressed, if that takes at most `size_max` bytes; returns whether it did.
pub(super) fn append_compressed(value: &[u8], size_max: usize, out: &mut Vec<u8>) -> bool {
    let (Ok(size), Ok(room)) = (c_int::try_from(value.len()), c_int::try_from(size_max)) else {
        return false;
    };
    out.reserve(size_max);
    let spare = out.spare_capacity_mut();
    debug_assert!(spare.len() >= size_max, "room was reserved");
    // SAFETY: `value` is `size` readable bytes, `spare` at least `room` writable ones, and they do
    // not overlap; the library writes no more than `room` bytes and returns how many, 0 where they
    // do not suffice.
    let written = unsafe {
        lz4_sys::LZ4_compress_default(value.as_ptr().cast(), spare.as_mut_ptr().cast(), size, room)
    };
    let written = usize::try_from(written).unwrap_or(0);
    assert!(written <= size_max, "the library keeps to the room it is given");
    // SAFETY: this many bytes after the old length were just written.
    unsafe { out.set_len(out.len() + written) };
    written > 0
}

/// Appends the `size` bytes to which a block decompresses; returns `false`, and appends nothing, if
/// it has another size.
pub(super) fn append_plain(block: &[u8], size: usize, out: &mut Vec<u8>) -> bool {
    let (Ok(block_size), Ok(room)) = (c_int::try_from(block.len()), c_int::try_from(size)) else {
        return false;
    };
    out.reserve(size);
    let spare = out.spare_capacity_mut();
    debug_assert!(spare.len() >= size, "room was reserved");
    // SAFETY: `block` is `block_size` readable bytes, `spare` at least `room` writable ones, and
    // they do not overlap; this function of the library checks all it reads, writes no more than
    // `room` bytes and returns how many, or a negative number for a malformed block.
    let written = unsafe {
        lz4_sys::LZ4_decompress_safe(
            block.as_ptr().cast(),
            spare.as_mut_ptr().cast(),
            block_size,
            room,
        )
    };
    if usize::try_from(written) != Ok(size) {
        return false;
    }
    // SAFETY: this many bytes after the old length were just written.
    unsafe { out.set_len(out.len() + size) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_another_length_or_cut_anywhere_is_refused_and_leaves_the_output_alone() {
        let text = b"the basin above the dam, the basin below the dam; ".repeat(40);
        let mut block = Vec::new();
        assert!(append_compressed(&text, text.len(), &mut block));
        let mut out = b"before".to_vec();
        assert!(append_plain(&block, text.len(), &mut out));
        assert_eq!(out, [&b"before"[..], &text].concat());
        out.truncate(6);
        assert!(!append_plain(&block, text.len() - 1, &mut out));
        assert!(!append_plain(&block, text.len() + 1, &mut out));
        for cut in 0..block.len() {
            assert!(!append_plain(&block[..cut], text.len(), &mut out));
        }
        assert_eq!(out, b"before");
    }

    #[test]
    fn what_does_not_fit_the_room_is_not_compressed() {
        let text = b"some text that is short".to_vec();
        let mut out = Vec::new();
        assert!(!append_compressed(&text, 10, &mut out));
        assert!(out.is_empty());
    }
}
