//! Bodies of Elasticsearch's `_bulk`: an action line, `{"index":{"_index":"logs"}}`, before each
//! document.
//!
//! A stream is such a body if its first record is an action line; then actions and documents
//! alternate. Actions are not events. Only `index` and `create` add a document; records of the
//! others are rejected.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::Reject;
use crate::event::{Draft, Value};

/// Maximum size of an action line, in bytes.
const ACTION_SIZE_MAX: usize = 4096;

/// Where in the body the next record is.
#[derive(Debug, Default)]
pub(super) enum Bulk {
    /// At the first record of a stream.
    #[default]
    Unknown,
    /// The stream is not such a body.
    Not,
    /// At an action line.
    Action,
    /// At the document of an action.
    Document(Action),
    /// At the document of an action that is not supported.
    Refused(&'static str),
}

/// What an action line says about its document.
#[derive(Debug, Default)]
pub(super) struct Action {
    index: Option<String>,
    id: Option<String>,
}

/// What is done with a record.
pub(super) enum Step {
    /// It is an event, with what its action says.
    Event(Action),
    /// It is an action line.
    Action,
    Reject(Reject),
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "_index")]
    index: Option<String>,
    #[serde(rename = "_id")]
    id: Option<serde_json::Value>,
    #[serde(flatten, deserialize_with = "others")]
    _others: (),
}

/// Accepts the other members of an action.
fn others<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    const KNOWN: [&str; 14] = [
        "_type",
        "routing",
        "_routing",
        "pipeline",
        "require_alias",
        "require_data_stream",
        "version",
        "version_type",
        "if_seq_no",
        "if_primary_term",
        "retry_on_conflict",
        "dynamic_templates",
        "list_executed_pipelines",
        "op_type",
    ];
    let members = BTreeMap::<String, serde::de::IgnoredAny>::deserialize(deserializer)?;
    match members.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        Some(name) => Err(serde::de::Error::custom(format!("unknown member {name}"))),
        None => Ok(()),
    }
}

impl Bulk {
    /// Takes the next record of the stream.
    pub(super) fn next(&mut self, line: &[u8]) -> Step {
        match std::mem::replace(self, Self::Not) {
            Self::Not => Step::Event(Action::default()),
            Self::Unknown => match action(line) {
                None => Step::Event(Action::default()),
                Some(found) => self.begin(found),
            },
            Self::Action => match action(line) {
                Some(found) => self.begin(found),
                None => {
                    *self = Self::Action;
                    Step::Reject(Reject::new("an action line of a _bulk body is missing here"))
                }
            },
            Self::Document(action) => {
                *self = Self::Action;
                Step::Event(action)
            }
            Self::Refused(name) => {
                *self = Self::Action;
                Step::Reject(Reject::new(format!(
                    "events are never changed: the _bulk action {name} is not supported"
                )))
            }
        }
    }

    fn begin(&mut self, (name, action): (&'static str, Action)) -> Step {
        *self = match name {
            "index" | "create" => Self::Document(action),
            "update" => Self::Refused(name),
            _ => {
                *self = Self::Action;
                return Step::Reject(Reject::new(
                    "events are never removed: the _bulk action delete is not supported",
                ));
            }
        };
        Step::Action
    }
}

impl Action {
    /// Adds what the action says to its document's draft.
    pub(super) fn apply(self, draft: &mut Draft<'_>) {
        if let Some(id) = self.id {
            draft.id = draft.id.or_else(|| match id.len() {
                26 | 32 | 36 => id.parse().ok(),
                _ => None,
            });
            draft.attributes.push((Cow::Borrowed("_id"), Value::Text(id.into())));
        }
        if let Some(index) = self.index {
            draft.attributes.push((Cow::Borrowed("_index"), Value::Text(index.into())));
        }
    }
}

/// Reads an action line.
fn action(line: &[u8]) -> Option<(&'static str, Action)> {
    if line.len() > ACTION_SIZE_MAX {
        return None;
    }
    let rest = line.trim_ascii_start().strip_prefix(b"{")?.trim_ascii_start();
    let name = ["index", "create", "update", "delete"].into_iter().find(|name| {
        let rest = rest.strip_prefix(b"\"").and_then(|rest| rest.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.starts_with(b"\""))
    })?;
    let body: BTreeMap<String, Meta> = serde_json::from_slice(line).ok()?;
    let meta = body.into_iter().next().filter(|(key, _)| key == name)?.1;
    let id = match meta.id {
        Some(serde_json::Value::String(id)) => Some(id),
        Some(serde_json::Value::Number(id)) => Some(id.to_string()),
        _ => None,
    };
    Some((name, Action { index: meta.index, id }))
}
