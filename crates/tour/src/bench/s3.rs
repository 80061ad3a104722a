//! Measures uploads of 4 KiB over the S3-compatible API, and the same load on versitygw.
//!
//! Ours are on stable storage before they are acknowledged; versitygw leaves its files to the kernel. Both get
//! the same requests from the same client: signature version 4, the payload not signed, which costs neither
//! side a second hash. Every object is read back and compared.

use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
#[cfg(feature = "peers")]
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use ring::{digest, hmac};

use super::client::{Load, Until, drive};
use super::intake::fill;
use super::{Figures, Plan};
use crate::child::Server;

/// How long a server may take until it accepts connections.
const START_LIMIT: Duration = Duration::from_secs(30);
const REGION: &str = "us-east-1";
const BUCKET: &str = "bench";

/// Measures both in turns.
pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let mut ours = Rates::default();
    #[cfg(feature = "peers")]
    let mut theirs = Rates::default();
    for round in 0..plan.rounds {
        let data = scratch.join(format!("s3-{round}"));
        let own = Own::start(&data)?;
        ours.measure(&own.port, plan)?;
        own.server.stop()?;
        std::fs::remove_dir_all(&data).context("cannot remove an emptied store")?;
        #[cfg(feature = "peers")]
        if let Some(program) = &plan.versitygw {
            let data = scratch.join(format!("versitygw-{round}"));
            let peer = Versitygw::start(program, &data)?;
            theirs.measure(&peer.port, plan)?;
            drop(peer);
            std::fs::remove_dir_all(&data).context("cannot remove a peer's data")?;
        }
    }
    ours.report("s3", figures);
    #[cfg(feature = "peers")]
    theirs.report("versitygw", figures);
    Ok(())
}

/// Rates and times, one for each round.
#[derive(Default)]
struct Rates {
    put: Vec<f64>,
    put_p50: Vec<f64>,
    put_p99: Vec<f64>,
    get: Vec<f64>,
}

impl Rates {
    fn measure(&mut self, port: &S3, plan: &Plan) -> anyhow::Result<()> {
        port.create_bucket()?;
        let put = port.put(plan)?;
        let get = port.read_back(plan, put.done)?;
        self.put.push(put.per_second());
        self.put_p50.push(put.percentile_us(0.5));
        self.put_p99.push(put.percentile_us(0.99));
        self.get.push(get.per_second());
        Ok(())
    }

    fn report(self, name: &str, figures: &mut Figures) {
        figures.median(&format!("{name}_put_4k_per_s"), self.put);
        figures.median(&format!("{name}_put_4k_p50_us"), self.put_p50);
        figures.median(&format!("{name}_put_4k_p99_us"), self.put_p99);
        figures.median(&format!("{name}_get_4k_per_s"), self.get);
    }
}

/// A free port, which another program may take before it is used.
fn free_port() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    listener.local_addr().context("no port is free")
}

/// Waits until a server accepts connections.
fn reachable(address: SocketAddr) -> anyhow::Result<()> {
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        ensure!(begun.elapsed() < START_LIMIT, "nothing listens on {address}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    Ok(())
}

/// A server of Forebay with its S3-compatible port.
struct Own {
    server: Server,
    port: S3,
}

impl Own {
    fn start(data: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(data)
            .with_context(|| format!("cannot create {}", data.display()))?;
        let id = printed(data, &["key", "new", "--name", "bench"], "id")?;
        let secret = printed(data, &["s3", "secret", &id], "secret_access_key")?;
        let address = free_port()?;
        let listen = format!("s3.listen={address}");
        let command = ["serve", "--log", "warn", "--durability", "sync", "--set", &listen];
        let server = Server::start(&command, data, &data.with_extension("log"))?;
        reachable(address)?;
        Ok(Self { server, port: S3 { address, id, secret } })
    }
}

/// Returns a member of the JSON that a command prints.
fn printed(data: &Path, command: &[&str], member: &str) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let ended = Command::new(program).args(command).arg("--json").arg("--data").arg(data).output();
    let ended = ended.context("cannot start this program")?;
    let value: serde_json::Value = serde_json::from_slice(&ended.stdout)
        .with_context(|| String::from_utf8_lossy(&ended.stderr).into_owned())?;
    let text = value[member].as_str().with_context(|| format!("no {member} was printed"))?;
    Ok(text.to_owned())
}

/// versitygw over a directory, with connections that stay open; ended when dropped.
#[cfg(feature = "peers")]
struct Versitygw {
    child: Child,
    port: S3,
}

#[cfg(feature = "peers")]
impl Versitygw {
    fn start(program: &Path, data: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(data)
            .with_context(|| format!("cannot create {}", data.display()))?;
        let address = free_port()?;
        let (id, secret) = ("bench".to_owned(), "bench-secret-of-a-test".to_owned());
        let child = Command::new(program)
            .args(["--port", &address.to_string(), "--access", &id, "--secret", &secret])
            .args(["--region", REGION, "--keep-alive", "-q", "posix"])
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let peer = Self { child, port: S3 { address, id, secret } };
        reachable(address)?;
        Ok(peer)
    }
}

#[cfg(feature = "peers")]
impl Drop for Versitygw {
    fn drop(&mut self) {
        // Its data is removed afterwards.
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            tracing::warn!(%error, "cannot stop versitygw");
        }
    }
}

/// An S3-compatible port and credentials for it.
#[derive(Clone)]
struct S3 {
    address: SocketAddr,
    id: String,
    secret: String,
}

impl S3 {
    fn create_bucket(&self) -> anyhow::Result<()> {
        let signer = Signer::of(self);
        let request = move |_, out: &mut Vec<u8>| signer.head("PUT", &format!("/{BUCKET}"), 0, out);
        let check = |_, status, body: &[u8]| {
            let text = String::from_utf8_lossy(body);
            ensure!(status == 200, "the bucket was answered {status}: {text}");
            Ok(())
        };
        drive(self.address, 1, Until::Requests(1), 0, request, check).map(drop)
    }

    fn put(&self, plan: &Plan) -> anyhow::Result<Load> {
        let signer = Signer::of(self);
        let request = move |number: u64, out: &mut Vec<u8>| {
            signer.head("PUT", &format!("/{BUCKET}/{number:016x}"), 4_096, out);
            fill(number, out);
        };
        let check = |number, status, body: &[u8]| {
            let text = String::from_utf8_lossy(body);
            ensure!(status == 200, "object {number} was answered {status}: {text}");
            Ok(())
        };
        let until = Until::Elapsed(plan.lasting);
        drive(self.address, plan.connections, until, 0, request, check)
    }

    fn read_back(&self, plan: &Plan, count: u64) -> anyhow::Result<Load> {
        let signer = Signer::of(self);
        let request = move |number: u64, out: &mut Vec<u8>| {
            signer.head("GET", &format!("/{BUCKET}/{number:016x}"), 0, out);
        };
        let expected = RefCell::new(Vec::with_capacity(4_096));
        let check = move |number, status, body: &[u8]| {
            let mut expected = expected.borrow_mut();
            expected.clear();
            fill(number, &mut expected);
            if status != 200 || body != expected.as_slice() {
                bail!("object {number} came back altered");
            }
            Ok(())
        };
        let until = Until::Requests(count);
        let load = drive(self.address, plan.connections, until, 0, request, check)?;
        ensure!(load.done == count, "{} of {count} objects were read back", load.done);
        Ok(load)
    }
}

/// Signs requests with signature version 4.
struct Signer {
    id: String,
    key: hmac::Key,
    host: String,
    /// The time of all its requests, which servers accept for some minutes.
    time: String,
}

impl Signer {
    fn of(port: &S3) -> Self {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = time.get(..8).unwrap_or_default();
        let mut key = format!("AWS4{}", port.secret).into_bytes();
        for part in [day, REGION, "s3", "aws4_request"] {
            key = mac(&hmac::Key::new(hmac::HMAC_SHA256, &key), part);
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        Self { id: port.id.clone(), key, host: port.address.to_string(), time }
    }

    /// Writes the head of a request.
    fn head(&self, method: &str, path: &str, length: usize, out: &mut Vec<u8>) {
        let Self { id, host, time, .. } = self;
        let names = "host;x-amz-content-sha256;x-amz-date";
        let canonical = format!(
            "{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:{time}\n\n\
             {names}\nUNSIGNED-PAYLOAD"
        );
        let scope = format!("{}/{REGION}/s3/aws4_request", time.get(..8).unwrap_or_default());
        let digest = hex::encode(digest::digest(&digest::SHA256, canonical.as_bytes()));
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
        let signature = hex::encode(mac(&self.key, &text));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n\
             x-amz-date: {time}\r\nauthorization: AWS4-HMAC-SHA256 Credential={id}/{scope}, \
             SignedHeaders={names}, Signature={signature}\r\ncontent-length: {length}\r\n\r\n"
        );
        out.extend_from_slice(head.as_bytes());
    }
}

fn mac(key: &hmac::Key, text: &str) -> Vec<u8> {
    hmac::sign(key, text.as_bytes()).as_ref().to_vec()
}
