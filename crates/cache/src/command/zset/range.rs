//! Ranges by rank, score or member, forwards or backwards.

use std::ops::Range;

use super::Result;
use crate::command::{CommandError, Context, keys, pick};
use crate::number;
use crate::resp::Reply;
use crate::store::Object;
use crate::types::{LexBound, ScoreBound, ZSet};

/// What a range is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// The ends of a range, the lower first.
#[derive(Debug, Clone, Copy)]
enum Ends<'a> {
    /// Counted in the requested direction; negative: from the other end.
    Rank(i64, i64),
    Score(ScoreBound, ScoreBound),
    Lex(LexBound<'a>, LexBound<'a>),
}

impl<'a> Ends<'a> {
    fn parse(by: By, low: &'a [u8], high: &'a [u8]) -> Result<Self> {
        match by {
            By::Rank => Ok(Self::Rank(integer(low)?, integer(high)?)),
            By::Score => {
                let bound = |word: &[u8]| {
                    // As in C, the empty text is zero.
                    match word {
                        b"" => Some(ScoreBound::Inclusive(0.0)),
                        b"(" => Some(ScoreBound::Exclusive(0.0)),
                        _ => ScoreBound::parse(word),
                    }
                    .ok_or_else(|| CommandError::new("ERR min or max is not a float"))
                };
                Ok(Self::Score(bound(low)?, bound(high)?))
            }
            By::Lex => {
                let bound = |word| {
                    LexBound::parse(word).ok_or_else(|| {
                        CommandError::new("ERR min or max not valid string range item")
                    })
                };
                Ok(Self::Lex(bound(low)?, bound(high)?))
            }
        }
    }

    /// The ranks within the range, in ascending order.
    fn ranks(self, zset: &ZSet, reverse: bool) -> Range<usize> {
        match self {
            Self::Rank(start, stop) => {
                let len = zset.len();
                let at = |rank: i64| {
                    let from_end = usize::try_from(rank.unsigned_abs()).unwrap_or(usize::MAX);
                    if rank < 0 { len.checked_sub(from_end) } else { Some(from_end) }
                };
                let start = at(start).unwrap_or(0);
                let end = at(stop).map_or(0, |stop| stop.saturating_add(1)).min(len);
                let (start, end) = (start.min(end), end);
                if reverse { len - end..len - start } else { start..end }
            }
            Self::Score(low, high) => zset.score_range(low, high),
            Self::Lex(low, high) => zset.lex_range(low, high),
        }
    }
}

fn integer(word: &[u8]) -> Result<i64> {
    number::parse_i64(word).ok_or(CommandError::NOT_INTEGER)
}

/// The parsed arguments.
#[derive(Debug, Clone, Copy)]
struct Query<'a> {
    ends: Ends<'a>,
    reverse: bool,
    /// Members to skip; negative: all.
    offset: i64,
    /// Maximum number of members to return; negative: no limit.
    count: i64,
    with_scores: bool,
}

/// The options implied by the command's name; the others come from its words.
#[derive(Debug, Default, Clone, Copy)]
struct Named {
    by: Option<By>,
    reverse: Option<bool>,
    stores: bool,
}

impl<'a> Query<'a> {
    /// Parses `start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`.
    fn parse(words: &[&'a [u8]], named: Named) -> Result<Self> {
        let Named { mut by, mut reverse, stores } = named;
        let (mut offset, mut count, mut with_scores) = (0, -1, false);
        let mut rest = &words[2..];
        while let [word, after @ ..] = rest {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            rest = after;
            if is("withscores") && !stores {
                with_scores = true;
            } else if let ([first, second, after @ ..], true) = (after, is("limit")) {
                (offset, count) = (integer(first)?, integer(second)?);
                rest = after;
            } else if is("rev") && reverse.is_none() {
                reverse = Some(true);
            } else if is("bylex") && by.is_none() {
                by = Some(By::Lex);
            } else if is("byscore") && by.is_none() {
                by = Some(By::Score);
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if count != -1 && by == By::Rank {
            return Err(CommandError::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Lex {
            return Err(CommandError::new(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        if by == By::Rank {
            (offset, count) = (0, -1);
        }
        // In reverse order the higher end comes first.
        let swapped = reverse && by != By::Rank;
        let (low, high) = if swapped { (words[1], words[0]) } else { (words[0], words[1]) };
        Ok(Self { ends: Ends::parse(by, low, high)?, reverse, offset, count, with_scores })
    }

    /// The requested ranks, in ascending order.
    fn ranks(&self, zset: &ZSet) -> Range<usize> {
        let ranks = self.ends.ranks(zset, self.reverse);
        let passed = usize::try_from(self.offset).unwrap_or(usize::MAX).min(ranks.len());
        let left = ranks.len() - passed;
        let count = usize::try_from(self.count).unwrap_or(usize::MAX).min(left);
        if self.reverse {
            let end = ranks.end - passed;
            end - count..end
        } else {
            let start = ranks.start + passed;
            start..start + count
        }
    }

    fn write(&self, zset: &ZSet, out: &mut Reply) {
        let found = zset.range(self.ranks(zset));
        let count = found.len();
        if self.with_scores {
            pick::begin_pairs(out, count);
        } else {
            out.array(count);
        }
        let mut each = |(member, score): (&[u8], f64)| {
            if self.with_scores {
                pick::begin_pair(out);
                out.bulk(member);
                out.double(score);
            } else {
                out.bulk(member);
            }
        };
        if self.reverse {
            found.rev().for_each(&mut each);
        } else {
            found.for_each(&mut each);
        }
    }
}

pub(super) fn zrange(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_range(cx, args, Named::default())
}

pub(super) fn zrevrange(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_range(cx, args, Named { by: Some(By::Rank), reverse: Some(true), stores: false })
}

pub(super) fn zrangebyscore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_range(cx, args, Named { by: Some(By::Score), reverse: Some(false), stores: false })
}

pub(super) fn zrevrangebyscore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_range(cx, args, Named { by: Some(By::Score), reverse: Some(true), stores: false })
}

pub(super) fn zrangebylex(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_range(cx, args, Named { by: Some(By::Lex), reverse: Some(false), stores: false })
}

pub(super) fn zrevrangebylex(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_range(cx, args, Named { by: Some(By::Lex), reverse: Some(true), stores: false })
}

fn reply_range(cx: &mut Context<'_, '_>, args: &[&[u8]], named: Named) -> Result {
    let query = Query::parse(&args[2..], named)?;
    let key = cx.key(args[1]);
    let out = &mut *cx.out;
    let shard = cx.locked.get(cx.session.database, key.shard());
    if shard.with(&key, |zset: &ZSet| query.write(zset, out))?.is_none() {
        out.array(0);
    }
    Ok(())
}

pub(super) fn zrangestore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let query = Query::parse(&args[3..], Named { stores: true, ..Named::default() })?;
    let key = cx.key(args[2]);
    let made = cx.shard(&key).with(&key, |zset: &ZSet| {
        let mut made = ZSet::new();
        zset.range(query.ranks(zset)).for_each(|(member, score)| {
            made.insert(member, score);
        });
        made
    })?;
    let made = made.unwrap_or_default();
    let len = made.len();
    keys::replace_logged(cx, args[1], Object::ZSet(Box::new(made)));
    cx.out.count(len);
    Ok(())
}

pub(super) fn zcount(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    count(cx, args, By::Score)
}

pub(super) fn zlexcount(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    count(cx, args, By::Lex)
}

fn count(cx: &mut Context<'_, '_>, args: &[&[u8]], by: By) -> Result {
    let ends = Ends::parse(by, args[2], args[3])?;
    let key = cx.key(args[1]);
    let count = cx.shard(&key).with(&key, |zset: &ZSet| ends.ranks(zset, false).len())?;
    cx.out.count(count.unwrap_or(0));
    Ok(())
}

pub(super) fn zremrangebyrank(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    cut(cx, args, By::Rank)
}

pub(super) fn zremrangebyscore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    cut(cx, args, By::Score)
}

pub(super) fn zremrangebylex(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    cut(cx, args, By::Lex)
}

fn cut(cx: &mut Context<'_, '_>, args: &[&[u8]], by: By) -> Result {
    let ends = Ends::parse(by, args[2], args[3])?;
    let key = cx.key(args[1]);
    let ranks = cx.shard(&key).with(&key, |zset: &ZSet| ends.ranks(zset, false))?;
    let ranks = ranks.unwrap_or_default();
    if ranks.is_empty() {
        cx.out.int(0);
        return Ok(());
    }
    let removed = cx.shard(&key).edit(&key, |zset: &mut ZSet| zset.remove_range(ranks))?;
    let (count, removed) = removed.unwrap_or_default();
    cx.shard(&key).discard(Object::ZSet(Box::new(removed)));
    cx.log(args);
    cx.out.count(count);
    Ok(())
}
