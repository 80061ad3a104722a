//! Where files may be, checked when they are opened.
//!
//! Paths in settings are compared with the permissions when they are read. Links in a permitted
//! directory, or created there later, are only met when a file is opened.
//!
//! Invariant: a file is checked after it was opened, by the path that the system reports for it
//! then, so changing a link meanwhile has no effect.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories and files that may be used. The default permits all.
#[derive(Debug, Clone, Default)]
pub struct Within(Option<Arc<[PathBuf]>>);

impl Within {
    /// Permits only these and what is below them.
    #[must_use]
    pub fn new(permitted: &[PathBuf]) -> Self {
        Self(Some(permitted.into()))
    }

    /// Whether anything is restricted.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.0.is_some()
    }

    /// Opens a file for reading if that is permitted.
    ///
    /// # Errors
    /// It cannot be opened, or is elsewhere.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        let Some(permitted) = &self.0 else { return File::open(path) };
        // Opening a pipe without a writer would block.
        let at_once = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(at_once).open(path)?;
        let found = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if has(permitted, &found) { Ok(file) } else { Err(outside()) }
    }

    /// Checks whether an existing directory may be used.
    ///
    /// # Errors
    /// It cannot be found, or is elsewhere.
    pub fn check(&self, path: &Path) -> io::Result<()> {
        let Some(permitted) = &self.0 else { return Ok(()) };
        if has(permitted, &path.canonicalize()?) { Ok(()) } else { Err(outside()) }
    }
}

fn has(permitted: &[PathBuf], found: &Path) -> bool {
    // A permitted path may itself contain a link.
    let mut roots = permitted.iter().filter_map(|root| root.canonicalize().ok());
    roots.any(|root| found.starts_with(root))
}

fn outside() -> io::Error {
    let text = "a link leads outside the paths that `permissions.fs.allowed_preopens` permits";
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}
