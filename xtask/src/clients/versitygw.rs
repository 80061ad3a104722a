//! versitygw's own tests of S3 servers, with buckets in paths and in host names, over HTTP and over HTTPS.
//!
//! They are of everything that Amazon's service does, in its very words, so two thirds of them fail here:
//! access control lists, policies, object lock, users, the text of messages. Those that pass stand in
//! `xtask/clients/s3/versitygw.passing`; one of these that fails is a failure, in either style.
//!
//! versitygw's program resolves names as the system does, where none of a bucket is known. A small one that calls the same
//! tests resolves each name to this machine: `xtask/clients/s3/versitygw/main.go`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::passing::{self, Results};
use super::s3::{Serve, Tls, over_both};
use super::server::limited;
use super::{Outcome, Stage, fetch, skip};
use crate::versitygw;

/// Maximum time that the tests may take, in seconds.
const LIMIT_S: u32 = 480;
/// The domain below which buckets are.
const DOMAIN: &str = "s3.test";

pub(super) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    fetch::need("go")?;
    let dir = fetch::once(&stage.dir.join("versitygw-1.8.0"), |dir| {
        fetch::step(&mut versitygw::build_into(dir), "cannot build versitygw")
    })?;
    let (in_paths, in_hosts) = (dir.join("versitygw"), build_for_hosts(stage)?);
    let listed = passing::names("versitygw.passing")?;
    let mut outcome = Outcome::default();
    over_both(stage, "versitygw", |part, tls| {
        let said = test(stage, part, tls, |url| {
            let mut tests = Command::new(&in_paths);
            tests.args(["test", "--allow-insecure", "--endpoint", url, "full-flow", "--parallel"]);
            tests
        })?;
        results(&said).judge(&listed, part, &mut outcome)?;
        let part = format!("{part}, buckets in host names");
        let said = test(stage, &part, tls, |url| {
            let mut tests = Command::new(&in_hosts);
            tests.arg(url.replace("127.0.0.1", DOMAIN));
            tests
        })?;
        results(&said).judge(&listed, &part, &mut outcome)
    })?;
    Ok(outcome)
}

/// Runs all tests against a server, and returns what they said.
///
/// * `tests`: makes the command that runs them, from the address.
fn test(
    stage: &Stage,
    part: &str,
    tls: Option<Tls<'_>>,
    tests: impl FnOnce(&str) -> Command,
) -> anyhow::Result<String> {
    let dir = stage.output.join("versitygw").join(part);
    let domains = format!("s3.domains={DOMAIN}");
    let server = Serve::start(&stage.binary, &dir, tls, &["s3.region=us-east-1", &domains])?;
    let mut tests = tests(&server.url);
    server.introduce(&mut tests, None);
    // It knows no other authorities than the system's.
    tests.current_dir(&dir).env_remove("AWS_CA_BUNDLE");
    // That some fail is expected.
    let (_, said) = limited(&tests, LIMIT_S)?;
    std::fs::write(dir.join("tests.log"), &said)?;
    Ok(said)
}

/// Builds the tests for buckets in host names once, and again after a change of their program.
fn build_for_hosts(stage: &Stage) -> anyhow::Result<PathBuf> {
    let program = skip::path("s3").join("versitygw/main.go");
    let text =
        std::fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    let dir = stage.dir.join("versitygw-hosts-1.8.0");
    if dir.exists() && std::fs::read(dir.join("main.go")).ok().as_ref() != Some(&text) {
        std::fs::remove_dir_all(&dir)
            .with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    let go = |dir: &Path, words: &[&str]| {
        let mut go = Command::new("go");
        go.current_dir(dir).args(words).env("GOFLAGS", "-mod=mod");
        go
    };
    let dir = fetch::once(&dir, |dir| {
        std::fs::write(dir.join("go.mod"), "module hosts\n")?;
        std::fs::write(dir.join("main.go"), &text)?;
        fetch::step(&mut versitygw::require_in(dir), "cannot download versitygw")?;
        fetch::step(&mut go(dir, &["mod", "tidy"]), "cannot download what versitygw needs")?;
        fetch::step(&mut go(dir, &["build", "-o", "tests", "."]), "cannot build versitygw's tests")
    })?;
    Ok(dir.join("tests"))
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
