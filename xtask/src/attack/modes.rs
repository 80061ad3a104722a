//! File permissions of the data directory.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::server::{Server, Setup};
use super::stage::Stage;
use super::{Check, claim};

pub(super) const CHECKS: [Check; 1] =
    [Check::quick("modes", "with umask 000 no other user can read or list anything", modes)];

/// How long a build or a run may take.
const DONE_LIMIT: Duration = Duration::from_secs(30);

fn modes(stage: &Stage) -> anyhow::Result<String> {
    let data = stage.dir.join("data");
    let setup = Setup { data: data.clone(), before: "umask 000", ..Setup::default() };
    let server = stage.start(&setup)?;
    use_every_engine(stage, &server, &data)?;
    check(&data)?;
    server.stop(stage)?;
    let count = check(&data)?;
    // Files that a start removes and creates again.
    let server = stage.start(&setup)?;
    server.want("GET", "/v1/files", b"", &[200])?;
    server.kill(stage)?;
    check(&data)?;
    Ok(format!("{count} files and directories"))
}

fn use_every_engine(stage: &Stage, server: &Server, data: &Path) -> anyhow::Result<()> {
    let mut make = Command::new("sh");
    make.arg("-c").arg("umask 000 && exec \"$0\" key new --name a --scope write --data \"$1\"");
    make.arg(&stage.binary).arg(stage.dir.join("with-key"));
    claim(crate::command::works(&mut make), || "cannot create a key".to_owned())?;
    check(&stage.dir.join("with-key"))?;
    server.want("PUT", "/v1/files/attack/small", b"small", &[200, 201])?;
    server.want("PUT", "/v1/files/attack/large", &vec![7; 300 << 10], &[200, 201])?;
    server.want("POST", "/v1/documents/attack", br#"{"a":1}"#, &[200, 201])?;
    server.want("POST", "/v1/events?stream=attack", b"{\"a\":1}\n", &[200])?;
    let built = br#"{"from":"forebay:blobs"}"#;
    server.want("POST", "/v1/inventories/attack", built, &[200, 202])?;
    let mut cache = server.resp()?;
    cache.want(&["SET", "a", "1"], "OK")?;
    cache.want(&["SAVE"], "OK")?;
    let begun = Instant::now();
    loop {
        let status = server.want("GET", "/v1/inventories/attack/build", b"", &[200])?.json()?;
        match status["state"].as_str() {
            Some("running") if begun.elapsed() < DONE_LIMIT => {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            Some("built") => break,
            _ => bail!("an inventory was not built: {status}"),
        }
    }
    pipeline(stage, server, data, begun)
}

/// Has a pipeline run, whose state is kept in the data directory.
fn pipeline(stage: &Stage, server: &Server, data: &Path, begun: Instant) -> anyhow::Result<()> {
    let (from, into) = (stage.dir.join("from"), stage.dir.join("into"));
    std::fs::create_dir(&from).context("cannot create a source")?;
    std::fs::write(from.join("a.csv"), "a\n1\n").context("cannot write a source")?;
    let dir = data.join("pipelines");
    if !dir.exists() {
        std::fs::create_dir(&dir).context("cannot create the pipelines' directory")?;
        own(&dir, 0o700)?;
    }
    let file = format!(
        "version: 1\npipeline: attack\nsource: {{use: csv, config: {{path: {from:?}}}, streams: \
         [{{name: a.csv, into: a}}]}}\ndestination: {{use: ndjson, config: {{path: {into:?}}}}}\n"
    );
    std::fs::write(dir.join("attack.yaml"), file).context("cannot write a pipeline")?;
    own(&dir.join("attack.yaml"), 0o600)?;
    let started =
        server.want("POST", "/v1/pipelines/attack/runs", b"", &[200, 201, 202])?.json()?;
    let run = started["run"].as_str().or(started["id"].as_str());
    let run = run.with_context(|| format!("a run has no id: {started}"))?.to_owned();
    loop {
        let path = format!("/v1/pipelines/attack/runs/{run}");
        let state = server.want("GET", &path, b"", &[200])?.json()?;
        let is_running = matches!(state["state"].as_str(), Some("running" | "waiting"));
        if !is_running {
            return Ok(());
        }
        claim(begun.elapsed() < DONE_LIMIT, || format!("a run does not finish: {state}"))?;
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

fn own(path: &Path, mode: u32) -> anyhow::Result<()> {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode)
        .with_context(|| format!("cannot set the permissions of {}", path.display()))
}

/// That a tree is the owner's alone; returns how much there is.
fn check(root: &Path) -> anyhow::Result<usize> {
    let (mut count, mut wrong, mut left) = (0, Vec::new(), vec![root.to_owned()]);
    while let Some(path) = left.pop() {
        let metadata = std::fs::symlink_metadata(&path);
        // A running server makes and removes files.
        let Ok(metadata) = metadata else { continue };
        count += 1;
        let mode = metadata.permissions().mode() & 0o7777;
        let wanted = if metadata.is_dir() { 0o700 } else { 0o600 };
        if mode != wanted {
            wrong.push(format!("{} has {mode:04o}", path.display()));
        }
        if metadata.is_dir() {
            let entries = std::fs::read_dir(&path);
            let entries = entries.with_context(|| format!("cannot read {}", path.display()))?;
            left.extend(
                entries.flatten().map(|entry: std::fs::DirEntry| -> PathBuf { entry.path() }),
            );
        }
    }
    claim(wrong.is_empty(), || format!("{} are accessible: {}", wrong.len(), wrong.join(", ")))?;
    Ok(count)
}
