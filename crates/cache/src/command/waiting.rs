//! Waiting for a key, which commands of lists and sorted sets share: the timeout, and how to block.

use std::time::{Duration, Instant};

use super::{CommandError, Context};
use crate::number;

/// The time at which a command with this timeout gives up; `None` for never.
pub(super) fn give_up_at(word: &[u8]) -> std::result::Result<Option<Instant>, CommandError> {
    let invalid = || CommandError::new("ERR timeout is not a float or out of range");
    let seconds = number::parse_f64(word).ok_or_else(invalid)?;
    if seconds < 0.0 {
        return Err(CommandError::new("ERR timeout is negative"));
    }
    if seconds == 0.0 {
        return Ok(None);
    }
    let waiting = Duration::try_from_secs_f64(seconds)
        .map_err(|_| CommandError::new("ERR timeout is out of range"))?;
    // A timeout that rounds to zero would mean no timeout.
    let waiting = waiting.max(Duration::from_millis(1));
    Instant::now().checked_add(waiting).map(Some).ok_or_else(invalid)
}

/// Blocks on keys, or replies that there is nothing if blocking is not possible.
pub(super) fn wait(
    cx: &mut Context<'_, '_>,
    keys: &[&[u8]],
    deadline: Option<Instant>,
    nothing: fn(&mut crate::resp::Reply),
) {
    if cx.may_block {
        cx.block(keys, deadline);
    } else {
        nothing(cx.out);
    }
}
