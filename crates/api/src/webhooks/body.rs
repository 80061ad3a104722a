//! What clients send about webhooks: small JSON objects.
//!
//! Invariant: a body has at most [`SIZE_MAX`] bytes; an unknown field is an error that names it.

use axum::body::Body;
use forebay_base::duration::HumanDuration;
use forebay_intake::names::Namespace;
use forebay_webhooks::{Change, Filter, NewHook};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::problem::Problem;

/// Maximum number of bytes of a body.
const SIZE_MAX: usize = 64 << 10;

/// A webhook to be created.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewWebhook)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    /// URL of the receiver: https://, unless `webhooks.allow` permits its host.
    url: String,
    /// Types of events, and groups such as `file.*` [default: all].
    #[serde(default)]
    events: Vec<String>,
    /// Only events about this namespace of files or documents.
    #[serde(default)]
    namespace: Option<String>,
    /// Only events about files whose names begin so.
    #[serde(default)]
    prefix: Option<String>,
    /// Text for people.
    #[serde(default)]
    description: String,
    /// Whether events are sent [default: true].
    #[serde(default = "yes")]
    enabled: bool,
}

/// Changes of a webhook. What is absent stays.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = WebhookChange)]
#[serde(deny_unknown_fields)]
pub(super) struct Changed {
    /// URL of the receiver.
    #[schema(nullable = false)]
    url: Option<String>,
    /// Types of events; empty for all.
    #[schema(nullable = false)]
    events: Option<Vec<String>>,
    /// Only events about this namespace; null for all.
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    namespace: Option<Option<String>>,
    /// Only events about files whose names begin so; null for all.
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    prefix: Option<Option<String>>,
    /// Text for people.
    #[schema(nullable = false)]
    description: Option<String>,
    /// Whether events are sent. Enabling forgets failures, and continues where the webhook stopped.
    #[schema(nullable = false)]
    enabled: Option<bool>,
}

/// How a secret is replaced.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = SecretRotation)]
#[serde(deny_unknown_fields)]
pub(super) struct Rotation {
    /// How long requests are also signed with the secret before, such as `24h`; at most `30d`
    /// [default: 24h].
    #[schema(nullable = false)]
    overlap: Option<String>,
}

fn yes() -> bool {
    true
}

/// A field that is there, even if it is null.
fn some<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}

impl TryFrom<New> for NewHook {
    type Error = Problem;

    fn try_from(new: New) -> Result<Self, Problem> {
        let New { url, events, namespace, prefix, description, enabled } = new;
        check_namespace(namespace.as_deref())?;
        let filter = Filter { events, namespace, prefix };
        Ok(Self { url, description, filter, is_disabled: !enabled })
    }
}

impl TryFrom<Changed> for Change {
    type Error = Problem;

    fn try_from(changed: Changed) -> Result<Self, Problem> {
        let Changed { url, events, namespace, prefix, description, enabled } = changed;
        check_namespace(namespace.as_ref().and_then(Option::as_deref))?;
        Ok(Self { url, description, events, namespace, prefix, is_enabled: enabled })
    }
}

/// Refuses a namespace that cannot exist: the webhook would never be called.
fn check_namespace(namespace: Option<&str>) -> Result<(), Problem> {
    let Some(namespace) = namespace else { return Ok(()) };
    let parsed = Namespace::parse(namespace);
    parsed.map(drop).map_err(|error| Problem::bad("webhook_invalid", error.to_string()))
}

impl Rotation {
    /// The time that was asked for.
    pub(super) fn overlap(&self) -> Result<std::time::Duration, Problem> {
        let text = self.overlap.as_deref().unwrap_or("24h");
        let parsed: Result<HumanDuration, _> = text.parse();
        let parsed = parsed.map_err(|error| {
            Problem::bad("webhook_invalid", format!("overlap is invalid: {error}"))
        })?;
        Ok(parsed.get())
    }
}

/// Reads and parses a body.
///
/// # Errors
/// It is too large, was cut, or is not what the route takes.
pub(super) async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Problem> {
    parse(&bytes(body).await?)
}

/// Like [`read`], for a body that may be empty.
pub(super) async fn read_optional<T: DeserializeOwned + Default>(body: Body) -> Result<T, Problem> {
    match bytes(body).await? {
        json if json.trim_ascii().is_empty() => Ok(T::default()),
        json => parse(&json),
    }
}

async fn bytes(body: Body) -> Result<Vec<u8>, Problem> {
    let bytes = axum::body::to_bytes(body, SIZE_MAX).await;
    let wrong = |_| Problem::bad("body", "the body is larger than 64 KiB, or was cut");
    bytes.map(|bytes| bytes.to_vec()).map_err(wrong)
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, Problem> {
    // An array would be taken for the members of a structure in their order.
    if json.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::bad("json", "the body must be a JSON object"));
    }
    let parsed = serde_json::from_slice(json);
    parsed.map_err(|error| Problem::bad("json", format!("the body: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_cannot_exist_is_refused() {
        let new = |namespace: &str| {
            let json = serde_json::json!({ "url": "https://a.example", "namespace": namespace });
            NewHook::try_from(parse::<New>(json.to_string().as_bytes()).unwrap())
        };
        let changed = |namespace: &str| {
            let json = format!(r#"{{"namespace":{namespace}}}"#);
            Change::try_from(parse::<Changed>(json.as_bytes()).unwrap())
        };
        assert!(new("inbox").is_ok());
        assert!(changed("null").is_ok());
        assert!(changed("\"inbox\"").is_ok());
        assert!(new("no space").is_err());
        assert!(changed("\"a/b\"").is_err());
    }
}
