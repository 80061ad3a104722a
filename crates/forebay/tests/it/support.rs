//! Starts the binary and talks to it. Nothing waits without a limit, nothing sleeps.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// A wait longer than this is a hang.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// A setting that keeps the event store's log small, for fast starts in a debug build.
pub(crate) const SMALL_LOG: (&str, &str) = ("FOREBAY_EVENTS_LOG_SEGMENT_SIZE", "1MiB");

/// What a request sent by [`agent`] comes to.
pub(crate) type Sent = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// An HTTP client that returns every status as a response, and waits no longer than [`HANG`].
pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(HANG))
        .build();
    config.into()
}

/// The binary, without settings in its environment, with `dir` as its working directory.
pub(crate) fn forebay(dir: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(dir.path());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FOREBAY_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end.
pub(crate) fn run(dir: &TempDir, args: &[&str]) -> Output {
    forebay(dir).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command that must succeed, and returns its standard output.
pub(crate) fn run_ok(dir: &TempDir, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// URL of the S3 port, if the arguments set one.
    pub(crate) s3_url: Option<String>,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts `forebay serve` in `dir` on a free port and waits for its first line.
    pub(crate) fn start(dir: &TempDir, args: &[&str]) -> Self {
        Self::start_with(dir, args, |_| {})
    }

    /// The same with the command changed before it is started.
    pub(crate) fn start_with(
        dir: &TempDir,
        args: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = forebay(dir);
        command.env(SMALL_LOG.0, SMALL_LOG.1);
        command.arg("serve").args(args).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(std::fs::File::create(dir.path().join("log")).unwrap());
        if !args.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        if !args.iter().any(|arg| arg.starts_with("cache.")) {
            // Its ports are fixed; tests run side by side.
            command.args(["--set", "cache.enabled=false"]);
        }
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let Some(url) = line.trim().strip_prefix("listening ").map(str::to_owned) else {
            let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
            panic!("the server did not start: {line:?}, log: {log}");
        };
        let address = url.split("//").nth(1).unwrap().parse().unwrap();
        let s3_url = args.iter().any(|arg| arg.starts_with("s3.listen=")).then(|| {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            line.trim().strip_prefix("s3 ").unwrap_or_else(|| panic!("{line:?}")).to_owned()
        });
        Self { child, url, s3_url, address }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream
    }

    /// Sends a request with these extra header lines and returns the answer.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str) -> Answer {
        let mut stream = self.connect();
        send(&mut stream, method, path, headers);
        Answer::read(&mut stream)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Returns once a stop signal has arrived: then the listener is closed.
    pub(crate) fn until_not_listening(&self) {
        let deadline = std::time::Instant::now() + HANG;
        while TcpStream::connect(self.address).is_ok() {
            assert!(std::time::Instant::now() < deadline, "still listening");
        }
    }

    /// Returns once the server has read every byte sent to it on `stream`.
    ///
    /// The kernel lists the bytes that wait in the server's socket, which a stop would otherwise
    /// find before its reader does.
    pub(crate) fn until_read(&self, stream: &TcpStream) {
        let end = |port: u16| format!(":{port:04X}");
        let (server, client) = (end(self.address.port()), end(stream.local_addr().unwrap().port()));
        let is_read = |line: &str| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            fields.len() > 4
                && fields[1].ends_with(&server)
                && fields[2].ends_with(&client)
                && fields[4].ends_with(":00000000")
        };
        let deadline = std::time::Instant::now() + HANG;
        while !std::fs::read_to_string("/proc/net/tcp").unwrap().lines().any(is_read) {
            assert!(std::time::Instant::now() < deadline, "not read");
        }
    }

    /// Waits for the end and returns the exit code.
    pub(crate) fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Most tests have ended it already; killing it again then fails, which is fine.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

pub(crate) fn send(stream: &mut impl Write, method: &str, path: &str, headers: &str) {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
}

/// A complete response, read to the end of its connection.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn read(stream: &mut impl Read) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
