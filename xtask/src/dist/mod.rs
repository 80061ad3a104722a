//! `cargo xtask dist`: makes the files that users install.
//!
//! ```text
//! target/dist/forebay-VERSION-TARGET/          everything, as it is installed below a prefix
//! target/dist/forebay-VERSION-TARGET.tar.gz    the same as an archive
//! target/dist/forebay_VERSION-1_ARCH.deb       the Debian package, by cargo-deb
//! target/dist/SHA256SUMS                       the checksums of the archive and the package
//! ```
//!
//! The binary is built with the profile `dist` and every feature that is shipped; `stage` puts it and what belongs
//! to it into the directory, `archive` and `deb` pack that directory, `sums` lists what was made.
//!
//! Invariants:
//! - The same commit, compiler and options give the same archive: its names are sorted, its owner is
//!   0, and its times are `SOURCE_DATE_EPOCH` or else the time of the last commit.
//! - A binary that is too large, lacks a feature or starts other servers for benchmarks is not packaged.
//! - `SHA256SUMS` lists what this run made, not what an earlier one left.

mod archive;
mod deb;
mod guide;
mod names;
mod roff;
mod stage;
mod sums;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::command::{FEATURES, cargo, output, platform, root, run as run_command, say};

/// Maximum size of the stripped binary, in bytes. It is what a machine downloads and a container
/// image holds, so a dependency that makes it larger is a decision, not an accident.
const BINARY_SIZE_MAX: u64 = 90_000_000;
/// The platform whose linker (LLD, the default of rustc there) stores equal functions once.
const FOLDING_PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// The profile of Cargo that is shipped.
const PROFILE: &str = "dist";
/// The feature that means every feature that is shipped, in the package `forebay`.
const EVERYTHING: &str = "full";
/// The feature that starts other servers and tools in benchmarks, which is not shipped.
const NOT_SHIPPED: &str = "peers";

/// Arguments of the task.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Directory for the files [default: dist in Cargo's target directory].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Make no Debian package.
    #[arg(long)]
    no_deb: bool,
    /// Package this binary instead of building one. It must be what this task would build.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// What is released, and where it is made.
#[derive(Debug)]
struct Release {
    /// The version in Cargo.toml.
    version: String,
    /// The platform it runs on, such as `x86_64-unknown-linux-gnu`.
    platform: String,
    /// The features that the binary must have.
    features: Vec<String>,
    /// The time of every file, in seconds since 1970.
    epoch: i64,
    /// Where Cargo puts the binary.
    built: PathBuf,
    /// Where the files are made.
    out: PathBuf,
}

/// The task.
///
/// # Errors
/// A step failed, or the binary is too large or lacks a feature. Files of finished steps stay.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let release = Release::read(args)?;
    std::fs::create_dir_all(&release.out)
        .with_context(|| format!("cannot create {}", release.out.display()))?;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => {
            build(&release)?;
            release.built.join("forebay")
        }
    };
    let size = file_size(&binary)?;
    check_size(size)?;
    check_report(&release, &output(Command::new(&binary).args(["version", "--json"]))?)?;
    let staged = stage::fill(&release, &binary)?;
    let mut made = vec![archive::make(&release)?];
    if !args.no_deb {
        made.push(deb::make(&release, &staged)?);
    }
    let sums = sums::write(&release.out, &made)?;
    say(format_args!("{:>10}  {}", megabytes(size), staged.join("bin/forebay").display()));
    for file in &made {
        say(format_args!("{:>10}  {}", megabytes(file_size(file)?), file.display()));
    }
    say(format_args!("dist: done; check the files with: sha256sum -c {}", sums.display()));
    Ok(())
}

impl Release {
    fn read(args: &Args) -> anyhow::Result<Self> {
        let metadata = cargo_metadata::MetadataCommand::new()
            .current_dir(root())
            .no_deps()
            .exec()
            .context("cargo metadata failed")?;
        let mut packages = metadata.packages.iter();
        let package = packages.find(|package| package.name.as_str() == "forebay");
        let package = package.context("the workspace has no package forebay")?;
        let features = package
            .features
            .get(EVERYTHING)
            .with_context(|| format!("crates/forebay/Cargo.toml has no feature {EVERYTHING}"))?;
        let built = metadata.target_directory.join(PROFILE).into_std_path_buf();
        let out = match &args.out {
            Some(dir) => std::path::absolute(dir)
                .with_context(|| format!("cannot use the directory {}", dir.display()))?,
            None => built.clone(),
        };
        Ok(Self {
            version: package.version.to_string(),
            platform: platform()?,
            features: features.clone(),
            epoch: epoch()?,
            built,
            out,
        })
    }

    /// The name of the directory and of the archive.
    fn stem(&self) -> String {
        names::stem(&self.version, &self.platform)
    }
}

/// Builds the binary.
fn build(release: &Release) -> anyhow::Result<()> {
    say("dist: building with link-time optimisation; this takes many minutes");
    let mut build = cargo();
    build.args(["rustc", "--profile", PROFILE, "-p", "forebay", "--bin", "forebay"]);
    build.args(["--features", FEATURES, "--locked", "--"]);
    // Cargo drops the profile's `strip` for a package with an optimisation level of its own.
    build.args(["-C", "strip=symbols"]);
    if release.platform == FOLDING_PLATFORM {
        build.args(["-C", "link-arg=-Wl,--icf=all"]);
    }
    build.env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    // With a target named, Cargo would put the binary elsewhere.
    run_command(build.env_remove("CARGO_BUILD_TARGET"))
}

/// The time that files get: the one requested, else that of the last commit.
fn epoch() -> anyhow::Result<i64> {
    const NAME: &str = "SOURCE_DATE_EPOCH";
    let text = match std::env::var(NAME) {
        Ok(text) => text,
        Err(std::env::VarError::NotPresent) => {
            let mut log = Command::new("git");
            output(log.args(["log", "-1", "--format=%ct"]).current_dir(root())).with_context(
                || format!("cannot determine the time of the last commit; set {NAME} instead"),
            )?
        }
        Err(error) => return Err(error).context(NAME),
    };
    let text = text.trim();
    text.parse().with_context(|| format!("{NAME} is {text:?}, which is not a number of seconds"))
}

/// Refuses a binary that is too large.
fn check_size(size: u64) -> anyhow::Result<()> {
    if size > BINARY_SIZE_MAX {
        bail!(
            "the stripped binary has {size} bytes, more than the {BINARY_SIZE_MAX} permitted; find \
             what made it larger, or change BINARY_SIZE_MAX in xtask/src/dist/mod.rs"
        );
    }
    Ok(())
}

/// Refuses a binary of another version, without optimisation, without a feature, or with the one that
/// is not shipped.
///
/// * `report`: what `forebay version --json` prints.
fn check_report(release: &Release, report: &str) -> anyhow::Result<()> {
    let report: Value =
        serde_json::from_str(report).context("cannot read what `forebay version` prints")?;
    let version = report["version"].as_str().unwrap_or_default();
    ensure!(
        version == release.version,
        "the binary is version {version}, Cargo.toml says {}",
        release.version
    );
    ensure!(report["build"] == "optimised", "the binary is not optimised: {}", report["build"]);
    let has = |feature: &str| {
        report["features"].as_array().is_some_and(|all| all.iter().any(|one| one == feature))
    };
    let mut wanted = release.features.iter().map(String::as_str);
    if let Some(lacking) = wanted.find(|feature| !has(feature)) {
        bail!("the binary was built without the feature {lacking}; it must have {FEATURES}");
    }
    ensure!(
        !has(NOT_SHIPPED),
        "the binary was built with the feature {NOT_SHIPPED}, which is not shipped"
    );
    Ok(())
}

/// The size of a file in bytes.
fn file_size(file: &Path) -> anyhow::Result<u64> {
    let metadata = std::fs::metadata(file);
    Ok(metadata.with_context(|| format!("cannot read {}", file.display()))?.len())
}

/// A size for people: `41.7 MB`.
fn megabytes(size: u64) -> String {
    format!("{}.{} MB", size / 1_000_000, size / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A release of version 1.2.3 with the features a and b, made in `out`.
    pub(super) fn release(out: &Path) -> Release {
        Release {
            version: "1.2.3".to_owned(),
            platform: "x86_64-unknown-linux-gnu".to_owned(),
            features: vec!["a".to_owned(), "b".to_owned()],
            epoch: 1_795_000_000,
            built: out.to_owned(),
            out: out.to_owned(),
        }
    }

    #[test]
    fn a_binary_of_another_version_or_without_a_feature_is_refused() {
        let release = release(Path::new("out"));
        let report = |version: &str, build: &str, features: &str| {
            let text =
                format!(r#"{{"version":"{version}","build":"{build}","features":{features}}}"#);
            check_report(&release, &text).map_err(|error| error.to_string())
        };
        assert_eq!(report("1.2.3", "optimised", r#"["a","b","c"]"#), Ok(()));
        let error = report("1.2.3", "optimised", r#"["a"]"#).unwrap_err();
        assert!(error.contains("feature b"), "{error}");
        assert!(report("1.2.4", "optimised", r#"["a","b"]"#).unwrap_err().contains("1.2.4"));
        assert!(report("1.2.3", "debug", r#"["a","b"]"#).is_err());
        let error = report("1.2.3", "optimised", r#"["a","b","peers"]"#).unwrap_err();
        assert!(error.contains("not shipped"), "{error}");
        assert!(check_report(&release, "forebay 1.2.3").is_err());
    }

    #[test]
    fn the_largest_permitted_binary_is_packaged_and_one_byte_more_is_not() {
        assert!(check_size(BINARY_SIZE_MAX).is_ok());
        let error = check_size(BINARY_SIZE_MAX + 1).unwrap_err().to_string();
        assert!(error.contains("90000001"), "{error}");
        assert_eq!(megabytes(BINARY_SIZE_MAX), "90.0 MB");
        assert_eq!(megabytes(1_999_999), "1.9 MB");
    }
}
