//! Checks the addresses to listen on before anything is created: an address in use is reported with
//! the setting that names it, the process that uses it if that can be determined, and the remedies.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;

use crate::config::Config;
use crate::exit::{Coded, Exit};

/// A setting and its address.
type Binding = (&'static str, SocketAddr);

/// Returns the addresses of the HTTP server and, if they are enabled, of the S3 port and the cache.
pub(crate) fn of_server(config: &Config) -> Vec<Binding> {
    let mut asked = vec![("server.listen", config.server.listen)];
    asked.extend(config.s3.listen.map(|address| ("s3.listen", address)));
    if config.cache.enabled {
        asked.extend(of_cache(config));
    }
    asked
}

/// Returns the addresses of the cache.
pub(crate) fn of_cache(config: &Config) -> Vec<Binding> {
    let cache = &config.cache;
    let named = [
        ("cache.resp", cache.resp),
        ("cache.text", cache.text),
        ("cache.tls_resp", cache.tls_resp),
        ("cache.tls_text", cache.tls_text),
    ];
    named.into_iter().filter_map(|(setting, address)| Some((setting, address?))).collect()
}

/// Checks that every address can be bound now.
///
/// # Errors
/// The first that cannot be bound (exit code 3).
pub(crate) fn check(asked: &[Binding]) -> anyhow::Result<()> {
    let mut seen = HashSet::new();
    for &(setting, address) in asked {
        if address.port() != 0 && !seen.insert(address) {
            let text = format!("{setting} is {address}, which another setting already uses");
            return Err(Coded::error(Exit::Usage, text));
        }
        // Bound and closed again: the listener itself is created once everything else is open.
        if let Err(error) = TcpListener::bind(address) {
            return Err(refused(setting, address, &error));
        }
    }
    Ok(())
}

/// Returns the error for an address that cannot be bound.
///
/// The system's reason is within the text, and not after it: a remedy is the end of its line, to be
/// copied.
pub(crate) fn refused(setting: &str, address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    let why = match error.kind() {
        ErrorKind::AddrInUse => {
            let by = holder(address).map_or_else(String::new, |holder| format!(" by {holder}"));
            format!("{address} is in use{by}")
        }
        ErrorKind::AddrNotAvailable => {
            format!("{} is not an address of this machine", address.ip())
        }
        ErrorKind::PermissionDenied => {
            format!("port {} needs privileges this user does not have", address.port())
        }
        _ => format!("cannot listen on {address}: {error}"),
    };
    let mut text = format!("{setting}: {why}.\nDo one of these:");
    let port = address.port();
    let remedies = if error.kind() == ErrorKind::AddrNotAvailable {
        let local = SocketAddr::from(([127, 0, 0, 1], port));
        let every = SocketAddr::from(([0, 0, 0, 0], port));
        [("only this machine    ", local), ("all its addresses    ", every)]
    } else {
        let other = SocketAddr::new(address.ip(), port.checked_add(10_000).unwrap_or(0));
        [
            ("another port         ", other),
            ("any free port        ", SocketAddr::new(address.ip(), 0)),
        ]
    };
    for (remedy, address) in remedies {
        text.push_str(&format!("\n  {remedy} --set {setting}={address}"));
    }
    if setting.starts_with("cache.") {
        text.push_str(&format!("\n  no such listener      --set {setting}="));
        text.push_str("\n  no cache              --set cache.enabled=false");
    }
    Coded::error(Exit::Start, text)
}

/// Returns the name and id of the process that listens on `address`, if this user may see them.
fn holder(address: SocketAddr) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inodes: HashSet<u64> = tables
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, address))
        .collect();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.filter(|entry| has_socket(&entry.path().join("fd"), &inodes)).find_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
        Some(format!("{name} (process {id})"))
    })
}

fn has_socket(descriptors: &PathBuf, inodes: &HashSet<u64>) -> bool {
    let Ok(entries) = std::fs::read_dir(descriptors) else { return false };
    entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|target| {
        let inode = target.to_str().and_then(|target| target.strip_prefix("socket:["));
        let inode = inode.and_then(|inode| inode.strip_suffix(']')?.parse().ok());
        inode.is_some_and(|inode: u64| inodes.contains(&inode))
    })
}

/// Returns the inodes of the sockets in a table (proc_pid_net(5)) that listen on the port of
/// `address`, at that address or at all.
fn listening(table: &str, address: SocketAddr) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let port = format!("{:04X}", address.port());
    let rows = table.lines().skip(1).filter_map(|row| {
        let columns: Vec<&str> = row.split_ascii_whitespace().collect();
        let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
        let (host, local_port) = local.split_once(':')?;
        let everywhere = host.bytes().all(|digit| digit == b'0');
        let here = match address.ip() {
            IpAddr::V4(ip) => host == format!("{:08X}", u32::from_le_bytes(ip.octets())),
            // Addresses in native byte order are not worth parsing for a message.
            IpAddr::V6(_) => host.len() == 32,
        };
        (*state == LISTEN && local_port == port && (everywhere || here))
            .then(|| inode.parse().ok())
            .flatten()
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_port_is_reported_with_its_setting_its_holder_and_the_remedy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let error = check(&[("cache.resp", address)]).unwrap_err();
        let text = format!("{error:#}");
        for part in [
            "cache.resp",
            "is in use",
            &format!("process {}", std::process::id()),
            "--set cache.resp=127.0.0.1:0",
            "--set cache.enabled=false",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(Coded::exit_of(&error), Exit::Start);
    }

    #[test]
    fn each_remedy_is_the_end_of_its_line_and_fits_the_reason() {
        let address: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let refused = |kind: ErrorKind| {
            format!("{:#}", refused("s3.listen", address, &std::io::Error::from(kind)))
        };
        let used = refused(ErrorKind::AddrInUse);
        assert!(used.ends_with("\n  any free port         --set s3.listen=192.0.2.1:0"), "{used}");
        let absent = refused(ErrorKind::AddrNotAvailable);
        assert!(absent.contains("192.0.2.1 is not an address of this machine."), "{absent}");
        assert!(
            absent.contains("only this machine     --set s3.listen=127.0.0.1:80\n"),
            "{absent}"
        );
    }

    #[test]
    fn one_address_for_two_listeners_is_refused() {
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert!(check(&[("server.listen", free), ("cache.resp", free)]).is_ok());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let twice = listener.local_addr().unwrap();
        drop(listener);
        let error = check(&[("server.listen", twice), ("cache.resp", twice)]).unwrap_err();
        assert!(error.to_string().contains("another setting"), "{error:#}");
    }
}
