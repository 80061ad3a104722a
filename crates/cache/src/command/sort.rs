//! SORT: the elements of a list, set or sorted set, ordered by themselves or by the values of other
//! keys.
//!
//! Patterns derive other keys from the elements, so those keys are unknown before the command runs:
//! with any pattern, all shards of the database are locked.

use std::cmp::Ordering;

use super::{CommandError, Context, Flags, Keys, Spec, keys};
use crate::number;
use crate::store::Object;
use crate::types::{Hash, List};

const WRITE: Flags = Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLE_KEYS);
const READ: Flags = Flags::READONLY.and(Flags::MOVABLE_KEYS);

/// The rows.
pub(super) const COMMANDS: &[Spec] = &[
    Spec {
        name: "sort",
        arity: -2,
        flags: WRITE,
        keys: Keys::Wide(places, looks_elsewhere),
        group: "generic",
        summary: "Returns or stores the sorted elements of a collection.",
        run: sort,
    },
    Spec {
        name: "sort_ro",
        arity: -2,
        flags: READ,
        keys: Keys::Wide(places, looks_elsewhere),
        group: "generic",
        summary: "Returns the sorted elements of a collection.",
        run: sort_ro,
    },
];

type Result<T = ()> = std::result::Result<T, CommandError>;

/// The key, and the key to store at: the last one named, as in [`Query::parse`].
fn places(words: &[&[u8]], database: usize) -> Vec<(usize, usize)> {
    let (mut at, mut store) = (2, None);
    while let Some(word) = words.get(at) {
        at += match word.to_ascii_lowercase().as_slice() {
            b"limit" => 3,
            b"by" | b"get" => 2,
            b"store" => {
                store = Some(at + 1).filter(|&at| at < words.len());
                2
            }
            _ => 1,
        };
    }
    std::iter::once(1).chain(store).map(|at| (database, at)).collect()
}

/// Whether there may be patterns that refer to other keys.
fn looks_elsewhere(words: &[&[u8]]) -> bool {
    words.iter().skip(2).any(|word| word.contains(&b'*'))
}

/// The parsed arguments.
#[derive(Debug, Default)]
struct Query<'a> {
    descending: bool,
    alpha: bool,
    limit: Option<(i64, i64)>,
    /// Pattern of the keys to sort by.
    by: Option<&'a [u8]>,
    /// Whether elements keep their order.
    unsorted: bool,
    get: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
}

impl<'a> Query<'a> {
    fn parse(words: &[&'a [u8]], may_store: bool) -> Result<Self> {
        let mut query = Self::default();
        let mut rest = words;
        while let [word, after @ ..] = rest {
            rest = after;
            match (word.to_ascii_lowercase().as_slice(), after) {
                (b"asc", _) => query.descending = false,
                (b"desc", _) => query.descending = true,
                (b"alpha", _) => query.alpha = true,
                (b"limit", [offset, count, after @ ..]) => {
                    query.limit = Some((integer(offset)?, integer(count)?));
                    rest = after;
                }
                (b"store", [key, after @ ..]) if may_store => {
                    query.store = Some(key);
                    rest = after;
                }
                (b"by", [pattern, after @ ..]) => {
                    query.by = Some(pattern);
                    query.unsorted |= !pattern.contains(&b'*');
                    rest = after;
                }
                (b"get", [pattern, after @ ..]) => {
                    query.get.push(pattern);
                    rest = after;
                }
                _ => return Err(CommandError::SYNTAX),
            }
        }
        Ok(query)
    }

    /// The requested part of `len` ordered elements.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        let Some((offset, count)) = self.limit else { return 0..len };
        let start = usize::try_from(offset).unwrap_or(0).min(len);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        start..start.saturating_add(count).min(len)
    }
}

fn integer(word: &[u8]) -> Result<i64> {
    number::parse_i64(word).ok_or(CommandError::NOT_INTEGER)
}

fn sort(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    run(cx, args, true)
}

fn sort_ro(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    run(cx, args, false)
}

type Element = Box<[u8]>;

/// The elements of a key, and whether it is a set.
fn elements(
    cx: &mut Context<'_, '_>,
    word: &[u8],
    backwards: bool,
) -> Result<(Vec<Element>, bool)> {
    let key = cx.key(word);
    let shard = cx.shard(&key);
    let Some(at) = shard.find(&key) else { return Ok((Vec::new(), false)) };
    match shard.object_at(at) {
        Some(Object::List(list)) => {
            let mut elements: Vec<Element> = list.iter().map(Box::from).collect();
            if backwards {
                elements.reverse();
            }
            Ok((elements, false))
        }
        Some(Object::Set(set)) => {
            Ok((set.iter().map(|member| Box::from(&*member)).collect(), true))
        }
        Some(Object::ZSet(zset)) => {
            let members = zset.iter().map(|(member, _)| member);
            let members = if backwards {
                members.rev().map(Box::from).collect()
            } else {
                members.map(Box::from).collect()
            };
            Ok((members, false))
        }
        _ => Err(CommandError::WRONG_TYPE),
    }
}

/// The value of a pattern for an element: the string, or the field of the hash, at the key it
/// names.
fn look_up(cx: &mut Context<'_, '_>, pattern: &[u8], element: &[u8]) -> Option<Element> {
    if pattern == b"#" {
        return Some(element.into());
    }
    let star = pattern.iter().position(|&byte| byte == b'*')?;
    let (before, after) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = after.windows(2).position(|pair| pair == b"->");
    let arrow = arrow.filter(|at| at + 2 < after.len());
    let (after, field) = match arrow {
        Some(at) => (&after[..at], Some(&after[at + 2..])),
        None => (after, None),
    };
    let name = [before, element, after].concat();
    let key = cx.key(&name);
    let shard = cx.shard(&key);
    match field {
        Some(field) => {
            shard.with(&key, |hash: &Hash| hash.get(field).map(Box::from)).ok().flatten().flatten()
        }
        None => shard.string(&key).ok().flatten().map(|value| Box::from(&*value)),
    }
}

/// Parses a number as C does: the empty text is zero.
fn score(text: &[u8]) -> Result<f64> {
    let text = text.trim_ascii_start();
    if text.is_empty() {
        return Ok(0.0);
    }
    number::parse_f64(text)
        .ok_or_else(|| CommandError::new("ERR One or more scores can't be converted into double"))
}

fn in_order(
    cx: &mut Context<'_, '_>,
    query: &Query<'_>,
    by: Option<&[u8]>,
    alpha: bool,
    elements: Vec<Element>,
) -> Result<Vec<Element>> {
    let mut weighed = Vec::with_capacity(elements.len());
    for element in elements {
        let text = match by {
            None => None,
            Some(pattern) => look_up(cx, pattern, &element),
        };
        let number = match (alpha, by, &text) {
            (true, ..) | (false, Some(_), None) => 0.0,
            (false, None, _) => score(&element)?,
            (false, Some(_), Some(text)) => score(text)?,
        };
        weighed.push((number, text, element));
    }
    weighed.sort_by(|left, right| {
        let order = match (alpha, by) {
            (true, None) => left.2.cmp(&right.2),
            (true, Some(_)) => left.1.cmp(&right.1),
            (false, _) => {
                let order = left.0.partial_cmp(&right.0).unwrap_or(Ordering::Equal);
                order.then_with(|| left.2.cmp(&right.2))
            }
        };
        if query.descending { order.reverse() } else { order }
    });
    Ok(weighed.into_iter().map(|(_, _, element)| element).collect())
}

fn run(cx: &mut Context<'_, '_>, args: &[&[u8]], may_store: bool) -> Result {
    let query = Query::parse(&args[2..], may_store)?;
    let (mut sorted, of_set) = elements(cx, args[1], query.unsorted && query.descending)?;
    // A stored result must not depend on the current order of a set.
    let settle = query.unsorted && of_set && query.store.is_some();
    if settle {
        sorted = in_order(cx, &query, None, true, sorted)?;
    } else if !query.unsorted {
        sorted = in_order(cx, &query, query.by, query.alpha, sorted)?;
    }
    let range = query.range(sorted.len());
    let chosen = sorted.get(range).unwrap_or_default();
    let mut found: Vec<Option<Element>> = Vec::new();
    // Elements times patterns, each as long as a value may be: limited before all of it is in
    // memory.
    let mut room = super::pick::reply_size_max(cx.engine);
    for element in chosen {
        for pattern in &query.get {
            let value = look_up(cx, pattern, element);
            let size = size_of::<Option<Element>>() + value.as_ref().map_or(0, |it| it.len());
            room = room.checked_sub(size).ok_or_else(super::pick::too_large)?;
            found.push(value);
        }
        if query.get.is_empty() {
            found.push(Some(element.clone()));
        }
    }
    let Some(target) = query.store else {
        cx.out.array(found.len());
        found.iter().for_each(|element| cx.out.bulk_or_null(element.as_deref()));
        return Ok(());
    };
    let mut list = List::new();
    found.iter().for_each(|element| list.push_back(element.as_deref().unwrap_or_default()));
    let len = list.len();
    keys::replace_logged(cx, target, Object::List(Box::new(list)));
    cx.out.count(len);
    Ok(())
}
