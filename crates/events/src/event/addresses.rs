//! The IP addresses that an event names, wherever they stand in it.
//!
//! They are those written in its raw bytes, in texts among its attributes, and in the fields host
//! and address (`docs/formats/event-segment.md`, "Addresses"). So source, destination, translated
//! addresses, lists and forwarded-for headers all count, in any format, without a list of names.
//!
//! Invariant: what an event names depends on its leaf alone. Searches, the filters of segments and
//! verification share this one definition, which never changes for a version of segments.

#![deny(clippy::indexing_slicing)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Event, Tags, Value};
use crate::format::{leaf, take_varint};

/// Parses an address. An IPv4-mapped IPv6 address becomes IPv4; brackets, a zone and a port are
/// removed.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
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

/// Passes the addresses of an event to `found` until that returns true, and returns whether it did.
/// An address may be passed more than once.
pub(crate) fn any_of(event: &Event<'_>, found: &mut dyn FnMut(IpAddr) -> bool) -> bool {
    any_of_tags(&event.tags, found)
        || any_in(event.raw, found)
        || any_of_attributes(event.attributes.bytes, found)
}

/// As [`any_of`], of the short fields alone.
pub(crate) fn any_of_tags(tags: &Tags<'_>, found: &mut dyn FnMut(IpAddr) -> bool) -> bool {
    tags.ip.is_some_and(|ip| found(ip.to_canonical())) || any_in(tags.host.as_bytes(), found)
}

/// As [`any_of`], of raw bytes and attributes as they are in a leaf.
pub(crate) fn any_of_body(mut body: &[u8], found: &mut dyn FnMut(IpAddr) -> bool) -> bool {
    let size = take_varint(&mut body).and_then(|size| usize::try_from(size).ok());
    let Some((raw, attributes)) = size.and_then(|size| body.split_at_checked(size)) else {
        return false;
    };
    any_in(raw, found) || any_of_attributes(attributes, found)
}

fn any_of_attributes(mut bytes: &[u8], found: &mut dyn FnMut(IpAddr) -> bool) -> bool {
    while !bytes.is_empty() {
        match leaf::take_attribute(&mut bytes) {
            Ok((_, Value::Text(text))) if any_in(text.as_bytes(), found) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    false
}

/// As [`any_of`], of a text. Each byte is looked at a fixed number of times.
pub(crate) fn any_in(text: &[u8], found: &mut dyn FnMut(IpAddr) -> bool) -> bool {
    let mut floor = 0;
    for at in separators(text) {
        if at < floor || !separates(text, at) {
            continue;
        }
        let (before, after) = text.split_at(at);
        let before = before.get(floor..).unwrap_or_default();
        let start = at - before.iter().rev().take_while(|byte| in_token(**byte)).count();
        let end = at + after.iter().take_while(|byte| in_token(**byte)).count();
        floor = end;
        let token = text.get(start..end).unwrap_or_default();
        let marks = Marks::of(token);
        if marks.permit_v4() || marks.permit_v6() {
            let range = TokenRange { text, start, end, marks };
            if range.any(found) {
                return true;
            }
        }
    }
    false
}

/// The places of all dots and colons, which are so frequent in most events that eight bytes at a time
/// are faster than a search that starts again after each.
fn separators(text: &[u8]) -> impl Iterator<Item = usize> {
    let (words, rest) = text.as_chunks::<8>();
    let tail = words.len() * 8;
    let places = words.iter().enumerate().flat_map(|(number, word)| {
        let word = u64::from_le_bytes(*word);
        let mut hits = equal(word, b'.') | equal(word, b':');
        std::iter::from_fn(move || {
            let place = (hits != 0).then(|| number * 8 + (hits.trailing_zeros() / 8) as usize);
            hits &= hits.wrapping_sub(1);
            place
        })
    });
    let rest = rest.iter().enumerate().filter(|(_, byte)| matches!(byte, b'.' | b':'));
    places.chain(rest.map(move |(at, _)| tail + at))
}

/// The highest bit of each byte of a word that is `wanted`.
fn equal(word: u64, wanted: u8) -> u64 {
    const LOW: u64 = u64::MAX / 255 * 0x7f;
    let differs = word ^ (u64::MAX / 255 * u64::from(wanted));
    !(((differs & LOW) + LOW) | differs | LOW)
}

/// Maximum number of colons of a token that is an address but for one at each end, which a sentence
/// puts there: eight, if `::` stands for one group.
const V6_COLONS_MAX: usize = 8 + 2;

/// The separators of a token: most tokens are times or versions, and cannot hold an address.
#[derive(Clone, Copy)]
struct Marks {
    dots: usize,
    colons: usize,
    /// Whether two colons follow each other.
    double: bool,
}

impl Marks {
    fn of(token: &[u8]) -> Self {
        let mut marks = Self { dots: 0, colons: 0, double: false };
        let mut before = 0;
        for &byte in token {
            marks.dots += usize::from(byte == b'.');
            marks.colons += usize::from(byte == b':');
            marks.double |= byte == b':' && before == b':';
            before = byte;
        }
        marks
    }

    /// Whether there may be four numbers.
    fn permit_v4(self) -> bool {
        self.dots >= 3
    }

    /// Whether there may be eight groups, the last two as four numbers, or fewer with `::`.
    fn permit_v6(self) -> bool {
        self.double || self.colons >= 6
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
    marks: Marks,
}

impl TokenRange<'_> {
    fn any(&self, found: &mut dyn FnMut(IpAddr) -> bool) -> bool {
        let token = self.text.get(self.start..self.end).unwrap_or_default();
        let Ok(token) = std::str::from_utf8(token) else { return false };
        let before = self.text.get(..self.start).unwrap_or_default();
        let ported = self.is_version(before);
        let mut any = |token| any_in_token(token, self.marks, ported, found);
        any(token) || unescaped(before, token).is_some_and(any)
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
fn any_in_token(
    token: &str,
    marks: Marks,
    ported: bool,
    found: &mut dyn FnMut(IpAddr) -> bool,
) -> bool {
    let token = trimmed(token);
    if marks.permit_v6()
        && marks.colons <= V6_COLONS_MAX
        && let Ok(address) = token.parse::<Ipv6Addr>()
    {
        return found(IpAddr::V6(address).to_canonical());
    }
    if marks.permit_v4() && any_v4(token, ported, found) {
        return true;
    }
    marks.permit_v6() && any_v6_within(token, found)
}

fn any_v4(token: &str, ported: bool, found: &mut dyn FnMut(IpAddr) -> bool) -> bool {
    let mut parts = token.split(':').peekable();
    while let Some(part) = parts.next() {
        let Some((address, port)) = v4(part) else { continue };
        let port = port || parts.peek().is_some_and(|next| next.parse::<u16>().is_ok());
        if (port || !ported) && found(IpAddr::V4(address)) {
            return true;
        }
    }
    false
}

fn any_v6_within(token: &str, found: &mut dyn FnMut(IpAddr) -> bool) -> bool {
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
    let (mut tail, mut start, mut hex) = (0, 0, true);
    for (at, byte) in bare.bytes().enumerate() {
        if byte == b':' {
            if !hex || at - start > 4 {
                tail = at + 1;
            }
            (start, hex) = (at + 1, true);
        } else {
            hex &= byte.is_ascii_hexdigit();
        }
    }
    let tail = bare.get(tail..)?;
    if tail.len() == token.len() { None } else { tail.parse().ok() }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        let stopped = any_in(text.as_bytes(), &mut |address| {
            all.push(address.to_string());
            false
        });
        assert!(!stopped);
        all
    }

    #[test]
    fn addresses_are_found_in_the_forms_that_products_write() {
        for (text, addresses) in [
            // Firewalls and packet filters.
            (
                "%ASA-6-302013: Built inbound TCP connection 1 for outside:192.0.2.1/4431 \
                 (198.51.100.7/4431) to inside:10.0.0.1/443 (203.0.113.9/443)",
                &["192.0.2.1", "198.51.100.7", "10.0.0.1", "203.0.113.9"][..],
            ),
            ("inside/10.0.0.1(1234) -> outside/192.0.2.1(443)", &["10.0.0.1", "192.0.2.1"]),
            (
                "srcip=10.1.2.3 transip=192.0.2.9 dstip=\"10.1.2.4\"",
                &["10.1.2.3", "192.0.2.9", "10.1.2.4"],
            ),
            ("IP 10.0.0.1.54321 > 10.0.0.2.53: 1+", &["10.0.0.1", "10.0.0.2"]),
            ("IP6 2001:db8::1.443 > fe80::2.53: x", &["2001:db8::1", "fe80::2"]),
            ("10.0.0.1/1234->192.0.2.2/80", &["10.0.0.1", "192.0.2.2"]),
            ("flow 10.0.0.1-10.0.0.9", &["10.0.0.1", "10.0.0.9"]),
            ("src inside:2001:db8::1/80", &["2001:db8::1"]),
            // JSON, also escaped, in lists and headers.
            (
                r#"{"host":{"ip":["10.0.0.1","fe80::1%eth0"]},"xff":"192.0.2.1, 192.0.2.2:80"}"#,
                &["10.0.0.1", "fe80::1", "192.0.2.1", "192.0.2.2"],
            ),
            (
                r#"{"m":"{\"src\":\"10.0.0.1\",\"b\":\"x\n10.0.0.2\t::1\"}"}"#,
                &["10.0.0.1", "10.0.0.2", "::1"],
            ),
            (r"\u003cData\u003e10.0.0.1\u003c/Data\u003e", &["10.0.0.1"]),
            ("<Data Name='IpAddress'>::ffff:10.0.0.1</Data>", &["10.0.0.1"]),
            // Ports, brackets, zones.
            ("1.2.3.4:80 [::1]:80 [2001:DB8:0::1]:443", &["1.2.3.4", "::1", "2001:db8::1"]),
            ("ipv4:10.0.0.1:443 ipv6:[fe80::1%2]:443 ipv6:::1", &["10.0.0.1", "fe80::1", "::1"]),
            ("[::ffff:10.0.0.1]:80, ::ffff:a00:2", &["10.0.0.1", "10.0.0.2"]),
            ("connect to localhost/127.0.0.1:80 failed, /10.0.0.1:5", &["127.0.0.1", "10.0.0.1"]),
            // Text and URLs.
            (
                "Failed password for ann from 10.0.0.1. Closed by 10.0.0.2: bye",
                &["10.0.0.1", "10.0.0.2"],
            ),
            ("from 2001:db8::1: gone", &["2001:db8::1"]),
            (
                "http://10.0.0.1:8080/x?a=10.0.0.2&b%3D10.0.0.3",
                &["10.0.0.1", "10.0.0.2", "10.0.0.3"],
            ),
            ("来自10.0.0.1的", &["10.0.0.1"]),
            ("10.0.0.0/8", &["10.0.0.0"]),
            ("1.2.3.4", &["1.2.3.4"]),
        ] {
            assert_eq!(of(text), addresses, "{text}");
        }
    }

    #[test]
    fn what_only_resembles_an_address_is_none() {
        for text in [
            "",
            ".",
            ":",
            ".:.:.",
            "Chrome/120.0.0.0 Safari/537.36",
            r"Edg\/120.0.0.0",
            "v1.2.3.4 libssl.so.1.1.1.1 1.2.3.4abc",
            "1.3.6.1.4.1.311 1.2.3 256.1.1.1 010.0.0.1",
            "2024-11-21T10:20:00.123Z 12:34:56 10.5",
            "aa:bb:cc:dd:ee:ff",
            "43:51:43:a1:b5:fc:8b:b7:0a:3a:a9:b1:0f:66:73:a8",
            "std::vector x::y 1:2:3:4:5:6:7:8:9",
            "1.0.0.10.in-addr.arpa",
        ] {
            assert_eq!(of(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn any_bytes_are_read() {
        let mut state = 7u32;
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..24)
                .filter_map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    b"0129af.:/\\%un[]x\xff ".get((state >> 24) as usize % 18).copied()
                })
                .collect();
            let mut count = 0;
            any_in(&text, &mut |_| {
                count += 1;
                false
            });
            assert!(count <= 24);
        }
    }

    /// Texts of what addresses, and what resembles them, are made of.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            8 => proptest::sample::select(vec![
                "1", "10", "255", "256", "0", "a", "ff", "2001", "db8", "12345", "x", "::", ":", ":",
                ".", ".", "...", ":::", " ", "/", "[", "]", "%", "\\n", "\\u003c", "\\/", "%3D", "\"",
                "10.0.0.1", "192.0.2.1:443", "10.0.0.1.53", "2001:db8::1", "fe80::1%eth0", "::1",
                "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "1:2:3:4:5:6:1.2.3.4", "Chrome/1.2.3.4",
                "aa:bb:cc:dd:ee:ff", "12:34:56", "2024-11-21T10:20:00.123Z", "inside:", "(443)",
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..12),
        ];
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn the_same_addresses_are_found_as_by_the_plain_search(text in texts(), stop in 1usize..9) {
            let by = |search: fn(&[u8], &mut dyn FnMut(IpAddr) -> bool) -> bool| {
                let mut all = Vec::new();
                let stopped = search(&text, &mut |address| {
                    all.push(address);
                    all.len() == stop
                });
                (all, stopped)
            };
            prop_assert_eq!(by(any_in), by(reference::any_in));
        }
    }
}
