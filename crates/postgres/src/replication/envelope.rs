//! The messages inside the copy stream of a replication connection, independent of what is replicated.
//!
//! ```text
//! from the server   w  start of the data (8) | end of the log (8) | clock (8) | data
//!                   k  end of the log (8) | clock (8) | whether it wants an answer (1)
//! to the server     r  written (8) | flushed (8) | applied (8) | clock (8) | whether we want an answer (1)
//! ```
//! All integers are big-endian, clocks in microseconds since 2000 (PostgreSQL's documentation,
//! "Streaming Replication Protocol").
//!
//! Invariants: nothing is copied; bytes of the server never cause a panic.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::error::{ReplicationError, malformed};
use super::lsn::Lsn;

/// Seconds from 1970 to 2000.
const EPOCH_2000_S: i64 = 946_684_800;

/// A point in time on a server's clock, in microseconds since 2000-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerTime(pub i64);

impl ServerTime {
    /// In microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn unix_us(self) -> i64 {
        self.0.saturating_add(EPOCH_2000_S * 1_000_000)
    }

    /// From microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn from_unix_us(unix_us: i64) -> Self {
        Self(unix_us.saturating_sub(EPOCH_2000_S * 1_000_000))
    }
}

/// A message of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Envelope<'a> {
    /// A message of the output plugin.
    Data {
        /// Position of the change that it describes. Not ordered across transactions, and shared by
        /// several changes.
        at: Lsn,
        /// The message.
        data: &'a [u8],
    },
    /// Nothing to send.
    Keepalive {
        /// End of what the server has decoded: nothing before it will be sent any more.
        end: Lsn,
        /// The server's clock.
        clock: ServerTime,
        /// Whether the server closes the connection soon unless it is answered.
        wants_reply: bool,
    },
}

impl<'a> Envelope<'a> {
    /// Decodes the content of one CopyData message.
    ///
    /// # Errors
    /// [`ReplicationError::Malformed`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self, ReplicationError> {
        let mut rest = bytes;
        match u8_of(&mut rest)? {
            b'w' => {
                let at = Lsn(u64_of(&mut rest)?);
                let _end = u64_of(&mut rest)?;
                let _clock = u64_of(&mut rest)?;
                Ok(Self::Data { at, data: rest })
            }
            b'k' => {
                let end = Lsn(u64_of(&mut rest)?);
                let clock = ServerTime(u64_of(&mut rest)?.cast_signed());
                let wants_reply = u8_of(&mut rest)? != 0;
                Ok(Self::Keepalive { end, clock, wants_reply })
            }
            tag => Err(malformed("a replication message", format!("unknown type {tag:#04x}"))),
        }
    }
}

/// Encodes how far the changes have been received.
///
/// * `received`: what was received and may be lost again.
/// * `durable`: what will never be requested again. The server discards its log up to there.
///   [`Lsn::NONE`] leaves the slot where it is.
#[must_use]
pub fn status(received: Lsn, durable: Lsn, clock: ServerTime, wants_reply: bool) -> [u8; 34] {
    let mut bytes = [0; 34];
    let fields = [received.0, durable.0, durable.0, clock.0.cast_unsigned()];
    let mut at = bytes.iter_mut();
    let content = std::iter::once(b'r').chain(fields.into_iter().flat_map(u64::to_be_bytes));
    let content = content.chain(std::iter::once(u8::from(wants_reply)));
    for (byte, value) in at.by_ref().zip(content) {
        *byte = value;
    }
    bytes
}

/// Takes a byte.
pub(super) fn u8_of(rest: &mut &[u8]) -> Result<u8, ReplicationError> {
    taken::<1>(rest).map(|[byte]| byte)
}

/// Takes an integer.
pub(super) fn u16_of(rest: &mut &[u8]) -> Result<u16, ReplicationError> {
    taken(rest).map(u16::from_be_bytes)
}

/// Takes an integer.
pub(super) fn u32_of(rest: &mut &[u8]) -> Result<u32, ReplicationError> {
    taken(rest).map(u32::from_be_bytes)
}

/// Takes an integer.
pub(super) fn u64_of(rest: &mut &[u8]) -> Result<u64, ReplicationError> {
    taken(rest).map(u64::from_be_bytes)
}

fn taken<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], ReplicationError> {
    let (taken, after) = rest.split_first_chunk::<N>().ok_or_else(ends_early)?;
    *rest = after;
    Ok(*taken)
}

/// Takes bytes.
pub(super) fn bytes_of<'a>(rest: &mut &'a [u8], size: usize) -> Result<&'a [u8], ReplicationError> {
    let (taken, after) = rest.split_at_checked(size).ok_or_else(ends_early)?;
    *rest = after;
    Ok(taken)
}

/// Takes a text that ends with a zero byte.
pub(super) fn text_of<'a>(rest: &mut &'a [u8]) -> Result<&'a str, ReplicationError> {
    let size = rest.iter().position(|byte| *byte == 0).ok_or_else(ends_early)?;
    let text = bytes_of(rest, size)?;
    bytes_of(rest, 1)?;
    std::str::from_utf8(text).map_err(|_| malformed("a name", "it is not UTF-8"))
}

fn ends_early() -> ReplicationError {
    malformed("a replication message", "it ends early")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_the_layout_of_the_protocol() {
        let bytes = status(Lsn(0x0102), Lsn(0x0304), ServerTime(-1), false);
        assert_eq!(bytes[0], b'r');
        assert_eq!(bytes[1..9], 0x0102_u64.to_be_bytes());
        assert_eq!(bytes[9..17], 0x0304_u64.to_be_bytes());
        assert_eq!(bytes[17..25], 0x0304_u64.to_be_bytes());
        assert_eq!(bytes[25..33], [0xff; 8]);
        assert_eq!(bytes[33], 0);
    }

    #[test]
    fn a_message_that_is_cut_anywhere_is_refused() {
        let mut keepalive = vec![b'k'];
        keepalive.extend_from_slice(&7_u64.to_be_bytes());
        keepalive.extend_from_slice(&8_u64.to_be_bytes());
        keepalive.push(1);
        let whole = Envelope::decode(&keepalive).unwrap();
        let expected = Envelope::Keepalive { end: Lsn(7), clock: ServerTime(8), wants_reply: true };
        assert_eq!(whole, expected);
        for size in 0..keepalive.len() {
            assert!(Envelope::decode(&keepalive[..size]).is_err(), "{size} bytes");
        }
        let mut data = vec![b'w'];
        data.extend_from_slice(&[0; 24]);
        assert_eq!(Envelope::decode(&data).unwrap(), Envelope::Data { at: Lsn::NONE, data: &[] });
        for size in 0..data.len() {
            assert!(Envelope::decode(&data[..size]).is_err(), "{size} bytes");
        }
        assert!(Envelope::decode(b"x").is_err());
    }

    #[test]
    fn a_clock_survives_both_directions() {
        assert_eq!(ServerTime(0).unix_us(), 946_684_800_000_000);
        for unix_us in [0, -1, 1_800_000_000_000_000] {
            assert_eq!(ServerTime::from_unix_us(unix_us).unix_us(), unix_us);
        }
    }
}
