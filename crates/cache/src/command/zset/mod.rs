//! Sorted sets: members in order of their scores.
//!
//! - here: scores of members, ranks, counts, random picks;
//! - `range`: ranges by rank, score or member;
//! - `combine`: unions, intersections and differences;
//! - `pop`: removing the first or the last members, and blocking until there is one.
//!
//! What depends on chance or on a previous score is logged as its result.

mod combine;
mod pop;
mod range;

use super::{CommandError, Context, Flags, Keys, Spec, pick};
use crate::number;
use crate::types::{Upsert, ZSet};

const ADD: Flags = Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST);
const DROP: Flags = Flags::WRITE.and(Flags::FAST);
const CUT: Flags = Flags::WRITE;
const STORE: Flags = Flags::WRITE.and(Flags::DENYOOM);
const STORE_COUNTED: Flags = STORE.and(Flags::MOVABLE_KEYS);
const WAIT: Flags = Flags::WRITE.and(Flags::BLOCKING).and(Flags::FAST);
const READ: Flags = Flags::READONLY.and(Flags::FAST);
const WALK: Flags = Flags::READONLY;
const WALK_COUNTED: Flags = WALK.and(Flags::MOVABLE_KEYS);
const FIRST: Keys = Keys::Range(1, 1, 1);
const TWO: Keys = Keys::Range(1, 2, 1);
const COUNTED: Keys = Keys::Counted(1, &[]);
const STORED: Keys = Keys::Counted(2, &[1]);

const GROUP: &str = "sorted-set";

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    super::row(
        GROUP,
        "zadd",
        -4,
        ADD,
        FIRST,
        zadd,
        "Sets the scores of members, adding those that do not exist.",
    ),
    super::row(GROUP, "zincrby", 4, ADD, FIRST, zincrby, "Increments a member's score."),
    super::row(GROUP, "zrem", -3, DROP, FIRST, zrem, "Removes members of a sorted set."),
    super::row(GROUP, "zscore", 3, READ, FIRST, zscore, "Returns the score of a member."),
    super::row(GROUP, "zmscore", -3, READ, FIRST, zmscore, "Returns the scores of members."),
    super::row(GROUP, "zcard", 2, READ, FIRST, zcard, "Counts the members of a sorted set."),
    super::row(
        GROUP,
        "zrank",
        -3,
        READ,
        FIRST,
        zrank,
        "Returns a member's rank, lowest score first.",
    ),
    super::row(
        GROUP,
        "zrevrank",
        -3,
        READ,
        FIRST,
        zrevrank,
        "Returns a member's rank, highest score first.",
    ),
    super::row(GROUP, "zrandmember", -2, WALK, FIRST, zrandmember, "Returns random members."),
    super::row(
        GROUP,
        "zscan",
        -3,
        WALK,
        FIRST,
        zscan,
        "Iterates over the members of a sorted set.",
    ),
    super::row(
        GROUP,
        "zcount",
        4,
        READ,
        FIRST,
        range::zcount,
        "Counts the members within a range of scores.",
    ),
    super::row(
        GROUP,
        "zlexcount",
        4,
        READ,
        FIRST,
        range::zlexcount,
        "Counts the members within a lexicographical range.",
    ),
    super::row(
        GROUP,
        "zrange",
        -4,
        WALK,
        FIRST,
        range::zrange,
        "Returns the members within a range.",
    ),
    super::row(
        GROUP,
        "zrevrange",
        -4,
        WALK,
        FIRST,
        range::zrevrange,
        "Returns the members within a range of ranks, in reverse order.",
    ),
    super::row(
        GROUP,
        "zrangebyscore",
        -4,
        WALK,
        FIRST,
        range::zrangebyscore,
        "Returns the members within a range of scores.",
    ),
    super::row(
        GROUP,
        "zrevrangebyscore",
        -4,
        WALK,
        FIRST,
        range::zrevrangebyscore,
        "Returns the members within a range of scores, in reverse order.",
    ),
    super::row(
        GROUP,
        "zrangebylex",
        -4,
        WALK,
        FIRST,
        range::zrangebylex,
        "Returns the members within a lexicographical range.",
    ),
    super::row(
        GROUP,
        "zrevrangebylex",
        -4,
        WALK,
        FIRST,
        range::zrevrangebylex,
        "Returns the members within a lexicographical range, in reverse order.",
    ),
    super::row(
        GROUP,
        "zrangestore",
        -5,
        STORE,
        TWO,
        range::zrangestore,
        "Stores a range of members at another key.",
    ),
    super::row(
        GROUP,
        "zremrangebyrank",
        4,
        CUT,
        FIRST,
        range::zremrangebyrank,
        "Removes the members within a range of ranks.",
    ),
    super::row(
        GROUP,
        "zremrangebyscore",
        4,
        CUT,
        FIRST,
        range::zremrangebyscore,
        "Removes the members within a range of scores.",
    ),
    super::row(
        GROUP,
        "zremrangebylex",
        4,
        CUT,
        FIRST,
        range::zremrangebylex,
        "Removes the members within a lexicographical range.",
    ),
    super::row(
        GROUP,
        "zpopmin",
        -2,
        DROP,
        FIRST,
        pop::zpopmin,
        "Removes and returns the members with the lowest scores.",
    ),
    super::row(
        GROUP,
        "zpopmax",
        -2,
        DROP,
        FIRST,
        pop::zpopmax,
        "Removes and returns the members with the highest scores.",
    ),
    super::row(
        GROUP,
        "zmpop",
        -4,
        CUT.and(Flags::MOVABLE_KEYS),
        COUNTED,
        pop::zmpop,
        "Removes and returns members of the first non-empty sorted set.",
    ),
    super::row(
        GROUP,
        "bzpopmin",
        -3,
        WAIT,
        Keys::Range(1, -2, 1),
        pop::bzpopmin,
        "Removes and returns the member with the lowest score, or waits for one.",
    ),
    super::row(
        GROUP,
        "bzpopmax",
        -3,
        WAIT,
        Keys::Range(1, -2, 1),
        pop::bzpopmax,
        "Removes and returns the member with the highest score, or waits for one.",
    ),
    super::row(
        GROUP,
        "bzmpop",
        -5,
        CUT.and(Flags::BLOCKING).and(Flags::MOVABLE_KEYS),
        Keys::Counted(2, &[]),
        pop::bzmpop,
        "Removes and returns members of the first non-empty sorted set, or waits for one.",
    ),
    super::row(
        GROUP,
        "zunion",
        -3,
        WALK_COUNTED,
        COUNTED,
        combine::zunion,
        "Returns the union of sorted sets.",
    ),
    super::row(
        GROUP,
        "zinter",
        -3,
        WALK_COUNTED,
        COUNTED,
        combine::zinter,
        "Returns the intersection of sorted sets.",
    ),
    super::row(
        GROUP,
        "zdiff",
        -3,
        WALK_COUNTED,
        COUNTED,
        combine::zdiff,
        "Returns the difference of sorted sets.",
    ),
    super::row(
        GROUP,
        "zintercard",
        -3,
        WALK_COUNTED,
        COUNTED,
        combine::zintercard,
        "Counts the members of the intersection of sorted sets.",
    ),
    super::row(
        GROUP,
        "zunionstore",
        -4,
        STORE_COUNTED,
        STORED,
        combine::zunionstore,
        "Stores the union of sorted sets.",
    ),
    super::row(
        GROUP,
        "zinterstore",
        -4,
        STORE_COUNTED,
        STORED,
        combine::zinterstore,
        "Stores the intersection of sorted sets.",
    ),
    super::row(
        GROUP,
        "zdiffstore",
        -4,
        STORE_COUNTED,
        STORED,
        combine::zdiffstore,
        "Stores the difference of sorted sets.",
    ),
];

type Result<T = ()> = std::result::Result<T, CommandError>;

/// The options of ZADD.
#[derive(Debug, Default, Clone, Copy)]
struct Conditions {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
    /// Whether updates are counted too.
    changes: bool,
    increment: bool,
}

impl Conditions {
    /// Parses them; the remaining words are pairs of score and member.
    fn parse<'a>(words: &'a [&'a [u8]]) -> Result<(Self, &'a [[&'a [u8]; 2]])> {
        let mut found = Self::default();
        let mut rest = words;
        while let [word, after @ ..] = rest {
            let flag = match word.to_ascii_lowercase().as_slice() {
                b"nx" => &mut found.absent,
                b"xx" => &mut found.present,
                b"gt" => &mut found.greater,
                b"lt" => &mut found.less,
                b"ch" => &mut found.changes,
                b"incr" => &mut found.increment,
                _ => break,
            };
            *flag = true;
            rest = after;
        }
        let (pairs, left) = rest.as_chunks::<2>();
        if pairs.is_empty() || !left.is_empty() {
            return Err(CommandError::SYNTAX);
        }
        found.check(pairs.len())?;
        Ok((found, pairs))
    }

    fn check(self, pairs: usize) -> Result {
        if self.absent && self.present {
            return Err(CommandError::new(
                "ERR XX and NX options at the same time are not compatible",
            ));
        }
        if self.greater && self.less || self.absent && (self.greater || self.less) {
            return Err(CommandError::new(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.increment && pairs > 1 {
            return Err(CommandError::new(
                "ERR INCR option supports a single increment-element pair",
            ));
        }
        Ok(())
    }

    /// The new score of a member; `None` if it does not change.
    fn score(self, held: Option<f64>, given: f64) -> Result<Option<f64>> {
        let Some(held) = held else { return Ok((!self.present).then_some(given)) };
        if self.absent {
            return Ok(None);
        }
        let score = if self.increment { held + given } else { given };
        if score.is_nan() {
            return Err(CommandError::new("ERR resulting score is not a number (NaN)"));
        }
        let left = self.less && score >= held || self.greater && score <= held;
        Ok((!left).then_some(score))
    }
}

fn float(word: &[u8]) -> Result<f64> {
    number::parse_f64(word).ok_or(CommandError::NOT_FLOAT)
}

fn zadd(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (conditions, pairs) = Conditions::parse(&args[2..])?;
    if conditions.increment {
        let [score, member] = pairs[0];
        return increment(cx, args[1], conditions, float(score)?, member);
    }
    let scores: smallvec::SmallVec<[f64; 8]> =
        pairs.iter().map(|[score, _]| float(score)).collect::<Result<_>>()?;
    let key = cx.key(args[1]);
    let shard = cx.shard(&key);
    // A watched key is not marked as changed if nothing changes.
    let changes = shard.with(&key, |zset: &ZSet| {
        pairs.iter().zip(&scores).any(|([_, member], &score)| {
            let held = zset.score(member);
            matches!(conditions.score(held, score), Ok(Some(score)) if held != Some(score))
        })
    })?;
    if changes == Some(false) || changes.is_none() && conditions.present {
        cx.out.int(0);
        return Ok(());
    }
    let (added, updated) = shard.edit_or_new(&key, |zset: &mut ZSet| {
        let (mut added, mut updated) = (0, 0);
        for ([_, member], &score) in pairs.iter().zip(&scores) {
            let unconditional =
                !(conditions.absent || conditions.present || conditions.greater || conditions.less);
            let score = if unconditional {
                Some(score)
            } else {
                conditions.score(zset.score(member), score).unwrap_or_default()
            };
            match score.map(|score| zset.insert(member, score)) {
                Some(Upsert::Added) => added += 1,
                Some(Upsert::Updated) => updated += 1,
                Some(Upsert::Same) | None => {}
            }
        }
        (added, updated)
    })?;
    cx.log(args);
    cx.out.count(if conditions.changes { added + updated } else { added });
    Ok(())
}

fn zincrby(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let conditions = Conditions { increment: true, ..Conditions::default() };
    increment(cx, args[1], conditions, float(args[2])?, args[3])
}

/// Increments a member's score and replies with the result, or with nil if it does not change.
fn increment(
    cx: &mut Context<'_, '_>,
    word: &[u8],
    conditions: Conditions,
    by: f64,
    member: &[u8],
) -> Result {
    let key = cx.key(word);
    let held = cx.shard(&key).with(&key, |zset: &ZSet| zset.score(member))?.flatten();
    let Some(score) = conditions.score(held, by)? else {
        cx.out.null();
        return Ok(());
    };
    if held != Some(score) {
        cx.shard(&key).edit_or_new(&key, |zset: &mut ZSet| zset.insert(member, score))?;
        cx.log(&[b"ZADD", word, number::Double::new(score).as_bytes(), member]);
    }
    cx.out.double(score);
    Ok(())
}

fn zrem(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let members = &args[2..];
    let shard = cx.shard(&key);
    let there = shard.with(&key, |zset: &ZSet| members.iter().any(|m| zset.score(m).is_some()))?;
    if there != Some(true) {
        cx.out.int(0);
        return Ok(());
    }
    let removed = shard.edit(&key, |zset: &mut ZSet| {
        members.iter().filter_map(|member| zset.remove(member)).count()
    })?;
    cx.log(args);
    cx.out.count(removed.unwrap_or(0));
    Ok(())
}

fn zscore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let score = cx.shard(&key).with(&key, |zset: &ZSet| zset.score(args[2]))?.flatten();
    match score {
        Some(score) => cx.out.double(score),
        None => cx.out.null(),
    }
    Ok(())
}

fn zmscore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::each(cx, args, |zset: Option<&ZSet>, member, out| {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => out.double(score),
            None => out.null(),
        }
    })
}

fn zcard(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::len(cx, args, ZSet::len)
}

fn zrank(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    rank(cx, args, "zrank", |rank, _| rank)
}

fn zrevrank(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    rank(cx, args, "zrevrank", |rank, len| len - 1 - rank)
}

fn rank(
    cx: &mut Context<'_, '_>,
    args: &[&[u8]],
    name: &str,
    from_end: fn(usize, usize) -> usize,
) -> Result {
    let with_score = match &args[3..] {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"withscore") => true,
        [_] => return Err(CommandError::SYNTAX),
        _ => {
            return Err(CommandError::new(format!(
                "ERR wrong number of arguments for '{name}' command"
            )));
        }
    };
    let key = cx.key(args[1]);
    let found = cx.shard(&key).with(&key, |zset: &ZSet| {
        let rank = zset.rank(args[2])?;
        Some((from_end(rank, zset.len()), zset.score(args[2])?))
    })?;
    match (found.flatten(), with_score) {
        (Some((rank, _)), false) => cx.out.count(rank),
        (Some((rank, score)), true) => {
            cx.out.array(2);
            cx.out.count(rank);
            cx.out.double(score);
        }
        (None, false) => cx.out.null(),
        (None, true) => cx.out.null_array(),
    }
    Ok(())
}

fn zrandmember(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::random(cx, args, Some("withscores"), ZSet::len, |zset: &ZSet, at, with_score, out| {
        let (member, score) = zset.nth(at).unwrap_or_default();
        out.bulk(member);
        if with_score {
            out.double(score);
        }
    })
}

fn zscan(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::scan(cx, args, |zset: &ZSet, cursor, options, out| {
        let mut count = 0;
        let next = zset.scan(cursor, options.count, |member, score| {
            if options.matches(member) {
                out.bulk(member);
                // A string in both versions of the protocol.
                out.bulk(number::Double::new(score).as_bytes());
                count += 2;
            }
        });
        (next, count)
    })
}
