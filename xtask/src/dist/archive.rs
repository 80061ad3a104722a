//! The archive: the staged directory as `.tar.gz`, the same bytes for the same content.
//!
//! It is packed by GNU tar and gzip, with everything fixed that depends on the machine: the order of
//! names, owners, times, permission bits beyond "executable", and the head of gzip.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::Release;
use crate::command::run;

/// Packs the staged directory; returns the archive's path.
///
/// # Errors
/// `tar` or `gzip` is not installed, or failed.
pub(super) fn make(release: &Release) -> anyhow::Result<PathBuf> {
    let stem = release.stem();
    let archive = release.out.join(format!("{stem}.tar.gz"));
    run(&mut tar(&release.out, &stem, &archive, release.epoch))
        .context("cannot pack the archive; it needs GNU tar and gzip")?;
    Ok(archive)
}

/// The command that packs `parent`/`name` into `archive`.
fn tar(parent: &Path, name: &str, archive: &Path, epoch: i64) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=ustar", "--sort=name"])
        .arg(format!("--mtime=@{epoch}"))
        .args(["--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"])
        // Without its name and time in the head.
        .args(["--use-compress-program", "gzip -n -9"])
        .arg("--file")
        .arg(archive)
        .arg("--directory")
        .arg(parent)
        .arg(name);
    // Options that a user has set for other archives, and a language for sorting.
    tar.env_remove("TAR_OPTIONS").env_remove("GZIP").env("LC_ALL", "C");
    tar
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::command::output;

    /// Makes a directory with the same content, whose files differ in order, time and mode.
    fn tree(parent: &Path, names: &[&str], mode: u32) {
        for (at, name) in names.iter().enumerate() {
            let path = parent.join("forebay").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, name.as_bytes()).unwrap();
            let file = File::options().append(true).open(&path).unwrap();
            let time = Duration::from_secs(1_000_000 * (1 + at as u64));
            file.set_modified(SystemTime::UNIX_EPOCH + time).unwrap();
            let mode = if name.starts_with("bin/") { mode | 0o100 } else { mode };
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
    }

    #[test]
    fn the_same_content_gives_the_same_archive_with_sorted_names() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        tree(one.path(), &["bin/forebay", "LICENSE", "docs/b.md", "docs/a.md"], 0o600);
        tree(two.path(), &["docs/a.md", "docs/b.md", "LICENSE", "bin/forebay"], 0o664);
        let archives = [one.path(), two.path()].map(|dir| {
            let archive = dir.join("x.tar.gz");
            run(&mut tar(dir, "forebay", &archive, 1_795_000_000)).unwrap();
            archive
        });
        let bytes = archives.each_ref().map(|archive| std::fs::read(archive).unwrap());
        assert!(bytes[0] == bytes[1], "the archives differ");
        let mut list = Command::new("tar");
        list.args(["--list", "--verbose", "--numeric-owner", "--utc", "--file"]).arg(&archives[0]);
        let list = output(&mut list).unwrap();
        let names: Vec<&str> = list.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        let wanted = ["", "LICENSE", "bin/", "bin/forebay", "docs/", "docs/a.md", "docs/b.md"];
        assert_eq!(names, wanted.map(|name| format!("forebay/{name}")));
        let binary = list.lines().find(|line| line.ends_with("bin/forebay")).unwrap();
        assert!(binary.starts_with("-rwxr-xr-x 0/0 "), "{binary}");
        assert!(list.lines().all(|line| line.contains(" 2026-11-18 ")), "{list}");
    }
}
