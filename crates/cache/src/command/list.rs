//! Lists: pushing, popping and reading; the commands that wait for an element are in `blocking`.
//!
//! A move between keys is logged as one operation on each of them.

mod blocking;

use self::blocking::{blmove, blmpop, blpop, brpop, brpoplpush};
use super::pop_words::PopWords;
use super::{CommandError, Context, Flags, Keys, Spec};
use crate::number;
use crate::resp::Reply;
use crate::store::{Key, Object};
use crate::types::List;

const PUSH: Flags = Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST);
const POP: Flags = Flags::WRITE.and(Flags::FAST);
const CHANGE: Flags = Flags::WRITE.and(Flags::DENYOOM);
const WAIT: Flags = Flags::WRITE.and(Flags::BLOCKING);
const FIRST: Keys = Keys::Range(1, 1, 1);
const TWO: Keys = Keys::Range(1, 2, 1);

const GROUP: &str = "list";

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    super::row(GROUP, "lpush", -3, PUSH, FIRST, lpush, "Adds elements at the beginning of a list."),
    super::row(GROUP, "rpush", -3, PUSH, FIRST, rpush, "Adds elements at the end of a list."),
    super::row(
        GROUP,
        "lpushx",
        -3,
        PUSH,
        FIRST,
        lpushx,
        "Adds elements at the beginning of an existing list.",
    ),
    super::row(
        GROUP,
        "rpushx",
        -3,
        PUSH,
        FIRST,
        rpushx,
        "Adds elements at the end of an existing list.",
    ),
    super::row(
        GROUP,
        "lpop",
        -2,
        POP,
        FIRST,
        lpop,
        "Removes and returns the first elements of a list.",
    ),
    super::row(
        GROUP,
        "rpop",
        -2,
        POP,
        FIRST,
        rpop,
        "Removes and returns the last elements of a list.",
    ),
    super::row(
        GROUP,
        "llen",
        2,
        Flags::READONLY.and(Flags::FAST),
        FIRST,
        llen,
        "Returns the length of a list.",
    ),
    super::row(GROUP, "lindex", 3, Flags::READONLY, FIRST, lindex, "Returns an element of a list."),
    super::row(GROUP, "lrange", 4, Flags::READONLY, FIRST, lrange, "Returns a part of a list."),
    super::row(GROUP, "lset", 4, CHANGE, FIRST, lset, "Replaces an element of a list."),
    super::row(
        GROUP,
        "linsert",
        5,
        CHANGE,
        FIRST,
        linsert,
        "Inserts an element before or after another one.",
    ),
    super::row(GROUP, "lrem", 4, Flags::WRITE, FIRST, lrem, "Removes elements that equal a value."),
    super::row(
        GROUP,
        "ltrim",
        4,
        Flags::WRITE,
        FIRST,
        ltrim,
        "Removes all elements outside a range of a list.",
    ),
    super::row(
        GROUP,
        "lpos",
        -3,
        Flags::READONLY,
        FIRST,
        lpos,
        "Finds elements that equal a value.",
    ),
    super::row(
        GROUP,
        "rpoplpush",
        3,
        CHANGE,
        TWO,
        rpoplpush,
        "Moves the last element to the beginning of another list.",
    ),
    super::row(GROUP, "lmove", 5, CHANGE, TWO, lmove, "Moves an element from one list to another."),
    super::row(
        GROUP,
        "lmpop",
        -4,
        Flags::WRITE,
        Keys::Counted(1, &[]),
        lmpop,
        "Removes and returns elements of the first non-empty list.",
    ),
    super::row(
        GROUP,
        "blpop",
        -3,
        WAIT,
        Keys::Range(1, -2, 1),
        blpop,
        "Removes and returns the first element of a list, or waits for one.",
    ),
    super::row(
        GROUP,
        "brpop",
        -3,
        WAIT,
        Keys::Range(1, -2, 1),
        brpop,
        "Removes and returns the last element of a list, or waits for one.",
    ),
    super::row(
        GROUP,
        "blmove",
        6,
        WAIT.and(Flags::DENYOOM),
        TWO,
        blmove,
        "Moves an element to another list, or waits for one.",
    ),
    super::row(
        GROUP,
        "brpoplpush",
        4,
        WAIT.and(Flags::DENYOOM),
        TWO,
        brpoplpush,
        "Moves an element to another list, or waits for one.",
    ),
    super::row(
        GROUP,
        "blmpop",
        -5,
        WAIT,
        Keys::Counted(2, &[]),
        blmpop,
        "Removes and returns elements of the first non-empty list, or waits for one.",
    ),
];

type Result = std::result::Result<(), CommandError>;

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

impl End {
    fn parse(word: &[u8]) -> std::result::Result<Self, CommandError> {
        match word.to_ascii_lowercase().as_slice() {
            b"left" => Ok(Self::Left),
            b"right" => Ok(Self::Right),
            _ => Err(CommandError::SYNTAX),
        }
    }

    fn push(self, list: &mut List, element: &[u8]) {
        match self {
            Self::Left => list.push_front(element),
            Self::Right => list.push_back(element),
        }
    }

    fn pop(self, list: &mut List) -> Option<Box<[u8]>> {
        match self {
            Self::Left => list.pop_front(),
            Self::Right => list.pop_back(),
        }
    }

    fn push_word(self) -> &'static [u8] {
        if self == Self::Left { b"LPUSH" } else { b"RPUSH" }
    }

    fn pop_word(self) -> &'static [u8] {
        if self == Self::Left { b"LPOP" } else { b"RPOP" }
    }
}

fn lpush(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    push(cx, args, End::Left)
}

fn rpush(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    push(cx, args, End::Right)
}

fn push(cx: &mut Context<'_, '_>, args: &[&[u8]], end: End) -> Result {
    let key = cx.key(args[1]);
    let len = cx.shard(&key).edit_or_new(&key, |list: &mut List| {
        args[2..].iter().for_each(|element| end.push(list, element));
        list.len()
    })?;
    cx.log(args);
    cx.out.count(len);
    Ok(())
}

fn lpushx(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    push_existing(cx, args, End::Left)
}

fn rpushx(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    push_existing(cx, args, End::Right)
}

fn push_existing(cx: &mut Context<'_, '_>, args: &[&[u8]], end: End) -> Result {
    let key = cx.key(args[1]);
    if cx.shard(&key).with(&key, List::len)?.is_none() {
        cx.out.int(0);
        return Ok(());
    }
    push(cx, args, end)
}

fn lpop(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pop(cx, args, End::Left)
}

fn rpop(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pop(cx, args, End::Right)
}

fn pop(cx: &mut Context<'_, '_>, args: &[&[u8]], end: End) -> Result {
    let count = match args {
        [_, _] => None,
        [_, _, word] => Some(super::pick::natural(word)?),
        _ => {
            let name = if end == End::Left { "lpop" } else { "rpop" };
            return Err(CommandError::new(format!(
                "ERR wrong number of arguments for '{name}' command"
            )));
        }
    };
    let key = cx.key(args[1]);
    let Some(count) = count else {
        let popped = take(cx, &key, end)?;
        cx.out.bulk_or_null(popped.as_deref());
        return Ok(());
    };
    if !take_many(cx, &key, end, count, |_| ())? {
        cx.out.null_array();
    }
    Ok(())
}

/// Removes an element and logs that; `None` if there is no list.
fn take(
    cx: &mut Context<'_, '_>,
    key: &Key<'_>,
    end: End,
) -> std::result::Result<Option<Box<[u8]>>, CommandError> {
    let popped = cx.shard(key).edit(key, |list: &mut List| end.pop(list))?.flatten();
    if popped.is_some() {
        cx.log(&[end.pop_word(), key.bytes, b"1"]);
    }
    Ok(popped)
}

/// Replies with an array of up to `count` elements, removes them and logs that; `false` if there is no
/// list.
///
/// * `lead`: writes what precedes the array.
fn take_many(
    cx: &mut Context<'_, '_>,
    key: &Key<'_>,
    end: End,
    count: usize,
    lead: impl FnOnce(&mut Reply),
) -> std::result::Result<bool, CommandError> {
    let out = &mut *cx.out;
    let shard = cx.locked.get(cx.session.database, key.shard());
    let found = shard.with(key, |list: &List| {
        let count = count.min(list.len());
        lead(out);
        out.array(count);
        match end {
            End::Left => list.iter().take(count).for_each(|element| out.bulk(element)),
            End::Right => list.iter().rev().take(count).for_each(|element| out.bulk(element)),
        }
        count
    })?;
    let Some(count) = found else { return Ok(false) };
    if count == 0 {
        return Ok(true);
    }
    let number = i64::try_from(count).unwrap_or(i64::MAX);
    let removed = shard.edit(key, |list: &mut List| match end {
        End::Left => list.trim(number, -1),
        End::Right => list.trim(0, -1 - number),
    })?;
    if let Some(removed) = removed {
        shard.discard(Object::List(Box::new(removed)));
    }
    let mut digits = itoa::Buffer::new();
    cx.log(&[end.pop_word(), key.bytes, digits.format(count).as_bytes()]);
    Ok(true)
}

fn llen(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    super::pick::len(cx, args, List::len)
}

fn integer(word: &[u8]) -> std::result::Result<i64, CommandError> {
    number::parse_i64(word).ok_or(CommandError::NOT_INTEGER)
}

fn lindex(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let out = &mut *cx.out;
    let shard = cx.locked.get(cx.session.database, key.shard());
    // An invalid index is refused only where it would be used.
    let found = shard.with(&key, |list: &List| {
        let index = integer(args[2])?;
        out.bulk_or_null(list.get(index));
        Ok(())
    })?;
    match found {
        Some(looked) => looked,
        None => {
            out.null();
            Ok(())
        }
    }
}

fn lrange(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (start, stop) = (integer(args[2])?, integer(args[3])?);
    let key = cx.key(args[1]);
    let out = &mut *cx.out;
    let shard = cx.locked.get(cx.session.database, key.shard());
    let found = shard.with(&key, |list: &List| {
        let items = list.range(start, stop);
        out.array(items.len());
        items.for_each(|element| out.bulk(element));
    })?;
    if found.is_none() {
        out.array(0);
    }
    Ok(())
}

fn lset(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let there = cx.shard(&key).with(&key, |list: &List| {
        let index = integer(args[2])?;
        Ok::<_, CommandError>(list.get(index).map(|_| index))
    })?;
    let index = there.ok_or(CommandError::NO_KEY)??.ok_or(CommandError::INDEX)?;
    cx.shard(&key).edit(&key, |list: &mut List| list.set(index, args[3]))?;
    cx.log(args);
    cx.out.ok();
    Ok(())
}

/// Whether an element is in the list; `None` if there is no list.
fn holds(
    cx: &mut Context<'_, '_>,
    key: &Key<'_>,
    element: &[u8],
) -> std::result::Result<Option<bool>, CommandError> {
    let found = cx.shard(key).with(key, |list: &List| list.position(element, 1, 1, 0))?;
    Ok(found.map(|places| !places.is_empty()))
}

fn linsert(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let before = match args[2].to_ascii_lowercase().as_slice() {
        b"before" => true,
        b"after" => false,
        _ => return Err(CommandError::SYNTAX),
    };
    let key = cx.key(args[1]);
    // A watched key is not marked as changed if nothing changes.
    match holds(cx, &key, args[3])? {
        None => cx.out.int(0),
        Some(false) => cx.out.int(-1),
        Some(true) => {
            let len = cx.shard(&key).edit(&key, |list: &mut List| {
                if before {
                    list.insert_before(args[3], args[4]);
                } else {
                    list.insert_after(args[3], args[4]);
                }
                list.len()
            })?;
            cx.log(args);
            cx.out.count(len.unwrap_or(0));
        }
    }
    Ok(())
}

fn lrem(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let count = integer(args[2])?;
    let key = cx.key(args[1]);
    if holds(cx, &key, args[3])? != Some(true) {
        cx.out.int(0);
        return Ok(());
    }
    let removed = cx.shard(&key).edit(&key, |list: &mut List| list.remove(count, args[3]))?;
    cx.log(args);
    cx.out.count(removed.unwrap_or(0));
    Ok(())
}

fn ltrim(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (start, stop) = (integer(args[2])?, integer(args[3])?);
    let key = cx.key(args[1]);
    let trimmed = cx.shard(&key).edit(&key, |list: &mut List| list.trim(start, stop))?;
    if let Some(removed) = trimmed {
        cx.shard(&key).discard(Object::List(Box::new(removed)));
        cx.log(args);
    }
    cx.out.ok();
    Ok(())
}

fn lpos(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (mut rank, mut count, mut maxlen) = (1, None, 0);
    for option in args[3..].chunks(2) {
        let [name, value] = option else { return Err(CommandError::SYNTAX) };
        let natural = |what: &str| {
            number::parse_i64(value)
                .and_then(|value| usize::try_from(value).ok())
                .ok_or_else(|| CommandError::new(format!("ERR {what} can't be negative")))
        };
        match name.to_ascii_lowercase().as_slice() {
            b"rank" => rank = integer(value)?,
            b"count" => count = Some(natural("COUNT")?),
            b"maxlen" => maxlen = natural("MAXLEN")?,
            _ => return Err(CommandError::SYNTAX),
        }
        match rank {
            0 => {
                return Err(CommandError::new(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
                ));
            }
            i64::MIN => return Err(CommandError::new("ERR value is out of range")),
            _ => {}
        }
    }
    let key = cx.key(args[1]);
    let wanted = count.unwrap_or(1);
    let found = cx
        .shard(&key)
        .with(&key, |list: &List| list.position(args[2], rank, wanted, maxlen))?
        .unwrap_or_default();
    match count {
        None => match found.first() {
            Some(&at) => cx.out.count(at),
            None => cx.out.null(),
        },
        Some(_) => {
            cx.out.array(found.len());
            found.iter().for_each(|&at| cx.out.count(at));
        }
    }
    Ok(())
}

fn rpoplpush(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    if !move_one(cx, args, End::Right, End::Left)? {
        cx.out.null();
    }
    Ok(())
}

fn lmove(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (from, to) = (End::parse(args[3])?, End::parse(args[4])?);
    if !move_one(cx, args, from, to)? {
        cx.out.null();
    }
    Ok(())
}

/// Moves an element and replies with it; `false` if there is none.
fn move_one(
    cx: &mut Context<'_, '_>,
    args: &[&[u8]],
    from: End,
    to: End,
) -> std::result::Result<bool, CommandError> {
    let (source, target) = (cx.key(args[1]), cx.key(args[2]));
    if cx.shard(&source).with(&source, List::len)?.is_none() {
        return Ok(false);
    }
    // Checked before anything is removed.
    cx.shard(&target).with(&target, List::len)?;
    let Some(element) = take(cx, &source, from)? else { return Ok(false) };
    cx.shard(&target).edit_or_new(&target, |list: &mut List| to.push(list, &element))?;
    cx.log(&[to.push_word(), args[2], &element]);
    cx.out.bulk(&element);
    Ok(true)
}

fn mpop(
    cx: &mut Context<'_, '_>,
    keys: &[&[u8]],
    end: End,
    count: usize,
) -> std::result::Result<bool, CommandError> {
    for word in keys {
        if !cx.looks_at(word) {
            continue;
        }
        let key = cx.key(word);
        let lead = |out: &mut Reply| {
            out.array(2);
            out.bulk(word);
        };
        if take_many(cx, &key, end, count, lead)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn lmpop(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let PopWords { keys, end, count } = PopWords::parse(&args[1..], End::parse)?;
    if !mpop(cx, keys, end, count)? {
        cx.out.null_array();
    }
    Ok(())
}
