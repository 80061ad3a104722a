//! Measures the upload of one large file: its speed, the memory it takes, and whether it is intact. Beside
//! it, the same to a route that collects the body in memory before it writes it.

use std::fs::File;
use std::io::{BufWriter, Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};

use super::{Figures, Plan, disk};
use crate::child::Server;

/// Number of bytes of the file generated at once.
const PIECE: usize = 256 << 10;
/// Time limit for the server's response.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

pub(super) fn large_file(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let start = |command: &[&str], name: &str| {
        Server::start(command, &scratch.join(name), &scratch.join(format!("{name}.log")))
    };
    let server = start(&["serve", "--log", "warn"], "large")?;
    let floor = start(&["bench", "floor", "--log", "warn"], "buffered")?;
    let (mut ours, mut buffered, mut plain) =
        (Measured::default(), Measured::default(), Vec::new());
    for round in 0..plan.rounds {
        let source = scratch.join("source");
        make(&source, round, plan.large_size)?;
        plain.push(disk::write_mib_per_s(scratch, plan.large_size)?);
        buffered.upload(&floor, "/v1/buffered", &source)?;
        let kept = scratch.join("buffered").join("buffered");
        let read = File::open(&kept).context("cannot read what was buffered")?;
        ensure!(digest(read)? == expected(round, plan.large_size), "the buffered file was altered");
        std::fs::remove_file(&kept).context("cannot remove what was buffered")?;
        ours.upload(&server, &path(round), &source)?;
        let url = format!("http://{}{}", server.address(), path(round));
        let mut response = ureq::get(&url).call().context("cannot read the large file back")?;
        let reader = response.body_mut().with_config().limit(u64::MAX).reader();
        ensure!(
            digest(reader)? == expected(round, plan.large_size),
            "the large file came back altered"
        );
        ureq::delete(&url).call().context("cannot delete the large file")?;
    }
    figures.median("upload_1g_mib_per_s", ours.mib_per_s);
    figures.median("disk_write_1g_mib_per_s", plain);
    figures.median("upload_1g_peak_growth_mib", ours.growth_mib);
    figures.median("buffered_1g_mib_per_s", buffered.mib_per_s);
    figures.median("buffered_1g_peak_growth_mib", buffered.growth_mib);
    figures.add("upload_size_mib", disk::mib(plan.large_size));
    floor.stop()?;
    server.stop()
}

/// Uploads to one server, by round.
#[derive(Default)]
struct Measured {
    mib_per_s: Vec<f64>,
    /// Memory of the server at its peak during an upload, less that before it.
    growth_mib: Vec<f64>,
}

impl Measured {
    fn upload(&mut self, server: &Server, path: &str, source: &Path) -> anyhow::Result<()> {
        let size = source.metadata().context("cannot open the file to upload")?.len();
        let before = server.memory("VmRSS")?;
        server.reset_peak()?;
        let took = send(server, path, source)?;
        let peak = server.memory("VmHWM")?;
        self.mib_per_s.push(disk::mib(size) / took.as_secs_f64());
        self.growth_mib.push(disk::mib(peak.saturating_sub(before)));
        Ok(())
    }
}

/// Path of the large file of a round.
fn path(round: u32) -> String {
    format!("/v1/files/bench/large-{round}")
}

/// Returns a piece whose first bytes number it, so that every upload has unique content.
fn piece(round: u32, number: u64) -> Vec<u8> {
    let mut piece = vec![0xC3; PIECE];
    mark(&mut piece, round, number);
    piece
}

fn mark(piece: &mut [u8], round: u32, number: u64) {
    let stamp = (u64::from(round) << 48 | number).to_le_bytes();
    if let Some(start) = piece.get_mut(..8) {
        start.copy_from_slice(&stamp);
    }
}

/// Creates the file to upload and flushes it, so that nothing of it is written during the upload.
pub(super) fn make(path: &Path, round: u32, size: u64) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path).context("cannot create the file to upload")?);
    let mut buffer = piece(round, 0);
    for number in 0..size / PIECE as u64 {
        mark(&mut buffer, round, number);
        file.write_all(&buffer).context("cannot write the file to upload")?;
    }
    file.into_inner()
        .context("cannot write the file to upload")?
        .sync_all()
        .context("cannot flush the file to upload")
}

/// Stores the large file of a round.
pub(super) fn upload(server: &Server, round: u32, source: &Path) -> anyhow::Result<Duration> {
    send(server, &path(round), source)
}

/// Sends a file as a client on the same machine would: the kernel sends it from its cache.
fn send(server: &Server, path: &str, source: &Path) -> anyhow::Result<Duration> {
    let mut file = File::open(source).context("cannot open the file to upload")?;
    let size = file.metadata().context("cannot open the file to upload")?.len();
    let mut stream = TcpStream::connect(server.address()).context("cannot connect")?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).context("cannot set a timeout")?;
    let begun = Instant::now();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).context("cannot send")?;
    std::io::copy(&mut file, &mut stream).context("cannot send")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("cannot read the response")?;
    let took = begun.elapsed();
    if !answer.starts_with(b"HTTP/1.1 201") {
        bail!("the upload was answered: {}", String::from_utf8_lossy(&answer));
    }
    Ok(took)
}

/// Digest of the file of a round.
fn expected(round: u32, size: u64) -> [u8; 32] {
    let mut sent = Sha256::new();
    let mut buffer = piece(round, 0);
    for number in 0..size / PIECE as u64 {
        mark(&mut buffer, round, number);
        sent.update(&buffer);
    }
    sent.finalize().into()
}

/// Digest of all that can be read.
fn digest(mut reader: impl Read) -> anyhow::Result<[u8; 32]> {
    let mut got = Sha256::new();
    let mut bytes = vec![0; PIECE];
    loop {
        match reader.read(&mut bytes).context("cannot read a large file back")? {
            0 => return Ok(got.finalize().into()),
            read => got.update(bytes.get(..read).unwrap_or_default()),
        }
    }
}
