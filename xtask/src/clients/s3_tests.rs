//! Ceph's s3-tests against the S3-compatible port, over HTTP and over HTTPS.
//!
//! No package registry has them, so a checkout of `github.com/ceph/s3-tests` has to be at hand, whose directory the
//! environment variable `FOREBAY_S3_TESTS` names. Nothing is written to it. Those of `test_s3.py` that pass are listed in
//! `xtask/clients/s3/s3-tests.passing`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::fetch::{self, Missing};
use super::passing::{self, Results};
use super::s3::{Serve, Tls, new_key, over_both};
use super::server::limited;
use super::{Outcome, Stage, skip};

/// Names the checkout.
pub(super) const CHECKOUT: &str = "FOREBAY_S3_TESTS";
/// The commit that the list is of.
const COMMIT: &str = "8f0ae7b404a3a2fcf7038bf1e6bf29544fe9b6a3";
/// The tests, in the checkout.
const TESTS: &str = "s3tests/functional/test_s3.py";
/// Markers of tests that fail on Amazon's service, too, and of what the port does not have. The list begins with the reasons.
const LEFT_OUT: [&str; 14] = [
    "fails_on_aws",
    "bucket_logging",
    "encryption",
    "bucket_encryption",
    "sse_s3",
    "lifecycle",
    "bucket_policy",
    "cloud_transition",
    "cloud_restore",
    "auth_aws2",
    "object_lock",
    "s3website",
    "storage_class",
    "appendobject",
];
/// Maximum time that the tests may take, in seconds.
const LIMIT_S: u32 = 900;

pub(super) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let checkout = checkout()?;
    let list = skip::path("s3").join("s3-tests.requirements");
    let python = fetch::python(stage, "python-s3-tests", &list)?;
    let listed = passing::names("s3-tests.passing")?;
    let mut outcome = Outcome::default();
    over_both(stage, "s3-tests", |part, tls| {
        let said = test(stage, &python, &checkout, part, tls)?;
        results(&said).judge(&listed, part, &mut outcome)
    })?;
    Ok(outcome)
}

/// Returns the directory of the checkout.
///
/// # Errors
/// [`Missing`].
fn checkout() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os(CHECKOUT).map(PathBuf::from);
    let found = named.filter(|dir| dir.join(TESTS).is_file());
    found.ok_or_else(|| {
        let text =
            format!("{CHECKOUT} does not name a checkout of github.com/ceph/s3-tests {COMMIT}");
        Missing(text).into()
    })
}

/// Runs the tests against a server, and returns what they said.
fn test(
    stage: &Stage,
    python: &Path,
    checkout: &Path,
    part: &str,
    tls: Option<Tls<'_>>,
) -> anyhow::Result<String> {
    let dir = stage.output.join("s3-tests").join(part);
    let other = |name| new_key(&stage.binary, &dir, name);
    let (alt, tenant) = (other("alt")?, other("tenant")?);
    let server = Serve::start(&stage.binary, &dir, tls, &[])?;
    let port = server.url.rsplit(':').next().unwrap_or_default();
    let keys = [server.key(), (&alt.0, &alt.1), (&tenant.0, &tenant.1)];
    let file = dir.join("s3tests.conf");
    std::fs::write(&file, settings(port, tls.is_some(), keys))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let mut tests = Command::new(python);
    tests.current_dir(checkout).env("S3TEST_CONF", &file).env("PYTHONDONTWRITEBYTECODE", "1");
    // The settings of the user are not the tests'. Reasons are cut at the width of the terminal.
    tests.env("HOME", &dir).env("COLUMNS", "400").env_remove("AWS_PROFILE");
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", "--tb=no", "-m"]);
    tests.arg(LEFT_OUT.map(|marker| format!("not {marker}")).join(" and ")).arg(TESTS);
    // That some fail is expected.
    let (_, said) = limited(&tests, LIMIT_S)?;
    std::fs::write(dir.join("tests.log"), &said)
        .with_context(|| format!("cannot write to {}", dir.display()))?;
    Ok(said)
}

/// Makes the settings of the tests. The users of the services that the port does not have are the first one.
///
/// * `keys`: the access key id and the secret of the users `main`, `alt` and `tenant`.
fn settings(port: &str, is_secure: bool, keys: [(&str, &str); 3]) -> String {
    let [main, alt, tenant] = keys;
    let mut text = format!(
        "[DEFAULT]\nhost = 127.0.0.1\nport = {port}\nis_secure = {is_secure}\nssl_verify = False\n\
         [fixtures]\nbucket prefix = s3tests-{{random}}-\n"
    );
    for (section, name, (id, secret)) in [
        ("s3 main", "main", main),
        ("s3 alt", "alt", alt),
        ("s3 tenant", "tenant", tenant),
        ("iam", "main", main),
        ("iam root", "main", main),
        ("iam alt root", "main", main),
    ] {
        text.push_str(&format!(
            "[{section}]\ndisplay_name = {name}\nuser_id = {name}\nemail = {name}@example.com\n\
             api_name = forebay\ntenant = {name}\naccess_key = {id}\nsecret_key = {secret}\n"
        ));
    }
    text
}

/// Reads the summary: `PASSED FILE::NAME`, `FAILED FILE::NAME - WHY` and `ERROR FILE::NAME - WHY`.
fn results(said: &str) -> Results {
    let mut results = Results::default();
    for line in said.lines() {
        let Some((verdict, rest)) = line.split_once(' ') else { continue };
        let (id, why) = rest.split_once(" - ").unwrap_or((rest, ""));
        let Some((TESTS, name)) = id.split_once("::") else { continue };
        match verdict {
            "PASSED" => results.note(name.trim(), None),
            "FAILED" | "ERROR" => results.note(name.trim(), Some(why)),
            _ => {}
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_pytest_is_read() {
        let said = "..F\nPASSED s3tests/functional/test_s3.py::test_a\n\
                    PASSED s3tests/functional/test_s3.py::test_b\n\
                    ERROR s3tests/functional/test_s3.py::test_b - teardown\n\
                    FAILED s3tests/functional/test_s3.py::test_c - assert 416 == 400\n1 failed\n";
        let listed = ["test_a", "test_b", "test_c"].map(str::to_owned).into();
        let mut outcome = Outcome::default();
        results(said).judge(&listed, "http", &mut outcome).unwrap();
        assert_eq!(outcome.passed, 1);
        assert_eq!(outcome.failed, ["http: test_b: teardown", "http: test_c: assert 416 == 400"]);
    }
}
