//! The files of an archive to a server, in parallel.
//!
//! The names of the archive and those of the server are both in ascending order, so one pass over both finds
//! what differs; several threads store it.
//!
//! Invariants: what waits between the threads is limited; the server is given the digest with the bytes, so
//! nothing else is stored under the name; a file that fails stops no other, unless the server refuses the key or
//! does not answer.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_base::backoff::Backoff;
use forebay_base::error_chain::chain;
use forebay_intake::names::FileName;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value, json};
use ureq::SendBody;
use ureq::http::{HeaderName, HeaderValue, Method};

use super::export::{ATTEMPTS, Files, RETRY_FIRST, RETRY_MAX, repeated};
use super::file_client::{Failure, Target, failed, shown};
use super::import::{Import, unreadable};
use super::server::encode;
use crate::archive::FileLine;

/// Maximum size of an answer about one file, in bytes.
const ANSWER_SIZE_MAX: u64 = 1 << 20;
/// Maximum size of name, comment, metadata and tags that are sent in the head of a request, in bytes. With
/// every byte encoded it fits into the limit that a server has for a head.
const HEAD_SIZE_MAX: usize = 6 << 10;
/// Maximum number of metadata in the head of a request. A server accepts 100 headers, and a proxy
/// adds some.
const HEAD_METADATA_MAX: usize = 64;

/// Counts of files.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Counts {
    /// Files under names that did not exist.
    pub(super) stored: u64,
    /// Files under names that had other bytes.
    pub(super) replaced: u64,
    /// Files of which only comment, metadata or tags differed.
    pub(super) changed: u64,
    /// Files that were there.
    pub(super) unchanged: u64,
    /// Files that could not be stored.
    pub(super) failed: u64,
    /// Bytes of the files that were sent.
    pub(super) bytes_sent: u64,
}

/// A file that differs, and what the server has under its name.
struct Item {
    file: FileLine,
    name: FileName,
    known: Option<FileLine>,
}

/// Why a file was not stored.
enum Refusal {
    /// The request failed.
    Server(Failure),
    /// Something else is wrong with this file.
    File(String),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Server(failure)
    }
}

/// What all threads share.
struct Run<'a> {
    import: &'a Import<'a>,
    counts: Mutex<Counts>,
    /// The refusal that ends the run.
    ended: Mutex<Option<Failure>>,
}

/// Stores the files that differ.
pub(super) fn run(import: &Import<'_>, workers: u16) -> anyhow::Result<Counts> {
    let run = Run { import, counts: Mutex::default(), ended: Mutex::default() };
    let (send, receive) = sync_channel::<Item>(2 * usize::from(workers));
    let receive = Mutex::new(receive);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| run.work(&receive));
        }
        let compared = run.compare(&send);
        drop(send);
        compared
    })?;
    if let Some(failure) = run.ended.lock().take() {
        return Err(failed(failure));
    }
    let counts = *run.counts.lock();
    Ok(counts)
}

/// The names of the server, one after the other.
struct Known {
    pages: Files,
    page: std::vec::IntoIter<FileLine>,
    next: Option<FileLine>,
}

impl Known {
    /// Returns what the server has under a name. Names are asked for in ascending order.
    fn find(&mut self, import: &Import<'_>, name: &str) -> Result<Option<FileLine>, Failure> {
        loop {
            while self.next.is_none() {
                self.next = self.page.next();
                if self.next.is_some() {
                    break;
                }
                match repeated(|| self.pages.next(import.client))? {
                    Some(page) => self.page = page.into_iter(),
                    None => return Ok(None),
                }
            }
            match self.next.take() {
                Some(next) if next.name.as_str() < name => {}
                Some(next) if next.name == name => return Ok(Some(next)),
                later => {
                    self.next = later;
                    return Ok(None);
                }
            }
        }
    }
}

impl Run<'_> {
    /// Compares the archive with the server, and hands over what differs.
    fn compare(&self, send: &SyncSender<Item>) -> anyhow::Result<()> {
        let import = self.import;
        let pages = Files::new(import.namespace);
        let mut known = Known { pages, page: Vec::new().into_iter(), next: None };
        let mut lines = import.archive.files().map_err(unreadable)?;
        while let Some(file) = lines.next().map_err(unreadable)? {
            if self.ended.lock().is_some() {
                return Ok(());
            }
            let name = FileName::parse(&file.name)?;
            let known = known.find(import, &file.name).map_err(failed)?;
            let is_same = known
                .as_ref()
                .is_some_and(|known| known.has_bytes_of(&file) && known.has_details_of(&file));
            if is_same {
                self.counts.lock().unchanged += 1;
                continue;
            }
            if send.send(Item { file, name, known }).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Stores files until there are no more.
    fn work(&self, items: &Mutex<Receiver<Item>>) {
        loop {
            let next = items.lock().recv();
            let Ok(item) = next else { return };
            if self.ended.lock().is_some() {
                // The rest is taken out of the queue, so that the comparison is not held up.
                continue;
            }
            match self.store(&item) {
                Ok(()) => self.count(&item),
                // After all attempts at one file the others would wait as long for the same answer.
                Err(Refusal::Server(failure)) if failure.is_final() || failure.is_silence() => {
                    *self.ended.lock() = Some(failure);
                }
                Err(Refusal::Server(failure)) => self.fail(&item, &chain(&failure).to_string()),
                Err(Refusal::File(reason)) => self.fail(&item, &reason),
            }
        }
    }

    fn count(&self, item: &Item) {
        let mut counts = self.counts.lock();
        match &item.known {
            Some(known) if known.has_bytes_of(&item.file) => counts.changed += 1,
            known => {
                match known {
                    Some(_) => counts.replaced += 1,
                    None => counts.stored += 1,
                }
                counts.bytes_sent += item.file.size;
            }
        }
        let Counts { stored, replaced, changed, unchanged, bytes_sent, .. } = *counts;
        drop(counts);
        self.import.bar.set_position(bytes_sent);
        let stored = stored + replaced + changed;
        self.import.bar.set_message(format!("{stored} files stored, {unchanged} unchanged"));
    }

    fn fail(&self, item: &Item, reason: &str) {
        self.counts.lock().failed += 1;
        let (namespace, name) = (self.import.namespace, &item.name);
        self.import.note(&format!("failed {namespace}/{name}: {}", shown(reason)));
    }

    fn store(&self, item: &Item) -> Result<(), Refusal> {
        if self.import.dry_run {
            return Ok(());
        }
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
        let mut attempt = 1;
        loop {
            match self.attempt(item) {
                Err(Refusal::Server(failure)) if attempt < ATTEMPTS => match failure.passes() {
                    Some(after) => std::thread::park_timeout(backoff.delay().max(after)),
                    None => return Err(failure.into()),
                },
                result => return result,
            }
            attempt += 1;
        }
    }

    /// Sends a file once.
    fn attempt(&self, item: &Item) -> Result<(), Refusal> {
        let Item { file, name, known } = item;
        let target = Target { namespace: self.import.namespace.clone(), name: name.clone() };
        if let Some(known) = known.as_ref().filter(|known| known.has_bytes_of(file)) {
            return self.patch(&target, file, known);
        }
        let head = Head::of(file);
        self.put(&target, file, head.as_ref())?;
        match head {
            Some(_) => Ok(()),
            // Until then the file is there without them, and a repetition adds them.
            None => self.patch(&target, file, &FileLine { comment: String::new(), ..bare(file) }),
        }
    }

    fn put(&self, target: &Target, file: &FileLine, head: Option<&Head>) -> Result<(), Refusal> {
        let query = head.map(|head| head.query.as_str()).unwrap_or_default();
        let client = self.import.client;
        let mut request = client
            .request(Method::PUT, &format!("{}{query}", target.path()))
            .header("content-length", file.size)
            .header("repr-digest", format!("sha-256=:{}:", BASE64.encode(file.sha256.0)));
        for (name, value) in head.map(|head| head.headers.as_slice()).unwrap_or_default() {
            request = request.header(name, value);
        }
        let content = self.import.archive.content(file.sha256);
        let content = content.map_err(|error| Refusal::File(chain(&error).to_string()))?;
        let mut content: Box<dyn Read> = Box::new(content);
        let answer = client.send(request, SendBody::from_reader(&mut content))?;
        let stored: Value = client.read(answer, ANSWER_SIZE_MAX)?;
        if stored["sha256"] != file.sha256.to_string() {
            let text = format!("it was stored with another SHA-256 than {}", file.sha256);
            return Err(Refusal::File(text));
        }
        Ok(())
    }

    /// Changes what is stored beside the bytes.
    fn patch(&self, target: &Target, file: &FileLine, known: &FileLine) -> Result<(), Refusal> {
        let patch = difference(file, known).to_string();
        let client = self.import.client;
        let request = client
            .request(Method::PATCH, &target.path())
            .header("content-type", "application/merge-patch+json")
            .header("content-length", patch.len())
            .header("if-match", format!("\"{}\"", file.sha256));
        let answer = client.send(request, SendBody::from_reader(&mut patch.as_bytes()))?;
        let _: Value = client.read(answer, ANSWER_SIZE_MAX)?;
        Ok(())
    }
}

/// A file that has nothing beside its bytes.
fn bare(file: &FileLine) -> FileLine {
    FileLine { metadata: BTreeMap::new(), tags: BTreeMap::new(), ..file.clone() }
}

/// The patch that makes what is stored beside the bytes of `known` that of `file`.
fn difference(file: &FileLine, known: &FileLine) -> Value {
    let of = |wanted: &BTreeMap<String, String>, known: &BTreeMap<String, String>| {
        let removed = known.keys().filter(|name| !wanted.contains_key(*name));
        let mut patch: Map<_, _> = removed.map(|name| (name.clone(), Value::Null)).collect();
        patch.extend(wanted.iter().map(|(name, value)| (name.clone(), json!(value))));
        patch
    };
    let comment = Some(&file.comment).filter(|comment| !comment.is_empty());
    json!({
        "comment": comment,
        "metadata": of(&file.metadata, &known.metadata),
        "tags": of(&file.tags, &known.tags),
    })
}

/// What is stored beside the bytes, in the head of the request with the bytes.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    query: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Head {
    /// `None`: a head cannot have it.
    fn of(file: &FileLine) -> Option<Self> {
        if file.metadata.len() > HEAD_METADATA_MAX {
            return None;
        }
        let pairs = || file.metadata.iter().chain(&file.tags);
        let sizes = pairs().map(|(name, value)| name.len() + value.len() + 16);
        if file.name.len() + file.comment.len() + sizes.sum::<usize>() > HEAD_SIZE_MAX {
            return None;
        }
        let mut headers = Vec::new();
        for (name, value) in &file.metadata {
            // Others arrive in lower case, or without the spaces around them.
            let is_same = !name.is_empty()
                && !name.bytes().any(|byte| byte.is_ascii_uppercase())
                && !value.is_empty()
                && value.trim() == value
                && value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            let name = HeaderName::from_bytes(format!("forebay-meta-{name}").as_bytes());
            match (name, HeaderValue::from_str(value)) {
                (Ok(name), Ok(value)) if is_same => headers.push((name, value)),
                _ => return None,
            }
        }
        if !file.tags.is_empty() {
            let mut tags = url::form_urlencoded::Serializer::new(String::new());
            let tags = HeaderValue::from_str(&tags.extend_pairs(&file.tags).finish()).ok()?;
            headers.push((HeaderName::from_static("forebay-tags"), tags));
        }
        let query = match file.comment.as_str() {
            "" => String::new(),
            comment => format!("?comment={}", encode(comment)),
        };
        Some(Self { query, headers })
    }
}

#[cfg(test)]
mod tests {
    use forebay_intake::digest::Digest;

    use super::*;

    fn file(metadata: &[(&str, &str)], tags: &[(&str, &str)]) -> FileLine {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        FileLine {
            name: "a".to_owned(),
            sha256: Digest::of(b""),
            size: 0,
            mime: String::new(),
            comment: String::new(),
            metadata: map(metadata),
            tags: map(tags),
            created: String::new(),
        }
    }

    #[test]
    fn a_head_has_what_arrives_as_it_was_sent() {
        let head = Head::of(&file(&[("author", "Ada L")], &[("a b", "x&y"), ("é", "")])).unwrap();
        let headers: Vec<_> = head
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        assert_eq!(
            headers,
            [("forebay-meta-author", "Ada L"), ("forebay-tags", "a+b=x%26y&%C3%A9=")]
        );
        for metadata in
            [("Author", "x"), ("a b", "x"), ("é", "x"), ("a", ""), ("a", " x"), ("a", "é")]
        {
            assert_eq!(Head::of(&file(&[metadata], &[])), None, "{metadata:?}");
        }
        let names: Vec<_> = (0..=HEAD_METADATA_MAX).map(|n| format!("n{n}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
        assert_eq!(Head::of(&file(&many, &[])), None);
        assert!(Head::of(&file(&many[1..], &[])).is_some());
        let long = "x".repeat(4_000);
        assert_eq!(Head::of(&file(&[("a", &long), ("b", &long)], &[])), None);
    }

    #[test]
    fn a_patch_makes_one_file_like_another() {
        let wanted = file(&[("a", "1"), ("b", "2")], &[]);
        let known =
            FileLine { comment: "old".to_owned(), ..file(&[("b", "3"), ("c", "4")], &[("t", "")]) };
        let expected = json!({
            "comment": null, "metadata": { "a": "1", "b": "2", "c": null }, "tags": { "t": null },
        });
        assert_eq!(difference(&wanted, &known), expected);
    }
}
