//! versitygw's own tests of S3 servers, over HTTP and over HTTPS.
//!
//! They are of everything that Amazon's service does, in its very words, so half of them fail here:
//! access control lists, policies, object lock, users, the text of messages. Those that pass stand in
//! `xtask/clients/s3/versitygw.passing`; one of these that fails is a failure.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::s3::{Serve, Tls, certificate};
use super::server::limited;
use super::{Outcome, Stage, fetch, skip};
use crate::command::say;
use crate::versitygw;

/// Maximum time that the tests may take, in seconds.
const LIMIT_S: u32 = 480;
/// The list of tests that pass.
const PASSING: &str = "versitygw.passing";

pub(super) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    fetch::need("go")?;
    let dir = fetch::once(&stage.dir.join("versitygw-1.8.0"), |dir| {
        fetch::step(&mut versitygw::build_into(dir), "cannot build versitygw")
    })?;
    let program = dir.join("versitygw");
    let path = skip::path("s3").join(PASSING);
    let list = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let listed: BTreeSet<&str> = list
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let made = certificate(&stage.output.join("versitygw"))?;
    let mut outcome = Outcome::default();
    for (part, tls) in [("http", None), ("https", Some((&*made.0, &*made.1)))] {
        let said = test(stage, &program, part, tls)?;
        judge(&said, &listed, part, &mut outcome)?;
    }
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

/// Compares the tests that passed with the list.
fn judge(
    said: &str,
    listed: &BTreeSet<&str>,
    part: &str,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let plain = without_colours(said);
    let mut passed = BTreeSet::new();
    let mut failed = BTreeSet::new();
    for line in plain.lines() {
        if let Some(name) = line.strip_prefix("PASS ") {
            passed.insert(name.trim());
        } else if let Some(rest) = line.strip_prefix("FAIL ") {
            let (name, why) = rest.split_once(':').unwrap_or((rest, ""));
            failed.insert((name.trim(), why.trim()));
        }
    }
    ensure!(!passed.is_empty(), "no test of versitygw ran over {part}");
    for name in listed {
        let why = failed.iter().find(|(failed, _)| failed == name).map_or("", |(_, why)| why);
        let is_ok = passed.contains(name);
        outcome.note(&format!("{part}: {name}: {why}"), is_ok);
    }
    let others = failed.iter().filter(|(name, _)| !listed.contains(name)).count();
    outcome.skipped += others;
    let more = passed.iter().filter(|name| !listed.contains(*name)).copied();
    let more: Vec<&str> = more.collect();
    if !more.is_empty() {
        say(format_args!("pass over {part}, but are not in {PASSING}: {}", more.join(" ")));
    }
    Ok(())
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
    fn a_listed_test_that_does_not_pass_is_a_failure() {
        let said = "RUN  a\n\u{1b}[32mPASS \u{1b}[0ma\n\u{1b}[31mFAIL \u{1b}[0mb: 500\nFAIL c: 501\nPASS d\n";
        let listed = BTreeSet::from(["a", "b", "gone"]);
        let mut outcome = Outcome::default();
        judge(said, &listed, "http", &mut outcome).unwrap();
        assert_eq!((outcome.passed, outcome.skipped), (1, 1));
        assert_eq!(outcome.failed, ["http: b: 500", "http: gone: "]);
        assert!(judge("RUN a\n", &listed, "http", &mut outcome).is_err());
    }
}
