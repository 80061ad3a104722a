//! Memory for large values, in large pages where the system has them.
//!
//! A new buffer of 100 MB has 25,000 pages of 4 KiB, and each is faulted in when it is first written:
//! that takes several times as long as the copy itself. Large pages are requested for each buffer,
//! since most systems give them only on request. Where there are none, nothing else changes.
#![expect(unsafe_code, reason = "a request about the memory of a buffer; it does not change it")]

/// Size in bytes from which large pages are requested.
const LARGE: usize = 4 << 20;

/// Returns an empty buffer with room for `size` bytes.
pub(crate) fn with_capacity(size: usize) -> Vec<u8> {
    let buffer = Vec::with_capacity(size);
    request(&buffer);
    buffer
}

/// Returns a copy.
pub(crate) fn copy(bytes: &[u8]) -> Vec<u8> {
    let mut copy = with_capacity(bytes.len());
    copy.extend_from_slice(bytes);
    copy
}

/// Makes room for `more` bytes.
#[inline]
pub(crate) fn reserve(buffer: &mut Vec<u8>, more: usize) {
    if buffer.capacity() - buffer.len() < more {
        buffer.reserve(more);
        request(buffer);
    }
}

/// Requests large pages for a buffer, if it is large.
#[inline]
pub(crate) fn request(buffer: &Vec<u8>) {
    if buffer.capacity() >= LARGE {
        request_pages(buffer);
    }
}

#[cfg(target_os = "linux")]
#[cold]
fn request_pages(buffer: &Vec<u8>) {
    const PAGE: usize = 2 << 20;
    // Only whole large pages: what is beside them may belong to other buffers.
    let begin = buffer.as_ptr().addr().next_multiple_of(PAGE);
    let end = (buffer.as_ptr().addr() + buffer.capacity()) / PAGE * PAGE;
    let Some(size) = end.checked_sub(begin).filter(|size| *size > 0) else { return };
    let start = buffer.as_ptr().with_addr(begin).cast_mut().cast();
    // SAFETY: the range is inside the buffer's memory, and this advice does not change contents.
    let refused = unsafe { libc::madvise(start, size, libc::MADV_HUGEPAGE) } != 0;
    if refused {
        tracing::trace!("the system has no large pages for a large value");
    }
}

#[cfg(not(target_os = "linux"))]
fn request_pages(_buffer: &Vec<u8>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_any_size_hold_what_is_written() {
        for size in [0, 1, LARGE - 1, LARGE, LARGE + 12_345, 3 * LARGE] {
            let bytes: Vec<u8> = (0..size).map(|at| at.to_le_bytes()[0]).collect();
            assert!(copy(&bytes) == bytes, "{size}");
            let mut grown = b"before".to_vec();
            reserve(&mut grown, size);
            assert!(grown.capacity() >= 6 + size, "{size}");
            grown.extend_from_slice(&bytes);
            assert!(grown[..6] == *b"before" && grown[6..] == bytes, "{size}");
        }
    }
}
