//! Changes of a database as files: a log that files are added to (decision 0027).
//!
//! | module | |
//! |---|---|
//! | this one | the feed of a pipeline, and what is left of killed runs |
//! | `head` | its ledger |
//! | `rows` | the columns and rows of a log |
//! | `copy` | the rows that are there when a feed begins |
//! | `writer` | a unit of changes |
//!
//! Invariant: the ledger of the feed is the one object that makes changes valid, of all tables together. What it does
//! not name is removed before the next change is written.

mod copy;
mod head;
mod rows;
mod writer;

use std::sync::Arc;

use forebay_sdk::changes::feed::{Feed, FeedStream, FeedWriter};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::TargetSettings;

pub(super) use copy::CopyTarget;

use super::format::Layout;
use super::ledger::directory_name;
use super::store::{Room, Store, Version};
use head::{Head, Name};
use rows::LogColumns;
use writer::{FilesWriter, Table, random_id};

/// What follows the name of a pipeline in that of the directory of its feed.
const FEED: &str = ".feed";

/// Whether a file is one of changes, valid or not.
pub(super) fn is_log(name: &str) -> bool {
    Name::parse(name).is_some()
}

/// The directory of the feed of a pipeline.
pub(super) fn directory(pipeline: &str) -> Result<String> {
    directory_name(&format!("{pipeline}{FEED}"))
}

/// Checks that changes of streams can be stored.
pub(super) fn check(streams: &[FeedStream]) -> Result<()> {
    streams.iter().try_for_each(|stream| LogColumns::of(stream).map(drop))
}

/// The ledger of a feed; an empty one without a version if there is none.
async fn read(store: &dyn Store, pipeline: &str) -> Result<(Head, Option<Version>)> {
    match store.ledger().await? {
        None => Ok((Head::new(pipeline), None)),
        Some((bytes, version)) => {
            let place = format!("the ledger of {}", store.display(Room::Segments, ""));
            Ok((Head::decode(&bytes, &place, pipeline)?, Some(version)))
        }
    }
}

/// The feed of a pipeline.
pub(super) async fn feed(store: &dyn Store, pipeline: &str) -> Result<Option<Feed>> {
    Ok(read(store, pipeline).await?.0.feed)
}

/// Records a feed in the place of another. One that begins has a log without changes.
pub(super) async fn record(
    store: &dyn Store,
    pipeline: &str,
    before: Option<&Feed>,
    feed: Option<&Feed>,
) -> Result<()> {
    let (head, version) = read(store, pipeline).await?;
    if head.feed.as_ref() != before {
        return Err(Feed::replaced());
    }
    let is_begun = |feed: Option<&Feed>| feed.is_some_and(|feed| feed.position.is_some());
    let next = match feed {
        // The changes of a feed that ends stay valid, as do those of one that gets further streams.
        None => Head { feed: None, ..head },
        Some(_) if is_begun(feed) && is_begun(before) => Head { feed: feed.cloned(), ..head },
        Some(_) => Head { feed: feed.cloned(), log: random_id(), ..Head::new(pipeline) },
    };
    store.put_ledger(next.encode()?, version.as_ref()).await.map(drop)
}

/// Prepares to append changes, after what killed runs left is removed.
///
/// * `stores`: the directories of the streams.
pub(super) async fn open(
    store: Arc<dyn Store>,
    layout: Arc<dyn Layout>,
    pipeline: &str,
    feed: &Feed,
    streams: Vec<(Arc<dyn Store>, TargetSettings)>,
) -> Result<Box<dyn FeedWriter>> {
    let (head, version) = read(&*store, pipeline).await?;
    let Some(version) = version.filter(|_| head.feed.as_ref() == Some(feed)) else {
        return Err(Feed::replaced());
    };
    let mut tables = Vec::with_capacity(streams.len());
    for (stream, (store, target)) in feed.streams.iter().zip(streams) {
        sweep(&*store, &head, &target.into).await?;
        tables.push(Table { store, target, columns: Arc::new(LogColumns::of(stream)?) });
    }
    let kept = head.previous.as_ref().map_or(0, |previous| previous.last);
    let left = store.list(Room::Segments).await?.into_iter().map(|file| file.name);
    let left = left.filter(|name| match (name.split_once('-'), &head.previous) {
        (Some((last, _)), Some(previous)) => last
            .parse()
            .is_ok_and(|last: u64| last > kept || last == kept && *name != previous.name),
        (_, None) => true,
        (None, _) => false,
    });
    store.remove(Room::Segments, left.collect()).await?;
    store.remove(Room::Staging, names(&*store, Room::Staging).await?).await?;
    Ok(Box::new(FilesWriter::new(store, layout, (head, version), tables)))
}

async fn names(store: &dyn Store, room: Room) -> Result<Vec<String>> {
    Ok(store.list(room).await?.into_iter().map(|file| file.name).collect())
}

/// Removes the files of changes that the ledger does not name, and checks that those that it names are there.
async fn sweep(store: &dyn Store, head: &Head, into: &str) -> Result<()> {
    let shown = store.list(Room::Shown).await?;
    let files = head.tail.iter().flat_map(|unit| &unit.files).filter(|file| file.into == *into);
    for file in files {
        let (name, bytes) = (&file.file.name, file.file.bytes);
        if !shown.iter().any(|it| it.name == *name && it.size == bytes) {
            return Err(ConnectorError::data(
                store.display(Room::Shown, name),
                format!(
                    "the ledger of the feed lists it with {bytes} bytes, but no such file exists; nothing was \
                     removed. Restore it from a backup, or run with `--from-scratch`, which begins another log"
                ),
            ));
        }
    }
    let left = shown.into_iter().map(|file| file.name);
    let left = left.filter(|name| is_log(name) && !head.has(into, name)).collect::<Vec<_>>();
    for name in &left {
        let file = store.display(Room::Shown, name);
        tracing::info!(?file, "removing a file of changes that no ledger names");
    }
    store.remove(Room::Shown, left).await?;
    store.remove(Room::Staging, names(store, Room::Staging).await?).await
}

/// The numbers of all units, the newest first, as a reader follows the chain.
#[cfg(test)]
pub(super) fn units(store: &dyn Store, ledger: &[u8]) -> Vec<u64> {
    let head = Head::decode(ledger, "the ledger", "p").unwrap();
    let mut numbers: Vec<u64> = head.tail.iter().rev().map(|unit| unit.number).collect();
    let mut previous = head.previous;
    while let Some(of) = previous {
        let bytes = std::fs::read(store.display(Room::Segments, &of.name)).unwrap();
        assert_eq!(head::checksum(&bytes), of.checksum);
        let segment = head::Segment::decode(&bytes, &of.name).unwrap();
        numbers.extend(segment.units.iter().rev().map(|unit| unit.number));
        previous = segment.previous;
    }
    numbers
}
