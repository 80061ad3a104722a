//! Expiration of keys: setting, removing and returning deadlines.
//!
//! Deadlines are logged as points in time, so that a replay has the same result whenever it runs.

use super::{CommandError, Context, Flags, Keys, Spec};
use crate::number;

const READ: Flags = Flags::READONLY.and(Flags::FAST);
const WRITE: Flags = Flags::WRITE.and(Flags::FAST);
const FIRST: Keys = Keys::Range(1, 1, 1);

const GROUP: &str = "generic";

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    super::row(GROUP, "expire", -3, WRITE, FIRST, expire, "Sets a key's time to live in seconds."),
    super::row(
        GROUP,
        "pexpire",
        -3,
        WRITE,
        FIRST,
        pexpire,
        "Sets a key's time to live in milliseconds.",
    ),
    super::row(
        GROUP,
        "expireat",
        -3,
        WRITE,
        FIRST,
        expireat,
        "Sets a key's expiration as a Unix time in seconds.",
    ),
    super::row(
        GROUP,
        "pexpireat",
        -3,
        WRITE,
        FIRST,
        pexpireat,
        "Sets a key's expiration as a Unix time in milliseconds.",
    ),
    super::row(GROUP, "ttl", 2, READ, FIRST, ttl, "Returns a key's time to live in seconds."),
    super::row(
        GROUP,
        "pttl",
        2,
        READ,
        FIRST,
        pttl,
        "Returns a key's time to live in milliseconds.",
    ),
    super::row(
        GROUP,
        "expiretime",
        2,
        READ,
        FIRST,
        expiretime,
        "Returns a key's expiration as a Unix time in seconds.",
    ),
    super::row(
        GROUP,
        "pexpiretime",
        2,
        READ,
        FIRST,
        pexpiretime,
        "Returns a key's expiration as a Unix time in milliseconds.",
    ),
    super::row(GROUP, "persist", 2, WRITE, FIRST, persist, "Removes a key's expiration."),
];

type Result = std::result::Result<(), CommandError>;

fn expire(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    set_deadline(cx, args, 1_000, true, "expire")
}

fn pexpire(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    set_deadline(cx, args, 1, true, "pexpire")
}

fn expireat(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    set_deadline(cx, args, 1_000, false, "expireat")
}

fn pexpireat(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    set_deadline(cx, args, 1, false, "pexpireat")
}

/// The conditions under which EXPIRE changes a deadline.
#[derive(Debug, Default, Clone, Copy)]
struct Condition {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Condition {
    fn parse(words: &[&[u8]]) -> std::result::Result<Self, CommandError> {
        let mut found = Self::default();
        for word in words {
            let flag = match word.to_ascii_lowercase().as_slice() {
                b"nx" => &mut found.nx,
                b"xx" => &mut found.xx,
                b"gt" => &mut found.gt,
                b"lt" => &mut found.lt,
                _ => {
                    let word = String::from_utf8_lossy(word).into_owned();
                    return Err(CommandError::new(format!("ERR Unsupported option {word}")));
                }
            };
            *flag = true;
        }
        if found.nx && (found.xx || found.gt || found.lt) {
            return Err(CommandError::new(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if found.gt && found.lt {
            return Err(CommandError::new(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(found)
    }

    /// A key without a deadline counts as one that expires later than any other.
    fn allows(self, before: Option<u64>, after: i64) -> bool {
        let later = before.is_some_and(|ms| after > i64::try_from(ms).unwrap_or(i64::MAX));
        let earlier = before.is_none_or(|ms| after < i64::try_from(ms).unwrap_or(i64::MAX));
        !(self.nx && before.is_some()
            || self.xx && before.is_none()
            || self.gt && !later
            || self.lt && !earlier)
    }
}

fn set_deadline(
    cx: &mut Context<'_, '_>,
    args: &[&[u8]],
    scale: i64,
    relative: bool,
    name: &str,
) -> Result {
    let condition = Condition::parse(&args[3..])?;
    let value = number::parse_i64(args[2]).ok_or(CommandError::NOT_INTEGER)?;
    let now_ms = i64::try_from(cx.now_ms).unwrap_or(i64::MAX);
    let base = if relative { now_ms } else { 0 };
    let after = value
        .checked_mul(scale)
        .and_then(|ms| ms.checked_add(base))
        .ok_or_else(|| CommandError::new(format!("ERR invalid expire time in '{name}' command")))?;
    let key = cx.key(args[1]);
    let shard = cx.shard(&key);
    let Some(at) = shard.find(&key) else {
        cx.out.int(0);
        return Ok(());
    };
    if !condition.allows(shard.deadline_ms(at), after) {
        cx.out.int(0);
        return Ok(());
    }
    if after <= now_ms {
        shard.remove(&key);
        cx.log(&[b"DEL", args[1]]);
    } else {
        shard.set_deadline(&key, u64::try_from(after).ok());
        let mut digits = itoa::Buffer::new();
        cx.log(&[b"PEXPIREAT", args[1], digits.format(after).as_bytes()]);
    }
    cx.out.int(1);
    Ok(())
}

fn ttl(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_deadline(cx, args, |ms, now_ms| (ms.saturating_sub(now_ms) + 500) / 1_000)
}

fn pttl(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_deadline(cx, args, u64::saturating_sub)
}

fn expiretime(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_deadline(cx, args, |ms, _| ms.saturating_add(500) / 1_000)
}

fn pexpiretime(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    reply_deadline(cx, args, |ms, _| ms)
}

fn reply_deadline(
    cx: &mut Context<'_, '_>,
    args: &[&[u8]],
    convert: fn(u64, u64) -> u64,
) -> Result {
    let key = cx.key(args[1]);
    let now_ms = cx.now_ms;
    let shard = cx.shard(&key);
    let answer = match shard.look_at(&key).map(|at| shard.deadline_ms(at)) {
        None => -2,
        Some(None) => -1,
        Some(Some(ms)) => i64::try_from(convert(ms, now_ms)).unwrap_or(i64::MAX),
    };
    cx.out.int(answer);
    Ok(())
}

fn persist(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let key = cx.key(args[1]);
    let shard = cx.shard(&key);
    let goes = shard.find(&key).is_some_and(|at| shard.deadline_ms(at).is_some());
    if goes {
        shard.set_deadline(&key, None);
        cx.log(&[b"PERSIST", args[1]]);
    }
    cx.out.int(goes.into());
    Ok(())
}

/// What GETEX changes.
pub(super) enum Expiry<'a> {
    /// The key no longer expires.
    Removed,
    /// The key expires at `value`, in units of `scale` milliseconds, from now if `relative`.
    At { value: &'a [u8], scale: i64, relative: bool },
}

/// Reads the options of GETEX. One may be repeated, and the last value counts; two exclude each
/// other.
pub(super) fn getex_words<'a>(
    words: &[&'a [u8]],
) -> std::result::Result<Option<Expiry<'a>>, CommandError> {
    let Some(first) = words.first() else { return Ok(None) };
    let is = |word: &[u8]| first.eq_ignore_ascii_case(word);
    let (scale, relative) = match () {
        () if is(b"persist") => {
            let same = words.iter().all(|word| is(word));
            return if same { Ok(Some(Expiry::Removed)) } else { Err(CommandError::SYNTAX) };
        }
        () if is(b"ex") => (1_000, true),
        () if is(b"px") => (1, true),
        () if is(b"exat") => (1_000, false),
        () if is(b"pxat") => (1, false),
        () => return Err(CommandError::SYNTAX),
    };
    let mut value = None;
    for pair in words.chunks(2) {
        match pair {
            [word, given] if is(word) => value = Some(*given),
            _ => return Err(CommandError::SYNTAX),
        }
    }
    Ok(value.map(|value| Expiry::At { value, scale, relative }))
}
