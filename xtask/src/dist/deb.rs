//! The Debian package, by cargo-deb from `[package.metadata.deb]` of `crates/forebay/Cargo.toml`.
//!
//! That table names files below `target/release/package/`. cargo-deb reads `target/release` as the
//! directory of the profile, and `package` in it is a link to the staged directory, whose own name
//! has the version.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::{PROFILE, Release, names};
use crate::command::{root, run};
use crate::setup;

/// The version of cargo-deb; the first that makes the system user of a package.
const VERSION: &str = "3.8.0";
/// The link that the manifest names.
const LINK: &str = "package";

/// Makes the package from the staged directory; returns its path.
///
/// # Errors
/// cargo-deb cannot be installed, or failed.
pub(super) fn make(release: &Release, staged: &Path) -> anyhow::Result<PathBuf> {
    let package = release.out.join(names::deb(&release.version, &release.platform)?);
    std::fs::create_dir_all(&release.built)
        .with_context(|| format!("cannot create {}", release.built.display()))?;
    link(staged, &release.built.join(LINK))?;
    let mut deb = cargo_deb()?;
    deb.args(["--no-build", "--locked", "--profile", PROFILE, "-p", "forebay", "--output"]);
    deb.arg(&package).current_dir(root()).env_remove("CARGO_BUILD_TARGET");
    run(deb.env("SOURCE_DATE_EPOCH", release.epoch.to_string()))?;
    Ok(package)
}

/// Makes `at` a link to `staged`, whatever an earlier run has left there.
fn link(staged: &Path, at: &Path) -> anyhow::Result<()> {
    if let Err(error) = std::fs::remove_file(at)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot replace {}", at.display()));
    }
    std::os::unix::fs::symlink(staged, at)
        .with_context(|| format!("cannot make the link {}", at.display()))
}

/// The cargo-deb that is kept with the tools, built now if it is not there.
fn cargo_deb() -> anyhow::Result<Command> {
    let program = setup::tools().join("bin").join("cargo-deb");
    if !is_wanted(&program) {
        setup::install_crate(&["cargo-deb", "--version", VERSION])
            .context("cannot install cargo-deb; to do without it, use --no-deb")?;
    }
    Ok(Command::new(program))
}

/// Whether a program runs and is of the wanted version: another one packs other bytes.
fn is_wanted(program: &Path) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|printed| names_version(&String::from_utf8_lossy(&printed.stdout)))
}

/// Whether `cargo-deb VERSION` was printed.
fn names_version(printed: &str) -> bool {
    printed.split_whitespace().next_back() == Some(VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_wanted_version_is_used() {
        assert!(names_version(&format!("cargo-deb {VERSION}\n")));
        assert!(!names_version("cargo-deb 1.0.0\n") && !names_version(""));
        assert!(!is_wanted(Path::new("/nonexistent/cargo-deb")));
    }

    #[test]
    fn the_link_leads_to_the_directory_of_the_last_run() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join(LINK);
        for version in ["one", "two"] {
            let staged = dir.path().join(version);
            std::fs::create_dir(&staged).unwrap();
            link(&staged, &at).unwrap();
            assert_eq!(std::fs::read_link(&at).unwrap(), staged);
        }
    }
}
