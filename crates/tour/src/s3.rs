//! A server with its S3-compatible port, and requests signed for it with signature version 4.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ring::{digest, hmac};
use serde_json::Value;

use crate::child::Server;

/// How long a server may take until it accepts connections.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The region that requests are signed for.
pub(crate) const REGION: &str = "us-east-1";

/// A free port, which another program may take before it is used.
pub(crate) fn free_port() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    listener.local_addr().context("no port is free")
}

/// Waits until a server accepts connections.
pub(crate) fn reachable(address: SocketAddr) -> anyhow::Result<()> {
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        ensure!(begun.elapsed() < START_LIMIT, "nothing listens on {address}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    Ok(())
}

/// An S3-compatible port and credentials for it.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    pub(crate) id: String,
    pub(crate) secret: String,
}

/// A server of Forebay with its S3-compatible port.
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) port: Port,
    /// The API key, for requests over HTTP.
    pub(crate) key: String,
    data: PathBuf,
}

impl Served {
    /// Makes a key in a new data directory, and starts a server on it.
    pub(crate) fn start(data: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(data)
            .with_context(|| format!("cannot create {}", data.display()))?;
        let made = printed(data, &["key", "new", "--name", "s3"])?;
        let (id, key) = (member(&made, "id")?, member(&made, "key")?);
        let secret = member(&printed(data, &["s3", "secret", &id])?, "secret_access_key")?;
        let port = Port { address: free_port()?, id, secret };
        let server = serve(data, port.address)?;
        Ok(Self { server, port, key, data: data.to_owned() })
    }

    /// Ends the server with SIGKILL, and starts another one on its data and another port.
    pub(crate) fn kill_and_start(self) -> anyhow::Result<Self> {
        let Self { server, port, key, data } = self;
        server.kill()?;
        let port = Port { address: free_port()?, ..port };
        let server = serve(&data, port.address)?;
        Ok(Self { server, port, key, data })
    }
}

fn serve(data: &Path, address: SocketAddr) -> anyhow::Result<Server> {
    let listen = format!("s3.listen={address}");
    let command = ["serve", "--log", "warn", "--durability", "sync", "--set", &listen];
    let server = Server::start(&command, data, &data.with_extension("log"))?;
    reachable(address)?;
    Ok(server)
}

/// Returns the JSON that a command prints.
fn printed(data: &Path, command: &[&str]) -> anyhow::Result<Value> {
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let ended = Command::new(program).args(command).arg("--json").arg("--data").arg(data).output();
    let ended = ended.context("cannot start this program")?;
    serde_json::from_slice(&ended.stdout)
        .with_context(|| String::from_utf8_lossy(&ended.stderr).into_owned())
}

fn member(value: &Value, name: &str) -> anyhow::Result<String> {
    let text = value[name].as_str().with_context(|| format!("no {name} was printed"))?;
    Ok(text.to_owned())
}

/// Signs requests with signature version 4.
pub(crate) struct Signer {
    id: String,
    key: hmac::Key,
    host: String,
    /// The time of all its requests, which servers accept for some minutes.
    time: String,
}

impl Signer {
    pub(crate) fn of(port: &Port) -> Self {
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
    pub(crate) fn head(&self, method: &str, path: &str, length: usize, out: &mut Vec<u8>) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.host);
        for (name, value) in self.headers(method, path) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {length}\r\n\r\n"));
        out.extend_from_slice(head.as_bytes());
    }

    /// The headers that sign a request without a query, beside its host.
    pub(crate) fn headers(&self, method: &str, path: &str) -> [(&'static str, String); 3] {
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
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
        );
        [
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD".to_owned()),
            ("x-amz-date", time.clone()),
            ("authorization", authorization),
        ]
    }
}

fn mac(key: &hmac::Key, text: &str) -> Vec<u8> {
    hmac::sign(key, text.as_bytes()).as_ref().to_vec()
}
