//! Transactions: MULTI, EXEC, DISCARD, WATCH.

use std::sync::atomic::Ordering;

use super::{CommandError, Context, Flags, Keys, Spec};
use crate::engine::{Multi, name_size};

const AT_ONCE: Flags = Flags::FAST.and(Flags::UNQUEUED);

const GROUP: &str = "transactions";

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    super::row(GROUP, "multi", 1, AT_ONCE, Keys::None, multi, "Starts a transaction."),
    super::row(
        GROUP,
        "exec",
        1,
        AT_ONCE,
        Keys::None,
        exec,
        "Runs the commands queued since MULTI as one transaction.",
    ),
    super::row(
        GROUP,
        "discard",
        1,
        AT_ONCE,
        Keys::None,
        discard,
        "Discards the commands queued since MULTI.",
    ),
    super::row(
        GROUP,
        "watch",
        -2,
        AT_ONCE,
        Keys::Range(1, -1, 1),
        watch,
        "Makes the next EXEC do nothing if one of the keys has changed.",
    ),
    super::row(GROUP, "unwatch", 1, Flags::FAST, Keys::None, unwatch, "Stops watching keys."),
];

type Result = std::result::Result<(), CommandError>;

fn multi(cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    if cx.session.multi.is_some() {
        return Err(CommandError::new("ERR MULTI calls can not be nested"));
    }
    cx.session.multi = Some(Multi::default());
    cx.session.info.said.lock().queued = Some(0);
    cx.out.ok();
    Ok(())
}

/// EXEC outside of a transaction; inside one the dispatcher runs it.
fn exec(_cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    Err(CommandError::new("ERR EXEC without MULTI"))
}

fn discard(cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    if cx.session.multi.take().is_none() {
        return Err(CommandError::new("ERR DISCARD without MULTI"));
    }
    cx.session.info.said.lock().queued = None;
    cx.engine.unwatch(cx.session);
    cx.out.ok();
    Ok(())
}

fn watch(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    if cx.session.multi.is_some() {
        return Err(CommandError::new("ERR WATCH inside MULTI is not allowed"));
    }
    let database = cx.session.database;
    for word in &args[1..] {
        if !cx.session.watched.insert((database, (*word).into())) {
            continue;
        }
        let key = cx.key(word);
        let flag = cx.session.dirty.clone();
        let shard = cx.shard(&key);
        // A key whose deadline has passed is removed now, not as a change between WATCH and EXEC.
        shard.look_at(&key);
        shard.watch(word, &flag);
        cx.session.names_bytes += name_size(word);
    }
    cx.out.ok();
    Ok(())
}

fn unwatch(cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    // Inside a transaction it has no effect: EXEC has already checked the keys.
    if !cx.may_block {
        cx.session.dirty.store(false, Ordering::Release);
    } else {
        cx.engine.unwatch(cx.session);
    }
    cx.out.ok();
    Ok(())
}
