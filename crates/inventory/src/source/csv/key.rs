//! Keys in S3's CSV encoding: percent-encoded as in a form, a blank as `+`.

/// Decodes a key into `decoded`; returns whether it was encoded.
///
/// # Errors
/// A `%` without two hexadecimal digits: the key was not encoded, so its meaning is unknown.
#[inline]
pub(crate) fn decode(key: &[u8], decoded: &mut Vec<u8>) -> Result<bool, String> {
    let Some(first) = memchr::memchr2(b'%', b'+', key) else {
        return Ok(false);
    };
    decoded.clear();
    let (plain, mut rest) = key.split_at_checked(first).unwrap_or((key, &[]));
    decoded.extend_from_slice(plain);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => decoded.push(b' '),
            b'%' => {
                let digits = rest.split_at_checked(2);
                let byte = digits.and_then(|(digits, _)| {
                    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
                    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
                });
                let Some((byte, (_, after))) = byte.zip(digits) else {
                    let key = crate::source::values::shown(key);
                    return Err(format!("the key {key} is not percent-encoded"));
                };
                decoded.push(byte);
                rest = after;
            }
            _ => decoded.push(byte),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_out_as_they_were_put_in() {
        let mut decoded = Vec::new();
        assert_eq!(decode(b"plain/key.txt", &mut decoded), Ok(false));
        assert_eq!(decode(b"a%2Fb+c%2b%25%ff", &mut decoded), Ok(true));
        assert_eq!(decoded, b"a/b c+%\xff");
        for wrong in ["100%", "a%2", "a%zz", "%+1"] {
            assert!(decode(wrong.as_bytes(), &mut decoded).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
