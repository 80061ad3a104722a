//! Decompression for fuzz targets: any bytes go in, nothing panics, and nothing outside the buffers
//! is read or written.

use super::{Codec, append_plain, compress, lz4, plain_len, steps};

/// Maximum size of a value built from an input.
const SIZE_MAX: usize = 1 << 20;

/// Decompresses any bytes as a block of either form, and compresses them as a value: three bytes
/// give the size that the block claims to have.
///
/// # Panics
/// If a block yields more or less than it claims, or a value is not restored: a bug.
pub fn compressed(data: &[u8]) {
    let [a, b, c, input @ ..] = data else { return };
    let size = u32::from_le_bytes([*a, *b, *c, 0]) as usize % SIZE_MAX;
    for read in [lz4::append_plain, steps::append_plain] {
        let mut out = b"before".to_vec();
        let done = read(input, size, &mut out);
        assert!(out.starts_with(b"before"), "what was there is not touched");
        assert!(!done || out.len() == 6 + size, "a block makes as much as it claims");
    }
    // Repetitive values are what is compressed.
    let value = input.repeat(1 + usize::from(*a) % 64);
    let value = value.get(..SIZE_MAX).unwrap_or(&value);
    for codec in [Codec::Lz4, Codec::Zstd] {
        let mut stored = Vec::new();
        if let Some(form) = compress(codec, value, &mut stored) {
            let mut plain = Vec::new();
            append_plain(form, &stored, &mut plain);
            assert_eq!((plain_len(form, &stored), plain.as_slice()), (value.len(), value));
        }
    }
}
