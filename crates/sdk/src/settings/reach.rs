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
