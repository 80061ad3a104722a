//! Reads long strings: without the locks of their shards, and very long ones on the thread for long work.

use std::ops::Range;

use super::apart::{Apart, DECOMPRESSED_MIN, LongReply, REPLY_MIN};
use super::{CommandError, Context};
use crate::resp::Reply;
use crate::store::{CopyAhead, Key, SharedText, Text};

type Result = std::result::Result<(), CommandError>;

/// Writes a string as a reply.
pub(crate) fn bulk(out: &mut Reply, text: Text<'_>) {
    match text.as_plain() {
        Some(plain) => out.bulk(plain),
        None => out.bulk_with(text.len(), |buffer| text.append_to(buffer)),
    }
}

/// Replies with a part of a long string, whose lock is released. A very long reply is made by another
/// thread: then the command is run again.
pub(super) fn bulk_range(cx: &mut Context<'_, '_>, source: &SharedText, range: Range<usize>) {
    if range.len() >= REPLY_MIN {
        let made = match cx.apart.as_deref_mut() {
            Some(Apart::Reply(reply)) => reply.take(source, &range),
            _ => None,
        };
        if let Some(made) = made {
            return cx.out.adopt(made);
        }
        if cx.may_defer {
            let reply = LongReply::new(source.clone(), range);
            cx.deferred = Some(Box::new(Apart::Reply(reply)));
            return;
        }
    }
    cx.out.bulk_with(range.len(), |buffer| source.text().append_range_to(range, buffer));
}

/// Releases the lock of a key's shard early, so that no other client waits while a long string is
/// read. Inside a transaction the lock is kept.
pub(super) fn let_go(cx: &mut Context<'_, '_>, key: &Key<'_>) {
    if cx.may_block {
        cx.locked.release(cx.session.database, key.shard());
    }
}

/// Maximum number of bytes that are read under a shard's lock from a string that is stored plain.
/// While a reader references a string, a change of it must copy all of it.
const IN_PLACE_MAX: usize = 16 << 10;

/// Calls `read` with the string at a key. A long string is read without its shard's lock, unless
/// only a small part is read. One that is very long and compressed is decompressed by another thread,
/// and the command is run again. For commands that do nothing else with the shard.
///
/// * `part`: the number of bytes that are read from a string of a given length.
pub(super) fn read_string(
    cx: &mut Context<'_, '_>,
    key: &Key<'_>,
    part: impl FnOnce(usize) -> usize,
    read: impl FnOnce(&mut Reply, Option<Text<'_>>),
) -> Result {
    let text = cx.locked.get(cx.session.database, key.shard()).text(key)?;
    let is_long = |text: &Text<'_>| text.as_plain().is_none() && text.len() >= DECOMPRESSED_MIN;
    if let Some(text) = text.filter(is_long) {
        if let Some(Apart::Copy(copy)) = cx.apart.as_deref()
            && let Some(plain) = copy.plain_of(text)
        {
            read(cx.out, Some(Text::of_plain(plain)));
            return Ok(());
        }
        if let Some(copy) = CopyAhead::of(text, 0).filter(|_| cx.may_defer) {
            cx.deferred = Some(Box::new(Apart::Copy(copy)));
            return Ok(());
        }
    }
    let apart = text.filter(|text| text.as_plain().is_none() || part(text.len()) > IN_PLACE_MAX);
    match apart.and_then(|text| text.share()) {
        None => read(cx.out, text),
        Some(shared) => {
            let_go(cx, key);
            read(cx.out, Some(shared.text()));
        }
    }
    Ok(())
}
