//! SHA-256 of thirty-two messages at once: one in each 32-bit lane of the 512-bit vectors of
//! x86-64, with two such vectors side by side, because the rounds of one leave half of the
//! processor idle.
//!
//! Contract of the unsafe parts: messages are read under a mask that covers only their own bytes,
//! and bytes outside the mask are not touched; other vectors are read from, and written to, arrays
//! of the same size.
#![expect(unsafe_code, reason = "instructions not every processor has; the contract is above")]
#![expect(clippy::cast_possible_truncation, reason = "messages are shorter than 32 bits can count")]

use std::arch::x86_64::{
    __m256i, __m512i, __mmask16, _mm_set_epi64x, _mm_storeu_si128, _mm256_storeu_si256,
    _mm512_add_epi32, _mm512_broadcast_i32x4, _mm512_castsi512_si256, _mm512_cmpeq_epi8_mask,
    _mm512_cmpgt_epi32_mask, _mm512_cvtepi32_epi8, _mm512_extracti64x4_epi64, _mm512_loadu_si512,
    _mm512_mask_add_epi32, _mm512_mask_cmpgt_epi8_mask, _mm512_mask_cmple_epi32_mask,
    _mm512_mask_mov_epi8, _mm512_mask_or_epi32, _mm512_maskz_loadu_epi8, _mm512_max_epi32,
    _mm512_min_epi32, _mm512_or_si512, _mm512_permutex2var_epi64, _mm512_ror_epi32,
    _mm512_set_epi64, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_shuffle_i32x4, _mm512_slli_epi32, _mm512_srli_epi32,
    _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64,
};
use std::mem::MaybeUninit;

use super::super::message::BLOCK_SIZE;
use super::constants::{INITIAL, K};
use crate::merkle::Hash;

/// Number of messages hashed at once.
pub(super) const WIDTH: usize = STREAMS * LANES;
/// Maximum length of a message: its bits are counted in 32 bits.
pub(super) const LEN_MAX: usize = (1 << 28) - 1;
const STREAMS: usize = 2;
/// Maximum number of message bytes in the block that also holds the end byte and the length.
const LAST_MAX: i32 = (BLOCK_SIZE - 1 - size_of::<u64>()) as i32;
const LANES: usize = 16;
/// `x ^ y ^ z`, the choice of `y` or `z` by `x`, and the majority, as truth tables.
const XOR: i32 = 0x96;
const CHOICE: i32 = 0xCA;
const MAJORITY: i32 = 0xE8;

/// Destination of the hashes: all of them are written.
pub(super) type Hashes = [MaybeUninit<Hash>; WIDTH];
/// Word `n` of a block, of each message.
type Words = [__m512i; 16];
type State = [__m512i; 8];
/// The words of all streams side by side, in two halves.
type Block = [Half; 2];
type Half = [[__m512i; STREAMS]; 8];

/// Whether the processor has the extensions.
#[inline]
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Number of blocks of a message of this many bytes, with a prefix of one byte and the padding.
#[inline]
pub(super) fn blocks(len: usize) -> usize {
    (1 + len + 1 + size_of::<u64>()).div_ceil(BLOCK_SIZE)
}

/// Hashes each message after a prefix of one byte.
///
/// Must be called only if [`is_available`] returns true; no message may be longer than [`LEN_MAX`].
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn hash(prefix: u8, messages: &[&[u8]; WIDTH], hashes: &mut Hashes) {
    let (groups, _) = messages.as_chunks::<LANES>();
    let mut lens = [0_u32; WIDTH];
    for (len, message) in lens.iter_mut().zip(messages) {
        *len = message.len().min(LEN_MAX) as u32;
    }
    let longest = blocks(messages.iter().map(|message| message.len()).max().unwrap_or(0));
    let mut state = initial();
    let mut words = [[[_mm512_setzero_si512(); STREAMS]; 8]; 2];
    let mut active = [0; STREAMS];
    for block in 0..longest {
        for n in 0..STREAMS {
            // The remaining bytes of the messages after their prefix: zero, or negative, in a block
            // that has only padding, and less in those that follow.
            let left = lanes(&lens, n);
            let left = _mm512_add_epi32(left, number(1 - (block * BLOCK_SIZE) as i32));
            let mut row = load(&groups[n], left, block);
            if block == 0 {
                row[0] = begin(row[0], prefix);
            }
            active[n] = _mm512_cmpgt_epi32_mask(left, number(LAST_MAX - BLOCK_SIZE as i32));
            let last = _mm512_mask_cmple_epi32_mask(active[n], left, number(LAST_MAX));
            let bits = _mm512_slli_epi32::<3>(_mm512_add_epi32(lanes(&lens, n), number(1)));
            row[15] = _mm512_mask_or_epi32(row[15], last, row[15], bits);
            put(&mut words, n, &row);
        }
        compress(&mut state, &mut words, active);
    }
    digests(&state, hashes);
}

/// Hashes each pair of neighbours after a prefix of one byte.
///
/// Must be called only if [`is_available`] returns true.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn hash_pairs(prefix: u8, pairs: &[[Hash; 2]; WIDTH], hashes: &mut Hashes) {
    let (groups, _) = pairs.as_chunks::<LANES>();
    let mut lasts = [0_u32; WIDTH];
    for (last, [_, right]) in lasts.iter_mut().zip(pairs) {
        *last = u32::from(right.0[31]);
    }
    let mut state = initial();
    let zeros = _mm512_setzero_si512();
    let mut words = [[[zeros; STREAMS]; 8]; 2];
    for (n, group) in groups.iter().enumerate() {
        let mut row = load_pairs(group);
        row[0] = begin(row[0], prefix);
        put(&mut words, n, &row);
    }
    compress(&mut state, &mut words, [!0; STREAMS]);
    for n in 0..STREAMS {
        // The last byte of 65, and the padding.
        let last = _mm512_slli_epi32::<24>(lanes(&lasts, n));
        let mut row = [zeros; 16];
        row[0] = _mm512_or_si512(last, _mm512_set1_epi32(0x80_0000));
        row[15] = _mm512_set1_epi32(65 * 8);
        put(&mut words, n, &row);
    }
    compress(&mut state, &mut words, [!0; STREAMS]);
    digests(&state, hashes);
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn initial() -> [State; STREAMS] {
    let mut state = [_mm512_setzero_si512(); 8];
    for (vector, word) in state.iter_mut().zip(INITIAL) {
        *vector = _mm512_set1_epi32(word.cast_signed());
    }
    [state; STREAMS]
}

/// The numbers of the lanes of one vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn lanes(numbers: &[u32; WIDTH], n: usize) -> __m512i {
    let numbers: &[u32; LANES] = &numbers.as_chunks().0[n];
    // SAFETY: the array has 64 bytes, and the load does not ask for alignment.
    unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) }
}

/// Sets the words of one stream.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn put(block: &mut Block, n: usize, words: &Words) {
    for (slot, word) in block.as_flattened_mut().iter_mut().zip(words) {
        slot[n] = *word;
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn number(number: i32) -> __m512i {
    _mm512_set1_epi32(number)
}

/// The first word of messages, with the preceding byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn begin(word: __m512i, prefix: u8) -> __m512i {
    _mm512_or_si512(word, _mm512_set1_epi32(i32::from(prefix) << 24))
}

/// A block of each message, with the end byte, but without the prefix and the length; `left`
/// is the number of bytes that the messages still have after their prefix.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load(messages: &[&[u8]; LANES], left: __m512i, block: usize) -> Words {
    let at = block * BLOCK_SIZE;
    let within = if block == 0 { !1 } else { !0 };
    let left = _mm512_max_epi32(_mm512_min_epi32(left, number(BLOCK_SIZE as i32)), number(-1));
    let mut bytes = [0_i8; LANES];
    // SAFETY: the array has 16 bytes, and the store does not ask for alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(left)) };
    let order = numbered();
    transpose(std::array::from_fn(|lane| {
        let message = messages[lane];
        let left = _mm512_set1_epi8(bytes[lane]);
        let mask = _mm512_mask_cmpgt_epi8_mask(within, left, order);
        let start = message.as_ptr().wrapping_add(at.min(message.len())).wrapping_sub(1);
        // SAFETY: the mask excludes the byte before the message and those after it.
        let row = unsafe { row(start, mask) };
        let end = _mm512_cmpeq_epi8_mask(left, order);
        swap(_mm512_mask_mov_epi8(row, end, _mm512_set1_epi8(i8::MIN)))
    }))
}

/// From 0 to 63.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn numbered() -> __m512i {
    let mut numbers = [0_u8; BLOCK_SIZE];
    for (number, slot) in (0..).zip(&mut numbers) {
        *slot = number;
    }
    // SAFETY: the array has 64 bytes, and the load does not ask for alignment.
    unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) }
}

/// The first block of each pair, without the prefix.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_pairs(pairs: &[[Hash; 2]; LANES]) -> Words {
    let mut rows = [_mm512_setzero_si512(); LANES];
    for (pair, vector) in pairs.iter().zip(&mut rows) {
        let start = pair.as_ptr().cast::<u8>().wrapping_sub(1);
        // SAFETY: a hash is its 32 bytes, and the mask excludes the one before the pair.
        *vector = swap(unsafe { row(start, !1) });
    }
    transpose(rows)
}

/// The bytes of a block covered by `mask`, and zeros.
///
/// # Safety
/// Those bytes can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn row(start: *const u8, mask: u64) -> __m512i {
    // SAFETY: the caller's promise; bytes outside the mask are not touched.
    unsafe { _mm512_maskz_loadu_epi8(mask, start.cast()) }
}

/// Converts big-endian words to native words, and back.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn swap(words: __m512i) -> __m512i {
    let order = _mm_set_epi64x(0x0C0D_0E0F_0809_0A0B, 0x0405_0607_0001_0203);
    _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order))
}

/// Transposes a square of 16 by 16 words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose(r: Words) -> Words {
    let mut a = r;
    for i in 0..8 {
        a[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    let mut b = a;
    for i in 0..4 {
        b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    let mut c = b;
    for i in 0..4 {
        c[i] = _mm512_shuffle_i32x4::<0x88>(b[i], b[i + 4]);
        c[i + 4] = _mm512_shuffle_i32x4::<0xDD>(b[i], b[i + 4]);
        c[i + 8] = _mm512_shuffle_i32x4::<0x88>(b[i + 8], b[i + 12]);
        c[i + 12] = _mm512_shuffle_i32x4::<0xDD>(b[i + 8], b[i + 12]);
    }
    let mut d = c;
    for i in 0..8 {
        d[i] = _mm512_shuffle_i32x4::<0x88>(c[i], c[i + 8]);
        d[i + 8] = _mm512_shuffle_i32x4::<0xDD>(c[i], c[i + 8]);
    }
    d
}

/// Processes one block into each state; inactive lanes do not change.
#[target_feature(enable = "avx512f,avx512bw")]
fn compress(state: &mut [State; STREAMS], w: &mut Block, active: [__mmask16; STREAMS]) {
    let mut s = *state;
    for (n, k) in K.as_chunks::<8>().0.iter().enumerate() {
        let [even, odd] = &mut *w;
        let (this, other) = if n % 2 == 0 { (even, odd) } else { (odd, even) };
        if n >= 2 {
            eight_rounds::<true>(&mut s, this, other, k);
        } else {
            eight_rounds::<false>(&mut s, this, other, k);
        }
    }
    for n in 0..STREAMS {
        for (before, after) in state[n].iter_mut().zip(s[n]) {
            *before = _mm512_mask_add_epi32(*before, active[n], *before, after);
        }
    }
}

/// Eight rounds with the words of one half: unchanged, or with `NEXT` the words sixteen positions
/// later, which replace them. After eight rounds the state is in its original order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn eight_rounds<const NEXT: bool>(
    s: &mut [State; STREAMS],
    w: &mut Half,
    other: &Half,
    k: &[u32; 8],
) {
    for t in 0..8 {
        let k = _mm512_set1_epi32(k[t].cast_signed());
        // Side by side, so that the instructions of one run while the other waits.
        for n in 0..STREAMS {
            if NEXT {
                let w1 = if t < 7 { w[t + 1][n] } else { other[0][n] };
                let w9 = if t < 7 { other[t + 1][n] } else { w[0][n] };
                let w14 = if t < 2 { other[t + 6][n] } else { w[t - 2][n] };
                w[t][n] = schedule(w[t][n], w1, w9, w14);
            }
            s[n] = round(s[n], _mm512_add_epi32(w[t][n], k));
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn schedule(w0: __m512i, w1: __m512i, w9: __m512i, w14: __m512i) -> __m512i {
    let small =
        xor(_mm512_ror_epi32::<7>(w1), _mm512_ror_epi32::<18>(w1), _mm512_srli_epi32::<3>(w1));
    let large =
        xor(_mm512_ror_epi32::<17>(w14), _mm512_ror_epi32::<19>(w14), _mm512_srli_epi32::<10>(w14));
    _mm512_add_epi32(_mm512_add_epi32(_mm512_add_epi32(w0, w9), small), large)
}

/// Sums are computed in the order in which their operands become available.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn round([a, b, c, d, e, f, g, h]: State, word: __m512i) -> State {
    let choice = _mm512_ternarylogic_epi32::<CHOICE>(e, f, g);
    let first = _mm512_add_epi32(_mm512_add_epi32(h, word), choice);
    let mixed = xor(_mm512_ror_epi32::<6>(e), _mm512_ror_epi32::<11>(e), _mm512_ror_epi32::<25>(e));
    let first = _mm512_add_epi32(first, mixed);
    let majority = _mm512_ternarylogic_epi32::<MAJORITY>(a, b, c);
    let mixed = xor(_mm512_ror_epi32::<2>(a), _mm512_ror_epi32::<13>(a), _mm512_ror_epi32::<22>(a));
    let both = _mm512_add_epi32(_mm512_add_epi32(first, majority), mixed);
    [both, a, b, c, _mm512_add_epi32(d, first), e, f, g]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn xor(x: __m512i, y: __m512i, z: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<XOR>(x, y, z)
}

/// The hashes of the states.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn digests(states: &[State; STREAMS], hashes: &mut Hashes) {
    let (groups, _) = hashes.as_chunks_mut::<LANES>();
    for (state, hashes) in states.iter().zip(groups) {
        let mut s = *state;
        for word in &mut s {
            *word = swap(*word);
        }
        // For every fourth message, half a hash in each quarter of a vector.
        let (left, right) =
            (quarters([s[0], s[1], s[2], s[3]]), quarters([s[4], s[5], s[6], s[7]]));
        for i in 0..4 {
            let first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
            let first = _mm512_permutex2var_epi64(left[i], first, right[i]);
            let last = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
            let last = _mm512_permutex2var_epi64(left[i], last, right[i]);
            store(_mm512_castsi512_si256(first), &mut hashes[i]);
            store(_mm512_extracti64x4_epi64::<1>(first), &mut hashes[i + 4]);
            store(_mm512_castsi512_si256(last), &mut hashes[i + 8]);
            store(_mm512_extracti64x4_epi64::<1>(last), &mut hashes[i + 12]);
        }
    }
}

/// Four words of each lane side by side: lane `4n + i` in quarter `n` of vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn quarters([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
    let (ab_high, cd_high) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab, cd),
        _mm512_unpackhi_epi64(ab, cd),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store(bytes: __m256i, hash: &mut MaybeUninit<Hash>) {
    // SAFETY: a hash is 32 bytes, and the store does not ask for alignment.
    unsafe { _mm256_storeu_si256(hash.as_mut_ptr().cast(), bytes) };
}
