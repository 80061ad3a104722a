//! Sets: members, and unions, intersections and differences.

use super::{CommandError, Context, Flags, Keys, Spec, keys, pick};
use crate::number;
use crate::store::Object;
use crate::types::Set;

const ADD: Flags = Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST);
const DROP: Flags = Flags::WRITE.and(Flags::FAST);
const STORE: Flags = Flags::WRITE.and(Flags::DENYOOM);
const READ: Flags = Flags::READONLY.and(Flags::FAST);
const WALK: Flags = Flags::READONLY;
const FIRST: Keys = Keys::Range(1, 1, 1);
const EVERY: Keys = Keys::Range(1, -1, 1);
/// Maximum number of members in one logged operation.
const LOGGED_AT_ONCE: usize = 512;

const GROUP: &str = "set";

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    super::row(GROUP, "sadd", -3, ADD, FIRST, sadd, "Adds members to a set."),
    super::row(GROUP, "srem", -3, DROP, FIRST, srem, "Removes members of a set."),
    super::row(GROUP, "smembers", 2, WALK, FIRST, smembers, "Returns all members of a set."),
    super::row(
        GROUP,
        "sismember",
        3,
        READ,
        FIRST,
        sismember,
        "Returns whether a member is in a set.",
    ),
    super::row(
        GROUP,
        "smismember",
        -3,
        READ,
        FIRST,
        smismember,
        "Returns for each member whether it is in a set.",
    ),
    super::row(GROUP, "scard", 2, READ, FIRST, scard, "Counts the members of a set."),
    super::row(GROUP, "spop", -2, DROP, FIRST, spop, "Removes and returns random members."),
    super::row(GROUP, "srandmember", -2, WALK, FIRST, srandmember, "Returns random members."),
    super::row(
        GROUP,
        "smove",
        4,
        DROP,
        Keys::Range(1, 2, 1),
        smove,
        "Moves a member to another set.",
    ),
    super::row(GROUP, "sinter", -2, WALK, EVERY, sinter, "Returns the intersection of sets."),
    super::row(GROUP, "sunion", -2, WALK, EVERY, sunion, "Returns the union of sets."),
    super::row(GROUP, "sdiff", -2, WALK, EVERY, sdiff, "Returns the difference of sets."),
    super::row(
        GROUP,
        "sinterstore",
        -3,
        STORE,
        EVERY,
        sinterstore,
        "Stores the intersection of sets.",
    ),
    super::row(GROUP, "sunionstore", -3, STORE, EVERY, sunionstore, "Stores the union of sets."),
    super::row(GROUP, "sdiffstore", -3, STORE, EVERY, sdiffstore, "Stores the difference of sets."),
    super::row(
        GROUP,
        "sintercard",
        -3,
        WALK.and(Flags::MOVABLE_KEYS),
        Keys::Counted(1, &[]),
        sintercard,
        "Counts the members of the intersection of sets.",
    ),
    super::row(GROUP, "sscan", -3, WALK, FIRST, sscan, "Iterates over the members of a set."),
];

type Result<T = ()> = std::result::Result<T, CommandError>;

fn sadd(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let members = &args[2..];
    let shard = cx.shard(&key);
    // Nothing is logged if no member is new.
    let news = shard.with(&key, |set: &Set| members.iter().any(|member| !set.contains(member)))?;
    if news == Some(false) {
        cx.out.int(0);
        return Ok(());
    }
    let added = shard.edit_or_new(&key, |set: &mut Set| {
        members.iter().filter(|member| set.insert(member)).count()
    })?;
    cx.log(args);
    cx.out.count(added);
    Ok(())
}

fn srem(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let members = &args[2..];
    let shard = cx.shard(&key);
    if shard.with(&key, |set: &Set| members.iter().any(|member| set.contains(member)))?
        != Some(true)
    {
        cx.out.int(0);
        return Ok(());
    }
    let removed = shard
        .edit(&key, |set: &mut Set| members.iter().filter(|member| set.remove(member)).count())?;
    cx.log(args);
    cx.out.count(removed.unwrap_or(0));
    Ok(())
}

fn smembers(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let out = &mut *cx.out;
    let shard = cx.locked.get(cx.session.database, key.shard());
    let found = shard.with(&key, |set: &Set| {
        out.set(set.len());
        set.iter().for_each(|member| out.bulk(&member));
    })?;
    if found.is_none() {
        out.set(0);
    }
    Ok(())
}

fn sismember(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::holds(cx, args, Set::contains)
}

fn smismember(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::each(cx, args, |set: Option<&Set>, member, out| {
        out.int(set.is_some_and(|set| set.contains(member)).into());
    })
}

fn scard(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::len(cx, args, Set::len)
}

fn spop(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let count = match args {
        [_, _] => None,
        [_, _, word] => Some(pick::natural(word)?),
        _ => return Err(CommandError::SYNTAX),
    };
    let key = cx.key(args[1]);
    let engine = cx.engine;
    let Some(len) = cx.shard(&key).with(&key, Set::len)? else {
        match count {
            None => cx.out.null(),
            Some(_) => cx.out.set(0),
        }
        return Ok(());
    };
    let wanted = count.unwrap_or(1).min(len);
    if wanted == 0 {
        cx.out.set(0);
        return Ok(());
    }
    let popped = cx.shard(&key).edit(&key, |set: &mut Set| {
        (0..wanted).map_while(|_| set.remove_nth(pick::one(engine, set.len()))).collect::<Vec<_>>()
    })?;
    let popped = popped.unwrap_or_default();
    if popped.len() == len {
        cx.log(&[b"DEL", args[1]]);
    } else {
        for members in popped.chunks(LOGGED_AT_ONCE) {
            let mut words: Vec<&[u8]> = vec![b"SREM", args[1]];
            words.extend(members.iter().map(|member| &**member));
            cx.log(&words);
        }
    }
    match count {
        None => cx.out.bulk_or_null(popped.first().map(|member| &**member)),
        Some(_) => {
            cx.out.set(popped.len());
            popped.iter().for_each(|member| cx.out.bulk(member));
        }
    }
    Ok(())
}

fn srandmember(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::random(cx, args, None, Set::len, |set: &Set, at, _, out| {
        out.bulk_or_null(set.nth(at).as_deref());
    })
}

fn smove(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (source, target, member) = (cx.key(args[1]), cx.key(args[2]), args[3]);
    let there = cx.shard(&source).with(&source, |set: &Set| set.contains(member))?;
    if there.is_some() {
        // Checked before anything is removed.
        cx.shard(&target).with(&target, Set::len)?;
    }
    let there = there == Some(true);
    if there && args[1] != args[2] {
        cx.shard(&source).edit(&source, |set: &mut Set| set.remove(member))?;
        cx.log(&[b"SREM", args[1], member]);
        // A watched target is marked as changed only if it changes.
        let held = cx.shard(&target).with(&target, |set: &Set| set.contains(member))?;
        if held != Some(true) {
            cx.shard(&target).edit_or_new(&target, |set: &mut Set| set.insert(member))?;
            cx.log(&[b"SADD", args[2], member]);
        }
    }
    cx.out.int(there.into());
    Ok(())
}

/// How several sets are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Combine {
    Inter,
    Union,
    Diff,
}

/// The sizes of the sets at keys, 0 if there is none; all have the right type.
fn sizes(cx: &mut Context<'_, '_>, words: &[&[u8]]) -> Result<Vec<usize>> {
    let mut sizes = Vec::with_capacity(words.len());
    for word in words {
        let key = cx.key(word);
        sizes.push(cx.shard(&key).with(&key, Set::len)?.unwrap_or(0));
    }
    Ok(sizes)
}

fn members(cx: &mut Context<'_, '_>, word: &[u8]) -> Result<Vec<Box<[u8]>>> {
    let key = cx.key(word);
    let members = cx
        .shard(&key)
        .with(&key, |set: &Set| set.iter().map(|member| Box::from(&*member)).collect::<Vec<_>>())?;
    Ok(members.unwrap_or_default())
}

/// The members that are in all sets.
fn intersect(cx: &mut Context<'_, '_>, words: &[&[u8]]) -> Result<Vec<Box<[u8]>>> {
    let sizes = sizes(cx, words)?;
    let mut order: Vec<usize> = (0..words.len()).collect();
    order.sort_by_key(|&at| sizes[at]);
    let Some((&smallest, others)) = order.split_first() else { return Ok(Vec::new()) };
    let mut kept = members(cx, words[smallest])?;
    for &at in others {
        if kept.is_empty() {
            break;
        }
        let key = cx.key(words[at]);
        cx.shard(&key).with(&key, |set: &Set| kept.retain(|member| set.contains(member)))?;
    }
    Ok(kept)
}

fn combine(cx: &mut Context<'_, '_>, words: &[&[u8]], how: Combine) -> Result<Set> {
    let mut made = Set::new();
    if how == Combine::Inter {
        intersect(cx, words)?.iter().for_each(|member| {
            made.insert(member);
        });
        return Ok(made);
    }
    let sizes = sizes(cx, words)?;
    for (at, word) in words.iter().enumerate() {
        let key = cx.key(word);
        let shard = cx.shard(&key);
        if how == Combine::Union || at == 0 {
            shard.with(&key, |set: &Set| {
                if made.is_empty() {
                    made = set.clone();
                } else {
                    set.iter().for_each(|member| {
                        made.insert(&member);
                    });
                }
            })?;
        } else if sizes[at] <= made.len() {
            shard.with(&key, |set: &Set| {
                set.iter().for_each(|member| {
                    made.remove(&member);
                });
            })?;
        } else {
            shard.with(&key, |set: &Set| {
                let shared = made.iter().filter(|member| set.contains(member));
                let shared: Vec<Box<[u8]>> = shared.map(|member| Box::from(&*member)).collect();
                shared.iter().for_each(|member| {
                    made.remove(member);
                });
            })?;
        }
    }
    Ok(made)
}

fn sinter(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let kept = intersect(cx, &args[1..])?;
    cx.out.set(kept.len());
    kept.iter().for_each(|member| cx.out.bulk(member));
    Ok(())
}

fn sunion(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_combined(cx, &args[1..], Combine::Union)
}

fn sdiff(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_combined(cx, &args[1..], Combine::Diff)
}

fn reply_combined(cx: &mut Context<'_, '_>, words: &[&[u8]], how: Combine) -> Result {
    let made = combine(cx, words, how)?;
    cx.out.set(made.len());
    made.iter().for_each(|member| cx.out.bulk(&member));
    Ok(())
}

fn sinterstore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    store(cx, args, Combine::Inter)
}

fn sunionstore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    store(cx, args, Combine::Union)
}

fn sdiffstore(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    store(cx, args, Combine::Diff)
}

fn store(cx: &mut Context<'_, '_>, args: &[&[u8]], how: Combine) -> Result {
    let made = combine(cx, &args[2..], how)?;
    let len = made.len();
    keys::replace_logged(cx, args[1], Object::Set(Box::new(made)));
    cx.out.count(len);
    Ok(())
}

fn sintercard(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (words, rest) = counted_keys(&args[1..])?;
    let limit = limit_only(rest)?;
    let count = intersect(cx, words)?.len();
    cx.out.count(if limit == 0 { count } else { count.min(limit) });
    Ok(())
}

/// The words of a command.
type Words<'a> = &'a [&'a [u8]];

/// Splits `numkeys key ... rest` for the commands that count an intersection.
fn counted_keys<'a>(words: Words<'a>) -> Result<(Words<'a>, Words<'a>)> {
    let count = number::parse_i64(words[0]).and_then(|count| usize::try_from(count).ok());
    let count = count
        .filter(|&count| count > 0)
        .ok_or_else(|| CommandError::new("ERR numkeys should be greater than 0"))?;
    words[1..]
        .split_at_checked(count)
        .ok_or_else(|| CommandError::new("ERR Number of keys can't be greater than number of args"))
}

/// Parses `LIMIT n`, which may be repeated; 0 for none.
pub(super) fn limit_only(words: &[&[u8]]) -> Result<usize> {
    let mut limit = 0;
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(CommandError::SYNTAX) };
        if !name.eq_ignore_ascii_case(b"limit") {
            return Err(CommandError::SYNTAX);
        }
        limit = number::parse_i64(value)
            .and_then(|limit| usize::try_from(limit).ok())
            .ok_or_else(|| CommandError::new("ERR LIMIT can't be negative"))?;
    }
    Ok(limit)
}

fn sscan(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::scan(cx, args, |set: &Set, cursor, options, out| {
        let mut count = 0;
        let next = set.scan(cursor, options.count, |member| {
            if options.matches(member) {
                out.bulk(member);
                count += 1;
            }
        });
        (next, count)
    })
}
