//! Waiting for a key, which commands of lists and sorted sets share: the timeout, and how to block.

use std::time::{Duration, Instant};

use super::{CommandError, Context};
use crate::number;

/// Redis counts milliseconds as an `i64`; timeouts that do not fit are refused.
const SECONDS_MAX: f64 = 9.2e15;

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
    let waiting = Some(seconds)
        .filter(|seconds| *seconds < SECONDS_MAX)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or(CommandError::new("ERR timeout is out of range"))?;
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

#[cfg(test)]
mod tests {
    use super::give_up_at;

    #[test]
    fn a_timeout_beyond_milliseconds_in_64_bits_is_out_of_range() {
        for word in ["0x7FFFFFFFFFFFFF", "9223372036854775807", "1e17", "1e300"] {
            let error = give_up_at(word.as_bytes()).unwrap_err();
            assert!(format!("{error:?}").contains("timeout is out of range"), "{word} {error:?}");
        }
        for word in ["0.001", "0x10", "3155760000"] {
            assert!(give_up_at(word.as_bytes()).unwrap().is_some(), "{word}");
        }
        assert_eq!(give_up_at(b"0").unwrap(), None);
    }
}
