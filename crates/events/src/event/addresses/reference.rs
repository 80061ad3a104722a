//! The search for addresses as it was first written, plainly: segments with filters that it made
//! exist, so the faster one must find exactly the same.

#![deny(clippy::indexing_slicing)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// As [`any_of`](super::any_of), of a text. Each byte is looked at a fixed number of times.
pub(crate) fn any_in(text: &[u8], found: &mut dyn FnMut(IpAddr) -> bool) -> bool {
    let (mut from, mut floor) = (0, 0);
    loop {
        let rest = text.get(from..).unwrap_or_default();
        let Some(at) = memchr::memchr2(b'.', b':', rest).map(|at| from + at) else {
            return false;
        };
        from = at + 1;
        if !separates(text, at) {
            continue;
        }
        let (before, after) = text.split_at(at);
        let before = before.get(floor..).unwrap_or_default();
        let start = at - before.iter().rev().take_while(|byte| in_token(**byte)).count();
        let end = at + after.iter().take_while(|byte| in_token(**byte)).count();
        (from, floor) = (end, end);
        let range = TokenRange { text, start, end };
        if range.any(found) {
            return true;
        }
    }
}

/// Whether a dot or colon may be one of an address.
fn separates(text: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|at| text.get(at)).copied().unwrap_or_default();
    let after = text.get(at + 1).copied().unwrap_or_default();
    match text.get(at) {
        Some(b'.') => before.is_ascii_digit() && after.is_ascii_digit(),
        _ => after == b':' || before.is_ascii_hexdigit() && after.is_ascii_hexdigit(),
    }
}

/// Whether a byte belongs to the longest run that may hold an address.
fn in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b':')
}

/// A longest run of letters, digits, dots and colons.
struct TokenRange<'a> {
    text: &'a [u8],
    start: usize,
    end: usize,
}

impl TokenRange<'_> {
    fn any(&self, found: &mut dyn FnMut(IpAddr) -> bool) -> bool {
        let token = self.text.get(self.start..self.end).unwrap_or_default();
        let count = |wanted: u8| token.iter().filter(|byte| **byte == wanted).count();
        if count(b'.') < 3 && count(b':') < 2 {
            return false;
        }
        let Ok(token) = std::str::from_utf8(token) else { return false };
        let before = self.text.get(..self.start).unwrap_or_default();
        let ported = self.is_version(before);
        any_in_token(token, ported, found)
            || unescaped(before, token).is_some_and(|token| any_in_token(token, ported, found))
    }

    /// Whether what stands here follows a name and a slash, as in `Chrome/120.0.0.0`, and no port
    /// follows it, as in `outside/192.0.2.1(443)`.
    fn is_version(&self, before: &[u8]) -> bool {
        let Some(before) = before.strip_suffix(b"/") else { return false };
        let before = before.strip_suffix(b"\\").unwrap_or(before);
        let named = before.last().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'.');
        let after = self.text.get(self.end..).unwrap_or_default();
        named && !matches!(after, [b'(' | b'/', b'0'..=b'9', ..])
    }
}

/// A token without the end of an escape that it begins with: `\n` and `\u003c` of JSON, `%3D` of a
/// URL.
fn unescaped<'a>(before: &[u8], token: &'a str) -> Option<&'a str> {
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (before.last()?, token.as_bytes().first()?) {
        (b'\\', b'u') => token.get(1..5).filter(|code| hex(code)).and_then(|_| token.get(5..)),
        (b'\\', b'n' | b'r' | b't' | b'f' | b'b' | b'v') => token.get(1..),
        (b'%', _) => token.get(..2).filter(|code| hex(code)).and_then(|_| token.get(2..)),
        _ => None,
    }
}

/// * `ported`: IPv4 addresses count only with a port.
fn any_in_token(token: &str, ported: bool, found: &mut dyn FnMut(IpAddr) -> bool) -> bool {
    let token = trimmed(token);
    if let Ok(address) = token.parse::<Ipv6Addr>() {
        return found(IpAddr::V6(address).to_canonical());
    }
    let mut parts = token.split(':').peekable();
    while let Some(part) = parts.next() {
        let Some((address, port)) = v4(part) else { continue };
        let port = port || parts.peek().is_some_and(|next| next.parse::<u16>().is_ok());
        if (port || !ported) && found(IpAddr::V4(address)) {
            return true;
        }
    }
    v6_within(token).is_some_and(|address| found(IpAddr::V6(address).to_canonical()))
}

/// A token without what a sentence puts around an address.
fn trimmed(token: &str) -> &str {
    let mut token = token.trim_matches('.');
    if token.ends_with(':') && (!token.ends_with("::") || token.ends_with(":::")) {
        token = token.get(..token.len() - 1).unwrap_or_default().trim_end_matches('.');
    }
    if token.starts_with(':') && !token.starts_with("::") {
        token = token.get(1..).unwrap_or_default();
    }
    token
}

/// An address with four numbers, and whether a port follows it after another dot, as tcpdump writes.
fn v4(part: &str) -> Option<(Ipv4Addr, bool)> {
    // The shortest is 0.0.0.0.
    if part.len() < 7 || !part.as_bytes().first()?.is_ascii_digit() {
        return None;
    }
    if let Ok(address) = part.parse() {
        return Some((address, false));
    }
    let (address, port) = part.rsplit_once('.')?;
    port.parse::<u16>().ok()?;
    Some((address.parse().ok()?, true))
}

/// An IPv6 address after a name and a colon, as in `inside:2001:db8::1`, or before a port that
/// tcpdump separates by a dot.
fn v6_within(token: &str) -> Option<Ipv6Addr> {
    let (before, last) = token.rsplit_once(':')?;
    let bare = match last.split_once('.') {
        Some((group, port)) => {
            port.parse::<u16>().ok()?;
            token.get(..before.len() + 1 + group.len())?
        }
        None => token,
    };
    let is_group =
        |part: &str| part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut tail = bare;
    let mut rest = bare;
    while let Some((part, after)) = rest.split_once(':') {
        if !is_group(part) {
            tail = after;
        }
        rest = after;
    }
    if tail.len() == token.len() { None } else { tail.parse().ok() }
}
