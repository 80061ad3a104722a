//! The tests that MinIO's clients for Go and Python bring, over HTTP and over HTTPS.
//!
//! They are cores of `mint`, which runs the clients' own tests against a server. Those that pass are listed
//! in `xtask/clients/s3/minio-*.passing`. Most of the others are about signature version 2 in headers,
//! encryption by the server, forms, access control lists, and extensions of MinIO.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::passing::{self, Results};
use super::s3::{Serve, Tls, over_both};
use super::server::limited;
use super::{Outcome, Stage, fetch, skip};

/// Maximum time that the tests may take, in seconds.
const LIMIT_S: u32 = 480;

/// The client for Go, in the version that the list is of.
const GO: &str = "github.com/minio/minio-go/v7@v7.4.1";
/// The file of its tests.
const GO_TESTS: &str = "functional_tests.go";

/// The sources of the client for Python; its package has no tests.
const PYTHON: &str = "https://files.pythonhosted.org/packages/40/df/\
                      6dfc6540f96a74125a11653cce717603fd5b7d0001a8e847b3e54e72d238/minio-7.2.20.tar.gz";
const PYTHON_SHA256: &str = "95898b7a023fbbfde375985aa77e2cd6a0762268db79cf886f002a9ea8e68598";

pub(super) fn go(stage: &Stage) -> anyhow::Result<Outcome> {
    let program = build(stage)?;
    both(stage, "minio-go", || Command::new(&program))
}

pub(super) fn python(stage: &Stage) -> anyhow::Result<Outcome> {
    let list = skip::path("s3").join("minio-py.requirements");
    let python = fetch::python(stage, "python-minio", &list)?;
    let sources = fetch::once(&stage.dir.join("minio-py-7.2.20"), |dir| {
        let file = dir.join("sources.tar.gz");
        fetch::file(PYTHON, PYTHON_SHA256, &file)?;
        fetch::unpack(&file, dir)
    })?;
    both(stage, "minio-py", || {
        let mut tests = Command::new(&python);
        tests.arg(skip::path("s3").join("minio-py.py"));
        tests.arg(sources.join("minio-7.2.20/tests/functional"));
        tests
    })
}

/// Runs tests against a server over HTTP, and against one over HTTPS.
fn both(stage: &Stage, name: &str, tests: impl Fn() -> Command) -> anyhow::Result<Outcome> {
    let listed = passing::names(&format!("{name}.passing"))?;
    let mut outcome = Outcome::default();
    over_both(stage, name, |part, tls| {
        let said = run(stage, name, part, tls, tests())?;
        results(&said).judge(&listed, part, &mut outcome)
    })?;
    Ok(outcome)
}

fn run(
    stage: &Stage,
    name: &str,
    part: &str,
    tls: Option<Tls<'_>>,
    mut tests: Command,
) -> anyhow::Result<String> {
    let dir = stage.output.join(name).join(part);
    let server = Serve::start(&stage.binary, &dir, tls, &["s3.region=us-east-1"])?;
    let endpoint = server.url.rsplit('/').next().unwrap_or_default();
    let (id, secret) = server.key();
    tests.current_dir(&dir).env("SERVER_ENDPOINT", endpoint);
    tests.env("ACCESS_KEY", id).env("SECRET_KEY", secret);
    tests.env("ENABLE_HTTPS", if tls.is_some() { "1" } else { "0" }).env("ENABLE_KMS", "0");
    // All tests, also after one that fails, with data that they make themselves.
    tests.env("MINT_MODE", "full").env("RUN_ON_FAIL", "1");
    // Their temporary files are removed with the others.
    tests.env("TMPDIR", &dir);
    tests.env_remove("MINT_DATA_DIR").env_remove("DATA_DIR");
    if let Some((cert, _)) = tls {
        tests.env("SSL_CERT_FILE", cert);
    }
    // That some fail is expected.
    let (_, said) = limited(&tests, LIMIT_S)?;
    std::fs::write(dir.join("tests.log"), &said)?;
    Ok(said)
}

/// Reads the lines of the tests: one JSON object for a test, or for a step of one.
fn results(said: &str) -> Results {
    let mut results = Results::default();
    for line in said.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
        // `minio-go: testPutObject`, `minio-py:test_put_object`.
        let name = text("name").rsplit(':').next().unwrap_or_default().trim();
        match text("status") {
            "PASS" => results.note(name, None),
            "FAIL" => {
                let error = text("error").lines().next_back().unwrap_or_default();
                results.note(name, Some(&format!("{}: {error}", text("message"))));
            }
            "NA" => results.note(name, Some(text("alert"))),
            _ => {}
        }
    }
    results
}

/// Builds the tests of the client for Go once.
fn build(stage: &Stage) -> anyhow::Result<PathBuf> {
    fetch::need("go")?;
    let version = GO.rsplit('@').next().unwrap_or_default();
    let dir = fetch::once(&stage.dir.join(format!("minio-go-{version}")), |dir| {
        std::fs::write(dir.join("go.mod"), "module functional\n")?;
        let go = |words: &[&str]| {
            let mut go = Command::new("go");
            go.current_dir(dir).args(words).env("GOFLAGS", "-mod=mod");
            go
        };
        fetch::step(&mut go(&["get", GO]), "cannot download minio-go")?;
        let mut list = go(&["list", "-m", "-f", "{{.Dir}}", "github.com/minio/minio-go/v7"]);
        let listed = list.output().context("cannot start go")?;
        let sources = PathBuf::from(String::from_utf8_lossy(&listed.stdout).trim());
        let tests = std::fs::read_to_string(sources.join(GO_TESTS))
            .with_context(|| format!("minio-go has no {GO_TESTS}"))?;
        // The tag that keeps it out of the package would be passed on to the package itself.
        let tests = tests.lines().filter(|line| !line.starts_with("//go:build"));
        let tests: String = tests.flat_map(|line| [line, "\n"]).collect();
        std::fs::write(dir.join("main.go"), tests)?;
        fetch::step(&mut go(&["mod", "tidy"]), "cannot download what minio-go needs")?;
        fetch::step(&mut go(&["build", "-o", "tests", "."]), "cannot build minio-go's tests")
    })?;
    Ok(dir.join("tests"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_known_by_its_name_alone() {
        let said = r#"{"name":"minio-go: testA","status":"PASS"}
not JSON
{"name":"minio-py:test_b","status":"PASS"}
{"name":"minio-py:test_c","status":"NA","alert":"Not Implemented"}
{"name":"minio-go: testD","status":"FAIL","message":"failed","error":"Traceback\nlast"}"#;
        let listed = ["testA", "test_b", "test_c", "testD"].map(str::to_owned).into();
        let mut outcome = Outcome::default();
        results(said).judge(&listed, "http", &mut outcome).unwrap();
        assert_eq!(outcome.passed, 2);
        assert_eq!(outcome.failed, ["http: testD: failed: last", "http: test_c: Not Implemented"]);
    }
}
