//! schemathesis: requests made from the API description of a real `forebay serve`, right and wrong ones.
//!
//! `xtask/clients/schemathesis/check.py` runs it with the same requests every time, and says which of its checks are left out.

use std::process::Command;

use super::openapi::Serve;
use super::server::limited;
use super::{Outcome, Stage, fetch, skip};

/// Maximum time that the program may take, in seconds.
const LIMIT_S: u32 = 240;

pub(super) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let list = skip::path("schemathesis").join("requirements.txt");
    let python = fetch::python(stage, "python-schemathesis", &list)?;
    let dir = stage.output.join("schemathesis");
    let server = Serve::start(&stage.binary, &dir)?;
    let mut check = Command::new(&python);
    check.arg(skip::path("schemathesis").join("check.py")).arg(&server.url).arg(&dir);
    let (ended_well, said) = limited(&check, LIMIT_S)?;
    std::fs::write(dir.join("check.log"), &said)?;
    Ok(Outcome::of_lines(&said, ended_well))
}
