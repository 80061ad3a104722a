//! What a component may reach, and how much it may use.
//!
//! Invariants: what is not granted is refused. A name is resolved here, its addresses are judged, and the connection uses
//! exactly those: a name that resolves to another address later reaches no network that was not granted.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use forebay_base::network::{is_local_name, is_public};
use forebay_sdk::ConnectorError;
use forebay_sdk::settings::{Reach, Within, permits_host};
use ipnet::IpNet;
use tokio::net::TcpStream;

/// Memory of an instance, if the pipeline has no limit.
pub const MEMORY_DEFAULT: usize = 128 << 20;
/// How long a component may compute without reading, writing or sending anything.
pub const BUSY_DEFAULT: Duration = Duration::from_secs(30);
/// Longest time for a connection to be made.
const CONNECT_MAX: Duration = Duration::from_secs(60);

/// What a component may reach, and how much it may use.
#[derive(Debug, Clone)]
pub struct Grants {
    /// Servers, as in `permissions.network.allowed_hosts`; none if it is empty.
    pub hosts: Vec<String>,
    /// Directories and files; none if it is empty.
    pub paths: Vec<PathBuf>,
    /// Maximum size in bytes of the memory of an instance.
    pub memory: usize,
    /// How long it may compute without reading, writing or sending anything.
    pub busy: Duration,
}

impl Default for Grants {
    fn default() -> Self {
        Self { hosts: Vec::new(), paths: Vec::new(), memory: MEMORY_DEFAULT, busy: BUSY_DEFAULT }
    }
}

impl Grants {
    /// Grants what settings refer to, if nothing else was permitted.
    pub fn settle(&mut self, reach: &Reach) {
        if self.hosts.is_empty() {
            self.hosts.extend(reach.hosts.iter().map(|(host, port)| {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                port.map_or(host.clone(), |port| format!("{host}:{port}"))
            }));
        }
        if self.paths.is_empty() {
            self.paths.extend(reach.paths.iter().cloned());
        }
    }

    /// Connects to a server.
    pub(crate) async fn connect(
        &self,
        host: &str,
        port: u16,
        limit: Duration,
    ) -> Result<TcpStream, ConnectorError> {
        let named = format!("{host}:{port}");
        if !self.hosts.iter().any(|permitted| permits_host(permitted, host, Some(port))) {
            return Err(ConnectorError::unsupported(
                format!("the component may not connect to {named}"),
                "add it to `permissions.network.allowed_hosts` if it should",
            ));
        }
        let failed = |source: std::io::Error| ConnectorError::Unreachable {
            what: named.clone(),
            source: source.into(),
        };
        let connecting = async {
            let found = tokio::net::lookup_host((host, port)).await.map_err(failed)?;
            let found: Vec<SocketAddr> = found.collect();
            let mut last = None;
            for address in found {
                self.judge(host, address.ip())?;
                match TcpStream::connect(address).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = Some(error),
                }
            }
            let none = || std::io::Error::other("the name has no address");
            Err(failed(last.unwrap_or_else(none)))
        };
        let limit = limit.min(CONNECT_MAX);
        let stream = tokio::time::timeout(limit, connecting).await.map_err(|_| {
            failed(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time"))
        })??;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(stream)
    }

    /// Refuses an address that is not public, unless it was granted by itself or the name is a local one.
    fn judge(&self, host: &str, address: IpAddr) -> Result<(), ConnectorError> {
        let is_literal = host.parse::<IpAddr>().is_ok();
        if is_literal || is_public(address) || is_local_name(host) || self.has_network_of(address) {
            return Ok(());
        }
        Err(ConnectorError::unsupported(
            format!("{host} is the address {address}, which is not public"),
            "add the address or its network to `permissions.network.allowed_hosts` if it should be reached",
        ))
    }

    fn has_network_of(&self, address: IpAddr) -> bool {
        self.hosts.iter().any(|permitted| {
            let is_in = |net: IpNet| net.contains(&address);
            permitted.parse::<IpNet>().is_ok_and(is_in)
                || permitted.parse::<IpAddr>().is_ok_and(|granted| granted == address)
        })
    }

    /// Reads a file of at most `max` bytes.
    pub(crate) fn read_file(&self, path: &str, max: u64) -> Result<Vec<u8>, ConnectorError> {
        use std::io::Read as _;
        let failed = |error| ConnectorError::file("read", path, error);
        if self.paths.is_empty() {
            return Err(ConnectorError::unsupported(
                format!("the component may not read {path:?}"),
                "add its directory to `permissions.fs.allowed_preopens` if it should",
            ));
        }
        let file = Within::new(&self.paths).open(path.as_ref()).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > max {
            let large = std::io::Error::other(format!("it has more than {max} bytes"));
            return Err(failed(large));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(hosts: &[&str]) -> Grants {
        Grants { hosts: hosts.iter().map(|&host| host.to_owned()).collect(), ..Grants::default() }
    }

    #[test]
    fn a_public_name_with_a_private_address_needs_the_network_as_well() {
        let private: IpAddr = "10.1.2.3".parse().unwrap();
        let metadata: IpAddr = "169.254.169.254".parse().unwrap();
        for (host, permitted, address, expected) in [
            ("db.example.org", &["db.example.org"][..], private, false),
            ("db.example.org", &["*"], metadata, false),
            ("db.example.org", &["db.example.org", "10.0.0.0/8"], private, true),
            ("db.example.org", &["db.example.org", "10.1.2.3"], private, true),
            ("db.example.org", &["db.example.org", "10.0.0.0/8"], metadata, false),
            ("db", &["db"], private, true),
            ("db.prod.svc.cluster.local", &["*.local"], private, true),
            ("10.1.2.3", &["10.1.2.3"], private, true),
            ("db.example.org", &["db.example.org"], "93.184.216.34".parse().unwrap(), true),
        ] {
            let judged = grants(permitted).judge(host, address);
            assert_eq!(judged.is_ok(), expected, "{host} {permitted:?} {address}");
        }
    }

    #[tokio::test]
    async fn what_is_not_granted_is_refused_before_it_is_resolved() {
        let error = grants(&[]).connect("db.example.org", 5432, Duration::from_secs(1)).await;
        assert!(error.unwrap_err().to_string().contains("allowed_hosts"));
        let error = grants(&["a.example.org:1"]).connect("a.example.org", 2, Duration::MAX).await;
        assert!(matches!(error, Err(ConnectorError::Unsupported { .. })), "{error:?}");
    }

    #[test]
    fn a_file_elsewhere_or_too_large_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        std::fs::write(&file, b"12345").unwrap();
        let path = file.to_str().unwrap();
        assert!(Grants::default().read_file(path, 10).is_err());
        let granted = Grants { paths: vec![dir.path().to_owned()], ..Grants::default() };
        assert_eq!(granted.read_file(path, 5).unwrap(), b"12345");
        assert!(granted.read_file(path, 4).is_err());
        assert!(granted.read_file("/etc/passwd", 1 << 20).is_err());
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        assert!(granted.read_file(dir.path().join("link").to_str().unwrap(), 1 << 20).is_err());
    }
}
