//! Hashes: values by field.

use super::{CommandError, Context, Flags, Keys, Spec, pick};
use crate::number::{self, SumFault};
use crate::resp::Reply;
use crate::types::Hash;

const SET: Flags = Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST);
const DROP: Flags = Flags::WRITE.and(Flags::FAST);
const READ: Flags = Flags::READONLY.and(Flags::FAST);
const WALK: Flags = Flags::READONLY;
const FIRST: Keys = Keys::Range(1, 1, 1);

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    run: super::Run,
    summary: &'static str,
) -> Spec {
    Spec { name, arity, flags, keys: FIRST, group: "hash", summary, run }
}

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    row("hset", -4, SET, hset, "Sets the values of fields."),
    row("hmset", -4, SET, hmset, "Sets the values of fields."),
    row("hsetnx", 4, SET, hsetnx, "Sets the value of a field that does not exist."),
    row("hget", 3, READ, hget, "Returns the value of a field."),
    row("hmget", -3, READ, hmget, "Returns the values of fields."),
    row("hgetall", 2, WALK, hgetall, "Returns all fields and their values."),
    row("hkeys", 2, WALK, hkeys, "Returns all fields."),
    row("hvals", 2, WALK, hvals, "Returns the values of all fields."),
    row("hlen", 2, READ, hlen, "Counts the fields of a hash."),
    row("hexists", 3, READ, hexists, "Returns whether a field exists."),
    row("hstrlen", 3, READ, hstrlen, "Returns the length of a field's value."),
    row("hdel", -3, DROP, hdel, "Removes fields of a hash."),
    row("hgetdel", -5, DROP, hgetdel, "Returns the values of fields and removes them."),
    row("hincrby", 4, SET, hincrby, "Adds to the integer in a field."),
    row("hincrbyfloat", 4, SET, hincrbyfloat, "Adds to the number in a field."),
    row("hrandfield", -2, WALK, hrandfield, "Returns random fields."),
    row("hscan", -3, WALK, hscan, "Iterates over the fields of a hash."),
];

type Result = std::result::Result<(), CommandError>;

/// Sets the fields and returns how many are new.
fn set_fields(
    cx: &mut Context<'_, '_>,
    args: &[&[u8]],
    name: &str,
) -> std::result::Result<usize, CommandError> {
    let (pairs, []) = args[2..].as_chunks::<2>() else {
        return Err(CommandError::new(format!(
            "ERR wrong number of arguments for '{name}' command"
        )));
    };
    let key = cx.key(args[1]);
    let added = cx.shard(&key).edit_or_new(&key, |hash: &mut Hash| {
        pairs.iter().filter(|[field, value]| hash.set(field, value)).count()
    })?;
    cx.log(args);
    Ok(added)
}

fn hset(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let added = set_fields(cx, args, "hset")?;
    cx.out.count(added);
    Ok(())
}

fn hmset(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    set_fields(cx, args, "hmset")?;
    cx.out.ok();
    Ok(())
}

fn hsetnx(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let there = cx.shard(&key).with(&key, |hash: &Hash| hash.contains(args[2]))?;
    if there == Some(true) {
        cx.out.int(0);
        return Ok(());
    }
    cx.shard(&key).edit_or_new(&key, |hash: &mut Hash| hash.set(args[2], args[3]))?;
    cx.log(args);
    cx.out.int(1);
    Ok(())
}

fn hget(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let out = &mut *cx.out;
    let shard = cx.locked.get(cx.session.database, key.shard());
    if shard.with(&key, |hash: &Hash| out.bulk_or_null(hash.get(args[2])))?.is_none() {
        out.null();
    }
    Ok(())
}

fn hmget(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::each(cx, args, |hash: Option<&Hash>, field, out| {
        out.bulk_or_null(hash.and_then(|hash| hash.get(field)));
    })
}

fn hgetall(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let out = &mut *cx.out;
    let shard = cx.locked.get(cx.session.database, key.shard());
    let found = shard.with(&key, |hash: &Hash| {
        out.map(hash.len());
        for (field, value) in hash {
            out.bulk(field);
            out.bulk(value);
        }
    })?;
    if found.is_none() {
        out.map(0);
    }
    Ok(())
}

fn hkeys(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    each(cx, args, |out, field, _| out.bulk(field))
}

fn hvals(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    each(cx, args, |out, _, value| out.bulk(value))
}

fn each(cx: &mut Context<'_, '_>, args: &[&[u8]], write: fn(&mut Reply, &[u8], &[u8])) -> Result {
    let key = cx.key(args[1]);
    let out = &mut *cx.out;
    let shard = cx.locked.get(cx.session.database, key.shard());
    let found = shard.with(&key, |hash: &Hash| {
        out.array(hash.len());
        hash.iter().for_each(|(field, value)| write(out, field, value));
    })?;
    if found.is_none() {
        out.array(0);
    }
    Ok(())
}

fn hlen(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::len(cx, args, Hash::len)
}

fn hexists(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::holds(cx, args, Hash::contains)
}

fn hstrlen(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let len = cx.shard(&key).with(&key, |hash: &Hash| hash.get(args[2]).map_or(0, <[u8]>::len))?;
    cx.out.count(len.unwrap_or(0));
    Ok(())
}

fn hdel(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let fields = &args[2..];
    if cx.shard(&key).with(&key, |hash: &Hash| fields.iter().any(|field| hash.contains(field)))?
        != Some(true)
    {
        cx.out.int(0);
        return Ok(());
    }
    let removed = cx
        .shard(&key)
        .edit(&key, |hash: &mut Hash| fields.iter().filter(|field| hash.remove(field)).count())?;
    cx.log(args);
    cx.out.count(removed.unwrap_or(0));
    Ok(())
}

/// `HGETDEL key FIELDS count field ...`
fn hgetdel(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    if !args[2].eq_ignore_ascii_case(b"fields") {
        return Err(CommandError::new(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let count = number::parse_i64(args[3]).filter(|&count| count > 0);
    let count = count
        .and_then(|count| usize::try_from(count).ok())
        .ok_or_else(|| CommandError::new("ERR Number of fields must be a positive integer"))?;
    let fields = &args[4..];
    if fields.len() != count {
        return Err(CommandError::new(
            "ERR The `numfields` parameter must match the number of arguments",
        ));
    }
    let read: Vec<&[u8]> = [&args[..2], fields].concat();
    hmget(cx, &read)?;
    let key = cx.key(args[1]);
    let there =
        cx.shard(&key).with(&key, |hash: &Hash| fields.iter().any(|field| hash.contains(field)))?;
    if there == Some(true) {
        cx.shard(&key).edit(&key, |hash: &mut Hash| {
            fields.iter().for_each(|field| {
                hash.remove(field);
            });
        })?;
        let words: Vec<&[u8]> = [&[&b"HDEL"[..], args[1]], fields].concat();
        cx.log(&words);
    }
    Ok(())
}

fn hincrby(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let by = number::parse_i64(args[3]).ok_or(CommandError::NOT_INTEGER)?;
    let key = cx.key(args[1]);
    let held = cx
        .shard(&key)
        .with(&key, |hash: &Hash| hash.get(args[2]).map_or(Some(0), number::parse_i64))?;
    let held = held
        .unwrap_or(Some(0))
        .ok_or_else(|| CommandError::new("ERR hash value is not an integer"))?;
    let sum = held
        .checked_add(by)
        .ok_or_else(|| CommandError::new("ERR increment or decrement would overflow"))?;
    let mut digits = itoa::Buffer::new();
    let text = digits.format(sum).as_bytes();
    cx.shard(&key).edit_or_new(&key, |hash: &mut Hash| hash.set(args[2], text))?;
    cx.log(&[b"HSET", args[1], args[2], text]);
    cx.out.int(sum);
    Ok(())
}

fn hincrbyfloat(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    if !number::is_addend(args[3]).ok_or(CommandError::NOT_FLOAT)? {
        return Err(CommandError::new("ERR value is NaN or Infinity"));
    }
    let key = cx.key(args[1]);
    let sum = cx
        .shard(&key)
        .with(&key, |hash: &Hash| number::sum(hash.get(args[2]).unwrap_or(b"0"), args[3]))?;
    let sum = sum.unwrap_or_else(|| number::sum(b"0", args[3])).map_err(|fault| match fault {
        SumFault::Left => CommandError::new("ERR hash value is not a float"),
        SumFault::Right => CommandError::NOT_FLOAT,
        SumFault::Infinite => CommandError::new("ERR increment would produce NaN or Infinity"),
    })?;
    cx.shard(&key).edit_or_new(&key, |hash: &mut Hash| hash.set(args[2], sum.as_bytes()))?;
    cx.log(&[b"HSET", args[1], args[2], sum.as_bytes()]);
    cx.out.bulk(sum.as_bytes());
    Ok(())
}

fn hrandfield(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::random(cx, args, Some("withvalues"), Hash::len, |hash: &Hash, at, with_value, out| {
        let (field, value) = hash.nth(at).unwrap_or_default();
        out.bulk(field);
        if with_value {
            out.bulk(value);
        }
    })
}

fn hscan(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pick::scan(cx, args, |hash: &Hash, cursor, options, out| {
        let mut count = 0;
        let next = hash.scan(cursor, options.count, |field, value| {
            if options.matches(field) {
                out.bulk(field);
                count += 1;
                if !options.no_values {
                    out.bulk(value);
                    count += 1;
                }
            }
        });
        (next, count)
    })
}
