//! Compression of values where it saves memory.
//!
//! A value of at least a few dozen bytes and at most 4 MiB is considered. A sample first shows whether it is
//! repetitive, so that random bytes cost next to nothing. A value is stored compressed only if that
//! saves at least an eighth. A compressed value is its plain length (u32, little-endian) and the
//! block. It is decompressed directly to its destination: nothing is zeroed or copied on the way.

#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;
mod lz4;
mod steps;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io::Cursor;

use zstd::bulk::{Compressor, Decompressor};

use super::entry::Form;

/// Values below this are never compressed.
pub(super) const SIZE_MIN: usize = 64;
/// Values up to this size are judged by some of their four-byte windows.
const SHORT: usize = 512;
/// Number of windows examined in a short value, and in each part of a longer one.
const SHORT_SAMPLES: usize = 32;
const STRETCH: usize = 64;
/// Values above this size are judged by compressing this many bytes of their middle, and stored as
/// steps instead of LZ4 blocks.
const LONG: usize = 4_096;

/// Values above this size stay plain: a read or a change of a few bytes in the middle would have to
/// decompress all of it, and other clients would wait.
const SIZE_MAX: usize = 4 << 20;

/// How values are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// No compression.
    None,
    /// LZ4 blocks, and a variant of it for values above 4 KiB: fast in both directions.
    #[default]
    Lz4,
    /// Zstandard: smaller and slower.
    Zstd,
}

impl Codec {
    /// Parses the name used in the configuration.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "none" | "off" => Some(Self::None),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Returns the name used in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// The four-byte windows examined so far, as bits of their hashes.
struct Windows<const WORDS: usize> {
    seen: [u64; WORDS],
    looked: usize,
    again: usize,
}

impl<const WORDS: usize> Windows<WORDS> {
    fn new() -> Self {
        Self { seen: [0; WORDS], looked: 0, again: 0 }
    }

    /// Examines every `step`th window from `from` on, at most `most` of them.
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

    /// Whether clearly more windows repeat than by chance: of n random ones, about n * n / 2
    /// divided by the number of bits.
    fn repeat(&self) -> bool {
        let by_chance = self.looked * self.looked / (2 * WORDS * 64);
        self.again > by_chance * 3 / 2 + self.looked / 8
    }
}

/// Level of Zstandard: the fastest.
const ZSTD_LEVEL: i32 = 1;

/// Maximum size of a value that is compressed into a buffer of the thread and copied from there:
/// the allocation then has exactly the final size, and leaves no gaps.
pub(super) const SCRATCH_MAX: usize = 112 << 10;

thread_local! {
    /// The thread's buffer for compression.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// Working memory of Zstandard, a few hundred KiB, created by the threads that need it.
    static ZSTD: RefCell<(Option<Compressor<'static>>, Option<Decompressor<'static>>)> =
        const { RefCell::new((None, None)) };
}

/// Whether a value is repetitive, judging by a sample.
///
/// * `scratch`: buffer for the sample; empty afterwards.
fn repeats(value: &[u8], scratch: &mut Vec<u8>) -> bool {
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
    scratch.clear();
    let small = lz4::append_compressed(sample, LONG - LONG / 8, scratch);
    scratch.clear();
    small
}

/// Compresses a value into `out`; returns `None`, and leaves `out` empty, if that does not pay off.
pub(crate) fn compress(codec: Codec, value: &[u8], out: &mut Vec<u8>) -> Option<Form> {
    out.clear();
    let fits = (SIZE_MIN..=SIZE_MAX).contains(&value.len());
    if codec == Codec::None || !fits || !repeats(value, out) {
        return None;
    }
    let plain = u32::try_from(value.len()).ok()?;
    // A larger result is not kept, so no more room is needed.
    let size_max = value.len() - value.len() / 8 - 4;
    out.extend_from_slice(&plain.to_le_bytes());
    let (form, done) = match codec {
        Codec::None => return None,
        Codec::Lz4 if value.len() > LONG => {
            (Form::Steps, steps::append_compressed(value, size_max, out))
        }
        Codec::Lz4 => (Form::Lz4, lz4::append_compressed(value, size_max, out)),
        Codec::Zstd => (Form::Zstd, append_zstd(value, size_max, out)),
    };
    if !done {
        out.clear();
    }
    done.then_some(form)
}

/// Compresses a value of at most [`SCRATCH_MAX`] bytes, and passes on what is to be stored: the
/// result, or the value itself.
pub(crate) fn in_scratch<R>(codec: Codec, value: &[u8], put: impl FnOnce(Form, &[u8]) -> R) -> R {
    let mut scratch = SCRATCH.take();
    let result = match compress(codec, value, &mut scratch) {
        Some(form) => put(form, &scratch),
        None => put(Form::Plain, value),
    };
    SCRATCH.set(scratch);
    result
}

fn append_zstd(value: &[u8], size_max: usize, out: &mut Vec<u8>) -> bool {
    out.reserve_exact(size_max);
    let start = out.len();
    let mut spare = Cursor::new(&mut *out);
    spare.set_position(start as u64);
    let written = ZSTD.with_borrow_mut(|(compressor, _)| {
        if compressor.is_none() {
            *compressor = Compressor::new(ZSTD_LEVEL).ok();
        }
        let written = compressor.as_mut()?.compress_to_buffer(value, &mut spare).ok();
        // A compressor that ran out of room is not tried again.
        if written.is_none() {
            *compressor = None;
        }
        written
    });
    let fits = written.is_some_and(|written| written <= size_max);
    if !fits {
        out.truncate(start);
    }
    fits
}

/// Returns the plain length of a stored value.
pub(crate) fn plain_len(form: Form, stored: &[u8]) -> usize {
    match (form, stored.first_chunk::<4>()) {
        (Form::Lz4 | Form::Steps | Form::Zstd, Some(size)) => u32::from_le_bytes(*size) as usize,
        _ => stored.len(),
    }
}

/// Appends the plain value of a stored one: [`plain_len`] bytes.
///
/// Stored values are created here and stay in memory, so one that cannot be decompressed is a bug.
pub(crate) fn append_plain(form: Form, stored: &[u8], out: &mut Vec<u8>) {
    let size = plain_len(form, stored);
    let block = stored.get(4..).unwrap_or_default();
    let done = match form {
        Form::Plain | Form::Object | Form::Shared => {
            out.extend_from_slice(stored);
            true
        }
        Form::Lz4 => lz4::append_plain(block, size, out),
        Form::Steps => steps::append_plain(block, size, out),
        Form::Zstd => {
            out.reserve(size);
            let mut spare = Cursor::new(&mut *out);
            spare.set_position(spare.get_ref().len() as u64);
            let written = ZSTD.with_borrow_mut(|(_, decompressor)| {
                if decompressor.is_none() {
                    *decompressor = Decompressor::new().ok();
                }
                decompressor.as_mut()?.decompress_to_buffer(block, &mut spare).ok()
            });
            written == Some(size)
        }
    };
    assert!(done, "a value this process compressed is decompressed by it");
}

/// Returns the plain value of a stored one.
pub(crate) fn plain(form: Form, stored: &[u8]) -> Cow<'_, [u8]> {
    match form {
        Form::Plain | Form::Object | Form::Shared => Cow::Borrowed(stored),
        Form::Lz4 | Form::Steps | Form::Zstd => {
            let mut value = Vec::new();
            append_plain(form, stored, &mut value);
            Cow::Owned(value)
        }
    }
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
                assert!(
                    !repeats(&noise(size, symbols), &mut Vec::new()),
                    "{size} bytes of {symbols} symbols"
                );
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
            let expected = if size > LONG { Form::Steps } else { Form::Lz4 };
            assert_eq!(form, Some(expected), "{size} bytes");
        }
    }

    proptest! {
        #[test]
        fn every_value_comes_back(
            value in proptest::collection::vec(0u8..4, 0..9_000), zstd in any::<bool>()
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
