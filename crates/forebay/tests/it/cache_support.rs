//! Starts `forebay cache serve` and talks to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{HANG, forebay};

/// A running cache; killed when dropped.
pub(crate) struct Cache {
    pub(crate) child: Child,
    pub(crate) resp: SocketAddr,
    pub(crate) text: SocketAddr,
    /// Its address for RESP over TLS, if any.
    pub(crate) tls: Option<SocketAddr>,
}

impl Cache {
    pub(crate) fn start(dir: &TempDir, args: &[&str]) -> Self {
        let mut command = forebay(dir);
        command
            .args(["cache", "serve", "--resp", "127.0.0.1:0", "--text", "127.0.0.1:0"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(dir.path().join("log")).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = |name: &str| {
            let found = line.split_whitespace().find_map(|word| word.strip_prefix(name));
            let log = || std::fs::read_to_string(dir.path().join("log")).unwrap();
            found.unwrap_or_else(|| panic!("{line:?}, log: {}", log())).parse().unwrap()
        };
        let (resp, text) = (address("resp="), address("text="));
        let tls = line.split_whitespace().find_map(|word| word.strip_prefix("tls-resp="));
        let tls = tls.map(|address| address.parse().unwrap());
        Self { child, resp, text, tls }
    }

    pub(crate) fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        stream
    }

    pub(crate) fn resp(&self) -> TcpStream {
        Self::connect(self.resp)
    }

    pub(crate) fn text(&self) -> TcpStream {
        Self::connect(self.text)
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    pub(crate) fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // Most tests have ended it already.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

pub(crate) fn expect(stream: &mut TcpStream, expected: &str) {
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}

pub(crate) fn ask(stream: &mut TcpStream, request: &str, expected: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    expect(stream, expected);
}
