//! Texts of records for the short fields of an event.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::format::leaf::TEXT_SIZE_MAX;

/// Returns the text if it fits an event's field; otherwise it stays only in the raw bytes.
pub(super) fn fitting(text: Cow<'_, str>) -> Cow<'_, str> {
    if fits(&text) { text } else { Cow::Borrowed("") }
}

/// Returns bytes as such a text; `None` also if they are not UTF-8.
pub(super) fn fitting_bytes(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).ok().filter(|text| fits(text)).unwrap_or_default()
}

fn fits(text: &str) -> bool {
    text.len() <= TEXT_SIZE_MAX && !text.bytes().any(|byte| byte < 0x20 || byte == 0x7f)
}

/// Parses an address. An IPv4-mapped IPv6 address becomes IPv4; brackets, a zone and a port are
/// removed.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim_ascii();
    if !text.as_bytes().first().is_some_and(|byte| byte.is_ascii_hexdigit() || b"[:".contains(byte))
    {
        return None;
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip().to_canonical());
    }
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let (address, _) = text.split_once('%')?;
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}
