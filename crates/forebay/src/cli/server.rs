//! A running server, as commands that ask it see it.

use std::time::Duration;

use anyhow::Context as _;

use crate::exit::{Coded, Exit};

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
/// * `path`: what is to be asked for, for the message about what is not supported.
pub(super) fn base_url(server: &str, path: &str) -> anyhow::Result<String> {
    let server = server.trim_end_matches('/');
    if server.starts_with("https://") {
        let text = format!("only http:// is supported; over TLS use: curl '{server}{path}'");
        return Err(Coded::error(Exit::Usage, text));
    }
    Ok(match server.contains("://") {
        true => server.to_owned(),
        false => format!("http://{server}"),
    })
}

/// A server to be asked.
pub(super) struct Server<'a> {
    url: String,
    key: Option<&'a str>,
}

impl<'a> Server<'a> {
    /// * `path`: what is to be asked for, for the message about what is not supported.
    pub(super) fn new(server: &str, key: Option<&'a str>, path: &str) -> anyhow::Result<Self> {
        Ok(Self { url: base_url(server, path)?, key })
    }

    pub(super) fn get(&self, path: &str, accept: &str) -> anyhow::Result<String> {
        let request = ureq::get(format!("{}{path}", self.url));
        let mut request = request.config().http_status_as_error(false).build();
        request = request.header("accept", accept);
        if let Some(key) = self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        self.answer(request.call())
    }

    pub(super) fn post(&self, path: &str) -> anyhow::Result<String> {
        let request = ureq::post(format!("{}{path}", self.url));
        let mut request = request.config().http_status_as_error(false).build();
        if let Some(key) = self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        self.answer(request.send_empty())
    }

    pub(super) fn post_json(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<String> {
        let request = ureq::post(format!("{}{path}", self.url));
        let mut request = request.config().http_status_as_error(false).build();
        request = request.header("content-type", "application/json");
        if let Some(key) = self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        self.answer(request.send(body.to_string()))
    }

    pub(super) fn patch_json(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> anyhow::Result<String> {
        let request = ureq::patch(format!("{}{path}", self.url));
        let mut request = request.config().http_status_as_error(false).build();
        request = request.header("content-type", "application/json");
        if let Some(key) = self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        self.answer(request.send(body.to_string()))
    }

    /// The URL of a path.
    pub(super) fn address(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(super) fn delete(&self, path: &str) -> anyhow::Result<String> {
        let request = ureq::delete(format!("{}{path}", self.url));
        let mut request = request.config().http_status_as_error(false).build();
        if let Some(key) = self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        self.answer(request.call())
    }

    /// Reads an answer to its end, however long that takes, and drops it; returns whether that was within
    /// `limit`.
    pub(super) fn outlast(&self, path: &str, limit: Option<Duration>) -> anyhow::Result<bool> {
        let request = ureq::get(format!("{}{path}", self.url));
        let request = request.config().http_status_as_error(false).timeout_global(limit).build();
        let request = match self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        };
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
        let mut answer = answer.with_context(|| format!("cannot connect to {server}"))?;
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
