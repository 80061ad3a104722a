//! mc, rclone, aws-cli and s3fs against the S3-compatible port, each over HTTP and over HTTPS: `xtask/clients/s3/*.sh`.

use std::path::PathBuf;
use std::process::Command;

use super::s3::{Serve, Tls, over_both};
use super::server::limited;
use super::{Outcome, Stage, fetch, skip};

/// Maximum time that a script may take, in seconds.
const LIMIT_S: u32 = 240;
/// MinIO's client, in a version that the module proxy keeps.
const MC: &str = "github.com/minio/mc@v0.0.0-20250313080218-cf909e1063a9";

pub(super) fn mc(stage: &Stage) -> anyhow::Result<Outcome> {
    let program = install_mc(stage)?;
    both(stage, "mc", |script| {
        script.env("MC", &program);
    })
}

pub(super) fn rclone(stage: &Stage) -> anyhow::Result<Outcome> {
    of_packages(stage, "rclone")
}

pub(super) fn awscli(stage: &Stage) -> anyhow::Result<Outcome> {
    of_packages(stage, "awscli")
}

/// Runs the script of a client that is a package for Python.
fn of_packages(stage: &Stage, name: &str) -> anyhow::Result<Outcome> {
    let list = skip::path("s3").join(format!("{name}.requirements"));
    let path = fetch::path_of(&fetch::python(stage, &format!("python-{name}"), &list)?);
    both(stage, name, |script| {
        script.env("PATH", &path);
    })
}

pub(super) fn s3fs(stage: &Stage) -> anyhow::Result<Outcome> {
    fetch::need("s3fs")?;
    both(stage, "s3fs", |_| {})
}

/// Runs a script against a server over HTTP, and against one over HTTPS.
fn both(stage: &Stage, name: &str, change: impl Fn(&mut Command)) -> anyhow::Result<Outcome> {
    fetch::need("curl")?;
    let mut outcome = Outcome::default();
    over_both(stage, name, |part, tls| {
        let ended = run(stage, name, part, tls, &change)?;
        outcome.add(part, ended);
        Ok(())
    })?;
    Ok(outcome)
}

fn run(
    stage: &Stage,
    name: &str,
    part: &str,
    tls: Option<Tls<'_>>,
    change: &impl Fn(&mut Command),
) -> anyhow::Result<Outcome> {
    let dir = stage.output.join(name).join(part);
    let server = Serve::start(&stage.binary, &dir, tls, &[])?;
    let mut script = Command::new("bash");
    script.arg(skip::path("s3").join(format!("{name}.sh"))).current_dir(&dir);
    script.env("ENDPOINT", &server.url);
    server.introduce(&mut script, tls);
    change(&mut script);
    let (ended_well, said) = limited(&script, LIMIT_S)?;
    std::fs::write(dir.join("script.log"), &said)?;
    Ok(Outcome::of_lines(&said, ended_well))
}

/// Builds mc once; returns where it is.
fn install_mc(stage: &Stage) -> anyhow::Result<PathBuf> {
    fetch::need("go")?;
    let version = MC.rsplit('@').next().unwrap_or_default();
    let dir = fetch::once(&stage.dir.join(format!("mc-{version}")), |dir| {
        let mut go = Command::new("go");
        go.args(["install", MC]).env("GOBIN", dir).env("GOFLAGS", "");
        fetch::step(&mut go, "cannot build mc")
    })?;
    Ok(dir.join("mc"))
}
