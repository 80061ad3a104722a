//! Clients that disconnect in the middle: nothing they began remains, and nothing waits for them.

use std::io::Write as _;
use std::time::Duration;

use super::load::soon;
use super::stage::Stage;
use super::wire::{Resp, connect};
use super::{Check, claim};

pub(super) const CHECKS: [Check; 3] = [
    Check::quick("cancellation", "aborted uploads leave no file and hold no slot", uploads),
    Check::quick("cancellation", "closed event streams release their slots", streams),
    Check::quick("cancellation", "blocked cache clients that disconnect take no elements", waiting),
];

/// More than `intake.uploads_max`, one after another.
const UPLOADS: usize = 600;
/// More than `events.reads_max`.
const STREAMS: usize = 100;
/// Number of blocked cache clients.
const WAITING: usize = 100;
/// Maximum time until their slots are free.
const FREE_LIMIT: Duration = Duration::from_secs(20);

fn uploads(stage: &Stage) -> anyhow::Result<String> {
    let server = stage.serve("data", &[])?;
    let half = vec![7; 200 << 10];
    for number in 0..UPLOADS {
        let mut stream = connect(server.http)?;
        let head = format!(
            "PUT /v1/files/attack/{number} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n",
            server.http,
            2 * half.len()
        );
        // A client refused because others have not been removed yet is closed, too.
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(&half))
            .unwrap_or_default();
    }
    soon(FREE_LIMIT, &mut || {
        server.want("PUT", "/v1/files/kept/whole", &half, &[200, 201]).map(drop)
    })?;
    let listed = server.want("GET", "/v1/files?limit=1000", b"", &[200])?.json()?;
    let count = listed["files"].as_array().map_or(0, Vec::len);
    claim(count == 1, || format!("there are {count} files, but only one was sent completely"))?;
    for number in [0, UPLOADS / 2, UPLOADS - 1] {
        server.want("GET", &format!("/v1/files/attack/{number}"), b"", &[404])?;
    }
    Ok(format!("{UPLOADS} aborted"))
}

fn streams(stage: &Stage) -> anyhow::Result<String> {
    let server = stage.serve("data", &[])?;
    server.want("POST", "/v1/events?stream=attack", b"{\"a\":1}\n", &[200])?;
    for _ in 0..STREAMS {
        let mut stream = connect(server.http)?;
        let head = format!("GET /v1/events?follow=true HTTP/1.1\r\nhost: {}\r\n\r\n", server.http);
        stream.write_all(head.as_bytes()).unwrap_or_default();
    }
    let freed =
        soon(FREE_LIMIT, &mut || server.want("GET", "/v1/events?limit=1", b"", &[200]).map(drop))?;
    Ok(format!("free after {:.1} s", freed.as_secs_f64()))
}

fn waiting(stage: &Stage) -> anyhow::Result<String> {
    let server = stage.serve("data", &[])?;
    let mut own = server.resp()?;
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let mut client = Resp::connect(server.resp)?;
        client.send(&[b"BLPOP", b"list", b"0"])?;
        waiting.push(client);
    }
    drop(waiting);
    // A client that has left removes no element.
    soon(FREE_LIMIT, &mut || {
        own.want(&["DEL", "list"], "0").or_else(|_| own.want(&["DEL", "list"], "0"))?;
        own.want(&["RPUSH", "list", "kept"], "1")?;
        own.want(&["LLEN", "list"], "1")
    })?;
    own.want(&["LPOP", "list"], "kept")?;
    Ok(String::new())
}
