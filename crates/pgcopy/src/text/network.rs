//! `inet` and `cidr`: family (1 byte), bits of the mask (1), whether `cidr` (1), bytes of the address
//! (1), the address.
//!
//! An `inet` whose mask has all bits is written without it, a `cidr` never is. IPv6 is written as
//! `inet_net_ntop` in PostgreSQL does: the first longest run of zeros as `::`, and the last 32 bits as
//! IPv4 where the first 96 are zero or `::ffff`.

use std::io::Write as _;
use std::net::IpAddr;

use super::number;
use crate::error::CellError;

const MALFORMED: CellError = CellError::Malformed("network address");
/// `PGSQL_AF_INET`: `AF_INET` of the machine PostgreSQL was first written for.
const FAMILY_V4: u8 = 2;
/// `PGSQL_AF_INET6`.
const FAMILY_V6: u8 = 3;

/// Appends a field as text; `cidr` says of which type it is.
///
/// # Errors
/// The field is malformed.
pub fn to_text(field: &[u8], cidr: bool, out: &mut Vec<u8>) -> Result<(), CellError> {
    let ([family, bits, kind, size], address) = field.split_first_chunk().ok_or(MALFORMED)?;
    let is_whole = usize::from(*size) == address.len() && *kind == u8::from(cidr);
    if !is_whole || cidr && has_host_bits(address, *bits) {
        return Err(MALFORMED);
    }
    let bits_max = match (*family, address.len()) {
        (FAMILY_V4, 4) => {
            put_v4(address, out);
            32
        }
        (FAMILY_V6, 16) => {
            put_v6(address, out);
            128
        }
        _ => return Err(MALFORMED),
    };
    match *bits {
        bits if bits > bits_max => Err(MALFORMED),
        bits if bits == bits_max && !cidr => Ok(()),
        bits => write!(out, "/{bits}").map_err(|_| MALFORMED),
    }
}

/// Whether bits are set that the mask leaves out.
fn has_host_bits(address: &[u8], bits: u8) -> bool {
    let mut masked = u32::from(bits);
    address.iter().any(|byte| {
        let left_out = u8::MAX.checked_shr(masked).unwrap_or(0);
        masked = masked.saturating_sub(8);
        byte & left_out != 0
    })
}

fn put_v4(address: &[u8], out: &mut Vec<u8>) {
    for (index, byte) in address.iter().enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        super::put_padded(u64::from(*byte), 1, out);
    }
}

fn put_v6(address: &[u8], out: &mut Vec<u8>) {
    let (pairs, _) = address.as_chunks::<2>();
    let words: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
    let (start, length) = longest_zeros(&words);
    let fifth = words.get(5).copied();
    let embedded = start == 0 && (length == 6 || length == 5 && fifth == Some(0xffff));
    for (index, word) in words.iter().enumerate() {
        if (start..start + length).contains(&index) {
            if index == start {
                out.push(b':');
            }
            continue;
        }
        if index > 0 {
            out.push(b':');
        }
        if embedded && index == 6 {
            put_v4(address.get(12..).unwrap_or_default(), out);
            return;
        }
        put_word(*word, out);
    }
    if length > 0 && start + length == words.len() {
        out.push(b':');
    }
}

/// Start and length of the first longest run of at least two zeros; a length of 0 if there is none.
fn longest_zeros(words: &[u16]) -> (usize, usize) {
    let (mut best, mut start) = ((0, 0), 0);
    for run in words.split_inclusive(|word| *word != 0) {
        let length = run.iter().take_while(|word| **word == 0).count();
        if length >= 2 && length > best.1 {
            best = (start, length);
        }
        start += run.len();
    }
    best
}

fn put_word(word: u16, out: &mut Vec<u8>) {
    let digits = 4 - (word | 1).leading_zeros() / 4;
    for place in (0..digits).rev() {
        let digit = usize::from(word >> (place * 4) & 15);
        out.push(super::HEX.get(digit).copied().unwrap_or(b'0'));
    }
}

/// Appends the field of a text; `cidr` says of which type it is.
///
/// # Errors
/// The text is no address, or it is a `cidr` with bits beyond its mask.
pub fn from_text(text: &str, cidr: bool, out: &mut Vec<u8>) -> Result<(), CellError> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(number(bits, 3).ok_or(MALFORMED)?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| MALFORMED)?;
    let (family, size) = if address.is_ipv4() { (FAMILY_V4, 4) } else { (FAMILY_V6, 16) };
    let bits_max = u32::from(size) * 8;
    let bits = bits.unwrap_or(bits_max);
    if bits > bits_max {
        return Err(MALFORMED);
    }
    let bits = u8::try_from(bits).map_err(|_| MALFORMED)?;
    out.extend_from_slice(&[family, bits, u8::from(cidr), size]);
    let start = out.len();
    match address {
        IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
    }
    let refused = cidr && out.get(start..).is_some_and(|address| has_host_bits(address, bits));
    if refused { Err(MALFORMED) } else { Ok(()) }
}
