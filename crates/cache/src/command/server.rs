//! The server itself: sizes, flushing, settings.

use super::{CommandError, Context, Flags, Keys, Spec};

const GROUP: &str = "server";

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    super::row(
        GROUP,
        "dbsize",
        1,
        Flags::READONLY.and(Flags::FAST),
        Keys::All,
        dbsize,
        "Returns the number of keys in the database.",
    ),
    super::row(
        GROUP,
        "flushdb",
        -1,
        Flags::WRITE,
        Keys::All,
        flushdb,
        "Removes every key of the database.",
    ),
    super::row(
        GROUP,
        "flushall",
        -1,
        Flags::WRITE,
        Keys::Everything,
        flushall,
        "Removes every key.",
    ),
    super::row(GROUP, "time", 1, Flags::FAST, Keys::None, time, "Returns the server's time."),
    super::row(
        GROUP,
        "lastsave",
        1,
        Flags::FAST,
        Keys::None,
        lastsave,
        "Returns when the last snapshot was completed.",
    ),
    super::row(GROUP, "save", 1, SAVE, Keys::None, save, "Takes a snapshot and waits for it."),
    super::row(
        GROUP,
        "bgsave",
        -1,
        SAVE,
        Keys::None,
        bgsave,
        "Takes a snapshot in the background.",
    ),
    super::row(
        GROUP,
        "bgrewriteaof",
        1,
        SAVE,
        Keys::None,
        bgsave,
        "Takes a snapshot and trims the log.",
    ),
    super::row(
        GROUP,
        "role",
        1,
        Flags::FAST,
        Keys::None,
        role,
        "Returns the replication role, which is always master.",
    ),
    super::row(
        GROUP,
        "shutdown",
        -1,
        SAVE,
        Keys::None,
        shutdown,
        "Stops the server, after a snapshot if requested.",
    ),
    super::row(
        GROUP,
        "slowlog",
        -2,
        Flags::ADMIN.and(Flags::CONTAINER),
        Keys::None,
        slowlog,
        "Returns or clears the log of slow commands.",
    ),
    super::row(
        GROUP,
        "memory",
        -2,
        Flags::READONLY.and(Flags::CONTAINER),
        Keys::Range(2, 2, 1),
        memory,
        "Returns how memory is used.",
    ),
    super::row(
        GROUP,
        "function",
        -2,
        Flags::CONTAINER,
        Keys::None,
        function,
        "Manages functions, which are not supported.",
    ),
    super::row(
        GROUP,
        "command",
        -1,
        Flags::CONTAINER,
        Keys::None,
        super::about::command,
        "Returns descriptions of commands.",
    ),
];

const SAVE: Flags = Flags::ADMIN.and(Flags::NO_MULTI);

type Result = std::result::Result<(), CommandError>;

fn dbsize(cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    let mut keys = 0;
    cx.each_shard(cx.session.database, |_, _, shard| {
        keys += shard.len();
        true
    });
    cx.out.count(keys);
    Ok(())
}

fn flush_options(args: &[&[u8]]) -> Result {
    match args {
        [_] => Ok(()),
        [_, word] if [&b"sync"[..], b"async"].iter().any(|w| word.eq_ignore_ascii_case(w)) => {
            Ok(())
        }
        _ => Err(CommandError::SYNTAX),
    }
}

fn flushdb(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    flush_options(args)?;
    flush(cx, cx.session.database);
    cx.out.ok();
    Ok(())
}

fn flushall(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    flush_options(args)?;
    for database in 0..crate::store::DATABASES {
        flush(cx, database);
    }
    cx.out.ok();
    Ok(())
}

/// Removes all keys of a database whose shards are all locked, at one position in the log.
fn flush(cx: &mut Context<'_, '_>, database: usize) {
    // A database created since the locks were taken holds nothing older than this command.
    if !cx.locked.holds(database, 0) {
        return;
    }
    cx.each_shard(database, |cx, _, shard| {
        if !shard.is_empty() {
            let before = shard.clear();
            cx.garbage.push(before);
        }
        true
    });
    cx.log_in(database, &[crate::persist::FLUSH]);
}

fn time(cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_default();
    cx.out.array(2);
    let mut digits = itoa::Buffer::new();
    cx.out.bulk(digits.format(now.as_secs()).as_bytes());
    cx.out.bulk(digits.format(now.subsec_micros()).as_bytes());
    Ok(())
}

fn lastsave(cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    let saved_s = match cx.engine.last_save_s() {
        // No snapshot yet: the start, as in Redis.
        0 => (cx.now_ms / 1_000).saturating_sub(cx.engine.uptime().as_secs()),
        saved_s => saved_s,
    };
    cx.out.int(i64::try_from(saved_s).unwrap_or(i64::MAX));
    Ok(())
}

fn save(cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    cx.engine.save()?;
    cx.out.ok();
    Ok(())
}

fn bgsave(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    match args {
        [_] => {}
        [_, word] if word.eq_ignore_ascii_case(b"schedule") => {}
        _ => return Err(CommandError::SYNTAX),
    }
    cx.engine.save_in_background()?;
    cx.out.simple("Background saving started");
    Ok(())
}

/// The reply for clients that look for a master: this is one, without replicas.
fn role(cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    cx.out.array(3);
    cx.out.bulk(b"master");
    cx.out.int(0);
    cx.out.array(0);
    Ok(())
}

/// `SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]`. The log has everything, so nothing is lost
/// without a snapshot. On success there is no reply: the connection ends.
fn shutdown(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (mut save, mut no_save, mut force, mut abort) = (false, false, false, false);
    for word in &args[1..] {
        match word.to_ascii_lowercase().as_slice() {
            b"save" => save = true,
            b"nosave" => no_save = true,
            b"force" => force = true,
            // There are no replicas to wait for.
            b"now" => {}
            b"abort" => abort = true,
            _ => return Err(CommandError::SYNTAX),
        }
    }
    if save && no_save || abort && args.len() > 2 {
        return Err(CommandError::SYNTAX);
    }
    if abort {
        return Err(CommandError::new("ERR No shutdown in progress."));
    }
    cx.engine.shut_down(save, force)
}

fn slowlog(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
        (b"get", rest @ ([] | [_])) => {
            let count = match rest {
                [word] => crate::number::parse_i64(word).filter(|&count| count >= -1).ok_or_else(
                    || CommandError::new("ERR count should be greater than or equal to -1"),
                )?,
                _ => 10,
            };
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let slow = cx.engine.slow();
            let shown = slow.get(..count).unwrap_or(&slow);
            cx.out.array(shown.len());
            for slow in shown {
                cx.out.array(6);
                cx.out.int(i64::try_from(slow.id).unwrap_or(i64::MAX));
                cx.out.int(i64::try_from(slow.at_s).unwrap_or(i64::MAX));
                cx.out.int(i64::try_from(slow.took_us).unwrap_or(i64::MAX));
                cx.out.array(slow.words.len());
                slow.words.iter().for_each(|word| cx.out.bulk(word));
                cx.out.bulk(slow.client.as_bytes());
                cx.out.bulk(slow.name.as_bytes());
            }
        }
        (b"len", []) => cx.out.count(cx.engine.slow().len()),
        (b"reset", []) => {
            cx.engine.forget_slow();
            cx.out.ok();
        }
        _ => return Err(super::unknown_subcommand("slowlog", args[1])),
    }
    Ok(())
}

fn memory(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
        (b"usage", [word, options @ ..]) => {
            match options {
                [] => {}
                [samples, count] if samples.eq_ignore_ascii_case(b"samples") => {
                    let count = crate::number::parse_i64(count).ok_or(CommandError::NOT_INTEGER)?;
                    if count < 0 {
                        return Err(CommandError::SYNTAX);
                    }
                }
                _ => return Err(CommandError::SYNTAX),
            }
            let key = cx.key(word);
            let shard = cx.shard(&key);
            match shard.look_at(&key).map(|at| shard.usage(at)) {
                Some(bytes) => cx.out.count(bytes),
                None => cx.out.null(),
            }
        }
        (b"stats", []) => {
            let keys: usize =
                (0..crate::store::DATABASES).map(|db| cx.engine.keyspace().count(db).0).sum();
            let data = cx.engine.keyspace().used();
            let buffers = cx.engine.clients_memory();
            let figures = [
                ("total.allocated", data + buffers),
                ("dataset.bytes", data),
                ("clients.normal", buffers),
                ("keys.count", keys),
                ("keys.bytes-per-key", data.checked_div(keys).unwrap_or(0)),
            ];
            cx.out.map(figures.len());
            for (name, figure) in figures {
                cx.out.bulk(name.as_bytes());
                cx.out.count(figure);
            }
        }
        (b"purge", []) => cx.out.ok(),
        (b"doctor", []) => cx.out.verbatim(*b"txt", b"Use MEMORY STATS to see how memory is used."),
        _ => return Err(super::unknown_subcommand("memory", args[1])),
    }
    Ok(())
}

fn function(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    match args[1].to_ascii_lowercase().as_slice() {
        b"flush" => cx.out.ok(),
        b"list" => cx.out.array(0),
        _ => return Err(super::unknown_subcommand("function", args[1])),
    }
    Ok(())
}
