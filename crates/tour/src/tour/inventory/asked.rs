//! Requests of the inventory chapter: every one of them must succeed.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::tour::client::{Answer, Connection, Request};

/// A connection whose answers are required to be successful.
pub(super) struct Asked {
    pub(super) connection: Connection,
}

impl Asked {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { connection: Connection::new(address) }
    }

    fn ask(&mut self, request: Request<'_>) -> anyhow::Result<Answer> {
        let what = || format!("{} {}", request.method, request.path);
        let answer = self.connection.ask(request).with_context(what)?;
        ensure!(answer.status / 100 == 2, "{} was answered {}", what(), answer.describe());
        Ok(answer)
    }

    /// Returns what a path has, as JSON.
    pub(super) fn json(&mut self, path: &str) -> anyhow::Result<Value> {
        let body = self.ask(Request::get(path))?.body;
        serde_json::from_slice(&body).with_context(|| format!("GET {path} did not return JSON"))
    }

    /// Sends a document; returns the path of the job that the answer links to.
    pub(super) fn post(&mut self, path: &str, body: &Value) -> anyhow::Result<Option<String>> {
        let body = body.to_string();
        let request = Request { method: "POST", path, headers: &[], body: body.as_bytes() };
        let answer = self.ask(request)?;
        let target = answer.header("link").and_then(|link| link.strip_prefix('<')?.split_once('>'));
        Ok(target.map(|(target, _)| target.to_owned()))
    }

    pub(super) fn put(&mut self, path: &str, body: &[u8]) -> anyhow::Result<()> {
        self.ask(Request { method: "PUT", path, headers: &[], body }).map(drop)
    }

    pub(super) fn delete(&mut self, path: &str) -> anyhow::Result<()> {
        self.ask(Request { method: "DELETE", path, headers: &[], body: &[] }).map(drop)
    }
}
