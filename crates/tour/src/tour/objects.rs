//! The chapter about the S3-compatible API: objects are files, and the other way round, also after a kill.
//!
//! It has a server of its own: one with an API key answers nothing without it, and the other chapters have none.

use std::path::Path;

use anyhow::{Context as _, ensure};
use forebay_console::interrupt::Interrupt;
use serde_json::json;

use super::client::{Answer, Connection, Request};
use super::report::Report;
use crate::s3::{Served, Signer};

/// Number of objects stored over S3, and of files stored over HTTP.
const OBJECTS: u16 = 100;
const BUCKET: &str = "tour";

/// What the chapter needs.
pub(super) struct Chapter<'a> {
    pub(super) interrupt: &'a Interrupt,
    pub(super) scratch: &'a Path,
}

/// Requests to both ports of a server.
struct Ports {
    signer: Signer,
    s3: Connection,
    http: Connection,
    key: String,
}

impl Ports {
    fn of(served: &Served) -> Self {
        Self {
            signer: Signer::of(&served.port),
            s3: Connection::new(served.port.address),
            http: Connection::new(served.server.address()),
            key: served.key.clone(),
        }
    }

    fn s3(&mut self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Answer> {
        let headers = self.signer.headers(method, path);
        let request = Request { method, path, headers: &headers, body };
        self.s3.ask(request).with_context(|| format!("{method} {path} over S3"))
    }

    fn http(&mut self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Answer> {
        let headers = [("authorization", format!("Bearer {}", self.key))];
        let request = Request { method, path, headers: &headers, body };
        self.http.ask(request).with_context(|| format!("{method} {path}"))
    }

    fn put(&mut self, number: u16) -> anyhow::Result<()> {
        let bytes = content(number);
        let (over, answer, created) = match number % 2 {
            0 => ("S3", self.s3("PUT", &object(number), &bytes)?, 200),
            _ => ("HTTP", self.http("PUT", &file(number), &bytes)?, 201),
        };
        ensure!(answer.status == created, "a put over {over}: {}", answer.describe());
        Ok(())
    }

    /// Reads an object over the API that did not store it; returns what is wrong with it.
    fn check(&mut self, number: u16) -> anyhow::Result<Option<String>> {
        let (path, answer) = match number % 2 {
            0 => (file(number), self.http("GET", &file(number), &[])?),
            _ => (object(number), self.s3("GET", &object(number), &[])?),
        };
        let is_right = answer.status == 200 && answer.body == content(number);
        Ok((!is_right).then(|| format!("{path} differs: {}", answer.status)))
    }
}

fn object(number: u16) -> String {
    format!("/{BUCKET}/{number:04}.txt")
}

fn file(number: u16) -> String {
    format!("/v1/files/{BUCKET}/{number:04}.txt")
}

fn content(number: u16) -> Vec<u8> {
    format!("object {number} of the tour\n").into_bytes().repeat(1 + usize::from(number) % 50)
}

impl Chapter<'_> {
    /// Runs the chapter.
    pub(super) fn run(&self, report: &mut Report) -> anyhow::Result<()> {
        report.chapter("S3")?;
        let served = Served::start(&self.scratch.join("objects"))?;
        let mut ports = Ports::of(&served);
        let made = ports.s3("PUT", &format!("/{BUCKET}"), &[])?;
        ensure!(made.status == 200, "a bucket was not made: {}", made.describe());
        for number in 0..2 * OBJECTS {
            self.interrupt.check()?;
            ports.put(number)?;
        }
        report.line(format_args!(
            "  {OBJECTS} objects stored over S3 and {OBJECTS} files over HTTP in one bucket; SIGKILL"
        ))?;
        let served = served.kill_and_start()?;
        let mut ports = Ports::of(&served);
        let mut problems = Vec::new();
        for number in 0..2 * OBJECTS {
            self.interrupt.check()?;
            problems.extend(ports.check(number)?);
        }
        let listed = ports.s3("GET", &format!("/{BUCKET}"), &[])?;
        let text = String::from_utf8_lossy(&listed.body);
        let count = text.matches("<Key>").count();
        if listed.status != 200 || count != usize::from(2 * OBJECTS) {
            problems.push(format!("the bucket lists {count} objects: {}", listed.status));
        }
        report.line(format_args!(
            "  after the restart: {} of {} read back byte for byte, each over the other API, and {count} listed",
            usize::from(2 * OBJECTS) - problems.len().min(usize::from(2 * OBJECTS)),
            2 * OBJECTS
        ))?;
        served.server.stop()?;
        report.section("s3", json!({ "objects": count, "problems": problems.len() }));
        report.problems.append(&mut problems);
        Ok(())
    }
}
