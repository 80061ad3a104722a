//! The data directory belongs to one user: its permissions and its content.
//!
//! Files are created with mode 0600 and directories with 0700 regardless of the caller's umask,
//! because the process sets its own first. An existing directory that other users may enter is
//! restricted if it is Forebay's, and refused if it contains something else: `--data /tmp` must not
//! close `/tmp`.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use anyhow::Context as _;

use crate::exit::{Coded, Exit};

/// Directory of installed components.
pub(crate) const CONNECTORS: &str = "connectors";
/// Possible contents of a data directory.
pub(crate) const OURS: [&str; 12] = [
    "intake",
    "jobs",
    "webhooks",
    "events",
    "cache",
    "inventories",
    "pipelines",
    "pipelines.sqlite",
    CONNECTORS,
    "keys.toml",
    "keys.made",
    "master.key",
];

/// Makes everything this process creates from now on private to its user.
pub(crate) fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// Creates the data directory if it does not exist, and ensures that no other user can enter it.
///
/// # Errors
/// It cannot be created, or other users may enter it and it is not Forebay's (exit code 3).
pub(crate) fn prepare(data: &Path) -> anyhow::Result<()> {
    keep_private();
    make(data)
}

/// Creates a private file in the data directory, for commands whose other files belong to the user.
///
/// # Errors
/// It cannot be created.
pub(crate) fn private_file(path: &Path) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let made = options.append(true).create(true).mode(0o600).open(path);
    made.map(drop).with_context(|| format!("cannot create {}", path.display()))
}

/// Like [`prepare`], for commands whose other files belong to the user: the umask is unchanged.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn make(data: &Path) -> anyhow::Result<()> {
    let failed = |act: &str| format!("cannot {act} the data directory {}", data.display());
    let prepared = || {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data)
            .with_context(|| failed("make"))?;
        let found = std::fs::metadata(data).with_context(|| failed("inspect"))?;
        narrow(data, &found)
    };
    prepared().map_err(|error| Coded::wrap(Exit::Start, "cannot use the data directory", error))
}

fn narrow(data: &Path, found: &std::fs::Metadata) -> anyhow::Result<()> {
    let mode = found.mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let path = data.display();
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user || mode & 0o1000 != 0 || !is_ours(data)? {
        anyhow::bail!(
            "{path} can be entered by other users (mode {mode:04o}) and is not a data directory of \
             this user; choose another --data, or make it private: chmod 700 {path}"
        );
    }
    std::fs::set_permissions(data, Permissions::from_mode(mode & 0o700))
        .with_context(|| format!("cannot make {path} private; run: chmod 700 {path}"))?;
    tracing::warn!(
        data = ?data.display().to_string(),
        mode = format!("{mode:04o}"),
        "other users could enter the data directory; its mode has been changed to 0700"
    );
    Ok(())
}

/// Returns whether a directory is empty or has the contents of a data directory.
fn is_ours(data: &Path) -> anyhow::Result<bool> {
    let entries = std::fs::read_dir(data)
        .with_context(|| format!("cannot list {}", data.display()))?
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("cannot list {}", data.display()))?;
    Ok(entries.is_empty()
        || entries.iter().any(|entry| OURS.iter().any(|name| entry.file_name() == *name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_new_directory_is_private_and_an_open_one_of_ours_becomes_so() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/b");
        prepare(&new).unwrap();
        assert_eq!(mode(&new), 0o700);
        // One that only `forebay pipeline run` has used has a single file.
        let runs = crate::pipelines::state_file(Path::new(""));
        for name in [Path::new("intake"), &runs] {
            let wide = dir.path().join("wide").join(name);
            std::fs::create_dir_all(wide.join(name)).unwrap();
            std::fs::set_permissions(&wide, Permissions::from_mode(0o755)).unwrap();
            prepare(&wide).unwrap();
            assert_eq!(mode(&wide), 0o700, "{}", name.display());
        }
    }

    #[test]
    fn a_directory_that_holds_something_else_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("home");
        std::fs::create_dir_all(other.join("Documents")).unwrap();
        std::fs::set_permissions(&other, Permissions::from_mode(0o755)).unwrap();
        let error = prepare(&other).unwrap_err();
        assert!(format!("{error:#}").contains("chmod 700"), "{error:#}");
        assert_eq!(mode(&other), 0o755);
        let sticky = dir.path().join("tmp");
        std::fs::create_dir(&sticky).unwrap();
        std::fs::set_permissions(&sticky, Permissions::from_mode(0o1777)).unwrap();
        assert!(prepare(&sticky).is_err());
    }
}
