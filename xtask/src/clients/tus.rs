//! Clients of resumable uploads, tus-js-client and tuspy, tested by scripts that also kill the server.
//!
//! Each script starts `forebay serve` itself: `xtask/clients/tus/check.js` and `check.py`. It runs over HTTP and over HTTPS.

use std::process::Command;

use anyhow::Context as _;

use super::s3::over_both;
use super::server::limited;
use super::{Outcome, Stage, fetch, skip};

/// Maximum time that a script may take, in seconds.
const LIMIT_S: u32 = 180;

pub(super) fn js(stage: &Stage) -> anyhow::Result<Outcome> {
    fetch::need("node")?;
    fetch::need("npm")?;
    // The lock file pins it and its dependencies, each with its hash.
    let modules = fetch::once(&stage.dir.join("tus-js-client-4.3.1"), |into| {
        for name in ["package.json", "package-lock.json"] {
            let from = skip::path("tus").join(name);
            std::fs::copy(&from, into.join(name))
                .with_context(|| format!("cannot copy {}", from.display()))?;
        }
        let mut npm = Command::new("npm");
        npm.current_dir(into).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        fetch::step(&mut npm, "cannot download tus-js-client")
    })?;
    check(stage, "tus-js-client", || {
        let mut script = Command::new("node");
        script.arg(skip::path("tus").join("check.js"));
        script.env("NODE_PATH", modules.join("node_modules"));
        script
    })
}

pub(super) fn python(stage: &Stage) -> anyhow::Result<Outcome> {
    let python = fetch::python(stage, "python-tus", &skip::path("tus").join("requirements.txt"))?;
    check(stage, "tuspy", || {
        let mut script = Command::new(&python);
        script.arg(skip::path("tus").join("check.py"));
        script
    })
}

/// Runs a script with a server over HTTP, and with one over HTTPS.
///
/// * `script`: makes the command.
fn check(stage: &Stage, name: &str, script: impl Fn() -> Command) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    over_both(stage, name, |part, tls| {
        let dir = stage.output.join(name).join(part);
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let mut script = script();
        script.arg(&stage.binary).arg(&dir);
        if let Some((cert, key)) = tls {
            script.arg(cert).arg(key).env("NODE_EXTRA_CA_CERTS", cert);
            script.env("REQUESTS_CA_BUNDLE", cert).env("SSL_CERT_FILE", cert);
        }
        let (ended_well, said) = limited(&script, LIMIT_S)?;
        std::fs::write(dir.join("check.log"), &said)?;
        outcome.add(part, Outcome::of_lines(&said, ended_well));
        Ok(())
    })?;
    Ok(outcome)
}
