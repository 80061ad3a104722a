//! A client of a server's files and documents, for commands that move bytes: one connection pool for many
//! threads.
//!
//! Invariants: what a server sends is limited in size, except the bytes of a file; a failure says
//! whether it may pass, so that the caller can repeat the request.

use std::io::Read;
use std::time::Duration;

use anyhow::Context as _;
use forebay_intake::answer::file_url;
use forebay_intake::names::{FileName, Namespace};
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::Method;
use ureq::http::header::EXPECT;
use ureq::http::request::Builder;

use super::https::{self, Cause};
use super::server::CONTINUE;
use super::server::base_url;
use crate::exit::{Coded, Exit};

/// Maximum size of an answer that is not a file, in bytes.
const ANSWER_SIZE_MAX: u64 = 16 << 20;
/// Time limit for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for an answer to begin once the request was sent.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);
/// Maximum delay that a server may ask for before a request is repeated.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Which server.
#[derive(clap::Args, Debug)]
pub(super) struct ClientArgs {
    /// URL of the server.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    server: String,
    /// API key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// Reads the name of a namespace.
pub(super) fn namespace(text: &str) -> Result<Namespace, String> {
    Namespace::parse(text).map_err(|error| error.to_string())
}

/// Reads `NAME=VALUE`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or("it is written as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The namespace and name of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) namespace: Namespace,
    pub(super) name: FileName,
}

impl Target {
    /// Reads `NAMESPACE/NAME`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (namespace, name) =
            text.split_once('/').ok_or("a file is written as NAMESPACE/NAME".to_owned())?;
        let namespace = self::namespace(namespace)?;
        let name = FileName::parse(name).map_err(|error| error.to_string())?;
        Ok(Self { namespace, name })
    }

    /// Its URL path.
    pub(super) fn path(&self) -> String {
        file_url(self.namespace.as_str(), self.name.as_str())
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A stored file, as its headers describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) size: u64,
    /// SHA-256 in hexadecimal.
    pub(super) sha256: String,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The server refused it.
    #[error("{server} answers {status}: {message}")]
    Refused {
        /// URL of the server.
        server: String,
        /// HTTP status.
        status: u16,
        /// What the server says.
        message: String,
        /// The delay it asks for.
        retry_after: Option<Duration>,
    },
    /// There was no answer.
    #[error("cannot reach {server}")]
    Unreachable {
        /// URL of the server.
        server: String,
        /// What failed.
        #[source]
        source: Cause,
    },
}

impl Failure {
    /// Whether the same request may succeed later, and the delay that the server asks for.
    pub(super) fn passes(&self) -> Option<Duration> {
        match self {
            Self::Refused { status: 408 | 429 | 502 | 503 | 504, retry_after, .. } => {
                Some(retry_after.unwrap_or_default())
            }
            Self::Unreachable { source, .. } => source.passes().then_some(Duration::ZERO),
            Self::Refused { .. } => None,
        }
    }

    /// Whether there was no answer.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Whether every other request would be refused, too.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Refused { status: 401 | 403, .. })
    }
}

/// A client of one server.
#[derive(Debug, Clone)]
pub(super) struct Client {
    agent: ureq::Agent,
    url: String,
    authorization: Option<String>,
}

/// The answer to a request.
pub(super) type Answer = ureq::http::Response<ureq::Body>;

impl Client {
    pub(super) fn new(from: &ClientArgs) -> anyhow::Result<Self> {
        Self::of_route(from, "/v1/files")
    }

    /// * `path`: what is to be asked for, for the message about what is not supported.
    pub(super) fn of_route(from: &ClientArgs, path: &str) -> anyhow::Result<Self> {
        let url = base_url(&from.server, path)?;
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .tls_config(https::config(&url, None)?)
            .timeout_connect(Some(CONNECT_LIMIT))
            .timeout_recv_response(Some(ANSWER_LIMIT))
            .max_idle_connections_per_host(64)
            .build();
        let authorization = from.key.as_ref().map(|key| format!("Bearer {key}"));
        Ok(Self { agent: config.into(), url, authorization })
    }

    /// Fetches an answer in JSON.
    pub(super) fn json(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.with_key(self.agent.get(format!("{}{path}", self.url)));
        let answer = self.answered(request.header("accept", "application/json").call())?;
        self.parsed(answer)
    }

    /// Fetches a file, to be read from the answer.
    ///
    /// * `version`: id of an earlier version.
    pub(super) fn get(&self, target: &Target, version: Option<&str>) -> Result<Answer, Failure> {
        let version = version.map(|id| format!("?version={}", super::server::encode(id)));
        let path = target.path() + &version.unwrap_or_default();
        let request = self.agent.get(format!("{}{path}", self.url));
        self.answered(self.with_key(request).call())
    }

    /// Looks up a file; `None` if there is none.
    pub(super) fn head(&self, target: &Target) -> Result<Option<Known>, Failure> {
        let request = self.agent.head(format!("{}{}", self.url, target.path()));
        let answer = match self.answered(self.with_key(request).call()) {
            Ok(answer) => answer,
            Err(Failure::Refused { status: 404, .. }) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let header = |name: &str| answer.headers().get(name)?.to_str().ok();
        let size = header("content-length").and_then(|size| size.parse().ok());
        let sha256 = header("etag").map(|etag| etag.trim_matches('"').to_owned());
        Ok(size.zip(sha256).map(|(size, sha256)| Known { size, sha256 }))
    }

    /// Stores a file.
    ///
    /// * `size`: number of bytes of `source`, if it is known.
    /// * `comment`: stored with the file; may be empty.
    pub(super) fn put(
        &self,
        target: &Target,
        source: &mut dyn Read,
        size: Option<u64>,
        comment: &str,
        if_absent: bool,
    ) -> Result<Value, Failure> {
        let query = match comment {
            "" => String::new(),
            comment => format!("?comment={}", super::server::encode(comment)),
        };
        let mut request = self.agent.put(format!("{}{}{query}", self.url, target.path()));
        request = request.header(EXPECT, CONTINUE);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        if let Some(size) = size {
            request = request.header("content-length", size.to_string());
        }
        if if_absent {
            request = request.header("if-none-match", "*");
        }
        let answer = self.answered(request.send(ureq::SendBody::from_reader(source)))?;
        let status = answer.status().as_u16();
        self.parsed(answer).map_err(|error| Failure::Refused {
            server: self.url.clone(),
            status,
            message: format!("{error:#}"),
            retry_after: None,
        })
    }

    /// Deletes a file; `false` if there is none.
    pub(super) fn delete(&self, target: &Target) -> Result<bool, Failure> {
        let request = self.agent.delete(format!("{}{}", self.url, target.path()));
        match self.answered(self.with_key(request).call()) {
            Ok(_) => Ok(true),
            Err(Failure::Refused { status: 404, .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Begins a request to a path of the server.
    pub(super) fn request(&self, method: Method, path: &str) -> Builder {
        let has_body = [Method::POST, Method::PUT, Method::PATCH].contains(&method);
        let mut request = Builder::new().method(method).uri(format!("{}{path}", self.url));
        if has_body {
            request = request.header(EXPECT, CONTINUE);
        }
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    /// Sends a request, and returns a successful answer.
    pub(super) fn send(
        &self,
        request: Builder,
        body: ureq::SendBody<'_>,
    ) -> Result<Answer, Failure> {
        self.answered(self.sent(request, body))
    }

    /// Sends a request with a body of JSON, if there is one, and reads the JSON of the answer.
    pub(super) fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let request = self.request(method, path).header("accept", "application/json");
        let answer = match body {
            Some(body) => {
                let body = body.to_string();
                let request = request.header("content-type", "application/json");
                self.send(request, ureq::SendBody::from_reader(&mut body.as_bytes()))?
            }
            None => self.send(request, ureq::SendBody::none())?,
        };
        self.read(answer, ANSWER_SIZE_MAX)
    }

    /// Sends a request, and returns an answer of any status.
    pub(super) fn send_for_any(
        &self,
        request: Builder,
        body: ureq::SendBody<'_>,
    ) -> Result<Answer, Failure> {
        self.sent(request, body).map_err(|source| self.unreachable(source))
    }

    fn sent(&self, request: Builder, body: ureq::SendBody<'_>) -> Result<Answer, ureq::Error> {
        self.agent.run(request.body(body)?)
    }

    /// Reads the JSON of an answer of at most `size_max` bytes.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        mut answer: Answer,
        size_max: u64,
    ) -> Result<T, Failure> {
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(size_max).read_to_string();
        let body = body.map_err(|source| self.unreachable(source))?;
        serde_json::from_str(&body).map_err(|error| Failure::Refused {
            server: self.url.clone(),
            status,
            message: format!("its response cannot be read as JSON: {error}"),
            retry_after: None,
        })
    }

    /// The refusal that an answer is.
    pub(super) fn refusal(&self, mut answer: Answer) -> Failure {
        let server = self.url.clone();
        let status = answer.status().as_u16();
        let after = answer.headers().get("retry-after").and_then(|after| after.to_str().ok());
        let after = after.and_then(|after| after.parse().ok()).map(Duration::from_secs);
        let retry_after = after.map(|after| after.min(RETRY_AFTER_MAX));
        let body = answer.body_mut().with_config().limit(ANSWER_SIZE_MAX).read_to_string();
        let body = body.unwrap_or_else(|error| format!("its response cannot be read: {error}"));
        let error = serde_json::from_str::<Value>(&body).unwrap_or_default();
        let message = error["error"]["message"].as_str().map(str::to_owned).unwrap_or(body);
        let message = shown(message.trim());
        Failure::Refused { server, status, message, retry_after }
    }

    /// The failure of a request whose answer is not as expected.
    pub(super) fn misunderstood(&self, answer: &Answer, message: &str) -> Failure {
        let (server, status) = (self.url.clone(), answer.status().as_u16());
        Failure::Refused { server, status, message: message.to_owned(), retry_after: None }
    }

    fn unreachable(&self, source: ureq::Error) -> Failure {
        Failure::Unreachable { server: self.url.clone(), source: Cause::of(source) }
    }

    fn with_key(
        &self,
        request: ureq::RequestBuilder<ureq::typestate::WithoutBody>,
    ) -> ureq::RequestBuilder<ureq::typestate::WithoutBody> {
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    /// A successful answer.
    fn answered(&self, answer: Result<Answer, ureq::Error>) -> Result<Answer, Failure> {
        let answer = answer.map_err(|source| self.unreachable(source))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(self.refusal(answer))
    }

    fn parsed(&self, mut answer: Answer) -> anyhow::Result<Value> {
        let server = &self.url;
        let body = answer.body_mut().with_config().limit(ANSWER_SIZE_MAX).read_to_string();
        let body = body.with_context(|| format!("cannot read the response of {server}"))?;
        serde_json::from_str(&body).with_context(|| format!("the response of {server} is not JSON"))
    }
}

/// An error of a command for a failed request.
pub(super) fn failed(failure: Failure) -> anyhow::Error {
    Coded::wrap(Exit::Failed, "the request failed", failure.into())
}

/// Text of a server or a file system, safe for a terminal: control characters are escaped.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_namespace_and_a_name() {
        let target = Target::parse("docs/a b/c.txt").unwrap();
        assert_eq!(
            (target.to_string().as_str(), target.path().as_str()),
            ("docs/a b/c.txt", "/v1/files/docs/a%20b/c.txt")
        );
        for text in ["", "docs", "docs/", "/a", "Docs/a", "docs/../a", "docs/a\n"] {
            assert!(Target::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(shown("a\u{1b}[31m\nb é"), "a\\u{1b}[31m\\nb é");
    }
}
