//! Functions shared by the commands of several collections: random picks, scans, pairs.

use super::{CommandError, Context, ScanOptions};
use crate::engine::Engine;
use crate::number;
use crate::resp::{Proto, Reply};
use crate::store::Collection;
use crate::types;

/// Maximum size in bytes of a reply that may repeat the same element.
const REPLY_SIZE_MAX: usize = 1 << 30;

/// Maximum size in bytes of a reply whose size depends on the request, not on the stored data: no
/// more than a connection may leave unread.
pub(super) fn reply_size_max(engine: &Engine) -> usize {
    engine.reply_size_max().min(REPLY_SIZE_MAX)
}

/// The error returned instead of a larger reply.
pub(super) fn too_large() -> CommandError {
    CommandError::new("ERR the reply would exceed its size limit")
}

/// Parses the count of a command that picks at random. If negative, an element may be picked
/// repeatedly.
///
/// * `largest`: maximum of its absolute value.
pub(super) fn count(word: &[u8], largest: i64) -> Result<i64, CommandError> {
    let count = number::parse_i64(word).ok_or(CommandError::NOT_INTEGER)?;
    if count.checked_abs().is_none() {
        return Err(CommandError::new(format!(
            "ERR value is out of range, value must between -{} and {}",
            i64::MAX,
            i64::MAX
        )));
    }
    if count.abs() > largest {
        return Err(CommandError::new("ERR value is out of range"));
    }
    Ok(count)
}

/// Parses a count that must not be negative.
pub(super) fn natural(word: &[u8]) -> Result<usize, CommandError> {
    number::parse_i64(word)
        .and_then(|count| usize::try_from(count).ok())
        .ok_or_else(|| CommandError::new("ERR value is out of range, must be positive"))
}

fn below(engine: &Engine, len: usize) -> usize {
    usize::try_from(engine.random() % len.max(1) as u64).unwrap_or(0)
}

/// A random index below `len`, which is not 0.
pub(super) fn one(engine: &Engine, len: usize) -> usize {
    below(engine, len)
}

/// Returns distinct random indices below `len`: `count` of them, or all if there are fewer.
pub(super) fn several(engine: &Engine, len: usize, count: usize) -> Vec<usize> {
    types::sample(len, count, |bound| below(engine, bound))
}

/// Runs HRANDFIELD, SRANDMEMBER or ZRANDMEMBER: `key [count [word]]`.
///
/// * `word`: the option that requests the value of each pick too, which RESP3 nests.
/// * `write`: writes the element at an index, and its value if requested.
pub(super) fn random<C: Collection>(
    cx: &mut Context<'_, '_>,
    args: &[&[u8]],
    word: Option<&str>,
    len: fn(&C) -> usize,
    write: impl Fn(&C, usize, bool, &mut Reply),
) -> Result<(), CommandError> {
    let is_word = |asked: &[u8]| word.is_some_and(|w| asked.eq_ignore_ascii_case(w.as_bytes()));
    let with_more = match args {
        [_, _] | [_, _, _] => false,
        [_, _, _, asked] if is_word(asked) => true,
        // An error in the count is reported first.
        [_, _, asked, ..] => {
            return Err(count(asked, i64::MAX).err().unwrap_or(CommandError::SYNTAX));
        }
        _ => return Err(CommandError::SYNTAX),
    };
    let largest = if with_more { i64::MAX / 2 } else { i64::MAX };
    let asked = args.get(2).map(|word| count(word, largest)).transpose()?;
    let key = cx.key(args[1]);
    let (engine, out) = (cx.engine, &mut *cx.out);
    let shard = cx.locked.get(cx.session.database, key.shard());
    let found = shard.with(&key, |held: &C| {
        let Some(asked) = asked else {
            write(held, one(engine, len(held)), false, out);
            return Ok(());
        };
        let nested = with_more && out.proto() == Proto::Resp3;
        let width = if with_more && !nested { 2 } else { 1 };
        self::write(engine, out, (len(held), asked), width, |out, at| {
            if nested {
                out.array(2);
            }
            write(held, at, with_more, out);
        })
    })?;
    match (found, asked) {
        (Some(written), _) => written?,
        (None, None) => out.null(),
        (None, Some(_)) => out.array(0),
    }
    Ok(())
}

/// Replies with the size of a collection.
pub(super) fn len<C: Collection>(
    cx: &mut Context<'_, '_>,
    args: &[&[u8]],
    len: fn(&C) -> usize,
) -> Result<(), CommandError> {
    let key = cx.key(args[1]);
    let len = cx.shard(&key).with(&key, len)?.unwrap_or(0);
    cx.out.count(len);
    Ok(())
}

/// Replies whether a collection holds a field or member.
pub(super) fn holds<C: Collection>(
    cx: &mut Context<'_, '_>,
    args: &[&[u8]],
    contains: fn(&C, &[u8]) -> bool,
) -> Result<(), CommandError> {
    let key = cx.key(args[1]);
    let there = cx.shard(&key).with(&key, |held: &C| contains(held, args[2]))?;
    cx.out.int((there == Some(true)).into());
    Ok(())
}

/// Replies with an array that has an element for each word after the key; `None`: no such
/// collection.
pub(super) fn each<C: Collection>(
    cx: &mut Context<'_, '_>,
    args: &[&[u8]],
    write_element: impl Fn(Option<&C>, &[u8], &mut Reply),
) -> Result<(), CommandError> {
    let key = cx.key(args[1]);
    let (words, out) = (&args[2..], &mut *cx.out);
    let (start, size_max) = (out.len(), reply_size_max(cx.engine));
    let shard = cx.locked.get(cx.session.database, key.shard());
    let mut answer = |held: Option<&C>| {
        out.array(words.len());
        for word in words {
            write_element(held, word, out);
            if out.len() - start > size_max {
                return Err(too_large());
            }
        }
        Ok(())
    };
    match shard.with(&key, |held: &C| answer(Some(held)))? {
        Some(answered) => answered,
        None => answer(None),
    }
}

/// Writes an array of random picks from `len` elements; `len` is not 0.
///
/// * `write`: writes the element at an index.
/// * `width`: number of replies for each element.
pub(super) fn write(
    engine: &Engine,
    out: &mut Reply,
    (len, count): (usize, i64),
    width: usize,
    mut write: impl FnMut(&mut Reply, usize),
) -> Result<(), CommandError> {
    let asked = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count >= 0 {
        let picks = several(engine, len, asked);
        out.array(picks.len() * width);
        picks.into_iter().for_each(|at| write(out, at));
        return Ok(());
    }
    let (start, elements) = (out.len(), asked.checked_mul(width));
    let size_max = reply_size_max(engine);
    // The minimum size of an element.
    let elements = elements.filter(|&n| n <= size_max / 6).ok_or_else(too_large)?;
    out.array(elements);
    for _ in 0..asked {
        write(out, below(engine, len));
        if out.len() - start > size_max {
            return Err(too_large());
        }
    }
    Ok(())
}

/// Runs HSCAN, SSCAN or ZSCAN.
///
/// * `scan`: visits from a cursor on, writes the matching elements, and returns the next cursor and
///   the number of replies written.
pub(super) fn scan<C: Collection>(
    cx: &mut Context<'_, '_>,
    args: &[&[u8]],
    scan: impl FnOnce(&C, u64, &ScanOptions, &mut Reply) -> (u64, usize),
) -> Result<(), CommandError> {
    let cursor =
        number::parse_u64(args[2]).ok_or_else(|| CommandError::new("ERR invalid cursor"))?;
    let key = cx.key(args[1]);
    let shard = cx.locked.get(cx.session.database, key.shard());
    if shard.with(&key, |_: &C| ())?.is_none() {
        cx.out.array(2);
        cx.out.bulk(b"0");
        cx.out.array(0);
        return Ok(());
    }
    let options = ScanOptions::parse(&args[3..], false)?;
    let mut found = Reply::new(cx.out.proto());
    let begun = found.begin();
    let ended = shard.with(&key, |held: &C| scan(held, cursor, &options, &mut found))?;
    let (next, count) = ended.unwrap_or_default();
    found.end_array(begun, count);
    cx.out.array(2);
    cx.out.bulk(itoa::Buffer::new().format(next).as_bytes());
    cx.out.raw(found.as_bytes());
    Ok(())
}

/// Begins an array of `count` pairs, which RESP3 nests.
pub(super) fn begin_pairs(out: &mut Reply, count: usize) {
    out.array(if out.proto() == Proto::Resp3 { count } else { count * 2 });
}

/// Begins one of those pairs.
pub(super) fn begin_pair(out: &mut Reply) {
    if out.proto() == Proto::Resp3 {
        out.array(2);
    }
}
