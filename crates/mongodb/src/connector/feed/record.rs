//! The record of a feed, and the decisions of its writer.
//!
//! ```text
//! _forebay_feeds   one per pipeline { _id: pipeline's digits, pipeline, feed: JSON, position, committed_at,
//!                                     writer, pending: [{ into, staged, empties, marks, steps }], done }
//! ```
//!
//! `pending` is what was decided and is not complete; `done` is the number of its steps that are.
//!
//! Invariant: every change of it is one update of one document, on disk on return, and has as its condition what
//! was read before.

use forebay_sdk::changes::feed::Feed;
use forebay_sdk::connector::Result;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::super::bulk::acknowledged;
use super::super::connect::{DUPLICATE_KEY, Server, code, refused};
use super::super::ledger::text;
use super::super::names::digits_of;
use super::pending::Pending;

const FEEDS: &str = "_forebay_feeds";

/// The record of a pipeline's feed.
#[derive(Debug, Clone)]
pub(super) struct Records {
    server: Server,
    id: String,
    pipeline: String,
}

/// What is recorded.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) feed: Feed,
    /// As it is stored.
    json: String,
    /// What was decided and is not complete.
    pub(super) pending: Vec<Pending>,
    /// Number of steps of it that are done.
    pub(super) done: usize,
}

impl Records {
    pub(super) fn new(server: &Server, pipeline: &str) -> Self {
        let (id, pipeline) = (digits_of(&[pipeline]), pipeline.to_owned());
        Self { server: server.clone(), id, pipeline }
    }

    /// What stands for the pipeline in names.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) async fn find(&self) -> Result<Option<Found>> {
        let act = |error| refused("read the feed", error);
        let feeds = self.server.database().await?.collection::<Document>(FEEDS);
        let Some(found) = feeds.find_one(doc! { "_id": &self.id }).await.map_err(act)? else {
            return Ok(None);
        };
        let json = text(&found, "feed")?.to_owned();
        let position = match found.get("position") {
            Some(Bson::String(position)) => Some(position.clone()),
            _ => None,
        };
        let pending = found.get_array("pending").map(Vec::as_slice).unwrap_or_default();
        let pending = pending.iter().map(Pending::decoded).collect::<Result<_>>()?;
        let done = found.get_i64("done").ok().and_then(|done| usize::try_from(done).ok());
        let feed = Feed::decoded(&json, position)?;
        Ok(Some(Found { feed, json, pending, done: done.unwrap_or_default() }))
    }

    /// Records a feed in the place of another. What is pending of it stays if the position does.
    pub(super) async fn replace(&self, before: Option<&Feed>, feed: Option<&Feed>) -> Result<()> {
        let found = self.find().await?;
        if found.as_ref().map(|found| &found.feed) != before {
            return Err(Feed::replaced());
        }
        let Some(found) = found else {
            return match feed {
                Some(feed) => self.insert(feed).await,
                None => Ok(()),
            };
        };
        let condition = doc! { "feed": &found.json, "position": position(&found.feed) };
        let Some(feed) = feed else { return self.delete(condition).await };
        let set = doc! {
            "feed": feed.encoded()?, "position": position(feed), "committed_at": DateTime::now(),
        };
        let mut unset = doc! { "writer": "" };
        if feed.position.is_none() || feed.position != found.feed.position {
            unset.insert("pending", "");
            unset.insert("done", "");
        }
        self.update(condition, doc! { "$set": set, "$unset": unset }).await
    }

    /// Makes this writer the only one whose decisions count; returns what is recorded.
    pub(super) async fn take_over(&self, feed: &Feed, writer: &str) -> Result<Found> {
        let found = self.find().await?.filter(|found| found.feed == *feed);
        let found = found.ok_or_else(Feed::replaced)?;
        let condition = doc! { "feed": &found.json, "position": position(feed) };
        self.update(condition, doc! { "$set": { "writer": writer } }).await?;
        // What an earlier writer decided between the two is seen now, and it decides nothing more.
        let found = self.find().await?.filter(|found| found.feed == *feed);
        found.ok_or_else(Feed::replaced)
    }

    /// Records a position, and what is to be done for it.
    ///
    /// * `feed`: the feed, if it has other columns than were recorded.
    pub(super) async fn decide(
        &self,
        writer: &str,
        (before, position): (&str, &str),
        feed: Option<String>,
        pending: &[Pending],
    ) -> Result<()> {
        let mut set = doc! { "position": position, "committed_at": DateTime::now() };
        if let Some(feed) = feed {
            set.insert("feed", feed);
        }
        if !pending.is_empty() {
            let pending: Vec<Document> = pending.iter().map(Pending::encoded).collect();
            set.insert("pending", pending);
            set.insert("done", 0_i64);
        }
        let condition = doc! {
            "writer": writer, "position": before, "pending": { "$exists": false },
        };
        self.update(condition, doc! { "$set": set }).await
    }

    /// Records how many steps of what is pending are done.
    pub(super) async fn step(&self, writer: &str, done: usize) -> Result<()> {
        let done = i64::try_from(done).unwrap_or(i64::MAX);
        self.update(doc! { "writer": writer }, doc! { "$set": { "done": done } }).await
    }

    /// Records that nothing is pending.
    pub(super) async fn complete(&self, writer: &str) -> Result<()> {
        let unset = doc! { "$unset": { "pending": "", "done": "" } };
        self.update(doc! { "writer": writer }, unset).await
    }

    async fn insert(&self, feed: &Feed) -> Result<()> {
        let document = doc! {
            "_id": &self.id, "pipeline": &self.pipeline, "feed": feed.encoded()?,
            "position": position(feed), "committed_at": DateTime::now(),
        };
        let feeds = self.server.database().await?.collection::<Document>(FEEDS);
        let inserted = feeds.insert_one(document).write_concern(durable()).await;
        match inserted {
            Ok(_) => Ok(()),
            Err(error) if code(&error) == Some(DUPLICATE_KEY) => Err(Feed::replaced()),
            Err(error) => Err(refused("record the feed", error)),
        }
    }

    async fn update(&self, condition: Document, update: Document) -> Result<()> {
        let mut of = doc! { "_id": &self.id };
        of.extend(condition);
        let command = doc! {
            "update": FEEDS, "updates": [{ "q": of, "u": update }],
            "writeConcern": { "w": "majority", "j": true },
        };
        self.changed("record the feed", command).await
    }

    async fn delete(&self, condition: Document) -> Result<()> {
        let mut of = doc! { "_id": &self.id };
        of.extend(condition);
        let command = doc! {
            "delete": FEEDS, "deletes": [{ "q": of, "limit": 1 }],
            "writeConcern": { "w": "majority", "j": true },
        };
        self.changed("forget the feed", command).await
    }

    async fn changed(&self, act: &str, command: Document) -> Result<()> {
        let answer = self.server.run(act, command).await?;
        match acknowledged(act, &answer)? {
            1 => Ok(()),
            _ => Err(Feed::replaced()),
        }
    }
}

fn position(feed: &Feed) -> Bson {
    feed.position.clone().map_or(Bson::Null, Bson::String)
}

fn durable() -> mongodb::options::WriteConcern {
    let mut concern = mongodb::options::WriteConcern::majority();
    concern.journal = Some(true);
    concern
}
