//! Requests to a Forebay, and its answers.
//!
//! Invariant: an answer held in memory has at most [`BODY_SIZE_MAX`] bytes, and a line of a
//! streamed one at most [`LINE_SIZE_MAX`].

#![deny(clippy::indexing_slicing)]

use std::time::Duration;

use forebay_base::address;
use forebay_base::error_chain::chain;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Certificate, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::settings::Settings;

/// Maximum size of an answer in bytes. A page of documents has 8 MiB, or one larger document.
const BODY_SIZE_MAX: usize = 256 << 20;
/// Maximum size of a line in bytes.
const LINE_SIZE_MAX: usize = 64 << 20;
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a read.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// A server and its connection settings.
#[derive(Debug, Clone)]
pub(super) struct Server {
    http: reqwest::Client,
    base: Url,
    settings: Settings,
}

/// A server's description of an error.
#[derive(Debug, Deserialize)]
struct Problem {
    error: ProblemText,
}

#[derive(Debug, Deserialize)]
struct ProblemText {
    message: String,
}

/// An error answer, as text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Answer(String);

impl Server {
    /// Creates a client with these settings; sends nothing.
    pub(super) fn new(settings: &Settings) -> Result<Self> {
        let base: Option<Url> = settings.url.expose().parse().ok();
        let Some(base) = base.filter(|url| url.has_host() && !url.cannot_be_a_base()) else {
            return Err(ConnectorError::unsupported(
                format!(
                    "{:?} is not the address of a Forebay",
                    address::shown(settings.url.expose())
                ),
                "set `url` to https://HOST:PORT",
            ));
        };
        let is_secret = base.scheme() == "https" || is_local(&base);
        if settings.key.is_some() && !is_secret && !settings.allow_http {
            return Err(ConnectorError::unsupported(
                "the key would be sent over an unencrypted connection",
                "use https://, or set `allow_http: true` if the network is trusted",
            ));
        }
        let mut client = reqwest::Client::builder()
            .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENT_MAX)
            // A key is for this server alone.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(file) = &settings.tls_ca_file {
            let unread = |source: Box<dyn std::error::Error + Send + Sync>| {
                ConnectorError::file("read certificates of", &file.0, source)
            };
            let pem = std::fs::read(&file.0).map_err(|error| unread(error.into()))?;
            let trusted = Certificate::from_pem_bundle(&pem).map_err(|e| unread(e.into()))?;
            client = client.tls_built_in_root_certs(false);
            for certificate in trusted {
                client = client.add_root_certificate(certificate);
            }
        }
        let http = client.build().map_err(|error| ConnectorError::Refused {
            act: "set up connections to a Forebay".into(),
            source: error.into(),
        })?;
        Ok(Self { http, base, settings: settings.clone() })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> String {
        format!("Forebay at {}", address::shown(self.base.as_str()))
    }

    /// The address of a route.
    fn route(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => drop(segments.pop_if_empty().extend(path)),
            Err(()) => unreachable!("an address that can have no path was refused"),
        }
        url
    }

    /// Sends a request, and returns the answer whatever its status is.
    async fn send(&self, act: &str, request: RequestBuilder) -> Result<Response> {
        let request = match &self.settings.key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        };
        request.send().await.map_err(|error| self.unreachable(act, error))
    }

    /// The error of an answer with this status and body.
    pub(super) fn refused(&self, act: &str, status: StatusCode, body: &[u8]) -> ConnectorError {
        let text = serde_json::from_slice::<Problem>(body).map_or_else(
            |_| format!("the server answered {status}"),
            |problem| format!("{} ({status})", problem.error.message),
        );
        let act = format!("{act} of {}", self.name());
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::INSUFFICIENT_STORAGE
            | StatusCode::BAD_GATEWAY
            | StatusCode::GATEWAY_TIMEOUT => {
                ConnectorError::Busy { act, source: Answer(text).into() }
            }
            _ => ConnectorError::Refused { act, source: Answer(text).into() },
        }
    }

    /// Sends a request.
    ///
    /// * `act`: what is attempted, for messages.
    pub(super) async fn get(
        &self,
        act: &str,
        path: &[&str],
        query: &[(String, String)],
        accept: &'static str,
    ) -> Result<Response> {
        let request = self.http.get(self.route(path)).query(query).header(ACCEPT, accept);
        let answer = self.send(act, request).await?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(answer);
        }
        let body = self.body(act, answer).await.unwrap_or_default();
        Err(self.refused(act, status, &body))
    }

    /// Sends a request, and returns the status and the complete body of the answer.
    async fn exchange(&self, act: &str, request: RequestBuilder) -> Result<(StatusCode, Vec<u8>)> {
        let answer = self.send(act, request).await?;
        Ok((answer.status(), self.body(act, answer).await?))
    }

    /// Sends lines of JSON, and returns the status and body of the answer. If there is no answer, they are sent
    /// once more: whatever they do must be the same when it is done twice.
    pub(super) async fn post_lines(
        &self,
        act: &str,
        path: &[&str],
        query: &[(&str, &str)],
        lines: Vec<u8>,
    ) -> Result<(StatusCode, Vec<u8>)> {
        let request = self.http.post(self.route(path)).query(query);
        let request = request.header(CONTENT_TYPE, "application/x-ndjson").body(lines);
        let again = request.try_clone();
        match (self.exchange(act, request).await, again) {
            (Err(error), Some(again)) if error.is_retryable() => {
                tracing::debug!(act, error = %chain(&error), "sending a request again");
                self.exchange(act, again).await
            }
            (result, _) => result,
        }
    }

    /// Requests JSON.
    pub(super) async fn json<T: DeserializeOwned>(&self, act: &str, path: &[&str]) -> Result<T> {
        let answer = self.get(act, path, &[], "application/json").await?;
        let body = self.body(act, answer).await?;
        serde_json::from_slice(&body).map_err(|error| self.misunderstood(act, error))
    }

    /// Reads a complete answer.
    pub(super) async fn body(&self, act: &str, mut answer: Response) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(bytes) =
            answer.chunk().await.map_err(|error| self.unreachable(act, error))?
        {
            if body.len() + bytes.len() > BODY_SIZE_MAX {
                return Err(self.misunderstood(act, "it is larger than 256 MiB"));
            }
            body.extend_from_slice(&bytes);
        }
        Ok(body)
    }

    /// Streams the lines of an answer.
    pub(super) fn lines<'a>(&'a self, act: &'a str, answer: Response) -> Lines<'a> {
        Lines { server: self, act, answer, held: Vec::new(), taken: 0 }
    }

    /// An error for an invalid answer.
    pub(super) fn misunderstood(
        &self,
        act: &str,
        found: impl Into<forebay_sdk::error::Cause>,
    ) -> ConnectorError {
        ConnectorError::Refused {
            act: format!("interpret the answer of {} to: {act}", self.name()),
            source: found.into(),
        }
    }

    fn unreachable(&self, act: &str, error: reqwest::Error) -> ConnectorError {
        // The address is already in the message, and the query is not needed.
        let source = error.without_url().into();
        ConnectorError::Unreachable { what: format!("{} to {act}", self.name()), source }
    }
}

fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Lines of an answer.
pub(super) struct Lines<'a> {
    server: &'a Server,
    act: &'a str,
    answer: Response,
    held: Vec<u8>,
    /// Number of buffered bytes that were returned.
    taken: usize,
}

impl Lines<'_> {
    /// The next line that is not empty, without its end.
    ///
    /// # Errors
    /// The answer was interrupted, or a line is too long.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>> {
        let mut looked = self.taken;
        loop {
            let rest = self.held.get(looked..).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', rest) {
                let (from, to) = (self.taken, looked + at);
                (self.taken, looked) = (to + 1, to + 1);
                if from < to {
                    return Ok(self.held.get(from..to));
                }
                continue;
            }
            self.held.drain(..self.taken);
            self.taken = 0;
            looked = self.held.len();
            if looked > LINE_SIZE_MAX {
                return Err(self.server.misunderstood(self.act, "a line is larger than 64 MiB"));
            }
            let more = self.answer.chunk().await;
            match more.map_err(|error| self.server.unreachable(self.act, error))? {
                Some(bytes) => self.held.extend_from_slice(&bytes),
                None if self.held.is_empty() => return Ok(None),
                None => self.held.push(b'\n'),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Result<Server> {
        let settings: Settings = serde_json::from_value(serde_json::json!({ "url": url })).unwrap();
        assert!(!format!("{settings:?}").contains("hunter2"));
        Server::new(&settings)
    }

    #[test]
    fn a_password_in_an_address_is_never_shown() {
        let known = server("https://ann:hunter2@example.org:1/?token=hunter2").unwrap();
        assert_eq!(known.name(), "Forebay at https://***@example.org:1/?token=***");
        for refused in ["ann:hunter2@example.org", "https://ann:hunter2@"] {
            let error = server(refused).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
