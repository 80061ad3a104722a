//! A server with a low limit of open files, and clients that use them all.

use std::io::BufReader;

use anyhow::Context as _;

use super::load::need_files;
use super::server::Setup;
use super::stage::Stage;
use super::wire::{Resp, connect};
use super::{Check, claim};

pub(super) const CHECKS: [Check; 1] = [Check::quick(
    "descriptors",
    "with 1,024 descriptors, 1,100 idle cache connections leave some for the intake",
    idle,
)];

/// Idle connections.
const IDLE: usize = 1_100;

fn idle(stage: &Stage) -> anyhow::Result<String> {
    need_files(4 * IDLE as u64)?;
    let before = "ulimit -Sn 1024 && ulimit -Hn 1024";
    let server =
        stage.start(&Setup { data: stage.dir.join("data"), before, ..Setup::default() })?;
    // Connections above its limit may be closed or have to wait.
    let idle: Vec<_> = (0..IDLE).filter_map(|_| connect(server.resp).ok()).collect();
    let first = idle.first().context("no connection was made")?;
    let first = first.try_clone().context("cannot duplicate a socket")?;
    Resp { stream: BufReader::new(first) }.want(&["PING"], "PONG")?;
    for number in 0..20 {
        let large = vec![u8::try_from(number).unwrap_or(0); 300 << 10];
        let path = format!("/v1/files/attack/{number}");
        server.want("PUT", &path, &large, &[200, 201])?;
        let back = server.want("GET", &path, b"", &[200])?;
        claim(back.body == large, || format!("{path} was changed"))?;
    }
    server.want("POST", "/v1/documents/attack", br#"{"a":1}"#, &[200, 201])?;
    server.want("POST", "/v1/events?stream=attack", b"{\"a\":1}\n", &[200])?;
    let listed = server.want("GET", "/v1/files?limit=100", b"", &[200])?.json()?;
    let count = listed["files"].as_array().map_or(0, Vec::len);
    claim(count == 20, || format!("{count} of 20 files are listed"))?;
    Ok(format!("{} connections made", idle.len()))
}
