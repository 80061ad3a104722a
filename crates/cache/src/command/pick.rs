//! What commands of several collections share: random picks, scans, pairs of member and score.

use std::sync::atomic::Ordering;

use super::{CommandError, Context, ScanOptions};
use crate::engine::Engine;
use crate::number;
use crate::resp::{Proto, Reply};
use crate::store::Collection;
use crate::types;

/// Bytes of a reply that may say the same any number of times.
const REPLY_SIZE_MAX: usize = 1 << 30;

/// Bytes a reply may take whose size what is asked for decides, not what is there: no more than a
/// connection may leave unread.
pub(super) fn reply_size_max(engine: &Engine) -> usize {
    match engine.config().output_max.load(Ordering::Relaxed) {
        0 => REPLY_SIZE_MAX,
        output_max => output_max.min(REPLY_SIZE_MAX),
    }
}

/// What is said instead of a reply beyond that.
pub(super) fn too_large() -> CommandError {
    CommandError::new("ERR the reply would be larger than its limit")
}

/// The count of a command that picks at random: negative, the same may be picked again.
///
/// * `largest`: of its absolute value.
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

/// A count that must not be negative.
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

/// Different random indices below `len`, as many as asked or as there are.
pub(super) fn several(engine: &Engine, len: usize, count: usize) -> Vec<usize> {
    types::sample(len, count, |bound| below(engine, bound))
}

/// Writes an array of random picks out of `len`, which is not 0.
///
/// * `write`: writes the element of an index.
/// * `width`: replies written for each.
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
    // The least an element takes.
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
/// * `scan`: visits from a cursor on, writes what is asked for, and returns the next cursor with
///   how many replies it wrote.
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
