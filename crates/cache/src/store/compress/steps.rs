//! Longer values as steps: a variant of LZ4 that is decompressed without data-dependent branches.
//!
//! Decompressing LZ4 is slow because the processor mispredicts the lengths of the pieces. A step is
//! three bytes at a known position: copy this many literals, then this many bytes from this
//! distance back. Sixteen and thirty-two bytes are always moved, and the excess is overwritten by
//! the next step. So decompressing is a chain of additions (decision 0008).
//!
//! ```text
//! block:   count of steps u32 | steps, 3 bytes each | literals | 16 zeros
//! step:    bits 0-4 length | bits 5-8 literals, 0 to 14 | bits 9-23 distance, below 32 Ki
//! escapes: literals 15, length 0: as many literals as the distance says
//!          literals 15, length 1: the whole next step is the length to take from this distance
//! ```
//!
//! None of this reaches a disk or the network. Still nothing in a block is trusted: a step that
//! refers to bytes outside the data, or to bytes not written yet, ends the decompression.
//!
//! Invariants: a distance is no shorter than the length copied from there, so one move suffices; a
//! vector's length grows only over bytes that were written.

#![expect(unsafe_code, reason = "moves of fixed size within room that was reserved and checked")]

use std::cell::RefCell;
use std::mem::MaybeUninit;

/// Bytes moved for a step's literals; a block ends with this many zeros.
const LITERALS_MOVE: usize = 16;
/// Bytes moved from a step's distance.
const MATCH_MOVE: usize = 32;
/// Maximum number of literals of a step.
const LITERALS_MAX: usize = 14;
/// Marks a step as an escape.
const ESCAPE: usize = 15;
/// Maximum length of a step.
const MATCH_MAX: usize = MATCH_MOVE - 1;
/// Length from which two steps that contain the whole length are shorter.
const LONG_MATCH_MIN: usize = 4 * MATCH_MAX;
const LONG_MATCH_MAX: usize = (1 << 24) - 1;
const DISTANCE_MAX: usize = (1 << 15) - 1;
const STEP_SIZE: usize = 3;

/// Bits of the tables' indices.
const TABLE_BITS: u32 = 14;
/// Number of bytes hashed for the first table: a match it finds is used immediately.
const LONG: usize = 16;
/// Number of bytes hashed for the second table, and the minimum length of a match.
const SHORT: usize = 6;
/// Bytes without a match after which only every second position is examined, and so on.
const HURRY_SHIFT: usize = 6;

/// Where strings of two lengths were last seen, by their hashes: the low 16 bits of the position.
struct MatchTables {
    long: [u16; 1 << TABLE_BITS],
    short: [u16; 1 << TABLE_BITS],
}

thread_local! {
    static PLACES: RefCell<(Option<Box<MatchTables>>, Vec<u8>)> =
        const { RefCell::new((None, Vec::new())) };
}

/// A part that occurred before.
#[derive(Debug, Clone, Copy, Default)]
struct Match {
    at: usize,
    len: usize,
    distance: usize,
}

#[inline]
fn word(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

/// The part of a position that a table holds.
#[inline]
fn low(at: usize) -> u16 {
    let [a, b, ..] = at.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// The hashes of the bytes at `at`; `at + LONG` is within the value.
#[inline]
fn hashes(value: &[u8], at: usize) -> (usize, usize) {
    const MIX: u64 = 0x9E37_79B1_85EB_CA87;
    let [low, high] = [at, at + 8].map(|at| value[at..].first_chunk().map_or(0, word));
    let long = (low.wrapping_mul(MIX).rotate_left(29) ^ high).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    let short = (low << (64 - 8 * SHORT)).wrapping_mul(MIX);
    ((long >> (64 - TABLE_BITS)) as usize, (short >> (64 - TABLE_BITS)) as usize)
}

/// How many bytes from `at` on equal those `distance` before.
#[inline]
fn common(value: &[u8], at: usize, distance: usize) -> usize {
    let (earlier, later) = (&value[at - distance..], &value[at..]);
    let mut len = 0;
    for (a, b) in earlier.chunks_exact(8).zip(later.chunks_exact(8)) {
        let [a, b] = [a, b].map(|it| it.first_chunk().map_or(0, word));
        if a != b {
            return len + (a ^ b).trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + earlier[len..].iter().zip(&later[len..]).take_while(|(a, b)| a == b).count()
}

/// Returns the match at `at` with the position from a table, if there is one.
#[inline]
fn look(value: &[u8], at: usize, place: u16) -> Match {
    let mut distance = usize::from(low(at).wrapping_sub(place));
    if distance < MATCH_MOVE && distance > 0 {
        // What repeats at a short distance also repeats at a multiple of it.
        distance *= MATCH_MAX / distance + 1;
    }
    if distance == 0 || distance > DISTANCE_MAX.min(at) {
        return Match::default();
    }
    Match { at, len: common(value, at, distance), distance }
}

impl MatchTables {
    fn new() -> Box<Self> {
        Box::new(Self { long: [0; 1 << TABLE_BITS], short: [0; 1 << TABLE_BITS] })
    }

    #[inline]
    fn note(&mut self, value: &[u8], at: usize) {
        let (long, short) = hashes(value, at);
        self.long[long] = low(at);
        self.short[short] = low(at);
    }

    /// Returns the best match at a position or the next one, and adds both to the tables.
    #[inline]
    fn find(&mut self, value: &[u8], at: usize) -> Option<Match> {
        let (long, short) = hashes(value, at);
        let mut best = look(value, at, self.long[long]);
        if best.len < LONG {
            let other = look(value, at, self.short[short]);
            if other.len > best.len {
                best = other;
            }
        }
        self.long[long] = low(at);
        self.short[short] = low(at);
        if best.len < SHORT {
            return None;
        }
        if best.len < LONG + 4 && at + 1 + LONG <= value.len() {
            let (long, _) = hashes(value, at + 1);
            let next = look(value, at + 1, self.long[long]);
            self.long[long] = low(at + 1);
            if next.len > best.len + 1 {
                best = next;
            }
        }
        Some(best)
    }
}

/// A block being written.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
    literals: &'o mut Vec<u8>,
    count: u32,
}

impl Writer<'_> {
    fn step(&mut self, literals: usize, distance: usize, len: usize) {
        self.raw(len | literals << 5 | distance << 9);
    }

    fn raw(&mut self, step: usize) {
        let [a, b, c, ..] = step.to_le_bytes();
        self.out.extend_from_slice(&[a, b, c]);
        self.count += 1;
    }

    /// Adds bytes without a match; returns how many of them the next step must copy.
    fn add_literals(&mut self, bytes: &[u8]) -> usize {
        self.literals.extend_from_slice(bytes);
        if bytes.len() <= LITERALS_MAX {
            return bytes.len();
        }
        for piece in bytes.chunks(DISTANCE_MAX) {
            self.step(ESCAPE, piece.len(), 0);
        }
        0
    }

    fn add_match(&mut self, literals: usize, distance: usize, len: usize) {
        let mut literals = literals;
        let mut left = len;
        while left >= LONG_MATCH_MIN {
            if literals > 0 {
                self.step(std::mem::take(&mut literals), 0, 0);
            }
            let piece = left.min(LONG_MATCH_MAX);
            self.step(ESCAPE, distance, 1);
            self.raw(piece);
            left -= piece;
        }
        while left > 0 {
            let piece = left.min(MATCH_MAX);
            self.step(std::mem::take(&mut literals), distance, piece);
            left -= piece;
        }
    }

    fn size(&self, start: usize) -> usize {
        self.out.len() - start + self.literals.len() + LITERALS_MOVE
    }
}

/// Compresses and appends `value` if the result has at most `size_max` bytes; returns whether it
/// did.
pub(super) fn append_compressed(value: &[u8], size_max: usize, out: &mut Vec<u8>) -> bool {
    PLACES.with_borrow_mut(|(places, literals)| {
        let places = places.get_or_insert_with(MatchTables::new);
        places.long.fill(0);
        places.short.fill(0);
        literals.clear();
        let start = out.len();
        let fits = write(value, size_max, places, Writer { out, literals, count: 0 });
        if !fits {
            out.truncate(start);
        }
        fits
    })
}

fn write(value: &[u8], size_max: usize, places: &mut MatchTables, mut writer: Writer<'_>) -> bool {
    let start = writer.out.len();
    writer.out.extend_from_slice(&[0; 4]);
    let (mut at, mut done) = (1, 0);
    while at + LONG <= value.len() {
        let Some(mut found) = places.find(value, at) else {
            at += 1 + ((at - done) >> HURRY_SHIFT);
            continue;
        };
        while found.at > done
            && found.at > found.distance
            && value[found.at - 1] == value[found.at - 1 - found.distance]
        {
            found.at -= 1;
            found.len += 1;
        }
        let literals = writer.add_literals(&value[done..found.at]);
        writer.add_match(literals, found.distance, found.len);
        if writer.size(start) > size_max {
            return false;
        }
        at = found.at + found.len;
        done = at;
        if at + LONG <= value.len() {
            for place in [found.at + 1, found.at + 2, at - 2] {
                places.note(value, place);
            }
        }
    }
    let literals = writer.add_literals(&value[done..]);
    if literals > 0 {
        writer.step(literals, 0, 0);
    }
    if writer.size(start) > size_max {
        return false;
    }
    writer.out[start..start + 4].copy_from_slice(&writer.count.to_le_bytes());
    writer.out.extend_from_slice(writer.literals);
    writer.out.extend_from_slice(&[0; LITERALS_MOVE]);
    true
}

/// Appends the `size` bytes to which a block decompresses; returns `false`, and appends nothing, if
/// it has another size.
pub(super) fn append_plain(block: &[u8], size: usize, out: &mut Vec<u8>) -> bool {
    let Some((count, rest)) = block.split_first_chunk::<4>() else { return false };
    let count = u32::from_le_bytes(*count) as usize;
    let Some((steps, literals)) =
        count.checked_mul(STEP_SIZE).and_then(|at| rest.split_at_checked(at))
    else {
        return false;
    };
    out.reserve(size.saturating_add(LITERALS_MOVE + MATCH_MOVE));
    let room = out.spare_capacity_mut();
    if !read(steps, literals, &mut room[..size + LITERALS_MOVE + MATCH_MOVE], size) {
        return false;
    }
    // SAFETY: `read` wrote every one of the first `size` bytes of the spare room.
    unsafe { out.set_len(out.len() + size) };
    true
}

/// Decompresses steps to the first `size` bytes of `room`; returns whether they gave exactly this
/// many, each of them written. `room` is longer by the excess that a step moves.
fn read(steps: &[u8], literals: &[u8], room: &mut [MaybeUninit<u8>], size: usize) -> bool {
    // The maximum number of literals: the zeros after them may be moved as well.
    let Some(literals_size) = literals.len().checked_sub(LITERALS_MOVE) else { return false };
    assert!(room.len() >= size + LITERALS_MOVE + MATCH_MOVE, "there is room for the moves");
    let (mut taken, mut at) = (0, 0);
    let mut steps = steps.chunks_exact(STEP_SIZE).map(|step| match *step {
        [a, b, c] => u32::from_le_bytes([a, b, c, 0]) as usize,
        _ => 0,
    });
    while let Some(step) = steps.next() {
        let (len, count, distance) = (step & MATCH_MAX, step >> 5 & ESCAPE, step >> 9);
        if count == ESCAPE {
            let within = &mut room[..size];
            let done = match len {
                0 => copy_literals(within, at, literals[..literals_size].get(taken..), distance),
                1 => steps.next().and_then(|len| copy_match(within, at, distance, len)),
                _ => None,
            };
            let Some(done) = done else { return false };
            taken += if len == 0 { done } else { 0 };
            at += done;
            continue;
        }
        // SAFETY: `taken <= literals_size` and `at <= size`, as every iteration of the loop
        // ensures, so the sixteen bytes read end within `literals`, and those written within
        // `room`.
        unsafe {
            let moved = literals.as_ptr().add(taken).cast::<[u8; LITERALS_MOVE]>().read_unaligned();
            room.as_mut_ptr().add(at).cast::<[u8; LITERALS_MOVE]>().write_unaligned(moved);
        }
        taken += count;
        at += count;
        let outside = (taken > literals_size) | (at + len > size);
        if outside | (distance > at) | (distance < len) {
            return false;
        }
        // SAFETY: `distance <= at <= size`, so both ranges of thirty-two bytes end within `room`;
        // they may be uninitialised, and may overlap, so they are moved as such, through a
        // register. Of these bytes `len` count, and those were written: they lie before `at`.
        unsafe {
            let to = room.as_mut_ptr().add(at).cast::<[MaybeUninit<u8>; MATCH_MOVE]>();
            let moved = to.byte_sub(distance).read_unaligned();
            to.write_unaligned(moved);
        }
        at += len;
    }
    at == size
}

/// Copies literals to a position; returns their number, or `None` if there are too few or no room.
fn copy_literals(
    room: &mut [MaybeUninit<u8>],
    at: usize,
    literals: Option<&[u8]>,
    count: usize,
) -> Option<usize> {
    let literals = literals?.get(..count)?;
    for (to, from) in room.get_mut(at..)?.get_mut(..count)?.iter_mut().zip(literals) {
        to.write(*from);
    }
    Some(count)
}

/// Copies a long part from before a position to it; returns its length, or `None` if there is no
/// such part or no room.
fn copy_match(
    room: &mut [MaybeUninit<u8>],
    at: usize,
    distance: usize,
    len: usize,
) -> Option<usize> {
    let from = at.checked_sub(distance.max(1))?;
    room.get(at..)?.get(..len)?;
    let mut done = 0;
    while done < len {
        // The copy repeats its source, so more can be copied each time.
        let piece = (len - done).min(at + done - from);
        room.copy_within(from..from + piece, at + done);
        done += piece;
    }
    Some(len)
}

#[cfg(test)]
mod tests;
