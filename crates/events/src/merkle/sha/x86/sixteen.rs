//! SHA-256 of sixteen messages at once, one in each 32-bit lane of the 512-bit vectors of x86-64.
//!
//! Contract of the unsafe parts: 64-byte vectors are read from, or written to, nothing but arrays of 64
//! bytes.
#![expect(unsafe_code, reason = "instructions not every processor has; the contract is above")]

use std::arch::x86_64::{
    __m512i, __mmask16, _mm_set_epi64x, _mm512_add_epi32, _mm512_broadcast_i32x4,
    _mm512_loadu_si512, _mm512_mask_add_epi32, _mm512_ror_epi32, _mm512_set1_epi32,
    _mm512_shuffle_epi8, _mm512_shuffle_i32x4, _mm512_srli_epi32, _mm512_storeu_si512,
    _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64,
};

use super::super::message::Message;
use super::constants::{INITIAL, K};
use crate::merkle::Hash;

/// Messages hashed at once.
pub(super) const LANES: usize = 16;
/// `x ^ y ^ z`, the choice of `y` or `z` by `x`, and the majority, as truth tables.
const XOR: i32 = 0x96;
const CHOICE: i32 = 0xCA;
const MAJORITY: i32 = 0xE8;

type Words = [__m512i; 16];
type State = [__m512i; 8];

/// Whether the processor has the extensions.
#[inline]
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Hashes sixteen messages, to their ends.
///
/// To be called only where [`is_available`] says so.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn hash(messages: &mut [Message<'_>; LANES]) -> [Hash; LANES] {
    let mut state: State = INITIAL.map(|word| _mm512_set1_epi32(word.cast_signed()));
    loop {
        let mut active: __mmask16 = 0;
        for (lane, message) in messages.iter().enumerate() {
            active |= u16::from(!message.is_done()) << lane;
        }
        if active == 0 {
            return digests(state);
        }
        let words = load(messages);
        state = compress(state, words, active);
        messages.iter_mut().for_each(Message::advance);
    }
}

/// The next block of each message: word `n` of all of them in vector `n`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load(messages: &[Message<'_>; LANES]) -> Words {
    let order = _mm_set_epi64x(0x0C0D_0E0F_0809_0A0B, 0x0405_0607_0001_0203);
    let order = _mm512_broadcast_i32x4(order);
    let rows: Words = std::array::from_fn(|lane| {
        let block = messages[lane].block();
        // SAFETY: the block has 64 bytes, and the load does not ask for alignment.
        let row = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
        _mm512_shuffle_epi8(row, order)
    });
    transpose(rows)
}

/// Columns for rows, in a square of 16 by 16 words.
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

/// One block into each state; lanes that are not active stay as they are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn compress(before: State, words: Words, active: __mmask16) -> State {
    let (mut s, mut w) = (before, words);
    for (sixteen, k) in K.as_chunks::<16>().0.iter().enumerate() {
        for t in 0..16 {
            if sixteen > 0 {
                w[t] = schedule(w[t], w[(t + 1) % 16], w[(t + 9) % 16], w[(t + 14) % 16]);
            }
            s = round(s, _mm512_add_epi32(w[t], _mm512_set1_epi32(k[t].cast_signed())));
        }
    }
    std::array::from_fn(|i| _mm512_mask_add_epi32(before[i], active, before[i], s[i]))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn schedule(w0: __m512i, w1: __m512i, w9: __m512i, w14: __m512i) -> __m512i {
    let small =
        xor(_mm512_ror_epi32::<7>(w1), _mm512_ror_epi32::<18>(w1), _mm512_srli_epi32::<3>(w1));
    let large =
        xor(_mm512_ror_epi32::<17>(w14), _mm512_ror_epi32::<19>(w14), _mm512_srli_epi32::<10>(w14));
    _mm512_add_epi32(_mm512_add_epi32(w0, small), _mm512_add_epi32(w9, large))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn round([a, b, c, d, e, f, g, h]: State, word: __m512i) -> State {
    let mixed = xor(_mm512_ror_epi32::<6>(e), _mm512_ror_epi32::<11>(e), _mm512_ror_epi32::<25>(e));
    let choice = _mm512_ternarylogic_epi32::<CHOICE>(e, f, g);
    let first = _mm512_add_epi32(_mm512_add_epi32(h, word), _mm512_add_epi32(mixed, choice));
    let mixed = xor(_mm512_ror_epi32::<2>(a), _mm512_ror_epi32::<13>(a), _mm512_ror_epi32::<22>(a));
    let majority = _mm512_ternarylogic_epi32::<MAJORITY>(a, b, c);
    let second = _mm512_add_epi32(mixed, majority);
    [_mm512_add_epi32(first, second), a, b, c, _mm512_add_epi32(d, first), e, f, g]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn xor(x: __m512i, y: __m512i, z: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<XOR>(x, y, z)
}

/// The hashes the states stand for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn digests(state: State) -> [Hash; LANES] {
    let mut words = [[0_u32; LANES]; 8];
    for (row, vector) in words.iter_mut().zip(state) {
        // SAFETY: the row has 64 bytes, and the store does not ask for alignment.
        unsafe { _mm512_storeu_si512(row.as_mut_ptr().cast(), vector) };
    }
    std::array::from_fn(|lane| {
        let mut hash = Hash::default();
        for (bytes, row) in hash.0.as_chunks_mut::<4>().0.iter_mut().zip(&words) {
            *bytes = row[lane].to_be_bytes();
        }
        hash
    })
}
