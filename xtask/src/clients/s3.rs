//! boto3 against the S3-compatible port: `xtask/clients/s3/check.py`, over HTTP and over HTTPS.
//!
//! Both, because a client frames and signs the same upload differently: over HTTPS it sends unsigned chunks
//! with the checksum in a trailer.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use super::server::{limited, not_started};
use super::{Outcome, Stage, fetch, skip};

/// Maximum time that the program may take, in seconds.
const LIMIT_S: u32 = 240;

pub(super) fn http(stage: &Stage) -> anyhow::Result<Outcome> {
    run(stage, "boto3-http", None)
}

pub(super) fn https(stage: &Stage) -> anyhow::Result<Outcome> {
    let made = certificate(&stage.output.join("boto3-https"))?;
    run(stage, "boto3-https", Some((&made.0, &made.1)))
}

/// Makes a certificate for this machine, and its private key; returns their paths.
///
/// # Errors
/// [`Missing`](fetch::Missing): openssl is not installed.
pub(super) fn certificate(dir: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    fetch::need("openssl")?;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
    openssl.args([
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
    ]);
    openssl.arg("-out").arg(&cert).arg("-keyout").arg(&key);
    fetch::step(&mut openssl, "cannot make a certificate")?;
    Ok((cert, key))
}

fn run(stage: &Stage, name: &str, tls: Option<Tls<'_>>) -> anyhow::Result<Outcome> {
    let list = skip::path("s3").join("requirements.txt");
    let python = fetch::python(stage, "python-s3", &list)?;
    let dir = stage.output.join(name);
    let server = Serve::start(&stage.binary, &dir, tls, &[])?;
    let mut check = Command::new(&python);
    check.arg(skip::path("s3").join("check.py")).arg(&server.url);
    server.introduce(&mut check, tls);
    let (ended_well, said) = limited(&check, LIMIT_S)?;
    std::fs::write(dir.join("check.log"), &said)?;
    Ok(Outcome::of_lines(&said, ended_well))
}

/// Paths of a certificate and of its private key.
pub(super) type Tls<'a> = (&'a Path, &'a Path);

/// Runs tests over HTTP, and over HTTPS.
///
/// * `run`: is given the name of the part, and the certificate.
///
/// # Errors
/// Those of `run`; no certificate can be made.
pub(super) fn over_both(
    stage: &Stage,
    name: &str,
    mut run: impl FnMut(&str, Option<Tls<'_>>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let made = certificate(&stage.output.join(name))?;
    run("http", None)?;
    run("https", Some((&made.0, &made.1)))
}

/// The data directory, within the directory of a server.
const DATA: &str = "data";

/// The program, without the settings of the environment.
fn forebay(binary: &Path, dir: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"FOREBAY_") {
            command.env_remove(name);
        }
    }
    command.current_dir(dir).stdin(Stdio::null());
    command
}

/// Makes an API key for the server of a directory, which is not running yet, and returns the access key id and the secret.
///
/// # Errors
/// The program fails.
pub(super) fn new_key(binary: &Path, dir: &Path, name: &str) -> anyhow::Result<(String, String)> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let printed = |args: &[&str]| {
        let mut command = forebay(binary, dir);
        let ended = command.args(args).arg("--json").arg("--data").arg(dir.join(DATA)).output();
        let ended = ended.with_context(|| format!("cannot start {}", binary.display()))?;
        serde_json::from_slice::<serde_json::Value>(&ended.stdout)
            .with_context(|| format!("forebay {args:?} printed no JSON"))
    };
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let id = text(&printed(&["key", "new", "--name", name])?["id"]);
    let secret = text(&printed(&["s3", "secret", &id])?["secret_access_key"]);
    Ok((id, secret))
}

/// A running `forebay serve` with an S3 port; killed when dropped.
pub(super) struct Serve {
    process: Child,
    pub(super) url: String,
    /// Access key id and secret.
    key: (String, String),
}

impl Serve {
    /// * `settings`: further ones, as `NAME=VALUE`.
    pub(super) fn start(
        binary: &Path,
        dir: &Path,
        tls: Option<Tls<'_>>,
        settings: &[&str],
    ) -> anyhow::Result<Self> {
        let key = new_key(binary, dir, "s3")?;
        let log = dir.join("server.log");
        let errors =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut serve = forebay(binary, dir);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--set", "s3.listen=127.0.0.1:0"]);
        serve.args(["--set", "cache.enabled=false", "--data"]).arg(dir.join(DATA));
        for setting in settings {
            serve.args(["--set", setting]);
        }
        if let Some((cert, key)) = tls {
            serve.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key);
        }
        let mut process = serve
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut out = process.stdout.take().map(BufReader::new);
        let mut printed = String::new();
        // The address of the main port, and that of this one.
        for _ in 0..2 {
            let read = out.as_mut().map(|out| out.read_line(&mut printed));
            read.transpose().context("cannot read the server's output")?;
        }
        match printed.lines().find_map(|line| line.strip_prefix("s3 ")) {
            Some(url) => Ok(Self { process, url: url.to_owned(), key }),
            None => Err(not_started(&mut process, &printed, &log)),
        }
    }

    /// The id of the access key, and its secret.
    pub(super) fn key(&self) -> (&str, &str) {
        (&self.key.0, &self.key.1)
    }

    /// Gives a client the credentials, and the certificate to trust.
    pub(super) fn introduce(&self, client: &mut Command, tls: Option<Tls<'_>>) {
        client.env("AWS_ACCESS_KEY_ID", &self.key.0).env("AWS_SECRET_ACCESS_KEY", &self.key.1);
        if let Some((cert, _)) = tls {
            client.env("AWS_CA_BUNDLE", cert);
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
