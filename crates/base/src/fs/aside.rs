//! Setting a damaged SQLite database aside, so that another can begin in its place.

use std::io;
use std::path::{Path, PathBuf};

/// Renames a SQLite database and the files beside it, on the real file system. What an earlier call put
/// in their place is replaced.
///
/// The database itself is renamed last: until then, a reader finds it as it was.
///
/// # Errors
/// A file cannot be renamed. Calling it again continues.
pub fn set_database_aside(path: &Path, aside: &Path) -> io::Result<()> {
    let beside = |path: &Path, suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    for suffix in ["-shm", "-wal", ""] {
        match std::fs::rename(beside(path, suffix), beside(aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
