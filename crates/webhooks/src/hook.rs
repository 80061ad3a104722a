//! What is kept of a hook and of its deliveries.
//!
//! Invariant: texts that came from outside are stored within limits, and are data wherever they are shown.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::{Filter, Point};

/// Maximum size of a URL, in bytes.
pub const URL_SIZE_MAX: usize = 2_048;
/// Maximum size of a description, in bytes.
pub(crate) const DESCRIPTION_SIZE_MAX: usize = 1_024;
/// Maximum size of a message about a failure, in bytes.
pub(crate) const MESSAGE_SIZE_MAX: usize = 1_024;

/// The name of a hook: a UUID of version 7, so that later hooks have greater names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookId(pub(crate) u128);

impl HookId {
    /// A name that no other hook has.
    pub(crate) fn new() -> Self {
        Self(uuid::Uuid::now_v7().as_u128())
    }

    /// Parses 32 hexadecimal digits; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        forebay_base::id::parse_id(text).map(Self)
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for HookId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A hook, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// Where requests are sent to.
    pub url: String,
    /// Text for people.
    pub description: String,
    /// Which events it receives.
    pub filter: Filter,
    /// Whether events are sent.
    pub is_enabled: bool,
    /// Why it is disabled, if it was not by a client.
    pub reason: Option<String>,
    /// Number of the secret, from 1.
    pub generation: u32,
    /// Until when requests are also signed with the secret before, in milliseconds since 1970.
    pub previous_until_ms: Option<u64>,
    /// Since when every attempt failed, in milliseconds since 1970.
    pub failing_since_ms: Option<u64>,
    /// Attempts that failed since the last that did not.
    pub failures: u32,
    /// Events that were set aside since the last attempt that did not fail.
    pub set_aside: u32,
    /// When the last attempt was made, in milliseconds since 1970.
    pub attempted_ms: Option<u64>,
    /// When an attempt was successful, in milliseconds since 1970.
    pub delivered_ms: Option<u64>,
    /// How often events were lost, because the log had not kept them.
    pub gaps: u64,
    /// When that happened last, in milliseconds since 1970.
    pub gap_ms: Option<u64>,
}

/// How far a hook has come in a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) source: String,
    /// Identity of the source's log.
    pub(crate) log: [u8; 16],
    /// The next event to look at.
    pub(crate) point: Point,
    /// Time of the newest event looked at, in milliseconds since 1970.
    pub(crate) time_ms: u64,
}

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is tried again.
    Waiting,
    /// The receiver took it.
    Delivered,
    /// It was given up.
    Failed,
}

impl DeliveryState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Delivered, Self::Failed];

    pub(crate) fn code(self) -> i64 {
        match self {
            Self::Waiting => 0,
            Self::Delivered => 1,
            Self::Failed => 2,
        }
    }

    pub(crate) fn of(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// An event on its way to a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its number, unique among the deliveries of all hooks; 0 before it is stored.
    pub number: u64,
    /// Its state.
    pub state: DeliveryState,
    /// When it is due, if it waits, in milliseconds since 1970.
    pub due_ms: Option<u64>,
    /// What it is made of.
    pub(crate) record: DeliveryRecord,
}

/// What is stored of a delivery beside what is searched for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveryRecord {
    pub(crate) event: String,
    pub(crate) kind: String,
    pub(crate) event_ms: u64,
    pub(crate) body: String,
    pub(crate) created_ms: u64,
    /// Where the source continues, if those after it wait for this one.
    pub(crate) holds: Option<Holds>,
    pub(crate) attempts: u32,
    pub(crate) attempted_ms: Option<u64>,
    pub(crate) status: Option<u16>,
    pub(crate) latency_ms: Option<u64>,
    pub(crate) error: Option<String>,
    pub(crate) answer: Option<String>,
}

/// What a delivery that the later ones wait for keeps from moving on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Holds {
    pub(crate) source: String,
    pub(crate) log: [u8; 16],
    pub(crate) next: Point,
    pub(crate) time_ms: u64,
}

impl Holds {
    /// The position once it is delivered, or set aside.
    pub(crate) fn cursor(&self) -> Cursor {
        let Self { source, log, next, time_ms } = self.clone();
        Cursor { source, log, point: next, time_ms }
    }
}

impl Delivery {
    /// Id of the event.
    #[must_use]
    pub fn event(&self) -> &str {
        &self.record.event
    }

    /// Type of the event.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.record.kind
    }

    /// When the event happened, in milliseconds since 1970.
    #[must_use]
    pub fn event_ms(&self) -> u64 {
        self.record.event_ms
    }

    /// The body of the request, which is JSON.
    #[must_use]
    pub fn body(&self) -> &str {
        &self.record.body
    }

    /// Number of attempts so far.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.record.attempts
    }

    /// When the last attempt was made, in milliseconds since 1970.
    #[must_use]
    pub fn attempted_ms(&self) -> Option<u64> {
        self.record.attempted_ms
    }

    /// Status of the last answer, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.record.status
    }

    /// How long the last attempt took, in milliseconds.
    #[must_use]
    pub fn latency_ms(&self) -> Option<u64> {
        self.record.latency_ms
    }

    /// Why the last attempt failed, if it did.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.record.error.as_deref()
    }

    /// The beginning of the last answer's body.
    #[must_use]
    pub fn answer(&self) -> Option<&str> {
        self.record.answer.as_deref()
    }
}

/// How far a hook is in one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorState {
    /// The source.
    pub source: String,
    /// Position of the next entry to look at.
    pub position: u64,
    /// Bytes of log that it has not looked at.
    pub behind: u64,
}

/// A hook and its progress.
#[derive(Debug, Clone)]
pub struct HookView {
    /// Its name.
    pub id: HookId,
    /// What is stored of it.
    pub hook: Hook,
    /// How far it is.
    pub cursors: Vec<CursorState>,
    /// Number of deliveries that wait.
    pub waiting: usize,
    /// Time of the oldest event that is being sent or waits, in milliseconds since 1970.
    pub oldest_ms: Option<u64>,
    /// Why the hook does not move on although its receiver is not to blame, if so.
    pub stalled: Option<String>,
}

/// Shortens a text to what is stored of it.
pub(crate) fn shortened(text: &str, max: usize) -> String {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}
