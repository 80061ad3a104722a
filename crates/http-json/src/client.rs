//! Requests: redirects are followed, transient failures are repeated, and what is received is limited.
//!
//! Invariants: headers of the settings are sent to their server only; an answer in memory has at most
//! [`Limits::size`] bytes; no request takes longer than [`Limits::time`]; an address is judged before it is used.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use forebay_base::backoff::Backoff;
use forebay_sdk::ConnectorError;
use forebay_sdk::connector::Result;
use forebay_sdk::platform;
use forebay_sdk::run::Context;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use url::Url;

use crate::address::{self, Base, Origin, Reached, shown};
use crate::answer::{self, Meaning, Secrets, Unwanted};
use crate::connect::{Encryption, Link, open};
use crate::settings::Settings;

/// Maximum number of redirects.
const REDIRECTS_MAX: u32 = 5;
/// Maximum size of the head of an answer in bytes.
const HEAD_SIZE_MAX: usize = 64 << 10;
/// Maximum number of headers of an answer.
const HEADERS_MAX: usize = 100;
/// Bytes that are read of the body of an answer other than the requested one.
const EXCERPT_SIZE_MAX: usize = 4 << 10;
/// Maximum delay before the first repetition, and before any.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Limits on requests.
#[derive(Debug, Clone, Copy)]
struct Limits {
    time: Duration,
    retries: u32,
    retry_after: Duration,
    /// Bytes of a body.
    size: usize,
}

/// An answer with its body.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The address that answered, after redirects.
    pub(crate) url: Url,
    /// Values of the header `Link`.
    pub(crate) links: Vec<String>,
    /// Its body; `None` if the status is that there is none.
    pub(crate) body: Option<Vec<u8>>,
}

/// A client of one API.
pub(crate) struct Client {
    base: Base,
    headers: HeaderMap,
    secrets: Secrets,
    tls_ca_file: Option<String>,
    encryption: OnceLock<Encryption>,
    limits: Limits,
    /// A connection that waits for its next request.
    idle: Mutex<Option<(Origin, SendRequest<Empty<Bytes>>)>>,
}

/// What a request became.
enum Outcome {
    Answer(Answer),
    Redirect(Url),
}

/// Why a request failed.
enum Failed {
    /// Another attempt may succeed, after the time that the server asks for.
    Passing(ConnectorError, Option<Duration>),
    Final(ConnectorError),
}

impl From<ConnectorError> for Failed {
    fn from(error: ConnectorError) -> Self {
        if error.is_retryable() { Self::Passing(error, None) } else { Self::Final(error) }
    }
}

impl Client {
    /// Creates a client; sends nothing.
    ///
    /// # Errors
    /// Settings that cannot be used.
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        let base = Base::new(settings)?;
        let mut secrets = Secrets::default();
        settings.headers.values().for_each(|value| secrets.add(value.expose()));
        let queries = settings.streams.iter().flat_map(|stream| stream.query.values());
        queries.for_each(|value| secrets.add(value.expose()));
        Ok(Self {
            base,
            headers: address::headers(&settings.headers)?,
            secrets,
            tls_ca_file: settings.tls_ca_file.as_ref().map(|file| file.0.clone()),
            encryption: OnceLock::new(),
            limits: Limits {
                time: settings.timeout.get(),
                retries: settings.retries,
                retry_after: settings.retry_after_max.get(),
                size: usize::try_from(settings.max_response_size.0).unwrap_or(usize::MAX),
            },
            idle: Mutex::new(None),
        })
    }

    /// The servers that may be reached.
    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    /// The beginning of a body, for messages.
    pub(crate) fn excerpt(&self, body: &[u8]) -> String {
        self.secrets.excerpt(body)
    }

    /// Requests an address.
    ///
    /// # Errors
    /// The server was not reached, refused, or sent what is not an answer within the limits.
    pub(crate) async fn get(&self, url: &Url, context: &Context) -> Result<Answer> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let reached = self.base.judge(&url).map_err(|found| refused(&url, found))?;
            match self.repeat(&url, reached, context).await? {
                Outcome::Answer(answer) => return Ok(answer),
                Outcome::Redirect(to) => url = to,
            }
        }
        Err(refused(&url, format!("the server redirected more than {REDIRECTS_MAX} times")))
    }

    /// Requests an address until it answers, or has failed too often.
    async fn repeat(&self, url: &Url, reached: Reached, context: &Context) -> Result<Outcome> {
        let mut backoff = Backoff::new(RETRY_DELAYS.0, RETRY_DELAYS.1);
        let mut attempt = 0;
        loop {
            let sent = platform::timeout(self.limits.time, self.once(url, reached)).await;
            let failed = sent.unwrap_or_else(|elapsed| Err(unreachable(url, elapsed).into()));
            let (error, asked) = match failed {
                Ok(outcome) => return Ok(outcome),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Passing(error, asked)) => (error, asked),
            };
            if attempt >= self.limits.retries {
                return Err(error);
            }
            if let Some(asked) = asked.filter(|asked| *asked > self.limits.retry_after) {
                let limit = self.limits.retry_after;
                let found = format!(
                    "the server asks to wait {asked:?}, which is more than `retry_after_max`, {limit:?}"
                );
                return Err(refused(url, found));
            }
            attempt += 1;
            let wait = asked.unwrap_or_else(|| backoff.delay());
            tracing::debug!(url = shown(url), attempt, ?wait, %error, "a request is repeated");
            tokio::select! {
                () = platform::sleep(wait) => {}
                () = context.cancelled() => return Err(ConnectorError::Stopped),
            }
        }
    }

    /// Sends a request once, and receives the answer.
    async fn once(&self, url: &Url, reached: Reached) -> Result<Outcome, Failed> {
        let request = self.request(url, reached)?;
        let (mut sender, response) = match self.send_to_idle(url, &request).await {
            Some(sent) => sent,
            None => {
                let mut sender = self.connect(url, reached).await?;
                let response = sender.send_request(request).await;
                (sender, response.map_err(|error| unreachable(url, error))?)
            }
        };
        let (head, body) = response.into_parts();
        let outcome = match answer::meaning(head.status) {
            Meaning::Content => {
                if let Some(encoding) = answer::encoding(&head.headers) {
                    let found = format!(
                        "the answer is encoded as {encoding}, although `accept-encoding: identity` was sent"
                    );
                    return Err(Failed::Final(refused(url, found)));
                }
                let body = Some(self.receive(url, body).await?);
                Outcome::Answer(Answer { url: url.clone(), links: links(&head.headers), body })
            }
            Meaning::Nothing => Outcome::Answer(Answer {
                url: url.clone(),
                links: links(&head.headers),
                body: None,
            }),
            Meaning::Redirect => return Ok(Outcome::Redirect(target(url, &head.headers)?)),
            meaning => {
                return Err(self.unwanted(url, meaning, head.status, &head.headers, body).await);
            }
        };
        // It is used again if the server keeps it open, and is closed otherwise.
        if let (Some(origin), Ok(())) = (Origin::of(url), sender.ready().await) {
            *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some((origin, sender));
        }
        Ok(outcome)
    }

    /// The request of an address.
    fn request(&self, url: &Url, reached: Reached) -> Result<Request<Empty<Bytes>>, Failed> {
        let mut target = url.path().to_owned();
        if let Some(query) = url.query() {
            target.push('?');
            target.push_str(query);
        }
        let host = url.host_str().unwrap_or_default();
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let mut request = Request::get(target)
            .header(header::HOST, host)
            .header(header::ACCEPT, HeaderValue::from_static("application/json"))
            .header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header(header::USER_AGENT, concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .body(Empty::new())
            .map_err(|error| Failed::Final(refused(url, error.to_string())))?;
        if reached == Reached::Own {
            for (name, value) in &self.headers {
                request.headers_mut().insert(name.clone(), value.clone());
            }
        }
        Ok(request)
    }

    /// Sends a request over the connection that waits; `None` if there is none, or it was closed meanwhile.
    async fn send_to_idle(
        &self,
        url: &Url,
        request: &Request<Empty<Bytes>>,
    ) -> Option<(SendRequest<Empty<Bytes>>, Response<Incoming>)> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (origin, mut sender) = idle?;
        if Origin::of(url).as_ref() != Some(&origin) || sender.is_closed() {
            return None;
        }
        let response = sender.send_request(request.clone()).await.ok()?;
        Some((sender, response))
    }

    /// Makes a connection. A task does its reading and writing until the client is dropped.
    async fn connect(
        &self,
        url: &Url,
        reached: Reached,
    ) -> Result<SendRequest<Empty<Bytes>>, Failed> {
        let Some(origin) = Origin::of(url) else {
            return Err(Failed::Final(refused(url, "it is not an address of HTTP".to_owned())));
        };
        let encryption = match origin.is_encrypted() {
            true => Some(self.encryption()?),
            false => None,
        };
        let stream = open(&origin, reached, encryption, self.limits.time).await?;
        let made = http1::Builder::new()
            .max_buf_size(HEAD_SIZE_MAX)
            .max_headers(HEADERS_MAX)
            .handshake(Link(stream))
            .await;
        let (sender, connection) = made.map_err(|error| unreachable(url, error))?;
        platform::spawn(async move {
            // The request that it belongs to gets the same error.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to an API ended");
            }
        });
        Ok(sender)
    }

    fn encryption(&self) -> Result<&Encryption> {
        if let Some(known) = self.encryption.get() {
            return Ok(known);
        }
        let made = Encryption::trusting(self.tls_ca_file.as_deref())?;
        Ok(self.encryption.get_or_init(|| made))
    }

    /// The body of the requested answer.
    async fn receive(&self, url: &Url, mut body: Incoming) -> Result<Vec<u8>, Failed> {
        let limit = self.limits.size;
        let too_large = || {
            let found = format!("the answer has more than `max_response_size`, {limit} bytes");
            Failed::Final(refused(url, found))
        };
        let announced = body.size_hint().exact().unwrap_or(0);
        if usize::try_from(announced).map_or(true, |size| size > limit) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| unreachable(url, error))?;
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > limit.saturating_sub(bytes.len()) {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }

    /// The error of another answer than the requested one, with the beginning of its body.
    async fn unwanted(
        &self,
        url: &Url,
        meaning: Meaning,
        status: StatusCode,
        headers: &HeaderMap,
        mut body: Incoming,
    ) -> Failed {
        let mut bytes = Vec::new();
        while bytes.len() < EXCERPT_SIZE_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            let data = frame.into_data().unwrap_or_default();
            let room = EXCERPT_SIZE_MAX - bytes.len();
            bytes.extend_from_slice(data.get(..room).unwrap_or(&data));
        }
        let text = match (answer::encoding(headers), self.excerpt(&bytes)) {
            (None, text) if !text.is_empty() => format!("the server answered {status}: {text}"),
            _ => format!("the server answered {status}"),
        };
        match meaning {
            Meaning::Later => {
                let (act, source) = (act(url), Unwanted(text).into());
                Failed::Passing(ConnectorError::Busy { act, source }, answer::retry_after(headers))
            }
            _ => Failed::Final(refused(url, text)),
        }
    }
}

/// Values of the header `Link`.
fn links(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::LINK).iter();
    values.filter_map(|value| value.to_str().ok().map(ToOwned::to_owned)).collect()
}

/// The address that an answer redirects to.
fn target(url: &Url, headers: &HeaderMap) -> Result<Url, Failed> {
    let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let mut target = location.and_then(|location| url.join(location).ok()).ok_or_else(|| {
        Failed::Final(refused(url, "the server redirects to no valid address".to_owned()))
    })?;
    target.set_fragment(None);
    Ok(target)
}

fn act(url: &Url) -> String {
    format!("read {}", shown(url))
}

/// The error of an answer that does not help, however often it is requested.
pub(crate) fn refused(url: &Url, found: String) -> ConnectorError {
    ConnectorError::Refused { act: act(url), source: Unwanted(found).into() }
}

fn unreachable(url: &Url, source: impl Into<forebay_sdk::error::Cause>) -> ConnectorError {
    ConnectorError::Unreachable { what: shown(url), source: source.into() }
}
