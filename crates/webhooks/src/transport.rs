//! Sending a request: by HTTP, to an address that was checked, within limits.
//!
//! Invariants: the connection is made to an address that [`Allowed`] permits, whatever a name resolved to before
//! (the look-up of the connection is the one that is checked); no redirection is followed and no proxy is used;
//! of an answer at most [`ANSWER_SIZE_MAX`] bytes are kept and [`READ_SIZE_MAX`] are read; a request ends within
//! its time limit; no message has the path, query or secret of a URL.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_base::error_chain::chain;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;

use crate::address::{AddressError, Allowed};

/// Bytes of an answer that are kept.
pub(crate) const ANSWER_SIZE_MAX: usize = 1_024;
/// Bytes of an answer that are read, so that the connection can be used again.
const READ_SIZE_MAX: usize = 64 << 10;
/// Longest time that an unused connection is kept.
const IDLE_LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct Request {
    /// URL of the receiver.
    pub url: String,
    /// Id of the event: `webhook-id`.
    pub id: String,
    /// When it is sent, in seconds since 1970: `webhook-timestamp`.
    pub timestamp_s: u64,
    /// `webhook-signature`; empty: the request is not signed.
    pub signature: String,
    /// Its body.
    pub body: Bytes,
}

/// What the receiver answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its header `Retry-After`, if that is a number of seconds.
    pub retry_after_s: Option<u64>,
    /// The first bytes of its body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The receiver is not permitted.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// There was none within the time limit.
    #[error("no answer within {} s", limit.as_secs())]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// There is no connection, or it broke.
    #[error("{reason}")]
    Connection {
        /// What happened.
        reason: String,
    },
}

/// Sends requests.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Sends a request, and returns its answer.
    ///
    /// # Errors
    /// [`SendError`]; the receiver may have got the request all the same.
    async fn send(&self, request: Request) -> Result<Answer, SendError>;
}

/// Looks up the addresses of names.
pub trait Lookup: Send + Sync + 'static {
    /// Returns the addresses of a name.
    fn lookup(
        &self,
        name: String,
    ) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send>>;
}

/// The look-up of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(
        &self,
        name: String,
    ) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// A look-up whose results are checked before they are connected to.
struct Checked {
    allowed: Arc<Allowed>,
    lookup: Arc<dyn Lookup>,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (allowed, name) = (Arc::clone(&self.allowed), name.as_str().to_owned());
        let looking = self.lookup.lookup(name.clone());
        Box::pin(async move {
            let found = looking.await?;
            // One address that is not permitted is reason enough: an honest name has none.
            for address in &found {
                allowed.check_address(&name, *address)?;
            }
            let addresses: Vec<SocketAddr> =
                found.into_iter().take(ADDRESSES_MAX).map(|ip| SocketAddr::new(ip, 0)).collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// HTTP/1.1, with or without TLS.
pub struct HttpTransport {
    client: reqwest::Client,
    allowed: Arc<Allowed>,
    limit: Duration,
}

impl std::fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpTransport").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl HttpTransport {
    /// Prepares to send.
    ///
    /// * `limit`: of a request and its answer.
    ///
    /// # Errors
    /// [`SendError::Connection`]: TLS cannot be set up on this machine.
    pub fn new(
        allowed: Allowed,
        lookup: Arc<dyn Lookup>,
        limit: Duration,
    ) -> Result<Self, SendError> {
        let allowed = Arc::new(allowed);
        let resolver = Checked { allowed: Arc::clone(&allowed), lookup };
        let client = reqwest::Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(resolver))
            .timeout(limit)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(IDLE_LIMIT)
            .http1_only()
            .user_agent(concat!("Forebay/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| SendError::Connection { reason: chain(&error).to_string() })?;
        Ok(Self { client, allowed, limit })
    }

    fn failed(&self, error: reqwest::Error) -> SendError {
        let error = error.without_url();
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(source) = cause {
            if let Some(refused) = source.downcast_ref::<AddressError>() {
                return SendError::Address(refused.clone());
            }
            cause = source.source();
        }
        if error.is_timeout() {
            return SendError::Timeout { limit: self.limit };
        }
        SendError::Connection { reason: chain(&error).to_string() }
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: Request) -> Result<Answer, SendError> {
        // Checked again: what is permitted may have changed, and an address in a URL is not looked up.
        let url = self.allowed.check_url(&request.url)?;
        let mut sent = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", request.id)
            .header("webhook-timestamp", request.timestamp_s.to_string())
            .body(request.body);
        if !request.signature.is_empty() {
            sent = sent.header("webhook-signature", request.signature);
        }
        let mut answer = sent.send().await.map_err(|error| self.failed(error))?;
        let retry_after_s = answer.headers().get(RETRY_AFTER);
        let retry_after_s =
            retry_after_s.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let status = answer.status().as_u16();
        let (mut body, mut read) = (Vec::new(), 0);
        // The status has decided. A body that does not end, or breaks, is cut.
        while read < READ_SIZE_MAX
            && let Ok(Some(chunk)) = answer.chunk().await
        {
            read += chunk.len();
            let room = ANSWER_SIZE_MAX - body.len();
            body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        }
        Ok(Answer { status, retry_after_s, body })
    }
}
