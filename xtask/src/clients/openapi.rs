//! A client generated from the API description of a real `forebay serve`.
//!
//! The description is validated, a Python client is generated from it without a warning, and a
//! program uses that client: `xtask/clients/openapi/check.py`.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use super::server::{limited, not_started};
use super::{Outcome, Stage, fetch, skip};

/// Maximum time that the program may take, in seconds.
const LIMIT_S: u32 = 180;

pub(super) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    // The validator and the generator, in the versions of `requirements.txt`.
    let list = skip::path("openapi").join("requirements.txt");
    let python = fetch::python(stage, "python-openapi", &list)?;
    let dir = stage.output.join("openapi");
    let server = Serve::start(&stage.binary, &dir)?;
    let mut check = Command::new(&python);
    check.arg(skip::path("openapi").join("check.py")).arg(&server.url).arg(&dir);
    let (ended_well, said) = limited(&check, LIMIT_S)?;
    std::fs::write(dir.join("check.log"), &said)?;
    Ok(Outcome::of_lines(&said, ended_well))
}

/// A running `forebay serve`; killed when dropped.
pub(super) struct Serve {
    process: Child,
    pub(super) url: String,
}

impl Serve {
    pub(super) fn start(binary: &Path, dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let log = dir.join("server.log");
        let errors =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = Command::new(binary);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"FOREBAY_") {
                command.env_remove(name);
            }
        }
        let mut process = command
            .args(["serve", "--listen", "127.0.0.1:0", "--set", "cache.enabled=false", "--data"])
            .arg(dir.join("data"))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut line = String::new();
        let read = process.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        read.transpose().context("cannot read the server's output")?;
        let url = line.trim().strip_prefix("listening ").map(str::to_owned);
        match url {
            Some(url) => Ok(Self { process, url }),
            None => Err(not_started(&mut process, &line, &log)),
        }
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // Nothing can be done about a server that has already exited.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
