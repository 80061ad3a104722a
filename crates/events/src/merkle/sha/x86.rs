//! SHA-256 with the SHA extensions of x86-64, two messages at once.
//!
//! Contract of the unsafe parts: [`run`] is called only after the processor was asked for every
//! extension it is compiled for, and 16-byte vectors are read from, or written to, nothing but arrays
//! of at least 16 bytes.
#![expect(unsafe_code, reason = "instructions not every processor has; the contract is above")]

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_blend_epi16, _mm_loadu_si128, _mm_set_epi64x,
    _mm_setr_epi32, _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32,
    _mm_shuffle_epi8, _mm_shuffle_epi32, _mm_storeu_si128,
};

use super::super::Hash;
use super::message::{Block, Message, Messages};

/// The round constants, FIPS 180-4, section 4.2.2.
const K: [[i32; 4]; 16] = words([
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
]);

/// The initial hash value, FIPS 180-4, section 5.3.3, in the order the instructions want it: A, B, E
/// and F in one vector, C, D, G and H in the other, the first of them highest.
const INITIAL: [[i32; 4]; 2] = [
    [0x9b05_688c_u32 as i32, 0x510e_527f, 0xbb67_ae85_u32 as i32, 0x6a09_e667],
    [0x5be0_cd19, 0x1f83_d9ab, 0xa54f_f53a_u32 as i32, 0x3c6e_f372],
];

const fn words(k: [u32; 64]) -> [[i32; 4]; 16] {
    let mut out = [[0; 4]; 16];
    let mut i = 0;
    while i < 64 {
        out[i / 4][i % 4] = k[i] as i32;
        i += 1;
    }
    out
}

/// Hashes every message and appends the hashes in order; gives the messages back, untouched, when the
/// processor lacks the extensions.
#[inline]
pub(super) fn hash_all<'a, M: Messages<'a>>(messages: M, out: &mut Vec<Hash>) -> Result<(), M> {
    let can = is_x86_feature_detected!("sha")
        && is_x86_feature_detected!("ssse3")
        && is_x86_feature_detected!("sse4.1");
    if !can {
        return Err(messages);
    }
    // SAFETY: the processor has every extension `run` is compiled for.
    unsafe { run(messages, out) };
    Ok(())
}

/// A message under way, and where its hash goes.
struct Lane<'a> {
    message: Message<'a>,
    state: [__m128i; 2],
    index: usize,
}

#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn run<'a>(mut messages: impl Messages<'a>, out: &mut Vec<Hash>) {
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

/// Begins the next message in a lane, with a place for its hash; false when there is none.
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

/// Hashes what is left of a message, alone.
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
    INITIAL.map(|[a, b, c, d]| _mm_setr_epi32(a, b, c, d))
}

/// The hash a state stands for.
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

/// Turns four big-endian words into words of the machine, and back.
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
fn rounds([abef, cdgh]: [__m128i; 2], words: __m128i, k: [i32; 4]) -> [__m128i; 2] {
    let sum = _mm_add_epi32(words, _mm_setr_epi32(k[0], k[1], k[2], k[3]));
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
    for (group, k) in K.into_iter().enumerate() {
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
    for (group, k) in K.into_iter().enumerate() {
        x = rounds(x, v[0], k);
        y = rounds(y, w[0], k);
        let (v_next, w_next) = if group < 12 { (schedule(v), schedule(w)) } else { (v[0], w[0]) };
        v = [v[1], v[2], v[3], v_next];
        w = [w[1], w[2], w[3], w_next];
    }
    (add(a, x), add(b, y))
}
