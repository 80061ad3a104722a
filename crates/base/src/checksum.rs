//! CRC32C (Castagnoli, RFC 3720 appendix B.4), the checksum of every frame on disk.
//!
//! It detects accidents, not adversaries: where bytes may be forged, a cryptographic hash is used.

/// Returns the CRC32C of `data`.
#[must_use]
pub fn crc32c(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}

/// Continues a CRC32C: `extend(crc32c(a), b)` equals `crc32c(a ++ b)`.
///
/// * `crc`: the checksum of everything before `data`; 0 at the start.
#[must_use]
pub fn extend(crc: u32, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, data)
}

/// An incremental checksum.
///
/// ```
/// use forebay_base::checksum::{Crc32c, crc32c};
/// let mut crc = Crc32c::default();
/// crc.update(b"fore");
/// crc.update(b"bay");
/// assert_eq!(crc.value(), crc32c(b"forebay"));
/// ```
#[derive(Debug, Default, Clone, Copy)]
pub struct Crc32c(u32);

impl Crc32c {
    /// Adds `data`.
    pub fn update(&mut self, data: &[u8]) {
        self.0 = extend(self.0, data);
    }

    /// Returns the checksum of all data added so far.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
    }

    #[test]
    fn pieces_equal_the_whole() {
        let data: Vec<u8> = (0..=255).collect();
        for cut in 0..data.len() {
            assert_eq!(extend(crc32c(&data[..cut]), &data[cut..]), crc32c(&data));
        }
    }
}
