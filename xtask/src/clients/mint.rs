//! Cores of `mint` that its clients' own packages do not bring: those of aws-cli, s3cmd, and two programs with
//! the AWS SDK for Go, over HTTP and over HTTPS.
//!
//! No package registry has `mint`, so a checkout of `github.com/minio/mint` has to be at hand, whose directory
//! the environment variable `FOREBAY_MINT` names. The tests are not changed; only what runs them is, since
//! mint ends at the first test that fails. Those that pass are listed in `xtask/clients/s3/mint-*.passing`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::fetch::{self, Missing};
use super::passing::{self, Results};
use super::s3::{Serve, Tls, over_both};
use super::server::limited;
use super::{Outcome, Stage, skip};

/// Names the checkout of mint.
pub(super) const CHECKOUT: &str = "FOREBAY_MINT";
/// The commit that the lists are of.
const COMMIT: &str = "c3910db67eff57511c106e507a425e59c57090aa";
/// Maximum time that the tests of a core may take, in seconds.
const LIMIT_S: u32 = 480;
/// Ends of names of files, and their sizes; the largest is the last.
const FILES: [(&str, usize); 10] = [
    ("0-b", 0),
    ("1-b", 1),
    ("1-kB", 1 << 10),
    ("10-kB", 10 << 10),
    ("100-kB", 100 << 10),
    ("1-MB", 1 << 20),
    ("5-MB", 5 << 20),
    ("6-MB", 6 << 20),
    ("10-MB", 10 << 20),
    ("65-MB", 65 << 20),
];

pub(super) fn awscli(stage: &Stage) -> anyhow::Result<Outcome> {
    scripts(stage, "awscli")
}

pub(super) fn s3cmd(stage: &Stage) -> anyhow::Result<Outcome> {
    scripts(stage, "s3cmd")
}

pub(super) fn aws_sdk_go(stage: &Stage) -> anyhow::Result<Outcome> {
    go(stage, "aws-sdk-go-v2", &checkout()?.join("run/core/aws-sdk-go-v2"))
}

pub(super) fn versioning(stage: &Stage) -> anyhow::Result<Outcome> {
    go(stage, "versioning", &checkout()?.join("build/versioning"))
}

/// Returns the directory of the checkout.
///
/// # Errors
/// [`Missing`].
pub(super) fn checkout() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os(CHECKOUT).map(PathBuf::from);
    let found = named.filter(|dir| dir.join("mint.sh").is_file());
    found.ok_or_else(|| {
        let text = format!("{CHECKOUT} does not name a checkout of github.com/minio/mint {COMMIT}");
        Missing(text).into()
    })
}

/// Runs a core that is a shell script.
fn scripts(stage: &Stage, core: &str) -> anyhow::Result<Outcome> {
    let script = checkout()?.join("run/core").join(core).join("test.sh");
    let list = skip::path("s3").join("mint.requirements");
    let python = fetch::python(stage, "python-mint", &list)?;
    // The tests call `aws`, `s3cmd` and `python`.
    let path = fetch::path_of(&python);
    both(stage, core, |endpoint| {
        let mut tests = Command::new("bash");
        tests.arg(skip::path("s3").join("mint.sh")).arg(&script).arg(endpoint).env("PATH", &path);
        tests
    })
}

/// Runs a core that is a program for Go.
fn go(stage: &Stage, core: &str, sources: &Path) -> anyhow::Result<Outcome> {
    let program = build(stage, core, sources)?;
    both(stage, core, |_| Command::new(&program))
}

/// Runs tests against a server over HTTP, and against one over HTTPS.
fn both(stage: &Stage, core: &str, tests: impl Fn(&str) -> Command) -> anyhow::Result<Outcome> {
    let name = format!("mint-{core}");
    Both { stage, name: &name, results, only_https: false }.run(|endpoint, _| tests(endpoint))
}

/// Tests to be run against a server over HTTP, and against one over HTTPS.
pub(super) struct Both<'a> {
    pub(super) stage: &'a Stage,
    /// That of the list, too.
    pub(super) name: &'a str,
    /// Reads what the tests said.
    pub(super) results: fn(&str) -> Results,
    /// Whether there are no tests over HTTP.
    pub(super) only_https: bool,
}

impl Both<'_> {
    /// * `tests`: makes the command that runs them, from the endpoint and the certificate.
    pub(super) fn run(
        &self,
        tests: impl Fn(&str, Option<Tls<'_>>) -> Command,
    ) -> anyhow::Result<Outcome> {
        let listed = passing::names(&format!("{}.passing", self.name))?;
        let mut outcome = Outcome::default();
        over_both(self.stage, self.name, |part, tls| {
            if self.only_https && tls.is_none() {
                return Ok(());
            }
            let dir = self.stage.output.join(self.name).join(part);
            let said = run(self.stage, &dir, tls, |endpoint| tests(endpoint, tls))?;
            (self.results)(&said).judge(&listed, part, &mut outcome)
        })?;
        Ok(outcome)
    }
}

fn run(
    stage: &Stage,
    dir: &Path,
    tls: Option<Tls<'_>>,
    tests: impl Fn(&str) -> Command,
) -> anyhow::Result<String> {
    let server = Serve::start(&stage.binary, dir, tls, &["s3.region=us-east-1"])?;
    let (id, secret) = server.key();
    files(&dir.join("files"))?;
    let mut tests = tests(&server.url);
    tests.current_dir(dir).env("ACCESS_KEY", id).env("SECRET_KEY", secret);
    tests.env("SERVER_ENDPOINT", server.url.rsplit('/').next().unwrap_or_default());
    tests.env("SERVER_REGION", "us-east-1").env("ENABLE_VIRTUAL_STYLE", "0");
    tests.env("ENABLE_HTTPS", if tls.is_some() { "1" } else { "0" });
    tests.env("MINT_MODE", "full").env("MINT_DATA_DIR", dir.join("files"));
    // Neither the settings of the user, nor files that stay.
    tests.env("HOME", dir).env("TMPDIR", dir);
    if let Some((cert, _)) = tls {
        tests.env("AWS_CA_BUNDLE", cert).env("SSL_CERT_FILE", cert).env("CURL_CA_BUNDLE", cert);
        tests.env("NODE_EXTRA_CA_CERTS", cert);
        std::fs::write(dir.join(".wgetrc"), format!("ca_certificate={}\n", cert.display()))?;
    }
    // That some fail is expected.
    let (_, said) = limited(&tests, LIMIT_S)?;
    std::fs::write(dir.join("tests.log"), &said)
        .with_context(|| format!("cannot write to {}", dir.display()))?;
    Ok(said)
}

/// Makes the files that tests store, of the sizes that mint uses.
fn files(dir: &Path) -> anyhow::Result<()> {
    let bytes: Vec<u8> = (0..=250).cycle().take(FILES[FILES.len() - 1].1).collect();
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for (name, size) in FILES {
        let file = dir.join(format!("datafile-{name}"));
        std::fs::write(&file, &bytes[..size])
            .with_context(|| format!("cannot write to {}", file.display()))?;
    }
    Ok(())
}

/// Reads the lines of the tests. Those that the core itself prints say why one fails.
fn results(said: &str) -> Results {
    let mut results = Results::default();
    let mut why = String::new();
    for line in said.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
        let (name, is_failure) = (text("name"), text("status") == "FAIL");
        let is_verdict = name.starts_with("test");
        if is_failure && (why.is_empty() || !is_verdict) {
            why = format!("{}: {}", text("message"), text("error"));
        }
        if is_verdict {
            results.note(name, is_failure.then_some(why.as_str()));
            why.clear();
        }
    }
    results
}

/// Builds a core once.
fn build(stage: &Stage, core: &str, sources: &Path) -> anyhow::Result<PathBuf> {
    fetch::need("go")?;
    let dir = fetch::once(&stage.dir.join(format!("mint-{core}-{COMMIT}")), |dir| {
        let listed = std::fs::read_dir(sources)
            .with_context(|| format!("cannot read {}", sources.display()))?;
        for entry in listed {
            let from = entry.context("cannot read the checkout of mint")?.path();
            let Some(name) = from.file_name().filter(|_| from.is_file()) else { continue };
            std::fs::copy(&from, dir.join(name))
                .with_context(|| format!("cannot copy {}", from.display()))?;
        }
        let main = dir.join("main.go");
        let text = std::fs::read_to_string(&main).context("the core has no main.go")?;
        std::fs::write(&main, each_by_itself(&text)).context("cannot change main.go")?;
        std::fs::write(dir.join("each.go"), EACH).context("cannot write each.go")?;
        let mut go = Command::new("go");
        go.current_dir(dir).args(["build", "-o", "tests", "."]).env("GOFLAGS", "-mod=mod");
        fetch::step(&mut go, &format!("cannot build mint's {core}"))
    })?;
    Ok(dir.join("tests"))
}

/// Ends a test that fails, where mint ends the program.
const EACH: &str = r#"package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/sirupsen/logrus"
)

func init() {
	logrus.StandardLogger().ExitFunc = func(int) { runtime.Goexit() }
}

func each(name string, test func()) {
	ended := make(chan bool)
	go func() {
		passed := false
		defer func() {
			why := recover()
			if passed {
				fmt.Printf("{\"name\": \"%s\", \"status\": \"PASS\"}\n", name)
			} else {
				fmt.Printf("{\"name\": \"%s\", \"status\": \"FAIL\", \"message\": %q}\n", name, fmt.Sprint(why))
			}
			ended <- passed
		}()
		test()
		passed = true
	}()
	if !<-ended {
		fmt.Fprintln(os.Stderr, name, "failed")
	}
}
"#;

/// Runs each test that `main` calls by itself.
fn each_by_itself(main: &str) -> String {
    let mut text = String::with_capacity(main.len() + 4_096);
    let mut is_main = false;
    for line in main.lines() {
        is_main = line.starts_with("func main()") || is_main && !line.starts_with('}');
        let call = line.trim_start();
        match call.split_once('(').filter(|(name, _)| is_main && name.starts_with("test")) {
            Some((name, _)) => {
                // The text ends with a line end in any case, and writing to a string does not fail.
                writeln!(text, "each(\"{name}\", func() {{ {call} }})").unwrap_or_default();
            }
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_fails_is_noted_with_what_the_core_said() {
        let said = r#"{"name":"versioning","function":"testA","status":"PASS"}
{"name":"testA","status":"PASS"}
{"name":"versioning","function":"testB","status":"FAIL","message":"put","error":"500"}
{"name":"testB","status":"FAIL","message":"<nil>"}
{"name":"testC","status":"FAIL","message":"exit code 1","error":"refused"}"#;
        let listed = ["testA", "testB", "testC"].map(str::to_owned).into();
        let mut outcome = Outcome::default();
        results(said).judge(&listed, "http", &mut outcome).unwrap();
        assert_eq!(outcome.passed, 1);
        assert_eq!(outcome.failed, ["http: testB: put: 500", "http: testC: exit code 1: refused"]);
    }

    #[test]
    fn each_test_that_main_calls_runs_by_itself() {
        let main = "func testA() {\n\ttestB()\n}\nfunc main() {\n\tsetup()\n\ttestA()\n\t\ttestB(x, y)\n}\n";
        let expected = "func testA() {\n\ttestB()\n}\nfunc main() {\n\tsetup()\n\
                        each(\"testA\", func() { testA() })\neach(\"testB\", func() { testB(x, y) })\n}\n";
        assert_eq!(each_by_itself(main), expected);
    }
}
