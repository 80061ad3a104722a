//! Removing the members with the lowest or the highest scores, and blocking until there are some.

use super::super::pop_words::PopWords;
use super::Result;
use crate::command::waiting::{give_up_at, wait};
use crate::command::{CommandError, Context, pick};
use crate::resp::Reply;
use crate::store::Key;
use crate::types::ZSet;

/// Maximum number of members in one logged operation.
const LOGGED_AT_ONCE: usize = 512;

/// The end from which members are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

/// Members with their scores.
type Popped = Vec<(Box<[u8]>, f64)>;

/// Removes members and logs that; `None` if there is no sorted set.
fn take(cx: &mut Context<'_, '_>, key: &Key<'_>, end: End, count: usize) -> Result<Option<Popped>> {
    let Some(len) = cx.shard(key).with(key, ZSet::len)? else { return Ok(None) };
    let count = count.min(len);
    if count == 0 {
        return Ok(Some(Vec::new()));
    }
    let popped = cx.shard(key).edit(key, |zset: &mut ZSet| {
        (0..count)
            .map_while(|_| if end == End::Min { zset.pop_min() } else { zset.pop_max() })
            .collect::<Vec<_>>()
    })?;
    let popped = popped.unwrap_or_default();
    if popped.len() == len {
        cx.log(&[b"DEL", key.bytes]);
    } else {
        for members in popped.chunks(LOGGED_AT_ONCE) {
            let mut words: Vec<&[u8]> = vec![b"ZREM", key.bytes];
            words.extend(members.iter().map(|(member, _)| &**member));
            cx.log(&words);
        }
    }
    Ok(Some(popped))
}

pub(super) fn zpopmin(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pop(cx, args, End::Min)
}

pub(super) fn zpopmax(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pop(cx, args, End::Max)
}

fn pop(cx: &mut Context<'_, '_>, args: &[&[u8]], end: End) -> Result {
    let count = match args {
        [_, _] => None,
        [_, _, word] => Some(pick::natural(word)?),
        _ => return Err(CommandError::SYNTAX),
    };
    let key = cx.key(args[1]);
    let popped = take(cx, &key, end, count.unwrap_or(1))?.unwrap_or_default();
    // Nested only if a count was given.
    if count.is_some() {
        pick::begin_pairs(cx.out, popped.len());
    } else {
        cx.out.array(popped.len() * 2);
    }
    for (member, score) in &popped {
        if count.is_some() {
            pick::begin_pair(cx.out);
        }
        cx.out.bulk(member);
        cx.out.double(*score);
    }
    Ok(())
}

fn end_of(word: &[u8]) -> Result<End> {
    match word.to_ascii_lowercase().as_slice() {
        b"min" => Ok(End::Min),
        b"max" => Ok(End::Max),
        _ => Err(CommandError::SYNTAX),
    }
}

/// Removes members of the first existing sorted set and replies with them; `false` if there is
/// none.
fn pop_first(cx: &mut Context<'_, '_>, words: &PopWords<'_, End>) -> Result<bool> {
    for word in words.keys {
        if !cx.looks_at(word) {
            continue;
        }
        let key = cx.key(word);
        if let Some(popped) = take(cx, &key, words.end, words.count)? {
            cx.out.array(2);
            cx.out.bulk(word);
            cx.out.array(popped.len());
            for (member, score) in &popped {
                cx.out.array(2);
                cx.out.bulk(member);
                cx.out.double(*score);
            }
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn zmpop(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    if !pop_first(cx, &PopWords::parse(&args[1..], end_of)?)? {
        cx.out.null_array();
    }
    Ok(())
}

pub(super) fn bzmpop(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let deadline = give_up_at(args[1])?;
    let words = PopWords::parse(&args[2..], end_of)?;
    if !pop_first(cx, &words)? {
        wait(cx, words.keys, deadline, Reply::null_array);
    }
    Ok(())
}

pub(super) fn bzpopmin(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pop_or_wait(cx, args, End::Min)
}

pub(super) fn bzpopmax(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pop_or_wait(cx, args, End::Max)
}

fn pop_or_wait(cx: &mut Context<'_, '_>, args: &[&[u8]], end: End) -> Result {
    let deadline = give_up_at(args[args.len() - 1])?;
    let keys = &args[1..args.len() - 1];
    for word in keys {
        if !cx.looks_at(word) {
            continue;
        }
        let key = cx.key(word);
        if let Some(popped) = take(cx, &key, end, 1)? {
            let (member, score) = popped.first().map_or((&b""[..], 0.0), |(m, s)| (&**m, *s));
            cx.out.array(3);
            cx.out.bulk(word);
            cx.out.bulk(member);
            cx.out.double(score);
            return Ok(());
        }
    }
    wait(cx, keys, deadline, Reply::null_array);
    Ok(())
}
