//! Events of the intake's log: files and documents.
//!
//! Invariant: an event is made of its entry alone, so that reading an entry again gives the same event.

use std::future::Future;
use std::pin::Pin;

use forebay_intake::answer::{file_url, id_text};
use forebay_intake::format::{
    Amended, ChangeAction, Delete, DocumentChange, DocumentCommit, DocumentsDropped, Entry,
    FileMove, FilePut, IdempotencyRecord, NewestErased, TargetCode,
};
use forebay_intake::{Feed, FeedError, FeedItem};
use forebay_webhooks::{Batch, Event, Item, Point, Source, SourceError, event_id};
use serde::Serialize;
use serde_json::value::to_raw_value;

/// Name of the source.
pub(super) const NAME: &str = "intake";
/// Bytes of log that are read at once.
const READ_SIZE: u64 = 1 << 20;

/// The log of the intake, as events.
#[derive(Debug)]
pub struct FileEvents(Feed);

impl FileEvents {
    /// Reads this log.
    #[must_use]
    pub fn new(feed: Feed) -> Self {
        Self(feed)
    }
}

/// The data of events about a file.
#[derive(Serialize)]
struct FileData<'a> {
    namespace: &'a str,
    name: &'a str,
    id: String,
    url: String,
    size: u64,
    sha256: String,
    mime: &'a str,
    category: &'static str,
    /// Whether the bytes were already stored.
    duplicate: bool,
    /// Whether the name referred to other bytes before.
    replaced: bool,
    /// The name that was given up, of a move.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<NameData<'a>>,
}

#[derive(Serialize)]
struct NameData<'a> {
    namespace: &'a str,
    name: &'a str,
}

/// The data of a deletion.
#[derive(Serialize)]
struct DeletedData<'a> {
    namespace: &'a str,
    name: &'a str,
    /// Whether what the name referred to is kept as a version.
    version_kept: bool,
}

/// The data of a name that refers to an earlier file again, and of a version with other tags.
#[derive(Serialize)]
struct RevertedData<'a> {
    namespace: &'a str,
    name: &'a str,
    id: String,
    url: String,
}

/// The data of a document that was replaced or deleted.
#[derive(Serialize)]
struct DocumentData<'a> {
    namespace: &'a str,
    id: u64,
    url: String,
}

/// The data of documents that were dropped.
#[derive(Serialize)]
struct DroppedData<'a> {
    namespace: &'a str,
    last_id: u64,
}

/// The data of accepted documents.
#[derive(Serialize)]
struct DocumentsData<'a> {
    namespace: &'a str,
    target: &'static str,
    count: u64,
    first_id: u64,
    last_id: u64,
    url: String,
}

impl Source for FileEvents {
    fn name(&self) -> &'static str {
        NAME
    }

    fn log_id(&self) -> [u8; 16] {
        self.0.log_id()
    }

    fn end(&self) -> u64 {
        self.0.end()
    }

    fn passed(&self, position: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.0.passed(position))
    }

    fn read(&self, from: u64) -> Result<Batch, SourceError> {
        let log = self.0.log_id();
        let mut items = Vec::new();
        let read = self.0.read(from, READ_SIZE, &mut |item| match item {
            FeedItem::Entry { position, next, entry } => {
                events(&log, position, next, entry, &mut items);
            }
            FeedItem::Erased { from, to, entries } => {
                items.push(Item::Lost { from, next: Point { position: to, item: 0 }, entries });
            }
        });
        match read {
            Ok(reached) => Ok(Batch { from, reached, items }),
            // A log that was replaced by an older copy of itself: what the hook saw may not be there.
            Err(FeedError::Elsewhere { position }) => {
                let reached = self.0.end();
                let next = Point { position: reached, item: 0 };
                items.push(Item::Lost { from: position, next, entries: 0 });
                Ok(Batch { from, reached, items })
            }
            Err(error) => Err(SourceError { name: NAME, source: Box::new(error) }),
        }
    }
}

/// Adds the events of an entry, with their ids and places.
fn events(log: &[u8; 16], position: u64, next: u64, entry: &Entry<'_>, items: &mut Vec<Item>) {
    let made = events_of(position, entry);
    let count = made.len();
    for (number, mut event) in (0_u32..).zip(made) {
        let is_last = number as usize + 1 == count;
        event.at = Point { position, item: number };
        event.next = if is_last {
            Point { position: next, item: 0 }
        } else {
            Point { position, item: number + 1 }
        };
        let parts: [&[u8]; 4] =
            [NAME.as_bytes(), log, &position.to_le_bytes(), &number.to_le_bytes()];
        event.id = event_id(&parts);
        items.push(Item::Event(Box::new(event)));
    }
}

/// What an entry changed for clients.
fn events_of(position: u64, entry: &Entry<'_>) -> Vec<Event> {
    let mut made = Vec::with_capacity(2);
    match entry {
        Entry::FilePut(put) => {
            let kind = match (put.derived, put.created || put.replaced) {
                (false, _) => "file.stored",
                (true, true) => "file.copied",
                (true, false) => "file.changed",
            };
            made.push(file(kind, position, put, None));
            if put.idempotency.is_some_and(is_upload) {
                made.push(file("upload.completed", position, put, None));
            }
        }
        Entry::FileMove(FileMove { put, from_namespace, from_name, .. }) => {
            let from = (from_namespace.as_str(), from_name.as_str());
            made.push(file("file.moved", position, put, Some(from)));
        }
        Entry::Delete(Delete { deleted_ms, namespace, name, keeps, .. }) => {
            let (namespace, name) = (namespace.as_str(), name.as_str());
            let data = DeletedData { namespace, name, version_kept: *keeps };
            made.push(about("file.deleted", *deleted_ms, namespace, Some(name), &data));
        }
        Entry::NewestErased(NewestErased { erased_ms, namespace, name, current, .. }) => {
            let (namespace, name) = (namespace.as_str(), name.as_str());
            made.push(match current {
                Some(id) => {
                    let (id, url) = (id_text(*id), file_url(namespace, name));
                    let data = RevertedData { namespace, name, id, url };
                    about("file.reverted", *erased_ms, namespace, Some(name), &data)
                }
                None => {
                    let data = DeletedData { namespace, name, version_kept: false };
                    about("file.deleted", *erased_ms, namespace, Some(name), &data)
                }
            });
        }
        Entry::Amended(Amended { amended_ms, namespace, name, id, .. }) => {
            let (namespace, name, id) = (namespace.as_str(), name.as_str(), id_text(*id));
            let url = format!("{}?version={id}", file_url(namespace, name));
            let data = RevertedData { namespace, name, id, url };
            made.push(about("file.amended", *amended_ms, namespace, Some(name), &data));
        }
        Entry::DocumentChange(DocumentChange { changed_ms, namespace, id, action, .. }) => {
            let namespace = namespace.as_str();
            let kind = match action {
                ChangeAction::Replace { .. } => "documents.replaced",
                ChangeAction::Delete => "documents.deleted",
            };
            let url = format!("/v1/documents/{namespace}/{id}");
            let data = DocumentData { namespace, id: *id, url };
            made.push(about(kind, *changed_ms, namespace, None, &data));
        }
        Entry::DocumentsDropped(DocumentsDropped { dropped_ms, namespace, last_id, .. }) => {
            let namespace = namespace.as_str();
            let data = DroppedData { namespace, last_id: *last_id };
            made.push(about("documents.dropped", *dropped_ms, namespace, None, &data));
        }
        Entry::DocumentCommit(commit) if commit.count > 0 => made.push(documents(commit)),
        // A commit without documents changes columns; the others change nothing that a client stored.
        Entry::DocumentCommit(_)
        | Entry::Namespace(_)
        | Entry::VersionsErased(_)
        | Entry::DocumentChunk(_)
        | Entry::Outcome(_)
        | Entry::DocumentExtents(_) => {}
    }
    made
}

/// Whether a record is that of an upload that was completed (`docs/formats/intake-log.md`).
fn is_upload(record: IdempotencyRecord) -> bool {
    record.key == record.fingerprint
}

fn file(kind: &'static str, id: u64, put: &FilePut<'_>, from: Option<(&str, &str)>) -> Event {
    let (namespace, name) = (put.namespace.as_str(), put.name.as_str());
    let data = FileData {
        namespace,
        name,
        id: id_text(id),
        url: file_url(namespace, name),
        size: put.size,
        sha256: put.digest.to_hex(),
        mime: put.mime,
        category: put.category.as_str(),
        duplicate: put.duplicate,
        replaced: put.replaced,
        from: from.map(|(namespace, name)| NameData { namespace, name }),
    };
    let before = from.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    Event { before, ..about(kind, put.created_ms, namespace, Some(name), &data) }
}

fn documents(commit: &DocumentCommit<'_>) -> Event {
    let namespace = commit.namespace.as_str();
    let data = DocumentsData {
        namespace,
        target: match commit.target {
            TargetCode::Table => "table",
            TargetCode::Collection => "collection",
        },
        count: commit.count,
        first_id: commit.first_id,
        last_id: commit.first_id.saturating_add(commit.count - 1),
        url: format!("/v1/documents/{namespace}"),
    };
    about("documents.accepted", commit.received_ms, namespace, None, &data)
}

/// An event without a place and an id yet.
fn about(
    kind: &'static str,
    time_ms: i64,
    namespace: &str,
    name: Option<&str>,
    data: &impl Serialize,
) -> Event {
    let nowhere = Point { position: 0, item: 0 };
    Event {
        id: String::new(),
        kind,
        time_ms: u64::try_from(time_ms).unwrap_or(0),
        namespace: Some(namespace.to_owned()),
        name: name.map(str::to_owned),
        before: None,
        // Structures of texts and numbers: nothing can fail.
        data: to_raw_value(data).unwrap_or_default(),
        at: nowhere,
        next: nowhere,
        is_restated: false,
    }
}

#[cfg(test)]
mod tests {
    use forebay_intake::attributes::Attributes;
    use forebay_intake::names::{FileName, Namespace};

    use super::*;

    #[test]
    fn other_tags_of_a_version_are_an_event_about_that_version() {
        let entry = Entry::Amended(Amended {
            amended_ms: 1,
            namespace: Namespace::parse("n").unwrap(),
            name: FileName::parse("a b").unwrap(),
            id: 64,
            attributes: Attributes::default(),
        });
        let made = events_of(9, &entry);
        assert_eq!(made.len(), 1);
        assert_eq!((made[0].kind, made[0].name.as_deref()), ("file.amended", Some("a b")));
        let expected = r#"{"namespace":"n","name":"a b","id":"0000000000000040","url":"/v1/files/n/a%20b?version=0000000000000040"}"#;
        assert_eq!(made[0].data.get(), expected);
    }
}
