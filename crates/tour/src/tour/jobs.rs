//! The requests of a load: what each sends, under which key, in which order.
//!
//! Invariant: a prepared request is sent again with the same bytes and the same
//! `Idempotency-Key`, even if its file has changed meanwhile.

use anyhow::Context as _;
use forebay_intake::answer::file_url;
use forebay_intake::digest::Digest;

use super::client::Request;
use super::inputs::{Documents, Files};
use super::oracle::{Kept, Key};

/// Namespaces of a tour's files.
pub(super) const SINGLE: &str = "tour-files";
pub(super) const BATCH: &str = "tour-batches";
pub(super) const COPIES: &str = "tour-copies";

/// One in this many files up to [`BATCHED_SIZE_MAX`] is sent in a batch.
const BATCHED_EVERY: usize = 4;
const BATCHED_SIZE_MAX: u64 = 256 << 10;
const BATCH_FILES: usize = 16;
const BATCH_SIZE_MAX: u64 = 4 << 20;
/// One in this many files is sent again under another name.
const COPY_EVERY: usize = 20;
/// Number of documents in a request.
const DOCUMENTS: usize = 64;
const DOCUMENTS_SIZE_MAX: usize = 2 << 20;

/// A request to send.
#[derive(Debug, Clone)]
pub(super) struct Job {
    key: String,
    work: Work,
}

#[derive(Debug, Clone)]
enum Work {
    /// A single file: its index among the inputs, and its destination.
    Put { file: usize, namespace: &'static str },
    /// Files in one multipart body.
    Batch { files: Vec<usize> },
    /// Documents `from..to` of a namespace.
    Documents { namespace: String, from: usize, to: usize },
}

/// A request with its bytes, and what an acknowledgement of it means.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    pub(super) carries: Carries,
}

/// The content of a request.
#[derive(Debug)]
pub(super) enum Carries {
    File((Key, Kept)),
    Batch(Vec<(Key, Kept)>),
    Documents { namespace: String, from: usize, to: usize },
}

impl Prepared {
    pub(super) fn request(&self) -> Request<'_> {
        Request { method: self.method, path: &self.path, headers: &self.headers, body: &self.body }
    }

    /// Returns the files it sends.
    pub(super) fn files(&self) -> &[(Key, Kept)] {
        match &self.carries {
            Carries::File(file) => std::slice::from_ref(file),
            Carries::Batch(files) => files,
            Carries::Documents { .. } => &[],
        }
    }
}

/// Returns all requests of a tour, mixed so that every kind is in progress at any time.
///
/// * `run`: makes the keys of this tour distinct from any other's.
pub(super) fn plan(files: &Files, documents: &Documents, run: &str) -> Vec<Job> {
    let mut works = Vec::new();
    let mut batch = (Vec::new(), 0);
    for (file, source) in files.chosen.iter().enumerate() {
        let batched = file % BATCHED_EVERY == BATCHED_EVERY - 1
            && source.size <= BATCHED_SIZE_MAX
            && is_plain(&source.name);
        if !batched {
            works.push(Work::Put { file, namespace: SINGLE });
            continue;
        }
        batch.0.push(file);
        batch.1 += source.size;
        if batch.0.len() == BATCH_FILES || batch.1 > BATCH_SIZE_MAX {
            works.push(Work::Batch { files: std::mem::take(&mut batch.0) });
            batch.1 = 0;
        }
    }
    if !batch.0.is_empty() {
        works.push(Work::Batch { files: batch.0 });
    }
    for (namespace, texts) in &documents.sets {
        let mut from = 0;
        while from < texts.len() {
            let to = end_of_run(texts, from);
            works.push(Work::Documents { namespace: namespace.clone(), from, to });
            from = to;
        }
    }
    let copies = (0..files.chosen.len()).filter(|file| file % COPY_EVERY == COPY_EVERY / 2);
    let copies = copies.map(|file| Work::Put { file, namespace: COPIES });
    works.extend(copies);
    let mut jobs: Vec<Job> = works
        .into_iter()
        .enumerate()
        .map(|(at, work)| Job { key: format!("tour-{run}-{at}"), work })
        .collect();
    jobs.sort_by_cached_key(|job| {
        (forebay_base::checksum::crc32c(order(job, files).as_bytes()), job.key.clone())
    });
    jobs
}

/// Returns what determines a job's position in the load: what it sends, so that the same inputs
/// give the same order.
fn order(job: &Job, files: &Files) -> String {
    let name = |file: usize| files.chosen.get(file).map_or("", |source| source.name.as_str());
    match &job.work {
        Work::Put { file, namespace } => format!("{namespace}/{}", name(*file)),
        Work::Batch { files } => format!("batch {}", files.first().map_or("", |file| name(*file))),
        Work::Documents { namespace, from, .. } => format!("documents {namespace} {from}"),
    }
}

fn end_of_run(texts: &[Box<str>], from: usize) -> usize {
    let mut size = 0;
    let longest = texts.len().min(from + DOCUMENTS);
    for (at, text) in texts.iter().enumerate().take(longest).skip(from) {
        size += text.len();
        if size > DOCUMENTS_SIZE_MAX {
            return (at + 1).min(longest);
        }
    }
    longest
}

/// Returns whether a name can be used in `filename="..."` unchanged.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'%' | b';'))
}

impl Job {
    /// Reads the content of the request.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn prepare(&self, files: &Files, documents: &Documents) -> anyhow::Result<Prepared> {
        let key = ("idempotency-key", self.key.clone());
        match &self.work {
            Work::Put { file, namespace } => {
                let (body, name) = read(files, *file)?;
                let kept = Kept { digest: Digest::of(&body), size: body.len() as u64 };
                Ok(Prepared {
                    method: "PUT",
                    path: file_url(namespace, name),
                    headers: vec![key],
                    body,
                    carries: Carries::File((((*namespace).to_owned(), name.to_owned()), kept)),
                })
            }
            Work::Batch { files: members } => self.batch(members, files),
            Work::Documents { namespace, from, to } => {
                let texts = documents.sets.get(namespace).and_then(|texts| texts.get(*from..*to));
                let (kind, body) = encode(texts.unwrap_or_default());
                Ok(Prepared {
                    method: "POST",
                    path: format!("/v1/documents/{namespace}"),
                    headers: vec![key, ("content-type", kind.to_owned())],
                    body,
                    carries: Carries::Documents {
                        namespace: namespace.clone(),
                        from: *from,
                        to: *to,
                    },
                })
            }
        }
    }

    /// Returns a multipart body (RFC 7578).
    fn batch(&self, members: &[usize], files: &Files) -> anyhow::Result<Prepared> {
        let boundary = format!("boundary-of-{}", self.key);
        let mut body = Vec::new();
        let mut field = |name: &str, value: &str| {
            body.extend_from_slice(
                format!(
                    "--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
                )
                .as_bytes(),
            );
        };
        field("namespace", BATCH);
        field("comment", "sent by a tour");
        field("json", "file");
        let mut carried = Vec::with_capacity(members.len());
        for member in members {
            let (bytes, name) = read(files, *member)?;
            body.extend_from_slice(
                format!(
                    "--{boundary}\r\ncontent-disposition: form-data; name=\"files\"; \
                     filename=\"{name}\"\r\n\r\n"
                )
                .as_bytes(),
            );
            body.extend_from_slice(&bytes);
            body.extend_from_slice(b"\r\n");
            let kept = Kept { digest: Digest::of(&bytes), size: bytes.len() as u64 };
            carried.push(((BATCH.to_owned(), name.to_owned()), kept));
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        let kind = format!("multipart/form-data; boundary={boundary}");
        Ok(Prepared {
            method: "POST",
            path: "/v1/ingest".to_owned(),
            headers: vec![("idempotency-key", self.key.clone()), ("content-type", kind)],
            body,
            carries: Carries::Batch(carried),
        })
    }
}

fn read(files: &Files, file: usize) -> anyhow::Result<(Vec<u8>, &str)> {
    let source = files.chosen.get(file).context("the plan contains a file that was not chosen")?;
    let bytes = std::fs::read(&source.path)
        .with_context(|| format!("cannot read {}", source.path.display()))?;
    Ok((bytes, &source.name))
}

/// Encodes documents as a body: lines if each fits on one, otherwise an array.
fn encode(texts: &[Box<str>]) -> (&'static str, Vec<u8>) {
    let lines = texts.iter().all(|text| !text.contains(['\n', '\r']));
    let (kind, open, between, close) = match lines {
        true => ("application/x-ndjson", "", "\n", "\n"),
        false => ("application/json", "[", ",", "]"),
    };
    (kind, format!("{open}{}{close}", texts.join(between)).into_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_and_document_is_sent_once_and_some_files_again_under_another_name() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..100 {
            std::fs::write(dir.path().join(format!("{n:03}")), format!("{n}")).unwrap();
        }
        let files = Files::choose(dir.path(), 1_000, 1 << 20).unwrap();
        let texts = (0..150).map(|n| format!("{{\"n\":{n}}}").into()).collect();
        let mut documents = Documents::default();
        documents.sets.insert("n".into(), texts);
        let jobs = plan(&files, &documents, "run");
        let (mut names, mut keys, mut sent) = (BTreeSet::new(), BTreeSet::new(), 0);
        for job in &jobs {
            assert!(keys.insert(job.key.clone()));
            let prepared = job.prepare(&files, &documents).unwrap();
            match &prepared.carries {
                Carries::File((key, _)) => assert!(names.insert(key.clone())),
                Carries::Batch(files) => {
                    files.iter().for_each(|(key, _)| assert!(names.insert(key.clone())));
                }
                Carries::Documents { from, to, .. } => sent += to - from,
            }
        }
        assert_eq!(sent, 150);
        assert_eq!(names.iter().filter(|(namespace, _)| namespace == COPIES).count(), 5);
        assert_eq!(names.len(), 105);
    }

    #[test]
    fn documents_with_line_breaks_are_sent_as_an_array() {
        assert_eq!(encode(&["{}".into(), "{}".into()]).1, b"{}\n{}\n");
        assert_eq!(encode(&["{\n}".into(), "{}".into()]).1, b"[{\n},{}]");
    }
}
