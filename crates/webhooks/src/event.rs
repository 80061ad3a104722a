//! Events, and which of them a hook receives.
//!
//! Invariants: the id of an event depends on nothing but what happened, so that it is the same for every hook and
//! every attempt; events of one source are in the order of its log.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// Every type of event that a filter can name, in the order of the documentation.
pub const EVENT_TYPES: [&str; 15] = [
    "file.stored",
    "file.deleted",
    "file.moved",
    "file.copied",
    "file.changed",
    "file.reverted",
    "file.amended",
    "documents.accepted",
    "documents.replaced",
    "documents.deleted",
    "documents.dropped",
    "upload.completed",
    "job.completed",
    "job.failed",
    "job.cancelled",
];
/// Type of the event that says that events were lost. No filter holds it back.
pub(crate) const GAP: &str = "gap";
/// Type of the event that a test sends.
pub(crate) const PING: &str = "ping";

/// Maximum number of event types in a filter.
const TYPES_MAX: usize = 32;
/// Maximum size of a namespace in a filter, as names have it.
const NAMESPACE_SIZE_MAX: usize = 64;
/// Maximum size of a prefix in a filter, as names have it.
const PREFIX_SIZE_MAX: usize = 1_024;

/// A place in the order of a source: an entry, and an event of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Position in the log.
    pub position: u64,
    /// Number of the event among those of the entry there, from 0.
    pub item: u32,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub struct Event {
    /// Its id, from [`event_id`].
    pub id: String,
    /// Its type.
    pub kind: &'static str,
    /// When it happened, in milliseconds since 1970.
    pub time_ms: u64,
    /// The namespace that it is about, if there is one.
    pub namespace: Option<String>,
    /// The name that it is about, if there is one.
    pub name: Option<String>,
    /// Namespace and name before a move.
    pub before: Option<(String, String)>,
    /// Its data, a JSON object.
    pub data: Box<RawValue>,
    /// Where it is.
    pub at: Point,
    /// Where its source continues after it.
    pub next: Point,
    /// Whether an earlier event with the same id said the same.
    pub is_restated: bool,
}

/// What a source has, in order.
#[derive(Debug, Clone)]
pub enum Item {
    /// An event.
    Event(Box<Event>),
    /// Entries that left the log before they were read.
    Lost {
        /// Where they began.
        from: u64,
        /// Where the source continues after them.
        next: Point,
        /// At least how many they were; 0 if that is unknown.
        entries: u64,
    },
}

impl Item {
    /// Where the source continues after it.
    #[must_use]
    pub fn next(&self) -> Point {
        match self {
            Self::Event(event) => event.next,
            Self::Lost { next, .. } => *next,
        }
    }
}

/// Makes the id of an event of what identifies it: a source's log and a position in it, for example.
#[must_use]
pub fn event_id(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    let mut id = "evt_".to_owned();
    id.push_str(&hex::encode(digest).chars().take(32).collect::<String>());
    id
}

/// The body of a request: what the receiver parses.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    timestamp: String,
    data: &'a RawValue,
}

/// Makes the body of a request.
pub(crate) fn body_of(kind: &str, time_ms: u64, data: &RawValue) -> String {
    let time =
        i64::try_from(time_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let timestamp = time.map_or_else(|| time_ms.to_string(), |time| time.to_string());
    let body = Body { kind, timestamp, data };
    // Texts and a value that is JSON already: nothing can fail.
    serde_json::to_string(&body).unwrap_or_default()
}

/// Which events a hook receives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Types of events, and beginnings such as `file.*`; empty for all.
    pub events: Vec<String>,
    /// Only events about this namespace.
    pub namespace: Option<String>,
    /// Only events about names that begin so.
    pub prefix: Option<String>,
}

impl Filter {
    /// Checks what a client asks for.
    ///
    /// # Errors
    /// One sentence that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.events.len() > TYPES_MAX {
            return Err(format!("events has more than {TYPES_MAX} types"));
        }
        let is_known = |asked: &&String| {
            let group = asked.strip_suffix('*').filter(|group| group.ends_with('.'));
            EVENT_TYPES.iter().any(|kind| {
                *kind == asked.as_str() || group.is_some_and(|group| kind.starts_with(group))
            })
        };
        if let Some(unknown) = self.events.iter().find(|asked| !is_known(asked)) {
            let known = EVENT_TYPES.join(", ");
            return Err(format!("{unknown:?} is not a type of event; there are {known}"));
        }
        for (what, text, max) in [
            ("namespace", &self.namespace, NAMESPACE_SIZE_MAX),
            ("prefix", &self.prefix, PREFIX_SIZE_MAX),
        ] {
            let Some(text) = text else { continue };
            if text.is_empty() || text.len() > max || text.chars().any(char::is_control) {
                let text = format!("{what} must have 1 to {max} bytes and no control characters");
                return Err(text);
            }
        }
        Ok(())
    }

    /// Whether a hook with this filter receives an event.
    #[must_use]
    pub fn matches(&self, event: &Event) -> bool {
        let is_asked = |asked: &String| match asked.strip_suffix('*') {
            Some(group) => event.kind.starts_with(group),
            None => asked == event.kind,
        };
        if !self.events.is_empty() && !self.events.iter().any(is_asked) {
            return false;
        }
        let before = event.before.as_ref();
        let now = (event.namespace.as_deref(), event.name.as_deref());
        let before = before.map(|(namespace, name)| (Some(&**namespace), Some(&**name)));
        let is_about = |(namespace, name): (Option<&str>, Option<&str>)| {
            let in_namespace =
                self.namespace.as_deref().is_none_or(|asked| namespace == Some(asked));
            let begins = self
                .prefix
                .as_deref()
                .is_none_or(|prefix| name.is_some_and(|name| name.starts_with(prefix)));
            in_namespace && begins
        };
        is_about(now) || before.is_some_and(is_about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &'static str, namespace: Option<&str>, name: Option<&str>) -> Event {
        let point = Point { position: 0, item: 0 };
        Event {
            id: event_id(&[b"x"]),
            kind,
            time_ms: 0,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            before: None,
            data: RawValue::from_string("{}".to_owned()).unwrap(),
            at: point,
            next: point,
            is_restated: false,
        }
    }

    #[test]
    fn a_filter_selects_by_type_namespace_and_beginning_of_the_name() {
        let filter = |events: &[&str], namespace: Option<&str>, prefix: Option<&str>| Filter {
            events: events.iter().map(|kind| (*kind).to_owned()).collect(),
            namespace: namespace.map(str::to_owned),
            prefix: prefix.map(str::to_owned),
        };
        let stored = event("file.stored", Some("in"), Some("a/b"));
        let documents = event("documents.accepted", Some("in"), None);
        let job = event("job.failed", None, None);
        for (filter, expected) in [
            (filter(&[], None, None), [true, true, true]),
            (filter(&["file.*"], None, None), [true, false, false]),
            (filter(&["job.failed", "documents.accepted"], None, None), [false, true, true]),
            (filter(&[], Some("in"), None), [true, true, false]),
            (filter(&[], Some("out"), None), [false, false, false]),
            (filter(&[], None, Some("a/")), [true, false, false]),
            (filter(&[], Some("in"), Some("b")), [false, false, false]),
        ] {
            filter.check().unwrap();
            let found = [&stored, &documents, &job].map(|event| filter.matches(event));
            assert_eq!(found, expected, "{filter:?}");
        }
        for wrong in [
            filter(&["file"], None, None),
            filter(&["*"], None, None),
            filter(&["nothing.*"], None, None),
            filter(&["gap"], None, None),
            filter(&[], Some(""), None),
            filter(&[], None, Some("a\n")),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_move_is_about_both_names() {
        let moved = Event {
            before: Some(("old".to_owned(), "a".to_owned())),
            ..event("file.moved", Some("new"), Some("b"))
        };
        let of =
            |namespace: &str| Filter { namespace: Some(namespace.to_owned()), ..Filter::default() };
        assert!(of("old").matches(&moved) && of("new").matches(&moved));
        assert!(!of("other").matches(&moved));
    }

    #[test]
    fn a_body_has_a_type_a_time_and_the_data_as_it_is() {
        let data = RawValue::from_string("{\"b\":1,\"a\":\"\\u2028\"}".to_owned()).unwrap();
        let body = body_of("file.stored", 1_700_000_000_123, &data);
        let expected = "{\"type\":\"file.stored\",\"timestamp\":\"2023-11-14T22:13:20.123Z\",\
                        \"data\":{\"b\":1,\"a\":\"\\u2028\"}}";
        assert_eq!(body, expected);
    }

    #[test]
    fn an_id_depends_on_where_its_parts_end() {
        assert_eq!(event_id(&[b"ab"]), event_id(&[b"ab"]));
        assert_ne!(event_id(&[b"ab"]), event_id(&[b"a", b"b"]));
        assert_eq!(event_id(&[b"ab"]).len(), 36);
    }
}
