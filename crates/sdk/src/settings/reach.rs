//! The servers and files that the settings of a connector name.

use std::path::PathBuf;

use super::Text;

/// What the settings of a connector refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// Servers: names or addresses, and ports if they are known.
    pub hosts: Vec<(String, Option<u16>)>,
    /// Directories and files.
    pub paths: Vec<PathBuf>,
}

impl Reach {
    /// A server.
    #[must_use]
    pub fn host(name: &str, port: Option<u16>) -> Self {
        let mut reach = Self::default();
        reach.add_host(name, port);
        reach
    }

    /// A directory or file.
    #[must_use]
    pub fn path(path: &str) -> Self {
        Self { hosts: Vec::new(), paths: vec![path.into()] }
    }

    /// Adds a server. A name that starts with `/` is the directory of its socket.
    pub fn add_host(&mut self, name: &str, port: Option<u16>) {
        if name.starts_with('/') {
            self.paths.push(name.into());
        } else {
            let name = name.trim_start_matches('[').trim_end_matches(']');
            self.hosts.push((name.to_owned(), port));
        }
    }

    /// Adds a file, if there is one.
    #[must_use]
    pub fn and_file(mut self, file: Option<&Text>) -> Self {
        self.paths.extend(file.map(|file| PathBuf::from(&file.0)));
        self
    }
}

/// Whether an entry of `permissions.network.allowed_hosts` covers a host.
///
/// * `permitted`: a name or an address, or `*.example.org`, with `:PORT` or without.
#[must_use]
pub fn permits_host(permitted: &str, host: &str, port: Option<u16>) -> bool {
    let (name, only) = match permitted.rsplit_once(':') {
        // An IPv6 address without brackets has colons and no port.
        Some((name, number)) if !name.contains(':') || name.ends_with(']') => {
            match number.parse::<u16>() {
                Ok(number) => (name, Some(number)),
                Err(_) => (permitted, None),
            }
        }
        _ => (permitted, None),
    };
    if only.is_some() && only != port {
        return false;
    }
    let name = name.trim_start_matches('[').trim_end_matches(']');
    match name.strip_prefix('*') {
        Some("") => true,
        Some(below) if below.starts_with('.') => {
            let start = host.len().checked_sub(below.len());
            start.is_some_and(|start| {
                start > 0 && host.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(below))
            })
        }
        _ => name.eq_ignore_ascii_case(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_permitted_by_name_by_what_they_are_below_and_by_port() {
        for (permitted, host, port, expected) in [
            ("db.example.org", "DB.example.org", Some(5432), true),
            ("db.example.org:5432", "db.example.org", Some(5432), true),
            ("db.example.org:5433", "db.example.org", Some(5432), false),
            ("db.example.org:5433", "db.example.org", None, false),
            ("*.example.org", "a.b.example.org", None, true),
            ("*.example.org", "example.org", None, false),
            ("*.example.org", ".example.org", None, false),
            ("*.example.org", "badexample.org", None, false),
            ("*", "anything", Some(1), true),
            ("*:443", "anything", Some(80), false),
            ("::1", "::1", Some(5432), true),
            ("[::1]:5432", "::1", Some(5432), true),
            ("[::1]:5432", "::1", Some(1), false),
            ("example.org", "db.example.org", None, false),
            ("", "x", None, false),
        ] {
            assert_eq!(
                permits_host(permitted, host, port),
                expected,
                "{permitted} {host} {port:?}"
            );
        }
    }
}
