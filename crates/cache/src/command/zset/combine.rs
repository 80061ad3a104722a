//! Unions, intersections and differences of sorted sets. Sets can take part: each member counts as
//! 1.

use hashbrown::HashMap;

use super::Result;
use crate::command::set::limit_only;
use crate::command::{CommandError, Context, keys, pick};
use crate::number;
use crate::store::Object;
use crate::types::{Set, ZSet};

/// How the members are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Combine {
    Union,
    Inter,
    Diff,
}

/// How a member's scores are combined.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    #[default]
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, left: f64, right: f64) -> f64 {
        match self {
            // The sum of opposite infinities is not a number.
            Self::Sum => number_or_zero(left + right),
            Self::Min => left.min(right),
            Self::Max => left.max(right),
        }
    }
}

fn number_or_zero(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value }
}

/// A set or sorted set that takes part.
enum View<'a> {
    Set(&'a Set),
    ZSet(&'a ZSet),
}

impl View<'_> {
    fn len(&self) -> usize {
        match self {
            View::Set(set) => set.len(),
            View::ZSet(zset) => zset.len(),
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            View::Set(set) => set.contains(member).then_some(1.0),
            View::ZSet(zset) => zset.score(member),
        }
    }

    fn each(&self, mut visit: impl FnMut(&[u8], f64)) {
        match self {
            View::Set(set) => set.iter().for_each(|member| visit(&member, 1.0)),
            View::ZSet(zset) => zset.iter().for_each(|(member, score)| visit(member, score)),
        }
    }
}

/// Reads a key that holds a set of either kind; `None` if there is no such key.
fn look<R>(
    cx: &mut Context<'_, '_>,
    word: &[u8],
    look: impl FnOnce(View<'_>) -> R,
) -> Result<Option<R>> {
    let key = cx.key(word);
    let shard = cx.shard(&key);
    let Some(at) = shard.find(&key) else { return Ok(None) };
    match shard.object_at(at) {
        Some(Object::Set(set)) => Ok(Some(look(View::Set(set)))),
        Some(Object::ZSet(zset)) => Ok(Some(look(View::ZSet(zset)))),
        _ => Err(CommandError::WRONG_TYPE),
    }
}

/// A set of the command: its key, weight and size.
#[derive(Debug, Clone, Copy)]
struct Source<'a> {
    word: &'a [u8],
    weight: f64,
    len: usize,
}

/// The parsed arguments.
struct Query<'a> {
    sources: Vec<Source<'a>>,
    aggregate: Aggregate,
    with_scores: bool,
}

/// Parses `numkeys key ...`; returns the existing sets and the remaining arguments.
fn sources<'a>(
    cx: &mut Context<'_, '_>,
    words: &'a [&'a [u8]],
    name: &str,
) -> Result<(Vec<Source<'a>>, &'a [&'a [u8]])> {
    let count = number::parse_i64(words[0]).ok_or(CommandError::NOT_INTEGER)?;
    let count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or_else(|| {
        CommandError::new(format!("ERR at least 1 input key is needed for '{name}' command"))
    })?;
    let (keys, rest) = words[1..].split_at_checked(count).ok_or(CommandError::SYNTAX)?;
    let mut sources = Vec::with_capacity(keys.len());
    for &word in keys {
        let len = look(cx, word, |view| view.len())?.unwrap_or(0);
        sources.push(Source { word, weight: 1.0, len });
    }
    Ok((sources, rest))
}

/// Parses `numkeys key ... [WEIGHTS w ...] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]`.
fn parse<'a>(
    cx: &mut Context<'_, '_>,
    words: &'a [&'a [u8]],
    (name, how, stores): (&str, Combine, bool),
) -> Result<Query<'a>> {
    let (mut sources, mut rest) = sources(cx, words, name)?;
    let (mut aggregate, mut with_scores) = (Aggregate::default(), false);
    while let [word, after @ ..] = rest {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        rest = after;
        if how != Combine::Diff && is("weights") && after.len() >= sources.len() {
            let (weights, after) = after.split_at(sources.len());
            for (source, weight) in sources.iter_mut().zip(weights) {
                source.weight = number::parse_f64(weight)
                    .ok_or_else(|| CommandError::new("ERR weight value is not a float"))?;
            }
            rest = after;
        } else if let ([word, after @ ..], true) = (after, how != Combine::Diff && is("aggregate"))
        {
            aggregate = match word.to_ascii_lowercase().as_slice() {
                b"sum" => Aggregate::Sum,
                b"min" => Aggregate::Min,
                b"max" => Aggregate::Max,
                _ => return Err(CommandError::SYNTAX),
            };
            rest = after;
        } else if is("withscores") && !stores {
            with_scores = true;
        } else {
            return Err(CommandError::SYNTAX);
        }
    }
    if how != Combine::Diff {
        // The smallest first: a sum of floats depends on the order.
        sources.sort_by_key(|source| source.len);
    }
    Ok(Query { sources, aggregate, with_scores })
}

type Scores = HashMap<Box<[u8]>, f64, foldhash::fast::RandomState>;

fn first(cx: &mut Context<'_, '_>, source: &Source<'_>) -> Result<Scores> {
    let mut scores = Scores::default();
    look(cx, source.word, |view| {
        scores.reserve(view.len());
        view.each(|member, score| {
            scores.insert(member.into(), number_or_zero(source.weight * score));
        });
    })?;
    Ok(scores)
}

fn combine(cx: &mut Context<'_, '_>, query: &Query<'_>, how: Combine) -> Result<Scores> {
    let Some((smallest, others)) = query.sources.split_first() else {
        return Ok(Scores::default());
    };
    let mut scores = first(cx, smallest)?;
    for source in others {
        if how != Combine::Union && scores.is_empty() {
            break;
        }
        let weighted = |score: f64| number_or_zero(source.weight * score);
        let seen = look(cx, source.word, |view| match how {
            Combine::Union => view.each(|member, score| {
                let score = weighted(score);
                match scores.get_mut(member) {
                    Some(held) => *held = query.aggregate.of(*held, score),
                    None => {
                        scores.insert(member.into(), score);
                    }
                }
            }),
            Combine::Inter => scores.retain(|member, held| match view.score(member) {
                Some(score) => {
                    // NaN is neither less nor greater than the current score.
                    *held = query.aggregate.of(*held, source.weight * score);
                    true
                }
                None => false,
            }),
            Combine::Diff if view.len() <= scores.len() => view.each(|member, _| {
                scores.remove(member);
            }),
            Combine::Diff => scores.retain(|member, _| view.score(member).is_none()),
        })?;
        if seen.is_none() && how == Combine::Inter {
            scores.clear();
        }
    }
    Ok(scores)
}

fn reply_combined(cx: &mut Context<'_, '_>, args: &[&[u8]], name: &str, how: Combine) -> Result {
    let query = parse(cx, &args[1..], (name, how, false))?;
    let scores = combine(cx, &query, how)?;
    let mut sorted: Vec<(Box<[u8]>, f64)> = scores.into_iter().collect();
    sorted.sort_unstable_by(|left, right| {
        let by_score = left.1.partial_cmp(&right.1).unwrap_or(std::cmp::Ordering::Equal);
        by_score.then_with(|| left.0.cmp(&right.0))
    });
    if query.with_scores {
        pick::begin_pairs(cx.out, sorted.len());
    } else {
        cx.out.array(sorted.len());
    }
    for (member, score) in &sorted {
        if query.with_scores {
            pick::begin_pair(cx.out);
            cx.out.bulk(member);
            cx.out.double(*score);
        } else {
            cx.out.bulk(member);
        }
    }
    Ok(())
}

fn store(cx: &mut Context<'_, '_>, args: &[&[u8]], name: &str, how: Combine) -> Result {
    let query = parse(cx, &args[2..], (name, how, true))?;
    let scores = combine(cx, &query, how)?;
    let mut made = ZSet::new();
    for (member, score) in &scores {
        made.insert(member, *score);
    }
    let len = made.len();
    keys::replace_logged(cx, args[1], Object::ZSet(Box::new(made)));
    cx.out.count(len);
    Ok(())
}

pub(super) fn zunion(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_combined(cx, args, "zunion", Combine::Union)
}

pub(super) fn zinter(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_combined(cx, args, "zinter", Combine::Inter)
}

pub(super) fn zdiff(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_combined(cx, args, "zdiff", Combine::Diff)
}

pub(super) fn zunionstore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    store(cx, args, "zunionstore", Combine::Union)
}

pub(super) fn zinterstore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    store(cx, args, "zinterstore", Combine::Inter)
}

pub(super) fn zdiffstore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    store(cx, args, "zdiffstore", Combine::Diff)
}

pub(super) fn zintercard(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (mut sources, rest) = sources(cx, &args[1..], "zintercard")?;
    let limit = limit_only(rest)?;
    sources.sort_by_key(|source| source.len);
    let query = Query { sources, aggregate: Aggregate::default(), with_scores: false };
    let count = combine(cx, &query, Combine::Inter)?.len();
    cx.out.count(if limit == 0 { count } else { count.min(limit) });
    Ok(())
}
