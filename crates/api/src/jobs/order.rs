//! What a job knows of its request: method, target and headers, as JSON.
//!
//! Invariant: only headers that routes read are stored, none of them a secret, so that no secret outlives
//! its request.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde::{Deserialize, Serialize};

use crate::keys::SentBy;
use crate::problem::Problem;
use crate::query;

/// The kind of work.
pub(super) const WORK: &str = "request";

/// Parameters that make a request a job, and are not passed on.
pub(super) const OWN: [&str; 2] = ["async", "priority"];

/// Headers that routes read.
const KEPT: [&str; 13] = [
    "accept",
    "content-digest",
    "content-encoding",
    "content-md5",
    "content-range",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "repr-digest",
    "want-repr-digest",
];

/// What headers begin with that are stored with a file: its metadata and tags.
const KEPT_PREFIX: &str = "forebay-";

/// A stored request, without its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) method: String,
    /// Path and query.
    pub(super) target: String,
    headers: Vec<(String, String)>,
    /// Id of the API key of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl Order {
    /// Reads what is stored of a request.
    ///
    /// * `path`: of the route that runs it.
    ///
    /// # Errors
    /// The name of a header whose value is not UTF-8.
    pub(super) fn of(
        method: &Method,
        path: &str,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Self, HeaderName> {
        let passed_on = |name: &&HeaderName| {
            let name = name.as_str();
            KEPT.contains(&name) || name.starts_with(KEPT_PREFIX)
        };
        let mut kept = Vec::new();
        for name in headers.keys().filter(passed_on) {
            for value in headers.get_all(name) {
                let value =
                    String::from_utf8(value.as_bytes().to_vec()).map_err(|_| name.clone())?;
                kept.push((name.as_str().to_owned(), value));
            }
        }
        let method = method.as_str().to_owned();
        Ok(Self { method, target: target(path, uri), headers: kept, key: None })
    }

    /// Reads what is stored of a request that was received.
    ///
    /// * `path`: of the route that runs it.
    ///
    /// # Errors
    /// A header cannot be stored.
    pub(super) fn received(path: &str, parts: &Parts) -> Result<Self, Problem> {
        let order = Self::of(&parts.method, path, &parts.uri, &parts.headers);
        let mut order = order.map_err(|name| {
            Problem::bad("header", format!("the value of the header {name} is not UTF-8"))
        })?;
        let key = SentBy::of(&parts.extensions);
        order.key = key.map(|SentBy(id)| String::from_utf8_lossy(&id).into_owned());
        Ok(order)
    }

    /// The key of the request.
    pub(super) fn sent_by(&self) -> Option<SentBy> {
        self.key.as_deref().and_then(|id| id.as_bytes().try_into().ok()).map(SentBy)
    }

    /// Whether an encoded order starts the same work.
    pub(super) fn is_same_work(&self, other: &[u8]) -> bool {
        let path = |order: &Self| order.target.split('?').next().map(str::to_owned);
        Self::decode(other)
            .is_some_and(|other| other.method == self.method && path(&other) == path(self))
    }

    /// Whether it starts work that continues after the response.
    pub(super) fn starts_work(&self) -> bool {
        let path = self.target.split('?').next().unwrap_or_default();
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let is_work = matches!(
            segments.as_slice(),
            ["v1", "inventories", _] | ["v1", "pipelines", _, "runs"]
        );
        self.method == "POST" && is_work
    }

    /// Decodes an order; `None` if it is of another version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Encodes it.
    pub(super) fn encode(&self) -> Vec<u8> {
        crate::answer::line(self).into_bytes()
    }

    /// The value of a header that occurs once.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(other, _)| other == name);
        found.next().map(|(_, value)| value.as_str()).filter(|_| found.next().is_none())
    }

    /// The headers of the request that is sent.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            if let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str()))
            {
                headers.append(name, value);
            }
        }
        headers
    }
}

/// Path and query without the parameters that make a job.
pub(super) fn target(path: &str, uri: &Uri) -> String {
    let kept = uri.query().unwrap_or_default().split('&').filter(|pair| {
        let own = query::pairs(pair).iter().any(|(name, _)| OWN.contains(&name.as_str()));
        !pair.is_empty() && !own
    });
    let kept: Vec<&str> = kept.collect();
    if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_keeps_the_request_but_not_who_sent_it() {
        let uri: Uri =
            "/v1/files/a/b%20c?async=true&comment=x&%61sync&priority=low".parse().unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer secret"),
            ("x-api-key", "secret"),
            ("cookie", "secret"),
            ("x-forwarded-for", "1.2.3.4"),
            ("proxy-authorization", "secret"),
            ("x-auth-token", "secret"),
            ("content-type", "text/plain"),
            ("if-match", "\"a\""),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        headers.append("forebay-tags", HeaderValue::from_static("a=1"));
        headers.append("forebay-meta-author", HeaderValue::from_bytes("Zoë".as_bytes()).unwrap());
        let order = Order::of(&Method::PUT, uri.path(), &uri, &headers).unwrap();
        assert_eq!(order.target, "/v1/files/a/b%20c?comment=x");
        let decoded = Order::decode(&order.encode()).unwrap();
        assert_eq!(decoded, order);
        assert_eq!(decoded.headers().len(), 4);
        assert_eq!(decoded.headers()["forebay-meta-author"], headers["forebay-meta-author"]);
        assert_eq!(order.header("if-match"), Some("\"a\""));
        assert!(!String::from_utf8(order.encode()).unwrap().contains("secret"));
    }

    #[test]
    fn a_header_that_cannot_be_stored_is_named() {
        let mut headers = HeaderMap::new();
        headers.append("if-match", HeaderValue::from_bytes(b"\xff").unwrap());
        let uri = Uri::from_static("/v1/ingest");
        let refused = Order::of(&Method::POST, uri.path(), &uri, &headers);
        assert_eq!(refused.unwrap_err().as_str(), "if-match");
    }
}
