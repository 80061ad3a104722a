//! Strings: SET and GET with all their options, counters, substrings.
//!
//! Counters log their result, so that a replay computes nothing again.

use super::apart::REPLY_MIN;
use super::deadlines::{Expiry, getex_words};
use super::reading::{bulk, bulk_range, let_go, read_string};
use super::{CommandError, Context, Flags, Keys, Spec, pick};

use crate::number::{self, SumFault};
use crate::resp::Reply;
use crate::store::{Deadline, Key, SharedText};

const WRITE: Flags = Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST);
const READ: Flags = Flags::READONLY.and(Flags::FAST);
const WRITE_ONLY: Flags = Flags::WRITE.and(Flags::FAST);
const FIRST: Keys = Keys::Range(1, 1, 1);
const EVERY: Keys = Keys::Range(1, -1, 1);
const PAIRS: Keys = Keys::Range(1, -1, 2);
/// Maximum size of a string in bytes.
pub(crate) const STRING_SIZE_MAX: usize = 512 << 20;

const GROUP: &str = "string";

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    super::row(GROUP, "get", 2, READ, FIRST, get, "Returns the string at a key."),
    super::row(
        GROUP,
        "set",
        -3,
        WRITE,
        FIRST,
        set,
        "Sets the string at a key, replacing any value.",
    ),
    super::row(
        GROUP,
        "setnx",
        3,
        WRITE,
        FIRST,
        setnx,
        "Sets the string at a key that does not exist.",
    ),
    super::row(
        GROUP,
        "setex",
        4,
        WRITE,
        FIRST,
        setex,
        "Sets the string at a key and its time to live in seconds.",
    ),
    super::row(
        GROUP,
        "psetex",
        4,
        WRITE,
        FIRST,
        psetex,
        "Sets the string at a key and its time to live in milliseconds.",
    ),
    super::row(
        GROUP,
        "getset",
        3,
        WRITE,
        FIRST,
        getset,
        "Sets the string at a key and returns the previous one.",
    ),
    super::row(
        GROUP,
        "getdel",
        2,
        WRITE_ONLY,
        FIRST,
        getdel,
        "Returns the string at a key and removes it.",
    ),
    super::row(
        GROUP,
        "getex",
        -2,
        WRITE_ONLY,
        FIRST,
        getex,
        "Returns the string at a key and sets its expiration.",
    ),
    super::row(GROUP, "mget", -2, READ, EVERY, mget, "Returns the strings at keys."),
    super::row(GROUP, "mset", -3, WRITE, PAIRS, mset, "Sets the strings at keys, atomically."),
    super::row(
        GROUP,
        "msetnx",
        -3,
        WRITE,
        PAIRS,
        msetnx,
        "Sets the strings at keys, if none of the keys exists.",
    ),
    super::row(GROUP, "append", 3, WRITE, FIRST, append, "Appends to the string at a key."),
    super::row(
        GROUP,
        "strlen",
        2,
        READ,
        FIRST,
        strlen,
        "Returns the length of the string at a key.",
    ),
    super::row(
        GROUP,
        "getrange",
        4,
        READ,
        FIRST,
        getrange,
        "Returns a part of the string at a key.",
    ),
    super::row(GROUP, "substr", 4, READ, FIRST, getrange, "Returns a part of the string at a key."),
    super::row(
        GROUP,
        "setrange",
        4,
        WRITE,
        FIRST,
        setrange,
        "Overwrites a part of the string at a key.",
    ),
    super::row(GROUP, "incr", 2, WRITE, FIRST, incr, "Adds one to the integer at a key."),
    super::row(GROUP, "decr", 2, WRITE, FIRST, decr, "Subtracts one from the integer at a key."),
    super::row(GROUP, "incrby", 3, WRITE, FIRST, incrby, "Adds to the integer at a key."),
    super::row(GROUP, "decrby", 3, WRITE, FIRST, decrby, "Subtracts from the integer at a key."),
    super::row(GROUP, "incrbyfloat", 3, WRITE, FIRST, incrbyfloat, "Adds to the number at a key."),
];

type Result = std::result::Result<(), CommandError>;

fn get(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let shard = cx.locked.get(cx.session.database, key.shard());
    let found = shard.find(&key);
    // It was counted when it ran for the first time.
    if cx.apart.is_none() {
        cx.engine.count_look_up(found.is_some());
    }
    let Some(at) = found else {
        cx.out.null();
        return Ok(());
    };
    let text = shard.text_at(at)?;
    cx.engine.expect_reply(cx.session, text.len());
    if let Some(plain) = text.as_plain().filter(|_| !text.is_shared()) {
        cx.out.bulk(plain);
    } else if let Some(shared) = text.share() {
        let all = 0..text.len();
        let_go(cx, &key);
        bulk_range(cx, &shared, all);
    } else {
        bulk(cx.out, text);
    }
    Ok(())
}

/// The reply of GET for a command that continues to work with the key: a long string is written
/// after the locks are released.
fn reply_with(cx: &mut Context<'_, '_>, key: &Key<'_>) -> Result {
    let found = cx.locked.get(cx.session.database, key.shard()).text(key)?;
    cx.engine.count_look_up(found.is_some());
    match found {
        Some(text) => match text.share().filter(|_| cx.may_block) {
            Some(shared) => {
                cx.engine.expect_reply(cx.session, text.len());
                cx.late = Some(shared);
            }
            None => bulk(cx.out, text),
        },
        None => cx.out.null(),
    }
    Ok(())
}

/// The options after SET's value.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct SetOptions {
    absent: bool,
    present: bool,
    get: bool,
    keep_ttl: bool,
    deadline_ms: Option<u64>,
}

fn set_options(
    cx: &Context<'_, '_>,
    words: &[&[u8]],
) -> std::result::Result<SetOptions, CommandError> {
    let mut options = SetOptions::default();
    let mut words = words.iter();
    let mut given: Option<&[u8]> = None;
    while let Some(word) = words.next() {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        // The same option may come again: the last one counts.
        let has_ttl =
            options.keep_ttl || given.is_some_and(|given| !given.eq_ignore_ascii_case(word));
        if is("nx") && !options.present {
            options.absent = true;
        } else if is("xx") && !options.absent {
            options.present = true;
        } else if is("get") {
            options.get = true;
        } else if is("keepttl") && options.deadline_ms.is_none() {
            options.keep_ttl = true;
        } else if !has_ttl && (is("ex") || is("px") || is("exat") || is("pxat")) {
            let value = words.next().ok_or(CommandError::SYNTAX)?;
            given = Some(word);
            let (seconds, relative) = (is("ex") || is("exat"), is("ex") || is("px"));
            let scale = if seconds { 1_000 } else { 1 };
            options.deadline_ms = Some(super::deadline(cx.now_ms, value, scale, relative, "set")?);
        } else {
            return Err(CommandError::SYNTAX);
        }
    }
    Ok(options)
}

fn set(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    if args.len() == 3 {
        cx.shard(&key).put_string(&key, args[2], Deadline::None);
        cx.log(args);
        cx.out.ok();
        return Ok(());
    }
    let options = set_options(cx, &args[3..])?;
    let exists = cx.shard(&key).find(&key).is_some();
    if options.get {
        reply_with(cx, &key)?;
    }
    if options.absent && exists || options.present && !exists {
        if !options.get {
            cx.out.null();
        }
        return Ok(());
    }
    let deadline = match options.deadline_ms {
        Some(ms) => Deadline::At(ms),
        None if options.keep_ttl => Deadline::Keep,
        None => Deadline::None,
    };
    cx.shard(&key).put_string(&key, args[2], deadline);
    match deadline {
        Deadline::At(ms) => {
            let mut digits = itoa::Buffer::new();
            cx.log(&[b"SET", args[1], args[2], b"PXAT", digits.format(ms).as_bytes()]);
        }
        Deadline::Keep => cx.log(&[b"SET", args[1], args[2], b"KEEPTTL"]),
        Deadline::None => cx.log(&[b"SET", args[1], args[2]]),
    }
    if !options.get {
        cx.out.ok();
    }
    Ok(())
}

fn too_long(size: usize) -> Result {
    if size > STRING_SIZE_MAX {
        return Err(CommandError::new(
            "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ));
    }
    Ok(())
}

fn setnx(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let shard = cx.shard(&key);
    let absent = shard.find(&key).is_none();
    if absent {
        shard.put_string(&key, args[2], Deadline::None);
        cx.log(&[b"SET", args[1], args[2]]);
    }
    cx.out.int(absent.into());
    Ok(())
}

fn setex(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    set_with_ttl(cx, args, 1_000, "setex")
}

fn psetex(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    set_with_ttl(cx, args, 1, "psetex")
}

fn set_with_ttl(cx: &mut Context<'_, '_>, args: &[&[u8]], scale: i64, name: &str) -> Result {
    let deadline_ms = super::deadline(cx.now_ms, args[2], scale, true, name)?;
    let key = cx.key(args[1]);
    cx.shard(&key).put_string(&key, args[3], Deadline::At(deadline_ms));
    let mut digits = itoa::Buffer::new();
    cx.log(&[b"SET", args[1], args[3], b"PXAT", digits.format(deadline_ms).as_bytes()]);
    cx.out.ok();
    Ok(())
}

fn getset(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    reply_with(cx, &key)?;
    cx.shard(&key).put_string(&key, args[2], Deadline::None);
    cx.log(&[b"SET", args[1], args[2]]);
    Ok(())
}

fn getdel(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    reply_with(cx, &key)?;
    if cx.shard(&key).remove(&key) {
        cx.log(&[b"DEL", args[1]]);
    }
    Ok(())
}

fn getex(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let change = match getex_words(&args[2..])? {
        None => None,
        Some(Expiry::Removed) => Some(None),
        Some(Expiry::At { value, scale, relative }) => {
            // The time is checked only if there is a string that can expire.
            let key = cx.key(args[1]);
            cx.shard(&key).string_len(&key)?;
            if cx.shard(&key).find(&key).is_none() {
                return get(cx, args);
            }
            Some(Some(super::deadline(cx.now_ms, value, scale, relative, "getex")?))
        }
    };
    let key = cx.key(args[1]);
    reply_with(cx, &key)?;
    let Some(deadline_ms) = change else { return Ok(()) };
    let shard = cx.shard(&key);
    let had = shard.find(&key).map(|at| shard.deadline_ms(at).is_some());
    match (had, deadline_ms) {
        (None, _) | (Some(false), None) => {}
        (Some(true), None) => {
            shard.set_deadline(&key, None);
            cx.log(&[b"PERSIST", args[1]]);
        }
        (Some(_), Some(ms)) => {
            shard.set_deadline(&key, Some(ms));
            let mut digits = itoa::Buffer::new();
            cx.log(&[b"PEXPIREAT", args[1], digits.format(ms).as_bytes()]);
        }
    }
    Ok(())
}

fn mget(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let size_max = pick::reply_size_max(cx.engine);
    let mut size = 0usize;
    cx.out.array(args.len() - 1);
    // Long strings are read after all locks are released; the replies between them are kept here.
    let mut between = Reply::new(cx.out.proto());
    let mut long: Vec<(usize, SharedText)> = Vec::new();
    for word in &args[1..] {
        let key = cx.key(word);
        let shard = cx.locked.get(cx.session.database, key.shard());
        let found = shard.text(&key).ok().flatten();
        // A key may be repeated: the total size is checked before any string is read.
        size = size.saturating_add(found.map_or(0, |text| text.len()));
        if size > size_max {
            return Err(pick::too_large());
        }
        if let Some(shared) = found.and_then(|text| text.share()) {
            long.push((between.len(), shared));
            continue;
        }
        let out = if long.is_empty() { &mut *cx.out } else { &mut between };
        match found {
            Some(text) => bulk(out, text),
            None => out.null(),
        }
    }
    if long.is_empty() {
        return Ok(());
    }
    for word in &args[1..] {
        let key = cx.key(word);
        let_go(cx, &key);
    }
    let between = between.take();
    let mut at = 0;
    for (end, shared) in long {
        cx.out.raw(&between[at..end]);
        bulk(cx.out, shared.text());
        at = end;
    }
    cx.out.raw(&between[at..]);
    Ok(())
}

fn pairs_only(args: &[&[u8]], name: &str) -> Result {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::new(format!(
            "ERR wrong number of arguments for '{name}' command"
        )));
    }
    Ok(())
}

fn put_pairs(cx: &mut Context<'_, '_>, args: &[&[u8]]) {
    for pair in args[1..].chunks_exact(2) {
        let key = cx.key(pair[0]);
        cx.shard(&key).put_string(&key, pair[1], Deadline::None);
        cx.log(&[b"SET", pair[0], pair[1]]);
    }
}

fn mset(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pairs_only(args, "mset")?;
    put_pairs(cx, args);
    cx.out.ok();
    Ok(())
}

fn msetnx(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pairs_only(args, "msetnx")?;
    let taken = args[1..].chunks_exact(2).any(|pair| {
        let key = cx.key(pair[0]);
        cx.shard(&key).find(&key).is_some()
    });
    if !taken {
        put_pairs(cx, args);
    }
    cx.out.int((!taken).into());
    Ok(())
}

fn append(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let shard = cx.shard(&key);
    let before = shard.string_len(&key)?;
    too_long(before.saturating_add(args[2].len()))?;
    if let Some(len) = cx.overwrite(&key, before, args[2])? {
        cx.log(args);
        cx.out.count(len);
    }
    Ok(())
}

fn strlen(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let len = cx.shard(&key).string_len(&key)?;
    cx.out.count(len);
    Ok(())
}

fn getrange(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let start = number::parse_i64(args[2]).ok_or(CommandError::NOT_INTEGER)?;
    let stop = number::parse_i64(args[3]).ok_or(CommandError::NOT_INTEGER)?;
    let range_of = |len: usize| {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        let from_end = |at: i64| if at < 0 { (len + at).max(0) } else { at };
        let backwards = start < 0 && stop < 0 && start > stop;
        let (start, stop) = (from_end(start), from_end(stop).min(len - 1));
        if backwards || start > stop {
            return 0..0;
        }
        usize::try_from(start).unwrap_or(0)..usize::try_from(stop + 1).unwrap_or(0)
    };
    let key = cx.key(args[1]);
    let text = cx.locked.get(cx.session.database, key.shard()).text(&key)?;
    let range = range_of(text.map_or(0, |text| text.len()));
    if range.len() >= REPLY_MIN
        && let Some(shared) = text.and_then(|text| text.share())
    {
        let_go(cx, &key);
        bulk_range(cx, &shared, range);
        return Ok(());
    }
    read_string(
        cx,
        &key,
        |len| range_of(len).len(),
        |out, text| {
            let range = text.map_or(0..0, |text| range_of(text.len()));
            match text.filter(|_| !range.is_empty()) {
                Some(text) => {
                    out.bulk_with(range.len(), |buffer| text.append_range_to(range, buffer))
                }
                None => out.bulk(b""),
            }
        },
    )
}

fn setrange(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let offset = number::parse_i64(args[2]).ok_or(CommandError::NOT_INTEGER)?;
    let offset =
        usize::try_from(offset).map_err(|_| CommandError::new("ERR offset is out of range"))?;
    let key = cx.key(args[1]);
    let shard = cx.shard(&key);
    let before = shard.string_len(&key)?;
    if args[3].is_empty() {
        cx.out.count(before);
        return Ok(());
    }
    too_long(offset.saturating_add(args[3].len()))?;
    if let Some(len) = cx.overwrite(&key, offset, args[3])? {
        cx.log(args);
        cx.out.count(len);
    }
    Ok(())
}

fn incr(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    add(cx, args[1], 1)
}

fn decr(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    add(cx, args[1], -1)
}

fn incrby(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    add(cx, args[1], number::parse_i64(args[2]).ok_or(CommandError::NOT_INTEGER)?)
}

fn decrby(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let by = number::parse_i64(args[2]).ok_or(CommandError::NOT_INTEGER)?;
    let by = by.checked_neg().ok_or_else(|| CommandError::new("ERR decrement would overflow"))?;
    add(cx, args[1], by)
}

fn add(cx: &mut Context<'_, '_>, word: &[u8], by: i64) -> Result {
    let key = cx.key(word);
    let shard = cx.locked.get(cx.session.database, key.shard());
    let (held, deadline) = match shard.text(&key)? {
        // Checked first: a long string is not decompressed to find that it is not a number.
        Some(text) if text.len() > number::INTEGER_SIZE_MAX => {
            return Err(CommandError::NOT_INTEGER);
        }
        Some(text) => {
            let held = number::parse_i64(&text.plain()).ok_or(CommandError::NOT_INTEGER)?;
            (held, Deadline::Keep)
        }
        None => (0, Deadline::None),
    };
    let sum = held
        .checked_add(by)
        .ok_or_else(|| CommandError::new("ERR increment or decrement would overflow"))?;
    let mut digits = itoa::Buffer::new();
    let text = digits.format(sum).as_bytes();
    shard.put_string(&key, text, deadline);
    cx.ops.push(cx.session.database, &[b"SET", word, text, b"KEEPTTL"]);
    cx.out.int(sum);
    Ok(())
}

fn incrbyfloat(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let shard = cx.locked.get(cx.session.database, key.shard());
    let (sum, deadline) = match shard.text(&key)? {
        Some(text) if text.len() > number::ADDEND_SIZE_MAX => return Err(CommandError::NOT_FLOAT),
        Some(text) => (number::sum(&text.plain(), args[2]), Deadline::Keep),
        None => (number::sum(b"0", args[2]), Deadline::None),
    };
    let sum = sum.map_err(|fault| match fault {
        SumFault::Left | SumFault::Right => CommandError::NOT_FLOAT,
        SumFault::Infinite => CommandError::new("ERR increment would produce NaN or Infinity"),
    })?;
    shard.put_string(&key, sum.as_bytes(), deadline);
    cx.ops.push(cx.session.database, &[b"SET", args[1], sum.as_bytes(), b"KEEPTTL"]);
    cx.out.bulk(sum.as_bytes());
    Ok(())
}
