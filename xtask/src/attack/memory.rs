//! Cache clients that use memory without storing anything.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;

use super::load::memory_within;
use super::stage::Stage;
use super::wire::Resp;
use super::{Check, claim};

pub(super) const CHECKS: [Check; 1] = [Check::slow(
    "memory",
    "incomplete values and clients that do not read stay within memory_max and evict no key",
    120,
    unfinished,
)];

/// Keys that must remain.
const KEYS: usize = 1_000;
/// Number of incomplete values, and their size.
const UNFINISHED: usize = 40;
const VALUE_SIZE: usize = 32 << 20;
/// Subscribers that do not read, the size of the messages, and their number.
const SUBSCRIBERS: usize = 50;
const MESSAGE_SIZE: usize = 1 << 20;
const MESSAGES: usize = 40;
/// Maximum growth of the server: its limit, and the same again for the allocator.
const GROWTH_MAX: u64 = 128 << 20;
/// How long a client waits for a server that reads no more.
const SEND_LIMIT: Duration = Duration::from_millis(500);

fn unfinished(stage: &Stage) -> anyhow::Result<String> {
    let server = stage.serve("data", &["cache.memory_max=64MiB"])?;
    let mut own = server.resp()?;
    for number in 0..KEYS {
        own.want(&["SET", &format!("kept:{number}"), "value"], "OK")?;
    }
    let before = server.resident()?;
    let mut begun = Vec::new();
    for number in 0..UNFINISHED {
        let Ok(mut client) = Resp::connect(server.resp) else { continue };
        let stream = client.stream.get_mut();
        stream.set_write_timeout(Some(SEND_LIMIT)).context("cannot limit writes")?;
        let head = format!("*3\r\n$3\r\nSET\r\n$4\r\nu:{number:02}\r\n${VALUE_SIZE}\r\n");
        let mut value = head.into_bytes();
        value.resize(VALUE_SIZE, b'v');
        // A server may close the connection or read no more: both are right.
        stream.write_all(&value).unwrap_or_default();
        begun.push(client);
    }
    let values =
        memory_within(before, server.resident()?, GROWTH_MAX).context("unfinished SETs")?;
    let mut subscribed = Vec::new();
    for _ in 0..SUBSCRIBERS {
        let Ok(mut client) = Resp::connect(server.resp) else { continue };
        if client.send(&[b"SUBSCRIBE", b"channel"]).is_ok() {
            subscribed.push(client);
        }
    }
    let message = "m".repeat(MESSAGE_SIZE);
    for _ in 0..MESSAGES {
        let reply = own.ask(&["PUBLISH", "channel", &message])?;
        claim(!reply.starts_with("-ERR"), || format!("PUBLISH returned {reply:?}"))?;
    }
    let readers = memory_within(before, server.resident()?, GROWTH_MAX).context("subscribers")?;
    for number in 0..KEYS {
        own.want(&["GET", &format!("kept:{number}")], "value")?;
    }
    drop((begun, subscribed));
    own.want(&["SET", "after", "1"], "OK")?;
    Ok(format!("{values} for values, {readers} with readers too"))
}
