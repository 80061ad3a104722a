//! Syslog servers that get checkpoints: one line of RFC 5424 for each.
//!
//! ```text
//! <110>1 2026-11-23T10:00:00Z - forebay - checkpoint - origin=.. size=.. root=.. note=<base64 of the note>
//! ```
//!
//! 110 is facility 13 (log audit), severity 6 (informational). Over TCP the line has its size before it
//! (RFC 6587, octet counting). No server confirms a line, so success means that it was handed over.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_events::store::{AnchorError, AnchorTarget, Publication};

use super::{Failed, LIMIT};
use crate::config::SyslogAddress;

/// Maximum size of a line over UDP: RFC 5424 lets receivers cut longer ones.
const DATAGRAM_MAX: usize = 2048;

/// A syslog server.
#[derive(Debug)]
pub(super) struct Syslog(SyslogAddress);

impl Syslog {
    pub(super) fn new(address: SyslogAddress) -> Self {
        Self(address)
    }

    fn send(&self, line: &str) -> Result<(), Failed> {
        let mut failed: Failed = "its name has no address".into();
        for address in self.0.host.to_socket_addrs()? {
            let sent = if self.0.tcp { over_tcp(address, line) } else { over_udp(address, line) };
            match sent {
                Ok(()) => return Ok(()),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

fn over_tcp(address: SocketAddr, line: &str) -> Result<(), Failed> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(format!("{} {line}", line.len()).as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    Ok(())
}

fn over_udp(address: SocketAddr, line: &str) -> Result<(), Failed> {
    if line.len() > DATAGRAM_MAX {
        return Err(format!("a line of {} bytes is too large for UDP", line.len()).into());
    }
    let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(local)?.send_to(line.as_bytes(), address)?;
    Ok(())
}

/// The line of a checkpoint.
fn line(publication: &Publication, now_s: u64) -> String {
    let now_ns = i64::try_from(now_s).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
    let time = forebay_events::render::time(now_ns);
    let checkpoint = &publication.checkpoint;
    let (root, note) = (STANDARD.encode(checkpoint.root.0), STANDARD.encode(&publication.note));
    let (origin, size) = (&checkpoint.origin, checkpoint.size);
    format!(
        "<110>1 {time} - forebay - checkpoint - origin={origin} size={size} root={root} note={note}"
    )
}

impl AnchorTarget for Syslog {
    fn address(&self) -> String {
        let scheme = if self.0.tcp { "syslog+tcp" } else { "syslog" };
        format!("{scheme}://{}", self.0.host)
    }

    fn publish(&self, publication: &Publication) -> Result<(), AnchorError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sent = self.send(&line(publication, now.as_secs()));
        sent.map_err(|error| AnchorError::remote("send to", self.address(), error))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::super::test_publication;
    use super::*;

    fn syslog(tcp: bool, host: String) -> Syslog {
        Syslog::new(SyslogAddress { tcp, host })
    }

    /// Checks a received line, and returns the note in it.
    fn note_of(line: &str) -> String {
        assert!(line.starts_with("<110>1 20") && !line.contains('\n'), "{line}");
        assert!(line.contains("Z - forebay - checkpoint - origin=log.example/events size=7 root="));
        let note = line.rsplit_once(" note=").unwrap().1;
        String::from_utf8(STANDARD.decode(note).unwrap()).unwrap()
    }

    #[test]
    fn a_datagram_has_one_line_with_the_whole_note() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let target = syslog(false, socket.local_addr().unwrap().to_string());
        let publication = test_publication();
        target.publish(&publication).unwrap();
        let mut bytes = [0; 4096];
        let size = socket.recv(&mut bytes).unwrap();
        assert_eq!(note_of(str::from_utf8(&bytes[..size]).unwrap()), publication.note);
        let long = Publication { note: "x".repeat(2000), ..publication };
        assert!(target.publish(&long).is_err());
    }

    #[test]
    fn a_line_over_tcp_has_its_size_before_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = syslog(true, listener.local_addr().unwrap().to_string());
        let publication = test_publication();
        target.publish(&publication).unwrap();
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        let (size, line) = text.split_once(' ').unwrap();
        assert_eq!(size, line.len().to_string());
        assert_eq!(note_of(line), publication.note);
        drop(listener);
        let error = target.publish(&publication).unwrap_err();
        assert!(error.to_string().starts_with("cannot send to syslog+tcp://127.0.0.1:"), "{error}");
    }
}
