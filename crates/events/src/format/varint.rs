//! Unsigned LEB128, accepted only in its shortest form: one number, one encoding.

#![expect(clippy::cast_possible_truncation, reason = "seven bits at a time are what is wanted")]

/// Appends `number`, 1 to 10 bytes.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number as u8 & 0x7f) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Removes a number from the front of `bytes`. `None`: truncated, longer than needed, or over 64
/// bits.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for (place, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if place == 9 && bits > 1 {
            return None;
        }
        number |= bits << (7 * place);
        if byte & 0x80 == 0 {
            // A last byte of zero adds nothing: the shorter form exists.
            if byte == 0 && place > 0 {
                return None;
            }
            *bytes = &bytes[place + 1..];
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_and_only_the_shortest_form_is_read() {
        for number in [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            let mut rest = bytes.as_slice();
            assert_eq!(take_varint(&mut rest), Some(number));
            assert!(rest.is_empty());
            assert_eq!(take_varint(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take_varint(&mut [0x80, 0x00].as_slice()), None);
        assert_eq!(take_varint(&mut [0xff; 10].as_slice()), None);
    }
}
