//! ioredis, tested by a script.

use std::process::Command;

use anyhow::Context as _;

use super::server::{Server, limited};
use super::{Outcome, Stage, fetch, skip};

const LIMIT_S: u32 = 60;

pub(super) fn run(stage: &Stage, server: &Server) -> anyhow::Result<Outcome> {
    fetch::need("node")?;
    fetch::need("npm")?;
    // The lock file pins it and its dependencies, each with its hash.
    let modules = fetch::once(&stage.dir.join("ioredis-5.4.1"), |into| {
        for name in ["package.json", "package-lock.json"] {
            let from = skip::path("ioredis").join(name);
            std::fs::copy(&from, into.join(name))
                .with_context(|| format!("cannot copy {}", from.display()))?;
        }
        let mut npm = Command::new("npm");
        npm.current_dir(into).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        fetch::step(&mut npm, "cannot download ioredis")
    })?;
    let mut script = Command::new("node");
    script.arg(skip::path("ioredis").join("check.js")).arg(server.resp.to_string());
    script.env("NODE_PATH", modules.join("node_modules"));
    let (ended_well, said) = limited(&script, LIMIT_S)?;
    std::fs::write(stage.output.join("ioredis.log"), &said)?;
    Ok(Outcome::of_lines(&said, ended_well))
}
