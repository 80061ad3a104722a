//! Variable-length numbers with seven bits per byte, the lowest first; read forwards, or backwards
//! where a record is read from its end.

/// Bytes of the longest number.
pub(crate) const SIZE_MAX: usize = 10;

/// Appends a number.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, value: u64) {
    let mut rest = value;
    while rest >= 0x80 {
        out.push(low(rest) | 0x80);
        rest >>= 7;
    }
    out.push(low(rest));
}

#[inline]
fn low(value: u64) -> u8 {
    value.to_le_bytes()[0] & 0x7F
}

/// Reads a number from the front of `data`.
#[inline]
pub(crate) fn take(data: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for i in 0..SIZE_MAX {
        let (&byte, rest) = data.split_first()?;
        *data = rest;
        value |= seven(byte, i)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The seven bits of byte number `i`; `None` if they do not fit.
#[inline]
fn seven(byte: u8, i: usize) -> Option<u64> {
    let bits = u64::from(byte & 0x7F);
    if i == SIZE_MAX - 1 && bits > 1 {
        return None;
    }
    Some(bits << (7 * i))
}

/// Reads a number from the end of `data`.
#[inline]
pub(crate) fn take_back(data: &mut &[u8]) -> Option<u64> {
    let (&byte, rest) = data.split_last()?;
    *data = rest;
    if byte < 0x80 {
        return Some(u64::from(byte));
    }
    let mut value = u64::from(byte & 0x7F);
    for i in 1..SIZE_MAX {
        let (&byte, rest) = data.split_last()?;
        *data = rest;
        value |= seven(byte, i)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Writes backwards, from the end of a buffer of `N` bytes, what is read from the end.
pub(crate) struct Backwards<const N: usize> {
    room: Box<[u8; N]>,
    at: usize,
}

impl<const N: usize> Backwards<N> {
    pub(crate) fn new() -> Self {
        Self { room: Box::new([0; N]), at: N }
    }

    /// Empties it.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.at = N;
    }

    /// The contents, to be read from the end.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.room.get(self.at..).unwrap_or_default()
    }

    /// Prepends a byte. Exceeding the capacity is an error of the caller.
    #[inline]
    pub(crate) fn put_byte(&mut self, byte: u8) {
        self.at -= 1;
        self.room[self.at] = byte;
    }

    /// Like [`put`].
    #[inline]
    pub(crate) fn put(&mut self, value: u64) {
        let mut rest = value;
        while rest >= 0x80 {
            self.put_byte(low(rest) | 0x80);
            rest >>= 7;
        }
        self.put_byte(low(rest));
    }

    /// Prepends bytes in their order.
    #[inline]
    pub(crate) fn put_slice(&mut self, bytes: &[u8]) {
        let end = self.at;
        self.at -= bytes.len();
        self.room[self.at..end].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_from_both_sides() {
        let numbers = (0..64).flat_map(|bit| [1_u64 << bit, (1_u64 << bit) - 1, u64::MAX >> bit]);
        for number in numbers.chain([0, u64::MAX]) {
            let mut forwards = Vec::new();
            put(&mut forwards, number);
            let mut rest = forwards.as_slice();
            assert_eq!(take(&mut rest), Some(number));
            assert!(rest.is_empty());
            let mut backwards = Backwards::<32>::new();
            backwards.put(number);
            let mut rest = backwards.bytes();
            assert_eq!(take_back(&mut rest), Some(number));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn numbers_cut_short_or_too_long_are_refused() {
        let endless = [0xFF; 12];
        assert_eq!(take(&mut endless.as_slice()), None);
        assert_eq!(take_back(&mut endless.as_slice()), None);
        for cut in [&[][..], &[0x80], &[0x80, 0x80]] {
            assert_eq!(take(&mut &*cut), None);
            assert_eq!(take_back(&mut &*cut), None);
        }
    }
}
