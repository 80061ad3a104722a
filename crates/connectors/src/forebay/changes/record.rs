//! The record of a feed, in a stream of the same store (`docs/formats/pipeline-events.md`).
//!
//! ```text
//! pipeline-feed/NAME    feed | position | position | feed | position | end | ...      each with its number, from 1
//! ```
//!
//! Invariants:
//! - A record is appended after the store has acknowledged every event that it covers, so it is never ahead of them.
//! - The id of a record is a hash of its pipeline and number, and the store has one event under an id. So of two runs
//!   that continue the same record, one is refused, and no record has two successors.
//! - Times of records only increase, whatever the clock does, so the newest record is the last one.

use std::time::{SystemTime, UNIX_EPOCH};

use forebay_sdk::changes::feed::Feed;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use serde::{Deserialize, Serialize};

use super::super::client::Server;
use super::append::{Appended, Lines, append};
use super::event::{begin, hash};

/// What the names of streams of records begin with.
pub(super) const RECORDS: &str = "pipeline-feed/";

/// The operation of a record that ends a feed.
const END: &str = "end";
/// The operation of a record that has a feed.
const FEED: &str = "feed";
/// The operation of a record that has another position.
const POSITION: &str = "position";

/// Where the log of a stream is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The name of the stream in the source.
    pub(super) stream: String,
    /// The stream of events.
    pub(super) into: String,
    /// The load that copied it, which its changes continue.
    pub(super) load: String,
}

/// What a record has besides id, time and operation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Content {
    pipeline: String,
    number: u64,
    at_us: i64,
    /// Distinguishes records of two runs that are otherwise the same.
    writer: String,
    position: Option<String>,
    /// The number of the record that has the feed.
    definition: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    feed: Option<Feed>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    places: Vec<Place>,
}

/// What a record is.
#[derive(Debug, Deserialize)]
struct Kind {
    operation: String,
}

/// The last record of a pipeline.
#[derive(Debug, Clone, Default)]
pub(super) struct Head {
    number: u64,
    at_us: i64,
    definition: u64,
    /// The feed, with the last position.
    pub(super) feed: Option<Feed>,
    /// Where its streams are.
    pub(super) places: Vec<Place>,
}

/// The records of one pipeline.
#[derive(Debug, Clone)]
pub(super) struct Records {
    server: Server,
    pipeline: String,
    stream: String,
    writer: String,
}

#[derive(Deserialize)]
struct Page {
    events: Vec<Event>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    id: String,
    raw: Option<String>,
}

impl Records {
    pub(super) fn new(server: Server, pipeline: &str) -> Self {
        Self {
            server,
            pipeline: pipeline.to_owned(),
            stream: format!("{RECORDS}{pipeline}"),
            writer: uuid::Uuid::new_v4().to_string(),
        }
    }

    /// The newest event of the stream, of a type if one is given.
    async fn newest(&self, of: Option<&str>) -> Result<Option<(Kind, Content)>> {
        let act = format!("read the feed of {}", self.pipeline);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut query =
            vec![pair("stream", &self.stream), pair("order", "newest"), pair("limit", "1")];
        query.extend(of.map(|of| pair("type", of)));
        // A page can be empty although others follow it.
        let event = loop {
            let path = ["v1", "events"];
            let answer = self.server.get(&act, &path, &query, "application/json").await?;
            let body = self.server.body(&act, answer).await?;
            let page: Page = serde_json::from_slice(&body)
                .map_err(|error| self.server.misunderstood(&act, error))?;
            match (page.events.into_iter().next(), page.next) {
                (Some(event), _) => break event,
                (None, None) => return Ok(None),
                (None, Some(next)) => {
                    query.retain(|(name, _)| name != "cursor");
                    query.push(pair("cursor", &next));
                }
            }
        };
        let raw = event.raw.as_deref().unwrap_or_default();
        let read = || Ok((serde_json::from_str(raw)?, serde_json::from_str(raw)?));
        let read: serde_json::Result<(Kind, Content)> = read();
        read.map(Some).map_err(|error| self.damaged(&event.id, &error.to_string()))
    }

    fn damaged(&self, id: &str, found: &str) -> ConnectorError {
        ConnectorError::data(
            format!("event {id} of the stream {:?}", self.stream),
            format!("it is not the record of a feed: {found}. No other client may append there"),
        )
    }

    /// The last record.
    ///
    /// # Errors
    /// The server does not answer, or something else is in the stream.
    pub(super) async fn head(&self) -> Result<Head> {
        let Some((kind, last)) = self.newest(None).await? else { return Ok(Head::default()) };
        let Content { number, at_us, definition, position, .. } = last;
        let head = Head { number, at_us, definition, feed: None, places: Vec::new() };
        let defined = match kind.operation.as_str() {
            END => return Ok(head),
            FEED => Some((last.feed, last.places)),
            POSITION => {
                let defined = self.newest(Some(FEED)).await?.map(|(_, content)| content);
                let defined = defined.filter(|content| content.number == definition);
                defined.map(|content| (content.feed, content.places))
            }
            other => return Err(self.damaged(&number.to_string(), other)),
        };
        match defined {
            Some((Some(feed), places)) => {
                Ok(Head { feed: Some(Feed { position, ..feed }), places, ..head })
            }
            // The feed was recorded again between the two requests, or removed by a rule of retention.
            _ => Err(ConnectorError::Busy {
                act: format!("read the feed of {}", self.pipeline),
                source: format!(
                    "record {definition}, which has it, is not in the stream {:?}",
                    self.stream
                )
                .into(),
            }),
        }
    }

    /// Appends a record after the last one.
    ///
    /// * `feed`: with other columns or streams, and where they are; `None`: only the position is another one.
    ///
    /// # Errors
    /// Another run has appended one meanwhile, or the server refuses.
    pub(super) async fn advance(
        &self,
        head: &mut Head,
        position: &str,
        feed: Option<&Feed>,
    ) -> Result<()> {
        let known = head.feed.take().ok_or_else(Feed::replaced)?;
        let next = Feed { position: Some(position.to_owned()), ..feed.cloned().unwrap_or(known) };
        let places = std::mem::take(&mut head.places);
        *head = match feed {
            Some(_) => self.put(head, Some(next), places).await?,
            None => {
                let content = Content {
                    position: next.position.clone(),
                    ..self.content(head, head.definition)?
                };
                let after = self.send(POSITION, &content).await?;
                Head { feed: Some(next), places, ..after }
            }
        };
        Ok(())
    }

    /// Appends a record with a feed, or that there is none.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub(super) async fn put(
        &self,
        head: &Head,
        feed: Option<Feed>,
        places: Vec<Place>,
    ) -> Result<Head> {
        let content = self.content(head, 0)?;
        let definition = content.number;
        let position = feed.as_ref().and_then(|feed| feed.position.clone());
        let operation = if feed.is_some() { FEED } else { END };
        let content =
            Content { definition, position, feed: feed.clone(), places: places.clone(), ..content };
        let after = self.send(operation, &content).await?;
        Ok(Head { feed, places, ..after })
    }

    /// The content of the record after another.
    fn content(&self, head: &Head, definition: u64) -> Result<Content> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let next = |error: &str| ConnectorError::data(&*self.stream, error.to_owned());
        Ok(Content {
            pipeline: self.pipeline.clone(),
            number: head.number.checked_add(1).ok_or_else(|| next("it has too many records"))?,
            at_us: now_us.max(head.at_us.saturating_add(1)),
            writer: self.writer.clone(),
            definition,
            ..Content::default()
        })
    }

    /// Appends a record; returns it as the last one, without its feed.
    async fn send(&self, operation: &str, content: &Content) -> Result<Head> {
        let Content { number, at_us, definition, .. } = *content;
        let id =
            format!("{:032x}", hash(&[b"record", self.pipeline.as_bytes(), &number.to_le_bytes()]));
        let mut lines = Lines::default();
        begin(&id, at_us, operation, &mut lines.bytes);
        let encoded = serde_json::to_string(content).map_err(|error| ConnectorError::Refused {
            act: "encode the feed".into(),
            source: error.into(),
        })?;
        // Its members follow those that every event has.
        lines.bytes.push(b',');
        lines.bytes.extend_from_slice(encoded.strip_prefix('{').unwrap_or_default().as_bytes());
        lines.end(0, || {
            format!("the record of {}, with the columns of its streams,", self.pipeline)
        })?;
        match append(&self.server, &self.stream, &mut lines).await? {
            Appended::All => Ok(Head { number, at_us, definition, feed: None, places: Vec::new() }),
            Appended::Other => Err(Feed::replaced()),
        }
    }
}
