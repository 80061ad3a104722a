//! A connection of the load generator, and the replies it reads.

use std::io::{ErrorKind, Write as _};
use std::time::Instant;

use anyhow::Context as _;
use mio::net::TcpStream;

/// A connection of the load generator.
pub(super) struct Client {
    pub(super) socket: TcpStream,
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    /// The beginning of a reply that has not arrived completely.
    pub(super) input: Vec<u8>,
    /// Remaining bytes of a value whose beginning was read.
    pub(super) owed: usize,
    /// Replies of the batch that have not arrived, and when the batch was sent.
    pub(super) waiting: u32,
    pub(super) since: Instant,
}

pub(super) fn flush(client: &mut Client) -> anyhow::Result<()> {
    while client.sent < client.out.len() {
        match client.socket.write(&client.out[client.sent..]) {
            Ok(count) => client.sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot send to the cache"),
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Value,
    Error,
    Other,
}

/// Returns the length and kind of the first reply to a GET or a SET. The length of a value may
/// exceed what has arrived.
pub(super) fn reply(input: &[u8], text: bool) -> Option<(usize, Kind)> {
    let end = input.iter().position(|&byte| byte == b'\n')? + 1;
    let line = &input[..end];
    if text {
        return Some(match line {
            [b'E', b'R', b'R', b'O', b'R', ..] => (end, Kind::Error),
            b"OK\n" | b"NULL\n" => (end, Kind::Other),
            _ => (end, Kind::Value),
        });
    }
    match line.first() {
        Some(b'$') if line.get(1) != Some(&b'-') => {
            let digits = std::str::from_utf8(line.get(1..)?).ok()?.trim_end();
            Some((end + digits.parse::<usize>().ok()? + 2, Kind::Value))
        }
        Some(b'-') => Some((end, Kind::Error)),
        _ => Some((end, Kind::Other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_distinguished_and_incomplete_ones_wait() {
        assert_eq!(reply(b"$3\r\nabc\r\n+OK\r\n", false), Some((9, Kind::Value)));
        assert_eq!(reply(b"$3\r\nab", false), Some((9, Kind::Value)));
        assert_eq!(reply(b"$3\r", false), None);
        assert_eq!(reply(b"$-1\r\n", false), Some((5, Kind::Other)));
        assert_eq!(reply(b"-ERR\r\n", false), Some((6, Kind::Error)));
        assert_eq!(reply(b"+O", false), None);
        assert_eq!(reply(b"value\n", true), Some((6, Kind::Value)));
        assert_eq!(reply(b"ERROR x\n", true), Some((8, Kind::Error)));
    }
}
