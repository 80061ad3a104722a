//! Changes of another database, applied to collections (decision 0027).
//!
//! | module | |
//! |---|---|
//! | this one | what a feed needs of a MongoDB |
//! | `record` | the position, and what is decided and not yet complete |
//! | `writer` | a unit is staged, decided, and completed |
//! | `table`, `values` | a collection, prepared for changes; their values as BSON |
//! | `net`, `current` | what changes amount to, as documents, and the documents that they concern |
//! | `staged` | documents that wait until their unit is decided |
//! | `pending` | completing a unit |
//! | `alter` | other columns of a table |
//! | `log` | changes one by one |
//!
//! A single server has no transactions, so a unit is made like an entry of a write-ahead log:
//!
//! ```text
//! stage     every document as it will be, and every id that will not be there, into a separate collection
//! decide    one update of one document: the position, and the names of these collections
//! complete  remove, then write, by id; the next writer does it again if this one is interrupted
//! clear     one update: nothing is pending
//! ```
//!
//! Invariants:
//! * The unit is applied when its decision is on disk, and never without it. What is decided is completed before
//!   anything else is done with the feed, from what is staged, whatever the source would send.
//! * What completes a unit is absolute (whole documents and values, by id), so a repetition has the same result.
//! * A decision is made by the newest writer of the feed alone: its name is a condition of the update. So one that
//!   a lost connection delivers later is refused.
//! * A command of an interrupted writer may still be in progress when the next one begins. Commands have a comment,
//!   and what is pending is completed when the server has none with it any more.

mod alter;
mod current;
mod log;
mod net;
mod pending;
mod record;
mod staged;
mod table;
mod values;
mod writer;

use async_trait::async_trait;
use forebay_sdk::changes::feed::{Feed, FeedStream, FeedTarget, FeedWriter};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{FeedForm, TargetSettings};

use super::destination::MongoDestination;
use super::encode::Forms;
use super::names::OURS;
use pending::Work;
use record::Records;

/// The field with the time of a deletion.
pub(super) const DELETED_AT: &str = "_deleted_at";
/// The field of a log with what a change did.
pub(super) const OPERATION: &str = "_operation";
/// What it is for a row that was there before the changes.
pub(super) const COPIED: &str = "copy";

/// Prefix of the collections in which changes of a pipeline wait.
fn staged_prefix(records: &Records) -> String {
    format!("{OURS}changes_{}_", records.id())
}

#[async_trait]
impl FeedTarget for MongoDestination {
    fn forms(&self) -> &'static [FeedForm] {
        &[FeedForm::Apply, FeedForm::Mark, FeedForm::Log]
    }

    fn check(&self, streams: &[FeedStream], form: FeedForm) -> Result<()> {
        let forms = Forms::of(self.server().settings());
        streams.iter().try_for_each(|of| {
            if form != FeedForm::Log {
                of.check_key()?;
            }
            table::check(of, &forms)
        })
    }

    async fn feed(&self, pipeline: &str) -> Result<Option<Feed>> {
        let found = Records::new(self.server(), pipeline).find().await?;
        Ok(found.map(|found| found.feed))
    }

    async fn record(
        &self,
        pipeline: &str,
        before: Option<&Feed>,
        feed: Option<&Feed>,
    ) -> Result<()> {
        let records = Records::new(self.server(), pipeline);
        let (Some(known), None) = (before, feed) else {
            return records.replace(before, feed).await;
        };
        // The rows stay, as they are after what was decided.
        let work = Work::new(self.server(), &records, self.held());
        work.take_over(known).await?;
        records.replace(before, None).await?;
        work.sweep().await
    }

    async fn open(
        &self,
        pipeline: &str,
        feed: &Feed,
        targets: &[TargetSettings],
    ) -> Result<Box<dyn FeedWriter>> {
        if targets.len() != feed.streams.len() {
            let found = "it has other streams than the pipeline".to_owned();
            return Err(ConnectorError::data("a feed", found));
        }
        let records = Records::new(self.server(), pipeline);
        let work = Work::new(self.server(), &records, self.held());
        let opened = writer::MongoFeed::open(work, feed.clone(), targets.to_vec()).await?;
        Ok(Box::new(opened))
    }
}
