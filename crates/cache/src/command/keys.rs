//! Keys of any type: removing, renaming, copying, iterating; see `deadlines` for expiration.

use super::{CommandError, Context, Flags, Keys, Spec};
use crate::store::{Deadline, Key, Kind, Object, Value};
use crate::{glob, number};

const READ: Flags = Flags::READONLY.and(Flags::FAST);
const WRITE: Flags = Flags::WRITE.and(Flags::FAST);
const FIRST: Keys = Keys::Range(1, 1, 1);
const EVERY: Keys = Keys::Range(1, -1, 1);
const TWO: Keys = Keys::Range(1, 2, 1);

const GROUP: &str = "generic";

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    super::row(GROUP, "del", -2, Flags::WRITE, EVERY, del, "Removes keys."),
    super::row(GROUP, "unlink", -2, WRITE, EVERY, del, "Removes keys."),
    super::row(GROUP, "exists", -2, READ, EVERY, exists, "Counts the keys that exist."),
    super::row(
        GROUP,
        "touch",
        -2,
        READ,
        EVERY,
        touch,
        "Updates the last use of keys and counts those that exist.",
    ),
    super::row(GROUP, "type", 2, READ, FIRST, type_of, "Returns the type of the value at a key."),
    super::row(GROUP, "rename", 3, Flags::WRITE, TWO, rename, "Renames a key."),
    super::row(
        GROUP,
        "renamenx",
        3,
        WRITE,
        TWO,
        renamenx,
        "Renames a key if the new name does not exist.",
    ),
    super::row(
        GROUP,
        "copy",
        -3,
        COPY,
        Keys::Custom(copy_keys),
        copy,
        "Copies the value at a key.",
    ),
    super::row(
        GROUP,
        "move",
        3,
        WRITE,
        Keys::Custom(move_keys),
        move_to,
        "Moves a key to another database.",
    ),
    super::row(
        GROUP,
        "keys",
        2,
        Flags::READONLY,
        Keys::All,
        keys,
        "Returns the names of keys that match a pattern.",
    ),
    super::row(
        GROUP,
        "scan",
        -2,
        Flags::READONLY,
        Keys::All,
        scan,
        "Iterates over the names of keys.",
    ),
    super::row(
        GROUP,
        "randomkey",
        1,
        Flags::READONLY,
        Keys::All,
        randomkey,
        "Returns the name of a random key.",
    ),
    super::row(
        GROUP,
        "object",
        -2,
        Flags::READONLY.and(Flags::CONTAINER),
        Keys::Range(2, 2, 1),
        object,
        "Returns how a value is stored.",
    ),
];

const COPY: Flags = Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLE_KEYS);

type Result = std::result::Result<(), CommandError>;

fn del(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let mut gone = 0;
    for word in &args[1..] {
        let key = cx.key(word);
        if cx.shard(&key).remove(&key) {
            cx.log(&[b"DEL", word]);
            gone += 1;
        }
    }
    cx.out.count(gone);
    Ok(())
}

fn exists(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let mut found = 0;
    for word in &args[1..] {
        let key = cx.key(word);
        found += usize::from(cx.shard(&key).look_at(&key).is_some());
    }
    cx.out.count(found);
    Ok(())
}

fn touch(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let mut found = 0;
    for word in &args[1..] {
        let key = cx.key(word);
        found += usize::from(cx.shard(&key).find(&key).is_some());
    }
    cx.out.count(found);
    Ok(())
}

fn type_of(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let shard = cx.shard(&key);
    let kind = shard.look_at(&key).map(|at| shard.kind(at));
    cx.out.simple(kind.map_or("none", Kind::as_str));
    Ok(())
}

/// Stores a value at a key and logs the operations that create it from nothing.
pub(super) fn put_logged(
    cx: &mut Context<'_, '_>,
    database: usize,
    word: &[u8],
    value: Value,
    deadline_ms: Option<u64>,
) {
    log_value(cx, database, word, &value, deadline_ms);
    put(cx, database, word, value, deadline_ms);
}

/// Stores a value at a key; the caller logs it.
fn put(
    cx: &mut Context<'_, '_>,
    database: usize,
    word: &[u8],
    value: Value,
    deadline_ms: Option<u64>,
) {
    let key = cx.key(word);
    let deadline = deadline_ms.map_or(Deadline::None, Deadline::At);
    cx.shard_in(database, &key).put_value(&key, value, deadline);
}

/// Stores a collection at a key in place of its value, or removes the key if the collection is
/// empty, and logs that.
pub(super) fn replace_logged(cx: &mut Context<'_, '_>, word: &[u8], object: Object) {
    if !object.is_empty() {
        let database = cx.session.database;
        return put_logged(cx, database, word, Value::Object(object), None);
    }
    let key = cx.key(word);
    if cx.shard(&key).remove(&key) {
        cx.log(&[b"DEL", word]);
    }
}

/// Size in bytes from which a value that gets another name is logged by reference, so that others
/// do not wait until it is written.
const REFERENCE_SIZE_MIN: usize = 8 << 10;

/// Whether RENAME, COPY or MOVE of a value is logged as such, not as the value.
///
/// * `keys`: both keys, each with its database.
fn is_logged_by_reference(
    cx: &Context<'_, '_>,
    keys: [(usize, &Key<'_>); 2],
    value: &Value,
) -> bool {
    let size = match value {
        Value::String(text) => text.len(),
        Value::Text(text) => text.text().len(),
        Value::Object(object) => object.bytes(),
    };
    size >= REFERENCE_SIZE_MIN && cx.takes_reference(keys)
}

/// Maximum number of members or fields in one logged operation, which limits its size.
const LOGGED_AT_ONCE: usize = 512;

fn log_value(
    cx: &mut Context<'_, '_>,
    database: usize,
    word: &[u8],
    value: &Value,
    deadline_ms: Option<u64>,
) {
    if cx.engine.journal().is_none() {
        // Without a log, a value of millions of members changes its name at once.
        return;
    }
    match value {
        Value::String(text) => cx.ops.push(database, &[b"SET", word, text]),
        Value::Text(text) => cx.ops.push(database, &[b"SET", word, &text.text().plain()]),
        Value::Object(object) => {
            cx.ops.push(database, &[b"DEL", word]);
            log_members(cx, database, word, object);
        }
    }
    if let Some(ms) = deadline_ms {
        let mut digits = itoa::Buffer::new();
        cx.ops.push(database, &[b"PEXPIREAT", word, digits.format(ms).as_bytes()]);
    }
}

/// Logs the operations that add all members of a collection to an empty one.
fn log_members(cx: &mut Context<'_, '_>, database: usize, word: &[u8], object: &Object) {
    let mut left = object.len();
    let mut in_operation = 0;
    // Begins another operation when one is full; every member has `words` words.
    let mut member = |cx: &mut Context<'_, '_>, name: &[u8], words: usize| {
        if in_operation == 0 {
            in_operation = left.min(LOGGED_AT_ONCE);
            cx.ops.begin(database, 2 + in_operation * words);
            cx.ops.word(name);
            cx.ops.word(word);
        }
        in_operation -= 1;
        left -= 1;
    };
    match object {
        Object::List(list) => list.iter().for_each(|element| {
            member(cx, b"RPUSH", 1);
            cx.ops.word(element);
        }),
        Object::Set(set) => set.iter().for_each(|found| {
            member(cx, b"SADD", 1);
            cx.ops.word(&found);
        }),
        Object::Hash(hash) => hash.iter().for_each(|(field, value)| {
            member(cx, b"HSET", 2);
            cx.ops.word(field);
            cx.ops.word(value);
        }),
        Object::ZSet(zset) => zset.iter().for_each(|(found, score)| {
            member(cx, b"ZADD", 2);
            cx.ops.word(number::Double::new(score).as_bytes());
            cx.ops.word(found);
        }),
    }
}

fn rename(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    rename_if(cx, args, false)?;
    cx.out.ok();
    Ok(())
}

fn renamenx(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let renamed = rename_if(cx, args, true)?;
    cx.out.int(renamed.into());
    Ok(())
}

fn rename_if(
    cx: &mut Context<'_, '_>,
    args: &[&[u8]],
    only_free: bool,
) -> std::result::Result<bool, CommandError> {
    let (from, to) = (cx.key(args[1]), cx.key(args[2]));
    if cx.shard(&from).find(&from).is_none() {
        return Err(CommandError::NO_KEY);
    }
    if only_free && cx.shard(&to).find(&to).is_some() {
        return Ok(false);
    }
    if args[1] == args[2] {
        return Ok(true);
    }
    let database = cx.session.database;
    if let Some((value, deadline_ms)) = cx.shard(&from).take(&from) {
        if is_logged_by_reference(cx, [(database, &from), (database, &to)], &value) {
            cx.log_reference(&[b"RENAME", args[1], args[2]]);
            put(cx, database, args[2], value, deadline_ms);
        } else {
            cx.log(&[b"DEL", args[1]]);
            put_logged(cx, database, args[2], value, deadline_ms);
        }
    }
    Ok(true)
}

/// The database in COPY's options, if any.
fn copy_database(words: &[&[u8]], database: usize) -> usize {
    let named = words.windows(2).skip(3).find(|pair| pair[0].eq_ignore_ascii_case(b"db"));
    named.and_then(|pair| Context::database(pair[1]).ok()).unwrap_or(database)
}

fn copy_keys(words: &[&[u8]], database: usize) -> Vec<(usize, usize)> {
    vec![(database, 1), (copy_database(words, database), 2)]
}

fn copy(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let mut replace = false;
    let mut words = args[3..].iter();
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case(b"replace") {
            replace = true;
        } else if word.eq_ignore_ascii_case(b"db") {
            Context::database(words.next().ok_or(CommandError::SYNTAX)?)?;
        } else {
            return Err(CommandError::SYNTAX);
        }
    }
    let database = copy_database(args, cx.session.database);
    if database == cx.session.database && args[1] == args[2] {
        return Err(CommandError::new("ERR source and destination objects are the same"));
    }
    let (from, to) = (cx.key(args[1]), cx.key(args[2]));
    let shard = cx.shard(&from);
    let deadline_ms = shard.find(&from).and_then(|at| shard.deadline_ms(at));
    let value = shard.value(&from);
    let free = replace || cx.shard_in(database, &to).find(&to).is_none();
    let copied = match value {
        Some(value) if free => {
            let keys = [(cx.session.database, &from), (database, &to)];
            if is_logged_by_reference(cx, keys, &value) {
                let mut digits = itoa::Buffer::new();
                let number = digits.format(database).as_bytes();
                cx.log_reference(&[b"COPY", args[1], args[2], b"DB", number, b"REPLACE"]);
                put(cx, database, args[2], value, deadline_ms);
            } else {
                put_logged(cx, database, args[2], value, deadline_ms);
            }
            true
        }
        _ => false,
    };
    cx.out.int(copied.into());
    Ok(())
}

fn move_keys(words: &[&[u8]], database: usize) -> Vec<(usize, usize)> {
    let target = words.get(2).and_then(|word| Context::database(word).ok()).unwrap_or(database);
    vec![(database, 1), (target, 1)]
}

fn move_to(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let target = Context::database(args[2])?;
    if target == cx.session.database {
        return Err(CommandError::new("ERR source and destination objects are the same"));
    }
    let key = cx.key(args[1]);
    let free = cx.shard_in(target, &key).find(&key).is_none();
    let taken = if free { cx.shard(&key).take(&key) } else { None };
    let moved = taken.is_some();
    if let Some((value, deadline_ms)) = taken {
        let keys = [(cx.session.database, &key), (target, &key)];
        if is_logged_by_reference(cx, keys, &value) {
            // A key of that name may have expired, and not yet at the earlier time of a replay.
            cx.log_in(target, &[b"DEL", args[1]]);
            let mut digits = itoa::Buffer::new();
            cx.log_reference(&[b"MOVE", args[1], digits.format(target).as_bytes()]);
            put(cx, target, args[1], value, deadline_ms);
        } else {
            cx.log(&[b"DEL", args[1]]);
            put_logged(cx, target, args[1], value, deadline_ms);
        }
    }
    cx.out.int(moved.into());
    Ok(())
}

fn keys(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let begun = cx.out.begin();
    let mut count = 0;
    cx.each_shard(cx.session.database, |cx, _, shard| {
        let mut next = Some(0);
        while let Some(from) = next {
            next = shard.visit_range(from, &mut |shard, at| {
                let key = shard.key(at);
                if !shard.is_expired(at) && glob::matches(args[1], key) && cx.session.may_see(key) {
                    cx.out.bulk(key);
                    count += 1;
                }
            });
        }
        true
    });
    cx.out.end_array(begun, count);
    Ok(())
}

/// Bits of a cursor for the position in a shard; the bits above are the shard.
const POSITION_BITS: u32 = 30;

fn scan(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let cursor =
        number::parse_u64(args[1]).ok_or_else(|| CommandError::new("ERR invalid cursor"))?;
    let options = super::ScanOptions::parse(&args[2..], true)?;
    let mut position = cursor & ((1 << POSITION_BITS) - 1);
    let first = usize::try_from(cursor >> POSITION_BITS).unwrap_or(usize::MAX);
    let mut found: Vec<Box<[u8]>> = Vec::new();
    let (mut seen, mut next) = (0, 0);
    cx.each_shard(cx.session.database, |cx, number, shard| {
        if number < first {
            return true;
        }
        loop {
            let after = shard.scan(position, &mut |shard, at| {
                seen += 1;
                let key = shard.key(at);
                let kind = options.kind.as_ref();
                if options.matches(key)
                    && cx.session.may_see(key)
                    && kind.is_none_or(|kind| kind.eq_ignore_ascii_case(shard.kind(at).as_str()))
                {
                    found.push(key.into());
                }
            });
            position = after.unwrap_or(0);
            let number = if after.is_some() { number } else { number + 1 };
            if seen >= options.count {
                let last = number >= crate::store::SHARDS;
                next = if last { 0 } else { ((number as u64) << POSITION_BITS) | position };
                return false;
            }
            if after.is_none() {
                return true;
            }
        }
    });
    cx.out.array(2);
    cx.out.bulk(itoa::Buffer::new().format(next).as_bytes());
    cx.out.array(found.len());
    for key in found {
        cx.out.bulk(&key);
    }
    Ok(())
}

fn randomkey(cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    let mut pick = cx.random();
    let first = usize::try_from(pick % crate::store::SHARDS as u64).unwrap_or(0);
    let mut found: Option<Box<[u8]>> = None;
    // From a random shard to the end, then from the beginning.
    for half in 0..2 {
        cx.each_shard(cx.session.database, |_, number, shard| {
            pick = pick.rotate_left(17);
            if found.is_none() && (number >= first) == (half == 0) {
                found = shard.random(pick).map(|at| shard.key(at).into());
            }
            found.is_none()
        });
    }
    cx.out.bulk_or_null(found.as_deref());
    Ok(())
}

fn object(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let word = args[1].to_ascii_lowercase();
    if word == b"help" {
        let lines = ["OBJECT ENCODING|FREQ|IDLETIME|REFCOUNT <key>: Show how a value is stored."];
        cx.out.array(lines.len());
        lines.iter().for_each(|line| cx.out.bulk(line.as_bytes()));
        return Ok(());
    }
    let [_, _, word_key] = args else { return Err(CommandError::SYNTAX) };
    let key = cx.key(word_key);
    let policy = cx.engine.keyspace().rules().policy();
    let shard = cx.locked.get(cx.session.database, key.shard());
    let Some(at) = shard.look_at(&key) else {
        cx.out.null();
        return Ok(());
    };
    match word.as_slice() {
        b"encoding" => cx.out.bulk(encoding(shard, at).as_bytes()),
        b"refcount" => cx.out.int(1),
        b"idletime" => {
            let idle_ms = shard.idle_ms(at).unwrap_or(0);
            cx.out.int(i64::try_from(idle_ms / 1_000).unwrap_or(i64::MAX));
        }
        b"freq" => {
            use crate::store::Policy;
            if !matches!(policy, Policy::Lfu | Policy::VolatileLfu | Policy::S3Fifo) {
                return Err(CommandError::new(
                    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
                ));
            }
            cx.out.int(shard.frequency(at).into());
        }
        _ => return Err(super::unknown_subcommand("object", args[1])),
    }
    Ok(())
}

/// The name of a value's encoding that clients know.
fn encoding(shard: &crate::store::Shard, at: crate::store::At) -> &'static str {
    match shard.object_at(at) {
        None => match shard.string_at(at) {
            Ok(text) if number::parse_i64(&text).is_some() => "int",
            Ok(text) if text.len() <= 44 => "embstr",
            _ => "raw",
        },
        Some(object) => object.encoding(),
    }
}
