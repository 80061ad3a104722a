//! `cargo xtask clients`: unmodified clients against a real server.
//!
//! Each client gets its own server (free ports, its own data directory, ended afterwards). Redis'
//! suites, redis-py's, Django's for its Redis cache, versitygw's and those of MinIO's clients bring their own
//! tests, and so do cores of mint, Ceph's s3-tests and clients for Java and JavaScript, if variables such as `FOREBAY_MINT` name checkouts
//! of them. Scripts here try
//! ioredis, redis-cli, redis-benchmark, the text protocol, boto3, mc, rclone, aws-cli and s3fs over HTTP and HTTPS,
//! tus-js-client, tuspy, a client that is generated from the API description of
//! `forebay serve`, and requests that schemathesis makes from it. What they need is fetched once, in pinned versions, into the user's cache
//! directory. A client whose tools or network are missing is skipped, which is reported, or fails
//! with `FOREBAY_REQUIRE_SERVICES=1`.
//!
//! What a client's own tests want that this server does not have stands in `xtask/clients/*.skip`,
//! each line with its reason.

mod fetch;
mod minio;
mod mint;
mod node;
mod openapi;
mod passing;
mod python;
mod report;
mod s3;
mod s3_tests;
mod s3_tools;
mod schemathesis;
mod sdks;
pub(crate) mod server;
mod skip;
mod tcl;
mod tools;
mod tus;
mod versitygw;

use std::iter;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;

use crate::command::say;
use fetch::Missing;
use report::Line;
use server::Server;

/// What a line begins with that reports why a program left something out.
const SKIPPED: &str = "skipped ";
/// How many lines say why a check failed.
const WHY_LINES: usize = 20;

/// Arguments of the task.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Args {
    /// Run only these clients.
    #[arg(long, value_name = "NAME",
        value_parser = clap::builder::PossibleValuesParser::new(CLIENTS.iter().map(|c| c.name)))]
    only: Vec<String>,
    /// Keep the servers' data and the clients' output, and print where they are.
    #[arg(long)]
    keep: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Test this `forebay` program instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

impl Args {
    /// All clients, against the program that the tests of the workspace were run with: building it by
    /// itself would build half of what it needs once more, with other features.
    ///
    /// # Errors
    /// Cargo does not say where it is.
    pub(crate) fn after_tests() -> anyhow::Result<Self> {
        Ok(Self { binary: Some(server::built()?), ..Self::default() })
    }
}

/// A client, and what runs its tests.
struct Client {
    name: &'static str,
    run: Run,
    /// An environment variable without which it is left out, unless it is named.
    needs: Option<&'static str>,
}

impl Client {
    const fn new(name: &'static str, run: Run) -> Self {
        Self { name, run, needs: None }
    }

    /// A core of mint that needs a checkout of it.
    const fn mint(name: &'static str, run: fn(&Stage) -> anyhow::Result<Outcome>) -> Self {
        Self::needing(name, run, mint::CHECKOUT)
    }

    /// One that needs what an environment variable names.
    const fn needing(
        name: &'static str,
        run: fn(&Stage) -> anyhow::Result<Outcome>,
        needs: &'static str,
    ) -> Self {
        Self { name, run: Run::Alone(run), needs: Some(needs) }
    }

    /// Whether it is to be run.
    fn is_wanted(&self, only: &[String]) -> bool {
        match self.needs.filter(|_| only.is_empty()) {
            Some(needs) => std::env::var_os(needs).is_some(),
            None => only.is_empty() || only.iter().any(|name| name == self.name),
        }
    }
}

/// How a client's tests run.
#[derive(Clone, Copy)]
enum Run {
    /// Against one server.
    Served(fn(&Stage, &Server) -> anyhow::Result<Outcome>),
    /// Against servers it starts itself ([`Stage::serve`]).
    Alone(fn(&Stage) -> anyhow::Result<Outcome>),
}

/// To add one: a function that runs it, and a line here.
const CLIENTS: [Client; 31] = [
    Client::new("redis-tcl", Run::Alone(tcl::run)),
    Client::new("redis-py-resp2", Run::Served(python::redis_py_2)),
    Client::new("redis-py-resp3", Run::Served(python::redis_py_3)),
    Client::new("django", Run::Served(python::django)),
    Client::new("ioredis", Run::Served(node::run)),
    Client::new("redis-cli", Run::Served(tools::redis_cli)),
    Client::new("redis-benchmark", Run::Served(tools::redis_benchmark)),
    Client::new("text", Run::Served(tools::text)),
    Client::new("openapi", Run::Alone(openapi::run)),
    Client::new("schemathesis", Run::Alone(schemathesis::run)),
    Client::new("tus-js-client", Run::Alone(tus::js)),
    Client::new("tuspy", Run::Alone(tus::python)),
    Client::new("boto3-http", Run::Alone(s3::http)),
    Client::new("boto3-https", Run::Alone(s3::https)),
    Client::new("mc", Run::Alone(s3_tools::mc)),
    Client::new("rclone", Run::Alone(s3_tools::rclone)),
    Client::new("awscli", Run::Alone(s3_tools::awscli)),
    Client::new("s3fs", Run::Alone(s3_tools::s3fs)),
    Client::new("versitygw", Run::Alone(versitygw::run)),
    Client::new("minio-go", Run::Alone(minio::go)),
    Client::new("minio-py", Run::Alone(minio::python)),
    Client::mint("mint-awscli", mint::awscli),
    Client::mint("mint-s3cmd", mint::s3cmd),
    Client::mint("mint-aws-sdk-go-v2", mint::aws_sdk_go),
    Client::mint("mint-versioning", mint::versioning),
    Client::mint("mint-aws-sdk-ruby", sdks::ruby),
    Client::mint("mint-aws-sdk-java-v2", sdks::java),
    Client::needing("mint-aws-sdk-php", sdks::php, sdks::PHP),
    Client::needing("s3-tests", s3_tests::run, s3_tests::CHECKOUT),
    Client::needing("minio-java", sdks::minio_java, sdks::MINIO_JAVA),
    Client::needing("minio-js", sdks::minio_js, sdks::MINIO_JS),
];

/// What all clients share.
struct Stage {
    /// What was fetched: outside the checkout.
    dir: PathBuf,
    /// Where output is written.
    output: PathBuf,
    binary: PathBuf,
}

impl Stage {
    /// Runs tests against their own server, and ends it; ending badly is a failure, too.
    fn serve(
        &self,
        name: &str,
        options: &[&str],
        tests: impl FnOnce(&Server) -> anyhow::Result<Outcome>,
    ) -> anyhow::Result<Outcome> {
        let server = Server::start(&self.binary, &self.output.join(name), options)?;
        let mut outcome = tests(&server)?;
        if let Err(error) = server.stop() {
            outcome.failed.push(format!("stopping the server: {error:#}"));
        }
        Ok(outcome)
    }
}

/// What became of a client's tests.
#[derive(Debug, Default)]
struct Outcome {
    passed: usize,
    skipped: usize,
    /// Names of those that failed.
    failed: Vec<String>,
}

impl Outcome {
    /// Reads the lines `ok NAME`, `FAILED NAME` and `skipped REASON` of a program, and why a check
    /// failed from the last of the lines that follow. A program that ended badly and reported no failure has failed as a
    /// whole.
    fn of_lines(said: &str, ended_well: bool) -> Self {
        let mut outcome = Self::default();
        let mut lines = said.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("ok ") {
                outcome.note(name, true);
            } else if let Some(name) = line.strip_prefix("FAILED ") {
                let mut why = Vec::new();
                while let Some(line) = lines.next_if(|line| !is_verdict(line)) {
                    why.push(line);
                }
                let shown = why.len().saturating_sub(WHY_LINES);
                let failed = iter::once(name).chain(why.into_iter().skip(shown));
                outcome.note(&failed.collect::<Vec<_>>().join("\n        "), false);
            } else if let Some(reason) = line.strip_prefix(SKIPPED) {
                say(format_args!("left out: {reason}"));
                outcome.skipped += 1;
            }
        }
        if !ended_well && outcome.failed.is_empty() {
            let last = said.lines().next_back().unwrap_or_default();
            outcome.failed.push(format!("the program failed: {last}"));
        }
        outcome
    }

    /// Adds what became of a part of the tests.
    fn add(&mut self, part: &str, ended: Self) {
        self.passed += ended.passed;
        self.skipped += ended.skipped;
        self.failed.extend(ended.failed.iter().map(|failed| format!("{part}: {failed}")));
    }

    /// Notes a check by its name.
    fn note(&mut self, name: &str, ok: bool) {
        if ok {
            self.passed += 1;
        } else {
            self.failed.push(name.to_owned());
        }
    }
}

/// Whether a line is the result of a check.
fn is_verdict(line: &str) -> bool {
    line.starts_with("ok ") || line.starts_with("FAILED ") || line.starts_with(SKIPPED)
}

/// The task.
///
/// # Errors
/// A test failed, or a client was left out where all are required.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => server::build()?,
    };
    let work = tempfile::tempdir().context("cannot create a directory for the clients")?;
    let stage = Stage { dir: fetch::dir(), output: work.path().to_owned(), binary };
    let lines = run_all(&stage, args);
    if args.keep {
        say(format_args!("kept: {}", work.keep().display()));
    }
    let lines = lines?;
    if args.json {
        report::println_json(&lines)?;
    } else {
        say(report::table(&lines));
    }
    report::judge(&lines)
}

/// Runs the clients one after another. What a server and its client wrote is removed before the next, unless
/// it is to be kept: all together need more space than a disk may have.
fn run_all(stage: &Stage, args: &Args) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for client in &CLIENTS {
        if client.is_wanted(&args.only) {
            say(format_args!("{}: ...", client.name));
            let started = Instant::now();
            let ended = run_one(stage, client)?;
            lines.push(Line { name: client.name, ended, took: started.elapsed() });
            if !args.keep {
                clear(&stage.output)?;
            }
        }
    }
    Ok(lines)
}

/// Removes everything in a directory.
fn clear(dir: &Path) -> anyhow::Result<()> {
    std::fs::remove_dir_all(dir)
        .and_then(|()| std::fs::create_dir(dir))
        .with_context(|| format!("cannot empty {}", dir.display()))
}

/// Runs one client; what is missing for it is no error here.
fn run_one(stage: &Stage, client: &Client) -> anyhow::Result<Result<Outcome, String>> {
    let ended = match client.run {
        Run::Served(run) => stage.serve(client.name, &[], |server| run(stage, server)),
        Run::Alone(run) => run(stage),
    };
    match ended {
        Ok(outcome) => Ok(Ok(outcome)),
        Err(error) => match error.downcast::<Missing>() {
            Ok(missing) => Ok(Err(missing.0)),
            Err(error) => Err(error.context(format!("cannot run {}", client.name))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    #[test]
    fn a_failed_check_is_reported_with_its_last_lines() {
        let outcome = Outcome::of_lines("ok one\nFAILED two\nwhere\nwhy\nok three\n", false);
        assert_eq!((outcome.passed, outcome.skipped), (2, 0));
        assert_eq!(outcome.failed, ["two\n        where\n        why"]);
        let long: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let outcome = Outcome::of_lines(&format!("FAILED two\n{long}"), false);
        assert!(outcome.failed[0].starts_with("two\n        line 80\n"), "{outcome:?}");
        assert!(outcome.failed[0].ends_with("line 99"), "{outcome:?}");
    }

    #[test]
    fn a_program_that_ends_badly_without_a_failed_check_has_failed() {
        let outcome = Outcome::of_lines("ok one\nTraceback", false);
        assert_eq!(outcome.failed, ["the program failed: Traceback"]);
    }
}
