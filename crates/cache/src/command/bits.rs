//! Strings as bit arrays, and the longest common subsequence of two strings.
//!
//! Bit 0 is the most significant bit of the first byte.

use super::reading::{let_go, read_string};
use super::{Apart, CommandError, Context, Flags, Keys, Spec, string};
use crate::number;
use crate::persist::Ops;
use crate::store::{AHEAD_MIN, Codec, CopyAhead, Deadline, SharedText, Text, Value};

const WRITE: Flags = Flags::WRITE.and(Flags::DENYOOM);
const READ: Flags = Flags::READONLY;
const FIRST: Keys = Keys::Range(1, 1, 1);

const GROUP: &str = "bitmap";

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    super::row(
        GROUP,
        "getbit",
        3,
        READ.and(Flags::FAST),
        FIRST,
        getbit,
        "Returns a bit of a string.",
    ),
    super::row(
        GROUP,
        "setbit",
        4,
        WRITE,
        FIRST,
        setbit,
        "Sets a bit of a string and returns its previous value.",
    ),
    super::row(GROUP, "bitcount", -2, READ, FIRST, bitcount, "Counts the set bits of a string."),
    super::row(
        GROUP,
        "bitpos",
        -3,
        READ,
        FIRST,
        bitpos,
        "Finds the first set or clear bit of a string.",
    ),
    super::row(
        GROUP,
        "bitop",
        -4,
        WRITE,
        Keys::Range(2, -1, 1),
        bitop,
        "Stores the result of a bitwise operation on strings.",
    ),
    Spec {
        name: "lcs",
        arity: -3,
        flags: READ,
        keys: Keys::Range(1, 2, 1),
        group: "string",
        summary: "Finds the longest common subsequence of two strings.",
        run: lcs,
    },
];

type Result<T = ()> = std::result::Result<T, CommandError>;

fn bit_offset(word: &[u8]) -> Result<(usize, u32)> {
    let offset = number::parse_u64(word).and_then(|offset| {
        let (byte, bit) = (usize::try_from(offset >> 3).ok()?, offset & 7);
        (byte < string::STRING_SIZE_MAX).then_some((byte, 7 - u32::try_from(bit).ok()?))
    });
    offset.ok_or_else(|| CommandError::new("ERR bit offset is not an integer or out of range"))
}

fn getbit(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (byte, bit) = bit_offset(args[2])?;
    let key = cx.key(args[1]);
    read_string(
        cx,
        &key,
        |_| 1,
        |out, text| {
            let value = text.map(Text::plain).unwrap_or_default();
            let held = value.get(byte).copied().unwrap_or(0);
            out.int(i64::from(held >> bit & 1));
        },
    )
}

fn setbit(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (byte, bit) = bit_offset(args[2])?;
    let on = match args[3] {
        b"0" => false,
        b"1" => true,
        _ => return Err(CommandError::new("ERR bit is not an integer or out of range")),
    };
    let key = cx.key(args[1]);
    let text = cx.locked.get(cx.session.database, key.shard()).text(&key)?;
    // Only this byte: a string that is stored uncompressed is neither copied nor scanned.
    let held = match text.map(|text| (text, text.as_plain())) {
        None => None,
        Some((_, Some(plain))) => plain.get(byte).copied(),
        Some((text, None)) => match (cx.apart.as_deref(), CopyAhead::of(text, byte)) {
            (Some(Apart::Copy(copy)), _) if copy.plain_of(text).is_some() => {
                copy.plain_of(text).and_then(|plain| plain.get(byte).copied())
            }
            (_, Some(copy)) if cx.may_defer => {
                cx.deferred = Some(Box::new(Apart::Copy(copy)));
                return Ok(());
            }
            _ => text.plain().get(byte).copied(),
        },
    };
    let before = held.map(|held| held >> bit & 1);
    if before != Some(u8::from(on)) {
        let changed = held.unwrap_or(0) & !(1 << bit) | u8::from(on) << bit;
        if cx.overwrite(&key, byte, &[changed])?.is_none() {
            return Ok(());
        }
        cx.log(args);
    }
    cx.out.int(before.unwrap_or(0).into());
    Ok(())
}

/// A part of a string: `start end [BYTE | BIT]`. A negative index counts from the string's end.
#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    start: Option<i64>,
    end: Option<i64>,
    bits: bool,
}

fn integer(word: &[u8]) -> Result<i64> {
    number::parse_i64(word).ok_or(CommandError::NOT_INTEGER)
}

impl Stretch {
    fn parse(words: &[&[u8]]) -> Result<Self> {
        let bits = match words.get(2) {
            None => false,
            Some(unit) if unit.eq_ignore_ascii_case(b"bit") => true,
            Some(unit) if unit.eq_ignore_ascii_case(b"byte") => false,
            Some(_) => return Err(CommandError::SYNTAX),
        };
        if words.len() > 3 {
            return Err(CommandError::SYNTAX);
        }
        let end = words.get(1).map(|word| integer(word)).transpose()?;
        Ok(Self { start: words.first().map(|word| integer(word)).transpose()?, end, bits })
    }

    /// Whether the end precedes the start, both counted from the string's end.
    fn is_backwards(self) -> bool {
        let ends = self.start.zip(self.end);
        ends.is_some_and(|(start, end)| start < 0 && end < 0 && start > end)
    }

    /// The first and last bit of the part in a string of `len` bytes; `None` if it is empty.
    fn bits_of(self, len: usize) -> Option<(usize, usize)> {
        let unit = if self.bits { 1 } else { 8 };
        let len = i64::try_from(len).ok()?.checked_mul(8 / unit)?;
        let at = |index: i64| if index < 0 { (len + index).max(0) } else { index };
        let start = at(self.start.unwrap_or(0));
        let end = at(self.end.unwrap_or(-1)).min(len - 1);
        if start > end {
            return None;
        }
        let first = usize::try_from(start * unit).ok()?;
        Some((first, usize::try_from(end * unit + unit - 1).ok()?))
    }

    /// The number of bytes of the part in a string of `len` bytes.
    fn size_in(self, len: usize) -> usize {
        self.bits_of(len).map_or(0, |(first, last)| last / 8 - first / 8 + 1)
    }
}

/// The bytes that hold the bits from `first` to `last`, with all other bits cleared.
fn masked(value: &[u8], first: usize, last: usize) -> impl Iterator<Item = (usize, u8, u8)> {
    let bytes = value.get(first / 8..=last / 8).unwrap_or_default();
    bytes.iter().enumerate().map(move |(at, &byte)| {
        let at = at + first / 8;
        let mut mask = u8::MAX;
        if at == first / 8 {
            mask &= u8::MAX >> (first % 8);
        }
        if at == last / 8 {
            mask &= u8::MAX << (7 - last % 8);
        }
        (at, byte, mask)
    })
}

/// Number of set bits from `first` to `last`.
fn count_ones(value: &[u8], first: usize, last: usize) -> usize {
    let bytes = value.get(first / 8..=last / 8).unwrap_or_default();
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words: usize =
        words.iter().map(|word| u64::from_ne_bytes(*word).count_ones() as usize).sum();
    let in_rest: usize = rest.iter().map(|byte| byte.count_ones() as usize).sum();
    // The bits before the first and after the last are in the outermost bytes.
    let before = bytes.first().map_or(0, |byte| byte & !(u8::MAX >> (first % 8)));
    let after = bytes.last().map_or(0, |byte| byte & !(u8::MAX << (7 - last % 8)));
    in_words + in_rest - (before.count_ones() + after.count_ones()) as usize
}

/// The first bit from `first` to `last` that is set, or clear.
fn first_of(value: &[u8], first: usize, last: usize, bit: bool) -> Option<usize> {
    let others = if bit { 0 } else { u8::MAX };
    let in_byte = |(at, byte, mask): (usize, u8, u8)| {
        let wanted = (byte ^ others) & mask;
        (wanted != 0).then(|| at * 8 + wanted.leading_zeros() as usize)
    };
    // The outermost bytes may have bits that do not count; those between are skipped many at a time.
    let (from, to) = (first / 8, last / 8);
    let between = value.get(from + 1..to).unwrap_or_default();
    let (blocks, _) = between.as_chunks::<64>();
    let skipped = 64 * blocks.iter().take_while(|block| block.iter().all(|b| *b == others)).count();
    masked(value, first, last)
        .take(1)
        .find_map(in_byte)
        .or_else(|| masked(value, (from + 1 + skipped) * 8, last).find_map(in_byte))
}

fn bitcount(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    if args.len() == 3 {
        return Err(CommandError::SYNTAX);
    }
    let stretch = Stretch::parse(&args[2..])?;
    let key = cx.key(args[1]);
    read_string(
        cx,
        &key,
        |len| stretch.size_in(len),
        |out, text| {
            let value = text.map(Text::plain).unwrap_or_default();
            let bits = stretch.bits_of(value.len()).filter(|_| !stretch.is_backwards());
            let count = match bits {
                None => 0,
                Some((first, last)) => count_ones(&value, first, last),
            };
            out.count(count);
        },
    )
}

fn bitpos(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let bit = match integer(args[2])? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::new("ERR The bit argument must be 1 or 0.")),
    };
    let stretch = Stretch::parse(&args[3..])?;
    let key = cx.key(args[1]);
    read_string(
        cx,
        &key,
        |len| stretch.size_in(len),
        |out, text| {
            let Some(value) = text.map(Text::plain) else {
                return out.int(if bit { -1 } else { 0 });
            };
            let found = stretch.bits_of(value.len()).and_then(|(first, last)| {
                let found = first_of(&value, first, last, bit);
                // Without an explicit end, a string is followed by zeros.
                found.or((!bit && stretch.end.is_none()).then_some(value.len() * 8))
            });
            match found {
                Some(at) => out.count(at),
                None => out.int(-1),
            }
        },
    )
}

/// An operation on the bits of strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bitwise {
    And,
    Or,
    Xor,
    Not,
}

impl Bitwise {
    /// Adds a string to a result: the first one is copied, or inverted.
    fn add(self, made: &mut Vec<u8>, value: &[u8], first: bool) {
        if !first {
            return self.combine(made, value);
        }
        made.extend_from_slice(value);
        if self == Self::Not {
            made.iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    /// Combines `made` with another string; the shorter one counts as followed by zeros.
    fn combine(self, made: &mut Vec<u8>, value: &[u8]) {
        if made.len() < value.len() {
            made.resize(value.len(), 0);
        }
        let (head, tail) = made.split_at_mut(value.len());
        let pairs = head.iter_mut().zip(value);
        match self {
            Self::And => {
                pairs.for_each(|(left, right)| *left &= right);
                tail.fill(0);
            }
            Self::Or => pairs.for_each(|(left, right)| *left |= right),
            Self::Xor => pairs.for_each(|(left, right)| *left ^= right),
            Self::Not => {}
        }
    }
}

/// A combination of the bits of long strings, computed without their locks.
#[derive(Debug)]
pub(crate) struct Combination {
    operation: Bitwise,
    target: Box<[u8]>,
    /// The codec for the result.
    codec: Codec,
    sources: Vec<Option<SharedText>>,
    /// The database of the operation that logs the result; `None` without a log.
    logged: Option<usize>,
    /// The result with its length, and that operation.
    made: Option<(Value, usize, Ops)>,
}

impl Combination {
    /// Bytes that it reads.
    pub(super) fn size(&self) -> usize {
        self.sources.iter().flatten().map(|held| held.text().len()).sum()
    }

    /// Computes the result.
    pub(super) fn run(&mut self) {
        let (mut made, mut first) = (Vec::new(), true);
        for source in &self.sources {
            // Released one by one: what was compressed need not be in memory at the same time.
            let value = source.as_ref().map(|held| held.text().plain()).unwrap_or_default();
            self.operation.add(&mut made, &value, first);
            first = false;
        }
        let mut ops = Ops::default();
        if let Some(database) = self.logged {
            ops.push(database, &[b"SET", &self.target, &made]);
        }
        let len = made.len();
        self.made = Some((Value::compressed(self.codec, made), len, ops));
    }

    /// Whether it is of these strings.
    fn is_of(&self, sources: &[Option<SharedText>]) -> bool {
        let is_same = |pair: (&Option<SharedText>, &Option<SharedText>)| match pair {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.sources.len() == sources.len() && self.sources.iter().zip(sources).all(is_same)
    }
}

fn bitop(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let operation = match args[1].to_ascii_lowercase().as_slice() {
        b"and" => Bitwise::And,
        b"or" => Bitwise::Or,
        b"xor" => Bitwise::Xor,
        b"not" if args.len() == 4 => Bitwise::Not,
        b"not" => {
            return Err(CommandError::new(
                "ERR BITOP NOT must be called with a single source key.",
            ));
        }
        _ => return Err(CommandError::SYNTAX),
    };
    let mut size = 0usize;
    for word in &args[3..] {
        let key = cx.key(word);
        size = size.saturating_add(cx.shard(&key).string_len(&key)?);
    }
    if size >= AHEAD_MIN
        && (cx.may_defer || cx.apart.is_some())
        && combine_apart(cx, args, operation)?
    {
        return Ok(());
    }
    let (mut made, mut first) = (Vec::new(), true);
    for word in &args[3..] {
        let key = cx.key(word);
        let value = cx.shard(&key).string(&key)?.unwrap_or_default();
        operation.add(&mut made, &value, first);
        first = false;
    }
    let len = made.len();
    let key = cx.key(args[2]);
    if made.is_empty() {
        if cx.shard(&key).remove(&key) {
            cx.log(&[b"DEL", args[2]]);
        }
    } else {
        cx.log(&[b"SET", args[2], &made]);
        // A long one is not compressed under the locks.
        let value = if len < AHEAD_MIN { Value::String(made) } else { Value::plain(made) };
        cx.shard(&key).put_value(&key, value, Deadline::None);
    }
    cx.out.count(len);
    Ok(())
}

/// Stores the result that was computed without the locks, or requests it; `false` if it must be
/// computed under the locks.
fn combine_apart(cx: &mut Context<'_, '_>, args: &[&[u8]], operation: Bitwise) -> Result<bool> {
    let mut sources = Vec::with_capacity(args.len() - 3);
    for word in &args[3..] {
        let key = cx.key(word);
        sources.push(cx.shard(&key).text(&key)?.map(|text| text.hold()));
    }
    let made = match cx.apart.as_deref_mut() {
        Some(Apart::Combine(done)) if done.is_of(&sources) => done.made.take(),
        _ => None,
    };
    let key = cx.key(args[2]);
    if let Some((value, len, mut ops)) = made {
        cx.ops.append(&mut ops);
        cx.shard(&key).put_value(&key, value, Deadline::None);
        cx.out.count(len);
        return Ok(true);
    }
    if cx.may_defer {
        let target = args[2].into();
        let codec = cx.engine.keyspace().rules().codec_for(args[2]);
        let logged = cx.engine.journal().map(|_| cx.session.database);
        let combination = Combination { operation, target, codec, sources, logged, made: None };
        cx.deferred = Some(Box::new(Apart::Combine(combination)));
    }
    Ok(cx.may_defer)
}

/// The options of LCS.
#[derive(Debug, Default, Clone, Copy)]
struct Wanted {
    len: bool,
    indexes: bool,
    match_len: bool,
    match_len_min: usize,
}

impl Wanted {
    fn parse(words: &[&[u8]]) -> Result<Self> {
        let mut wanted = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"idx" => wanted.indexes = true,
                b"len" => wanted.len = true,
                b"withmatchlen" => wanted.match_len = true,
                b"minmatchlen" => {
                    let least = integer(words.next().ok_or(CommandError::SYNTAX)?)?;
                    wanted.match_len_min = usize::try_from(least).unwrap_or(0);
                }
                _ => return Err(CommandError::SYNTAX),
            }
        }
        if wanted.indexes && wanted.len {
            return Err(CommandError::new(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(wanted)
    }
}

/// Equal parts of two strings: their start in each, and their length.
type Match = (usize, usize, usize);

/// The longest common subsequence of two strings, with its parts from the last to the first.
fn common(left: &[u8], right: &[u8]) -> (Vec<u8>, Vec<Match>) {
    let width = right.len() + 1;
    let mut lengths = vec![0u32; (left.len() + 1) * width];
    for (i, a) in left.iter().enumerate() {
        for (j, b) in right.iter().enumerate() {
            lengths[(i + 1) * width + j + 1] = if a == b {
                lengths[i * width + j] + 1
            } else {
                lengths[i * width + j + 1].max(lengths[(i + 1) * width + j])
            };
        }
    }
    let (mut sequence, mut matches) = (Vec::new(), Vec::<Match>::new());
    let (mut i, mut j) = (left.len(), right.len());
    while i > 0 && j > 0 {
        if left[i - 1] == right[j - 1] {
            (i, j) = (i - 1, j - 1);
            sequence.push(left[i]);
            match matches.last_mut() {
                Some((a, b, len)) if (*a, *b) == (i + 1, j + 1) => {
                    (*a, *b, *len) = (i, j, *len + 1);
                }
                _ => matches.push((i, j, 1)),
            }
        } else if lengths[(i - 1) * width + j] > lengths[i * width + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    sequence.reverse();
    (sequence, matches)
}

fn lcs(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let mut size_of_key = |word: &[u8]| -> Result<usize> {
        let key = cx.key(word);
        cx.shard(&key)
            .string_len(&key)
            .map_err(|_| CommandError::new("ERR The specified keys must contain string values"))
    };
    // The sizes first: strings that are too long for this are not copied.
    let sizes = (size_of_key(args[1])?, size_of_key(args[2])?);
    let wanted = Wanted::parse(&args[3..])?;
    let cells = (sizes.0 + 1).saturating_mul(sizes.1 + 1);
    if cells > string::STRING_SIZE_MAX / size_of::<u32>() {
        return Err(CommandError::new(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    let mut hold = |word: &[u8]| {
        let key = cx.key(word);
        let text = cx.shard(&key).text(&key).ok().flatten();
        text.map(|text| text.hold())
    };
    let held = (hold(args[1]), hold(args[2]));
    for word in &args[1..3] {
        let key = cx.key(word);
        let_go(cx, &key);
    }
    let left = held.0.as_ref().map(|held| held.text().plain()).unwrap_or_default();
    let right = held.1.as_ref().map(|held| held.text().plain()).unwrap_or_default();
    let (sequence, mut matches) = common(&left, &right);
    if wanted.len {
        cx.out.count(sequence.len());
        return Ok(());
    }
    if !wanted.indexes {
        cx.out.bulk(&sequence);
        return Ok(());
    }
    matches.retain(|(_, _, len)| *len >= wanted.match_len_min);
    cx.out.map(2);
    cx.out.bulk(b"matches");
    cx.out.array(matches.len());
    for (a, b, len) in matches {
        cx.out.array(if wanted.match_len { 3 } else { 2 });
        for start in [a, b] {
            cx.out.array(2);
            cx.out.count(start);
            cx.out.count(start + len - 1);
        }
        if wanted.match_len {
            cx.out.count(len);
        }
    }
    cx.out.bulk(b"len");
    cx.out.count(sequence.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::first_of;

    #[test]
    fn the_first_bit_is_that_of_a_search_bit_by_bit() {
        let bit_at = |value: &[u8], at: usize| value[at / 8] & (0x80 >> (at % 8)) != 0;
        for fill in [0, 0xFF] {
            for at in [0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 199] {
                let mut value = vec![fill; 200];
                value[at] ^= 0b0010_0100;
                for (first, last) in
                    [(0, 1599), (3, 1590), (8 * at, 8 * at + 2), (8 * at + 3, 1599)]
                {
                    for bit in [false, true] {
                        let expected = (first..=last).find(|&at| bit_at(&value, at) == bit);
                        let found = first_of(&value, first, last, bit);
                        assert_eq!(found, expected, "{fill} {at} {first} {last} {bit}");
                    }
                }
            }
        }
        assert_eq!(first_of(&[0b1000], 4, 4, true), Some(4));
        assert_eq!(first_of(&[0b1000], 5, 7, true), None);
    }
}
