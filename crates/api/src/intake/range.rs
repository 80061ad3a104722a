//! Byte ranges (RFC 9110, section 14): which parts of a file a request asks for.

use std::ops::Range;

/// Maximum number of ranges in one request. A request for more gets the whole file.
const RANGES_MAX: usize = 16;

/// What a `Range` header selects of a file of a given size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ranges {
    /// The whole file: the header has no usable range.
    Whole,
    /// These parts, none of them empty.
    Parts(Vec<Range<u64>>),
    /// Nothing: no requested byte exists.
    Unsatisfiable,
}

/// Reads a `Range` header for a file of `size` bytes.
///
/// Malformed headers are ignored, as the RFC demands; so are requests for very many ranges and for
/// ranges that together exceed the file, which only serve to burden a server.
pub(super) fn parse(header: &str, size: u64) -> Ranges {
    let Some(set) = header.trim().strip_prefix("bytes=") else { return Ranges::Whole };
    let mut parts = Vec::new();
    let mut asked = 0usize;
    for spec in set.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
        asked += 1;
        if asked > RANGES_MAX {
            return Ranges::Whole;
        }
        match parse_one(spec, size) {
            Ok(Some(range)) => parts.push(range),
            Ok(None) => {}
            Err(()) => return Ranges::Whole,
        }
    }
    if asked == 0 {
        return Ranges::Whole;
    }
    if parts.is_empty() {
        return Ranges::Unsatisfiable;
    }
    let total: u128 = parts.iter().map(|part| u128::from(part.end - part.start)).sum();
    if parts.len() > 1 && total > u128::from(size) {
        return Ranges::Whole;
    }
    Ranges::Parts(parts)
}

/// One `first-last`, `first-` or `-length`; `None` if it lies outside the file.
fn parse_one(spec: &str, size: u64) -> Result<Option<Range<u64>>, ()> {
    let (first, last) = spec.split_once('-').ok_or(())?;
    let number = |text: &str| -> Result<u64, ()> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(());
        }
        Ok(text.parse().unwrap_or(u64::MAX))
    };
    if first.is_empty() {
        let length = number(last)?;
        return Ok((length > 0 && size > 0).then(|| size.saturating_sub(length)..size));
    }
    let start = number(first)?;
    let end = if last.is_empty() { u64::MAX } else { number(last)? };
    if end < start {
        return Err(());
    }
    Ok((start < size).then(|| start..end.saturating_add(1).min(size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_says() {
        let parts = |ranges: &[(u64, u64)]| {
            Ranges::Parts(ranges.iter().map(|&(start, end)| start..end).collect())
        };
        for (header, expected) in [
            ("bytes=0-0", parts(&[(0, 1)])),
            ("bytes=5-", parts(&[(5, 10)])),
            ("bytes=-3", parts(&[(7, 10)])),
            ("bytes=-30", parts(&[(0, 10)])),
            ("bytes=2-100", parts(&[(2, 10)])),
            ("bytes=0-1, 4-5", parts(&[(0, 2), (4, 6)])),
            ("bytes=0-1,20-30", parts(&[(0, 2)])),
            ("bytes=10-", Ranges::Unsatisfiable),
            ("bytes=-0", Ranges::Unsatisfiable),
            ("bytes=99999999999999999999-", Ranges::Unsatisfiable),
            ("bytes=5-2", Ranges::Whole),
            ("bytes=a-b", Ranges::Whole),
            ("bytes=", Ranges::Whole),
            ("items=0-1", Ranges::Whole),
            ("bytes=0-,0-,0-", Ranges::Whole),
            ("bytes=+1-2", Ranges::Whole),
        ] {
            assert_eq!(parse(header, 10), expected, "{header}");
        }
        assert_eq!(parse(&format!("bytes={}", "0-0,".repeat(17)), 10), Ranges::Whole);
        assert_eq!(parse("bytes=0-", 0), Ranges::Unsatisfiable);
        // However large the file, ranges that repeat it are the whole of it.
        assert_eq!(parse("bytes=0-,5-", u64::MAX), Ranges::Whole);
    }
}
