//! SHA-256 with the SHA extensions of x86-64, two messages at once.
//!
//! Contract of the unsafe parts: 16-byte vectors are read from, or written to, nothing but arrays
//! of at least 16 bytes.
#![expect(unsafe_code, reason = "instructions not every processor has; the contract is above")]

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_blend_epi16, _mm_loadu_si128, _mm_set_epi64x,
    _mm_setr_epi32, _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32,
    _mm_shuffle_epi8, _mm_shuffle_epi32, _mm_storeu_si128,
};

use super::super::message::{Block, Message, Messages};
use super::constants::{INITIAL, K};
use crate::merkle::Hash;

/// A message being hashed, and the destination of its hash.
struct Lane<'a> {
    message: Message<'a>,
    state: [__m128i; 2],
    index: usize,
}

/// Whether the processor has the extensions.
#[inline]
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("sha")
        && is_x86_feature_detected!("ssse3")
        && is_x86_feature_detected!("sse4.1")
}

/// Hashes every message and appends the hashes in order.
///
/// Must be called only if [`is_available`] returns true.
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
pub(super) fn run<'a>(mut messages: impl Messages<'a>, out: &mut Vec<Hash>) {
    let mut a = lane();
    let mut b = lane();
    if !start(&mut a, &mut messages, out) {
        return;
    }
    if start(&mut b, &mut messages, out) {
        loop {
            (a.state, b.state) =
                compress_two(a.state, b.state, a.message.block(), b.message.block());
            a.message.advance();
            b.message.advance();
            if a.message.is_done() {
                out[a.index] = digest(a.state);
                if !start(&mut a, &mut messages, out) {
                    finish(b, out);
                    return;
                }
            }
            if b.message.is_done() {
                out[b.index] = digest(b.state);
                if !start(&mut b, &mut messages, out) {
                    break;
                }
            }
        }
    }
    finish(a, out);
}

#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn lane<'a>() -> Lane<'a> {
    Lane { message: Message::default(), state: initial(), index: 0 }
}

/// Starts the next message in a lane, with a slot for its hash; returns false if there is none.
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn start<'a>(lane: &mut Lane<'a>, messages: &mut impl Messages<'a>, out: &mut Vec<Hash>) -> bool {
    if !messages.next(&mut lane.message) {
        return false;
    }
    lane.state = initial();
    lane.index = out.len();
    out.push(Hash::default());
    true
}

/// Hashes the rest of a single message.
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn finish(mut lane: Lane<'_>, out: &mut [Hash]) {
    while !lane.message.is_done() {
        lane.state = compress(lane.state, lane.message.block());
        lane.message.advance();
    }
    out[lane.index] = digest(lane.state);
}

#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn initial() -> [__m128i; 2] {
    // The order that the instructions require: A, B, E and F in one vector, the first of them
    // highest, and the others in the other.
    let [a, b, c, d, e, f, g, h] = INITIAL.map(u32::cast_signed);
    [_mm_setr_epi32(f, e, b, a), _mm_setr_epi32(h, g, d, c)]
}

/// The hash of a state.
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn digest([abef, cdgh]: [__m128i; 2]) -> Hash {
    let feba = _mm_shuffle_epi32(abef, 0x1B);
    let dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    let dcba = _mm_blend_epi16(feba, dchg, 0xF0);
    let hgfe = _mm_alignr_epi8(dchg, feba, 8);
    let swap = byte_order();
    let mut hash = Hash::default();
    let at = hash.0.as_mut_ptr();
    // SAFETY: the array has 32 bytes: two vectors, and none of the stores asks for alignment.
    unsafe {
        _mm_storeu_si128(at.cast(), _mm_shuffle_epi8(dcba, swap));
        _mm_storeu_si128(at.add(16).cast(), _mm_shuffle_epi8(hgfe, swap));
    }
    hash
}

/// Converts four big-endian words to native words, and back.
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn byte_order() -> __m128i {
    _mm_set_epi64x(0x0C0D_0E0F_0809_0A0B, 0x0405_0607_0001_0203)
}

/// The sixteen words of a block.
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn load(block: &Block) -> [__m128i; 4] {
    let (vectors, _) = block.as_chunks::<16>();
    let word = |i: usize| {
        // SAFETY: the array has 16 bytes, and the load does not ask for alignment.
        let vector = unsafe { _mm_loadu_si128(vectors[i].as_ptr().cast()) };
        _mm_shuffle_epi8(vector, byte_order())
    };
    [word(0), word(1), word(2), word(3)]
}

/// The four words of the message schedule after these sixteen.
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn schedule(w: [__m128i; 4]) -> __m128i {
    let sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[0], w[1]), _mm_alignr_epi8(w[3], w[2], 4));
    _mm_sha256msg2_epu32(sum, w[3])
}

/// Four rounds with four words of the schedule.
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn rounds([abef, cdgh]: [__m128i; 2], words: __m128i, k: &[u32; 4]) -> [__m128i; 2] {
    let [k0, k1, k2, k3] = k.map(u32::cast_signed);
    let sum = _mm_add_epi32(words, _mm_setr_epi32(k0, k1, k2, k3));
    let cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
    let abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
    [abef, cdgh]
}

#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn add(x: [__m128i; 2], y: [__m128i; 2]) -> [__m128i; 2] {
    [_mm_add_epi32(x[0], y[0]), _mm_add_epi32(x[1], y[1])]
}

/// One block into one state.
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn compress(before: [__m128i; 2], block: &Block) -> [__m128i; 2] {
    let mut state = before;
    let mut w = load(block);
    for (group, k) in K.as_chunks::<4>().0.iter().enumerate() {
        state = rounds(state, w[0], k);
        let next = if group < 12 { schedule(w) } else { w[0] };
        w = [w[1], w[2], w[3], next];
    }
    add(before, state)
}

/// One block into each of two states.
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn compress_two(
    a: [__m128i; 2],
    b: [__m128i; 2],
    a_block: &Block,
    b_block: &Block,
) -> ([__m128i; 2], [__m128i; 2]) {
    let (mut x, mut y) = (a, b);
    let (mut v, mut w) = (load(a_block), load(b_block));
    for (group, k) in K.as_chunks::<4>().0.iter().enumerate() {
        x = rounds(x, v[0], k);
        y = rounds(y, w[0], k);
        let (v_next, w_next) = if group < 12 { (schedule(v), schedule(w)) } else { (v[0], w[0]) };
        v = [v[1], v[2], v[3], v_next];
        w = [w[1], w[2], w[3], w_next];
    }
    (add(a, x), add(b, y))
}
