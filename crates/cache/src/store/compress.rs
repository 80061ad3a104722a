//! Values compressed where that pays, and left alone where it does not.
//!
//! A value is worth trying from a few dozen bytes on; whether it repeats itself is guessed from a
//! sample first, so that random bytes cost next to nothing. What is kept compressed is smaller by
//! an eighth at least. A compressed value is its plain length (u32, little-endian) and the block.

use std::borrow::Cow;

use super::entry::Form;

/// Values below this are never compressed.
pub(super) const SIZE_MIN: usize = 64;
/// Values up to this are judged by a few of their four-byte windows.
const SHORT: usize = 512;
/// Windows looked at in a short value, and in each stretch of a longer one.
const SHORT_SAMPLES: usize = 32;
const STRETCH: usize = 64;
/// Values above this are judged by compressing so much of their middle.
const LONG: usize = 4_096;

/// How values are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// They are not.
    None,
    /// LZ4 blocks: quick both ways.
    #[default]
    Lz4,
    /// Zstandard: smaller and slower.
    Zstd,
}

impl Codec {
    /// The word of the configuration.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "none" | "off" => Some(Self::None),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The word of the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Four-byte windows seen so far, as bits of their hashes.
struct Windows<const WORDS: usize> {
    seen: [u64; WORDS],
    looked: usize,
    again: usize,
}

impl<const WORDS: usize> Windows<WORDS> {
    fn new() -> Self {
        Self { seen: [0; WORDS], looked: 0, again: 0 }
    }

    /// Looks at every `step`th window from `from` on, at most `most` of them.
    fn look(&mut self, value: &[u8], from: usize, step: usize, most: usize) {
        let mut at = from;
        for _ in 0..most {
            let window = value.get(at..).and_then(<[u8]>::first_chunk::<4>);
            let Some(window) = window else { return };
            let mixed = u32::from_le_bytes(*window).wrapping_mul(0x9E37_79B1);
            let hash = (mixed >> 16) as usize % (WORDS * 64);
            let bit = 1u64 << (hash % 64);
            self.again += usize::from(self.seen[hash / 64] & bit != 0);
            self.seen[hash / 64] |= bit;
            self.looked += 1;
            at += step;
        }
    }

    /// Whether clearly more occurred twice than do by chance: of n random ones, about n * n / 2 by
    /// the number of bits.
    fn repeat(&self) -> bool {
        let by_chance = self.looked * self.looked / (2 * WORDS * 64);
        self.again > by_chance * 3 / 2 + self.looked / 8
    }
}

/// Whether a value repeats itself, as far as a sample tells.
fn repeats(value: &[u8]) -> bool {
    if value.len() <= SHORT {
        let mut windows = Windows::<4>::new();
        windows.look(value, 0, (value.len() / SHORT_SAMPLES).max(1), SHORT_SAMPLES);
        return windows.repeat();
    }
    if value.len() <= LONG {
        let mut windows = Windows::<32>::new();
        for stretch in 0..4 {
            windows.look(value, stretch * (value.len() / 4), 1, STRETCH);
        }
        return windows.repeat();
    }
    let middle = value.len() / 2 - LONG / 2;
    let Some(sample) = value.get(middle..middle + LONG) else { return false };
    let mut out = [0; lz4_flex::block::get_maximum_output_size(LONG)];
    let size = lz4_flex::block::compress_into(sample, &mut out).unwrap_or(LONG);
    size + LONG / 8 <= LONG
}

/// Compresses a value; `None` where that does not pay.
pub(crate) fn compress(codec: Codec, value: &[u8], out: &mut Vec<u8>) -> Option<Form> {
    if codec == Codec::None || value.len() < SIZE_MIN || !repeats(value) {
        return None;
    }
    let plain = u32::try_from(value.len()).ok()?;
    out.clear();
    out.extend_from_slice(&plain.to_le_bytes());
    let form = match codec {
        Codec::None => return None,
        Codec::Lz4 => {
            out.resize(4 + lz4_flex::block::get_maximum_output_size(value.len()), 0);
            let size = lz4_flex::block::compress_into(value, out.get_mut(4..)?).ok()?;
            out.truncate(4 + size);
            Form::Lz4
        }
        Codec::Zstd => {
            out.resize(4 + zstd::zstd_safe::compress_bound(value.len()), 0);
            let size = zstd::bulk::compress_to_buffer(value, out.get_mut(4..)?, 1).ok()?;
            out.truncate(4 + size);
            Form::Zstd
        }
    };
    (out.len() + value.len() / 8 <= value.len()).then_some(form)
}

/// The plain length of a stored value.
pub(crate) fn plain_len(form: Form, stored: &[u8]) -> usize {
    match (form, stored.first_chunk::<4>()) {
        (Form::Lz4 | Form::Zstd, Some(size)) => u32::from_le_bytes(*size) as usize,
        _ => stored.len(),
    }
}

/// The plain value of a stored one.
///
/// Stored values are our own and live in memory only, so one that cannot be read is a bug.
pub(crate) fn plain(form: Form, stored: &[u8]) -> Cow<'_, [u8]> {
    let Some((_, block)) = stored.split_first_chunk::<4>() else { return Cow::Borrowed(stored) };
    let size = plain_len(form, stored);
    let value = match form {
        Form::Plain | Form::Object => return Cow::Borrowed(stored),
        Form::Lz4 => lz4_flex::block::decompress(block, size).ok(),
        Form::Zstd => zstd::bulk::decompress(block, size).ok(),
    };
    Cow::Owned(value.expect("a value this process compressed is decompressed by it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(size: usize, symbols: u64) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        (0..size)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                b'0' + u8::try_from((state >> 33) % symbols).unwrap_or(0)
            })
            .collect()
    }

    #[test]
    fn noise_is_left_alone_before_it_costs_anything() {
        for size in [64, 100, 300, 1_000, 4_096, 100_000] {
            for symbols in [64, 200] {
                assert!(!repeats(&noise(size, symbols)), "{size} bytes of {symbols} symbols");
            }
        }
    }

    #[test]
    fn text_that_repeats_becomes_small() {
        let text = br#"{"id":1,"name":"basin","tags":["water","power"],"ok":true},"#.repeat(1_400);
        let mut out = Vec::new();
        for (codec, share) in [(Codec::Lz4, 50), (Codec::Zstd, 100)] {
            let form = compress(codec, &text, &mut out).unwrap();
            assert!(out.len() * share < text.len(), "{} of {}", out.len(), text.len());
            assert_eq!(plain_len(form, &out), text.len());
            assert_eq!(plain(form, &out), &text[..]);
        }
    }

    #[test]
    fn json_of_every_length_is_found_to_repeat_itself() {
        let records: String = (0..900)
            .map(|n| {
                format!("{{\"id\":{n},\"name\":\"gate {}\",\"level\":{}.5}},", n * 7 % 31, n % 13)
            })
            .collect();
        for size in [200, 600, 1_000, 3_700, 5_000, 35_000] {
            let text = records.as_bytes().get(..size).unwrap();
            let form = compress(Codec::Lz4, text, &mut Vec::new());
            assert_eq!(form, Some(Form::Lz4), "{size} bytes");
        }
    }

    proptest! {
        #[test]
        fn every_value_comes_back(
            value in proptest::collection::vec(0u8..4, 0..2_000), zstd in any::<bool>()
        ) {
            let codec = if zstd { Codec::Zstd } else { Codec::Lz4 };
            let mut out = Vec::new();
            if let Some(form) = compress(codec, &value, &mut out) {
                prop_assert!(out.len() < value.len());
                prop_assert_eq!(&*plain(form, &out), &value[..]);
            }
        }
    }
}
