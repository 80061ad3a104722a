//! The Debian package, by cargo-deb from `[package.metadata.deb]` of `crates/forebay/Cargo.toml`.
//!
//! That table names files below `target/release/package/`. cargo-deb reads `target/release` as the
//! directory of the profile, and `package` in it is a link to the staged directory, whose own name
//! has the version.
//!
//! What the policy of Debian wants compressed (manual pages, changelogs) lies in `debian` in the
//! profile's directory: cargo-deb compresses only files that were not built.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::{PROFILE, Release, names, stage};
use crate::command::{root, run};
use crate::setup;

/// The version of cargo-deb; the first that makes the system user of a package.
const VERSION: &str = "3.8.0";
/// As in the manifest.
const MAINTAINER: &str = "Forebay maintainers <maintainers@forebay.invalid>";
/// The link that the manifest names.
const LINK: &str = "package";
/// The directory of compressed files that the manifest names.
const COMPRESSED: &str = "debian";

/// Makes the package from the staged directory; returns its path.
///
/// # Errors
/// cargo-deb cannot be installed, or failed.
pub(super) fn make(release: &Release, staged: &Path) -> anyhow::Result<PathBuf> {
    let package = release.out.join(names::deb(&release.version, &release.platform)?);
    std::fs::create_dir_all(&release.built)
        .with_context(|| format!("cannot create {}", release.built.display()))?;
    link(staged, &release.built.join(LINK))?;
    compress(release, staged, &release.built.join(COMPRESSED))?;
    let mut deb = cargo_deb()?;
    deb.args(["--no-build", "--locked", "--profile", PROFILE, "-p", "forebay", "--output"]);
    deb.arg(&package).current_dir(root()).env_remove("CARGO_BUILD_TARGET");
    run(deb.env("SOURCE_DATE_EPOCH", release.epoch.to_string()))?;
    Ok(package)
}

/// Fills `to` with the manual pages and changelogs, compressed.
fn compress(release: &Release, staged: &Path, to: &Path) -> anyhow::Result<()> {
    if let Err(error) = std::fs::remove_dir_all(to)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot remove {}", to.display()));
    }
    for section in ["man1", "man7"] {
        stage::copy_files(&staged.join("share/man").join(section), &to.join(section))?;
    }
    stage::write(&to.join("changelog.Debian"), &changelog(&release.version, release.epoch)?)?;
    stage::copy(&staged.join("CHANGELOG.md"), &to.join("changelog"))?;
    // Without name and time, so that the same content gives the same bytes.
    let mut gzip = Command::new("gzip");
    gzip.args(["-9", "-n", "-r", "-f"]).arg(to).env_remove("GZIP");
    run(&mut gzip).context("cannot compress the manual pages; it needs gzip")
}

/// The changelog of the package, as deb-changelog(5) describes it: one entry that names the other.
fn changelog(version: &str, epoch: i64) -> anyhow::Result<String> {
    let time = jiff::Timestamp::from_second(epoch)
        .with_context(|| format!("{epoch} seconds since 1970 is no time"))?;
    let date = jiff::fmt::rfc2822::to_string(&time.to_zoned(jiff::tz::TimeZone::UTC))?;
    Ok(format!(
        "forebay ({version}-1) unstable; urgency=medium\n\n  \
         * Version {version}. Its changes are in /usr/share/doc/forebay/changelog.gz.\n\n \
         -- {MAINTAINER}  {date}\n"
    ))
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
    fn the_changelog_has_the_form_that_debian_reads() {
        let text = changelog("1.2.3", 1_795_000_000).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "forebay (1.2.3-1) unstable; urgency=medium");
        assert!(lines[2].starts_with("  * Version 1.2.3."));
        assert_eq!(lines[4], format!(" -- {MAINTAINER}  Wed, 18 Nov 2026 11:06:40 +0000"));
        let manifest = std::fs::read_to_string(root().join("crates/forebay/Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("maintainer = \"{MAINTAINER}\"")));
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
