//! Clients in Python: redis-py's own tests, and Django's for its Redis cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::server::{Server, limited};
use super::{Outcome, Stage, fetch, skip};

/// The packages to install, in the versions of the tests below.
const REDIS: &str = "redis==5.2.1";
const DJANGO: &str = "django==5.2.8";
const OTHERS: [&str; 2] = ["pytest==8.3.4", "pytest-asyncio==0.24.0"];

/// Source packages, which bring the tests, with their SHA-256.
const SOURCES: &str = "\
redis==5.2.1 --hash=sha256:16f2e22dff21d5125e8481515e386711a34cbec50f0e44413dd7d9c060a54e0f
django==5.2.8 --hash=sha256:23254866a5bb9a2cfa6004e8b809ec6246eba4b58a7589bc2772f1bcc8456c7f
";

/// redis-py's tests of features that this server has.
const REDIS_PY_TESTS: [&str; 5] = [
    "tests/test_commands.py",
    "tests/test_pubsub.py",
    "tests/test_pipeline.py",
    "tests/test_connection_pool.py",
    "tests/test_encoding.py",
];

const LIMIT_S: u32 = 240;

/// What both need.
struct Python {
    program: PathBuf,
    sources: PathBuf,
}

impl Python {
    fn prepare(stage: &Stage) -> anyhow::Result<Self> {
        fetch::need("python3")?;
        // A virtual environment contains its own path, so it is created in its final place.
        let dir = stage.dir.join("python-redis-5.2.1-django-5.2.8");
        let program = dir.join("venv").join("bin").join("python");
        let ready = dir.join("ready");
        if !ready.exists() {
            install(&dir, &program)?;
            std::fs::write(&ready, "")
                .with_context(|| format!("cannot write to {}", dir.display()))?;
        }
        Ok(Self { program, sources: dir })
    }
}

fn install(dir: &Path, program: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(dir.join("venv"));
    fetch::step(&mut venv, "cannot create a virtual environment")?;
    let pip = |args: &[&str]| {
        let mut pip = Command::new(program);
        pip.current_dir(dir).args(["-m", "pip", "--disable-pip-version-check"]).args(args);
        fetch::step(&mut pip, "cannot download Python packages")
    };
    pip(&[&["install", "-q", REDIS, DJANGO][..], &OTHERS].concat())?;
    let list = dir.join("sources.txt");
    std::fs::write(&list, SOURCES).with_context(|| format!("cannot write {}", list.display()))?;
    pip(&[
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--require-hashes",
        "-r",
        "sources.txt",
    ])?;
    for file in ["redis-5.2.1.tar.gz", "django-5.2.8.tar.gz"] {
        fetch::unpack(&dir.join(file), dir)?;
    }
    Ok(())
}

pub(super) fn redis_py_2(stage: &Stage, server: &Server) -> anyhow::Result<Outcome> {
    redis_py(stage, server, "2")
}

pub(super) fn redis_py_3(stage: &Stage, server: &Server) -> anyhow::Result<Outcome> {
    redis_py(stage, server, "3")
}

fn redis_py(stage: &Stage, server: &Server, protocol: &str) -> anyhow::Result<Outcome> {
    let python = Python::prepare(stage)?;
    let mut tests = Command::new(&python.program);
    tests.current_dir(python.sources.join("redis-5.2.1"));
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", "--tb=no"]);
    tests.args(["-m", "not onlycluster and not redismod and not ssl and not experimental"]);
    tests.arg(format!("--redis-url=redis://{}/9", server.resp));
    tests.arg(format!("--protocol={protocol}"));
    for name in skip::names("redis-py.skip")? {
        tests.arg(format!("--deselect=tests/{name}"));
    }
    tests.args(REDIS_PY_TESTS);
    let (ended_well, said) = limited(&tests, LIMIT_S)?;
    std::fs::write(stage.output.join(format!("redis-py-resp{protocol}.log")), &said)?;
    let mut outcome = read_pytest(&said);
    if !ended_well && outcome.failed.is_empty() {
        let last = said.lines().next_back().unwrap_or_default();
        outcome.failed.push(format!("pytest failed: {last}"));
    }
    Ok(outcome)
}

/// Reads pytest's last line (`465 passed, 4 skipped, 132 deselected in 47.13s`) and the failures.
fn read_pytest(said: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR ")) {
            outcome.failed.push(name.to_owned());
        }
    }
    let summary = said.lines().rev().find(|line| line.contains(" passed")).unwrap_or_default();
    for part in summary.trim_matches(['=', ' ']).split(", ") {
        let mut words = part.split_whitespace();
        let count = words.next().and_then(|count| count.parse().ok()).unwrap_or(0);
        match words.next() {
            Some("passed") => outcome.passed += count,
            Some("skipped" | "deselected" | "xfailed") => outcome.skipped += count,
            _ => {}
        }
    }
    outcome
}

/// The settings of Django's tests, with this server as the cache.
const SETTINGS: &str = r#"
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": "redis://ADDRESS",
    }
}
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3"},
    "other": {"ENGINE": "django.db.backends.sqlite3"},
}
SECRET_KEY = "tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
"#;

pub(super) fn django(stage: &Stage, server: &Server) -> anyhow::Result<Outcome> {
    let python = Python::prepare(stage)?;
    let settings = stage.output.join("settings_forebay.py");
    std::fs::write(&settings, SETTINGS.replace("ADDRESS", &server.resp.to_string()))?;
    let source = python.sources.join("django-5.2.8");
    let mut tests = Command::new(&python.program);
    tests.current_dir(source.join("tests"));
    tests.env("PYTHONPATH", format!("{}:{}", source.display(), stage.output.display()));
    tests.args(["runtests.py", "--settings=settings_forebay", "--parallel=1"]);
    tests.arg("cache.tests.RedisCacheTests");
    let (ended_well, said) = limited(&tests, LIMIT_S)?;
    std::fs::write(stage.output.join("django.log"), &said)?;
    let mut outcome = read_unittest(&said);
    if !ended_well && outcome.failed.is_empty() {
        let last = said.lines().next_back().unwrap_or_default();
        outcome.failed.push(format!("the tests failed: {last}"));
    }
    Ok(outcome)
}

/// Parses unittest's last lines: `Ran 62 tests in 13.127s`, then `OK (skipped=3)` or
/// `FAILED (...)`.
fn read_unittest(said: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("FAIL: ").or_else(|| line.strip_prefix("ERROR: ")) {
            outcome.failed.push(name.to_owned());
        }
        let ran = line.strip_prefix("Ran ").and_then(|rest| rest.split_whitespace().next());
        if let Some(ran) = ran.and_then(|ran| ran.parse::<usize>().ok()) {
            outcome.passed = ran;
        }
        if let Some((_, skipped)) = line.split_once("skipped=") {
            let digits = skipped.trim_end_matches(')');
            outcome.skipped = digits.parse().unwrap_or(0);
        }
    }
    outcome.passed = outcome.passed.saturating_sub(outcome.failed.len() + outcome.skipped);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytest_says_is_read() {
        let said = "....F\nFAILED tests/a.py::b - x\n1 failed, 465 passed, 4 skipped, 132 \
                    deselected, 1 xfailed, 191 warnings in 47.13s\n";
        let outcome = read_pytest(said);
        assert_eq!((outcome.passed, outcome.skipped), (465, 137));
        assert_eq!(outcome.failed, ["tests/a.py::b - x"]);
    }

    #[test]
    fn what_unittest_says_is_read() {
        let outcome = read_unittest(
            "FAIL: one (x)\nRan 62 tests in 13.127s\n\nFAILED (failures=1, skipped=3)\n",
        );
        assert_eq!((outcome.passed, outcome.skipped, outcome.failed.len()), (58, 3, 1));
    }
}
