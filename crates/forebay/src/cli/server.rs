//! A running server, as commands that ask it see it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use ureq::RequestBuilder;
use ureq::http::header::EXPECT;
use ureq::typestate::WithBody;

use super::https::{self, Cause};
use crate::exit::{Coded, Exit};

/// The body of a request is sent once the server wants it. A server that refuses a request closes the
/// connection, and a client that is still sending would see only that.
pub(super) const CONTINUE: &str = "100-continue";
/// Maximum size of an answer, in bytes.
const ANSWER_SIZE_MAX: u64 = 16 << 20;

/// Which server, and how its answer is printed.
#[derive(clap::Args, Debug)]
pub(super) struct ServerArgs {
    /// URL of the server.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    pub(super) server: String,
    /// API key.
    #[arg(long, value_name = "KEY")]
    pub(super) key: Option<String>,
    /// Print the server's JSON answer.
    #[arg(long)]
    pub(super) json: bool,
}

/// Checks the id of a job or an upload.
///
/// # Errors
/// A message for the command line.
pub(super) fn hex_id(text: &str) -> Result<String, String> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| text.to_ascii_lowercase()).ok_or("an id has 32 hexadecimal digits".to_owned())
}

/// Encodes a text as a segment of a path, or a value of a query.
pub(super) fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// A server's JSON answer.
pub(super) fn parsed(server: &Server<'_>, text: &str) -> anyhow::Result<serde_json::Value> {
    serde_json::from_str(text)
        .with_context(|| format!("the response of {} is not JSON", server.url))
}

/// The URL that requests to a server begin with.
///
/// * `path`: what is to be asked for, for the message about a URL that is not supported.
pub(super) fn base_url(server: &str, path: &str) -> anyhow::Result<String> {
    let server = server.trim_end_matches('/');
    match server.split_once("://") {
        None => Ok(format!("http://{server}")),
        Some(("http" | "https", _)) => Ok(server.to_owned()),
        Some(_) => {
            let text = format!("{server}{path} begins with neither http:// nor https://");
            Err(Coded::error(Exit::Usage, text))
        }
    }
}

/// A server to be asked.
pub(super) struct Server<'a> {
    agent: ureq::Agent,
    url: String,
    key: Option<&'a str>,
}

impl<'a> Server<'a> {
    /// A server whose certificate, if it has one, the system's certificates verify.
    ///
    /// * `path`: what is to be asked for, for the message about a URL that is not supported.
    pub(super) fn new(server: &str, key: Option<&'a str>, path: &str) -> anyhow::Result<Self> {
        Self::trusting(server, key, path, None)
    }

    /// A server whose certificate is verified with those of a file, or the system's.
    pub(super) fn trusting(
        server: &str,
        key: Option<&'a str>,
        path: &str,
        ca_file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let url = base_url(server, path)?;
        Ok(Self { agent: https::agent(&url, ca_file)?, url, key })
    }

    pub(super) fn get(&self, path: &str, accept: &str) -> anyhow::Result<String> {
        let request = self.agent.get(self.address(path)).header("accept", accept);
        self.answer(self.with_key(request).call())
    }

    pub(super) fn post(&self, path: &str) -> anyhow::Result<String> {
        self.answer(self.with_key(self.agent.post(self.address(path))).send_empty())
    }

    pub(super) fn post_json(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<String> {
        self.send_json(self.agent.post(self.address(path)), body)
    }

    pub(super) fn patch_json(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> anyhow::Result<String> {
        self.send_json(self.agent.patch(self.address(path)), body)
    }

    fn send_json(
        &self,
        request: RequestBuilder<WithBody>,
        body: &serde_json::Value,
    ) -> anyhow::Result<String> {
        let request = request.header("content-type", "application/json").header(EXPECT, CONTINUE);
        self.answer(self.with_key(request).send(body.to_string()))
    }

    fn with_key<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    /// The URL of a path.
    pub(super) fn address(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(super) fn delete(&self, path: &str) -> anyhow::Result<String> {
        self.answer(self.with_key(self.agent.delete(self.address(path))).call())
    }

    /// Reads an answer to its end, however long that takes, and drops it; returns whether that was within
    /// `limit`.
    pub(super) fn outlast(&self, path: &str, limit: Option<Duration>) -> anyhow::Result<bool> {
        let request = self.agent.get(self.address(path));
        let request = self.with_key(request.config().timeout_global(limit).build());
        let answer = match request.call() {
            Ok(answer) if answer.status().is_success() => answer,
            Err(ureq::Error::Timeout(_)) => return Ok(false),
            other => return self.answer(other).map(|_| true),
        };
        match std::io::copy(&mut answer.into_body().into_reader(), &mut std::io::sink()) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Ok(false),
            Err(error) => {
                let server = &self.url;
                Err(error).with_context(|| format!("cannot read the response of {server}"))
            }
        }
    }

    /// The body of a successful answer.
    fn answer(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> anyhow::Result<String> {
        let server = &self.url;
        let mut answer =
            answer.map_err(Cause::of).with_context(|| format!("cannot connect to {server}"))?;
        let body = answer.body_mut().with_config().limit(ANSWER_SIZE_MAX).read_to_string();
        let body = body.with_context(|| format!("cannot read the response of {server}"))?;
        if answer.status().is_success() {
            return Ok(body);
        }
        let error = serde_json::from_str::<serde_json::Value>(&body).unwrap_or_default();
        let message = error["error"]["message"].as_str().map(str::to_owned).unwrap_or(body);
        let text = format!("{server} answers {}: {message}", answer.status());
        Err(Coded::error(Exit::Failed, text))
    }
}
