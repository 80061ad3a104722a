//! versitygw's own tests of S3 servers, over HTTP and over HTTPS.
//!
//! They are of everything that Amazon's service does, in its very words, so half of them fail here:
//! access control lists, policies, object lock, users, the text of messages. Those that pass stand in
//! `xtask/clients/s3/versitygw.passing`; one of these that fails is a failure.

use std::path::Path;
use std::process::Command;

use super::passing::{self, Results};
use super::s3::{Serve, Tls, over_both};
use super::server::limited;
use super::{Outcome, Stage, fetch};
use crate::versitygw;

/// Maximum time that the tests may take, in seconds.
const LIMIT_S: u32 = 480;

pub(super) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    fetch::need("go")?;
    let dir = fetch::once(&stage.dir.join("versitygw-1.8.0"), |dir| {
        fetch::step(&mut versitygw::build_into(dir), "cannot build versitygw")
    })?;
    let program = dir.join("versitygw");
    let listed = passing::names("versitygw.passing")?;
    let mut outcome = Outcome::default();
    over_both(stage, "versitygw", |part, tls| {
        let said = test(stage, &program, part, tls)?;
        results(&said).judge(&listed, part, &mut outcome)
    })?;
    Ok(outcome)
}

/// Runs all tests against a server, and returns what they said.
fn test(stage: &Stage, program: &Path, part: &str, tls: Option<Tls<'_>>) -> anyhow::Result<String> {
    let dir = stage.output.join("versitygw").join(part);
    let server = Serve::start(&stage.binary, &dir, tls, &["s3.region=us-east-1"])?;
    let mut tests = Command::new(program);
    tests.args(["test", "--allow-insecure", "--endpoint", &server.url, "full-flow", "--parallel"]);
    server.introduce(&mut tests, None);
    // It knows no other authorities than the system's.
    tests.current_dir(&dir).env_remove("AWS_CA_BUNDLE");
    // That some fail is expected.
    let (_, said) = limited(&tests, LIMIT_S)?;
    std::fs::write(dir.join("tests.log"), &said)?;
    Ok(said)
}

/// Reads the lines of the tests.
fn results(said: &str) -> Results {
    let mut results = Results::default();
    for line in without_colours(said).lines() {
        if let Some(name) = line.strip_prefix("PASS ") {
            results.note(name.trim(), None);
        } else if let Some(rest) = line.strip_prefix("FAIL ") {
            let (name, why) = rest.split_once(':').unwrap_or((rest, ""));
            results.note(name.trim(), Some(why.trim()));
        }
    }
    results
}

/// Text without the sequences that colour it in a terminal.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for (at, part) in text.split('\u{1b}').enumerate() {
        let part = if at == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) };
        plain.push_str(part);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_and_what_failed_is_read_without_colours() {
        let said =
            "RUN  a\n\u{1b}[32mPASS \u{1b}[0ma\n\u{1b}[31mFAIL \u{1b}[0mb: 500\nFAIL c: 501\n";
        let listed = ["a", "b"].map(str::to_owned).into();
        let mut outcome = Outcome::default();
        results(said).judge(&listed, "http", &mut outcome).unwrap();
        assert_eq!((outcome.passed, outcome.skipped), (1, 1));
        assert_eq!(outcome.failed, ["http: b: 500"]);
        assert!(results("RUN a\n").judge(&listed, "http", &mut outcome).is_err());
    }
}
