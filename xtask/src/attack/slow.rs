//! Clients that begin a request and do not continue.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;

use super::load::{listings, memory_within, need_files};
use super::server::{Server, Setup};
use super::stage::Stage;
use super::wire::connect;
use super::{Check, claim};

pub(super) const CHECKS: [Check; 2] = [
    Check::slow(
        "slow-clients",
        "2,000 clients that do not read block no other client",
        180,
        readers,
    ),
    Check::slow(
        "slow-clients",
        "2,000 clients that do not write block no other client",
        180,
        writers,
    ),
];

/// Number of clients.
const CLIENTS: usize = 2_000;
/// Maximum memory they may use.
const MEMORY_MAX: u64 = 64 << 20;
/// Maximum duration of a listing meanwhile.
const LISTING_MAX: Duration = Duration::from_millis(50);
/// Number of timed listings.
const LISTINGS: usize = 300;
/// Size of the file that is not read: more than sockets buffer.
const FILE_SIZE: usize = 32 << 20;

fn start(stage: &Stage) -> anyhow::Result<Server> {
    need_files(2 * CLIENTS as u64 + 100)?;
    let before = "ulimit -Sn $(ulimit -Hn)";
    let server =
        stage.start(&Setup { data: stage.dir.join("data"), before, ..Setup::default() })?;
    server.want("PUT", "/v1/files/attack/small", b"small", &[200, 201])?;
    Ok(server)
}

fn readers(stage: &Stage) -> anyhow::Result<String> {
    let server = start(stage)?;
    let large: Vec<u8> = (0..=250_u8).cycle().take(FILE_SIZE).collect();
    server.want("PUT", "/v1/files/attack/large", &large, &[200, 201])?;
    let before = server.resident()?;
    let head = format!("GET /v1/files/attack/large HTTP/1.1\r\nhost: {}\r\n\r\n", server.http);
    let stalled = stalled(&server, |_| head.clone().into_bytes())?;
    let result = beside(stage, &server, before)?;
    drop(stalled);
    Ok(result)
}

fn writers(stage: &Stage) -> anyhow::Result<String> {
    let server = start(stage)?;
    let before = server.resident()?;
    let routes = [
        "PUT /v1/files/attack/stalled",
        "POST /v1/documents/attack",
        "POST /v1/events?stream=attack",
        "POST /v1/inventories/attack",
        "POST /v1/pipelines/attack/runs",
    ];
    let stalled = stalled(&server, |number| {
        let route = routes.get(number % routes.len()).unwrap_or(&routes[0]);
        format!("{route} HTTP/1.1\r\nhost: {}\r\ncontent-length: 100\r\n\r\n", server.http)
            .into_bytes()
    })?;
    let result = beside(stage, &server, before)?;
    drop(stalled);
    Ok(result)
}

/// Opens the connections, and sends the beginning of a request on each.
fn stalled(server: &Server, begun: impl Fn(usize) -> Vec<u8>) -> anyhow::Result<Vec<TcpStream>> {
    let mut stalled = Vec::with_capacity(CLIENTS);
    for number in 0..CLIENTS {
        let mut stream = connect(server.http).with_context(|| format!("client {number}"))?;
        stream.write_all(&begun(number)).with_context(|| format!("client {number}"))?;
        stalled.push(stream);
    }
    Ok(stalled)
}

fn beside(stage: &Stage, server: &Server, before: u64) -> anyhow::Result<String> {
    for _ in 0..20 {
        server.want("GET", "/healthz", b"", &[200])?;
        let metrics = server.want("GET", "/metrics", b"", &[200])?;
        claim(!metrics.body.is_empty(), || "/metrics is empty".to_owned())?;
    }
    let listing = listings(stage, server, LISTINGS, LISTING_MAX)?;
    let memory = memory_within(before, server.resident()?, MEMORY_MAX)?;
    Ok(format!("{listing}, {memory}"))
}
