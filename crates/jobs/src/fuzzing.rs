//! What the fuzz targets need.

use crate::format;

/// Any bytes as an entry of the log.
///
/// # Panics
/// If a decoded entry is not encoded to the same bytes: a bug.
pub fn log_entry(data: &[u8]) {
    if let Ok((id, at_ms, entry)) = format::decode(data) {
        assert_eq!(format::encode(id, at_ms, &entry), data);
    }
}
