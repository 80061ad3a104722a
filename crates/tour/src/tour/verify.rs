//! Reads everything back: each acknowledged file and document, and the listings.
//!
//! Invariant: what is reported as verified was read over a socket and compared with what the tour
//! sent, by size and SHA-256 or by exact text; problems are collected, not returned as errors.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use forebay_intake::answer::file_url;
use forebay_intake::digest::Digest;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::client::{Answer, Connection, Request, escape};
use super::first::{First, on_threads};
use super::oracle::{Kept, Key, Oracle, Texts};
use forebay_console::interrupt::Interrupt;

/// Number of files for which a range and a conditional request are made too.
const SAMPLES: usize = 25;

/// Reads from one server.
pub(super) struct Verifier<'a> {
    pub(super) address: SocketAddr,
    pub(super) connections: usize,
    pub(super) interrupt: &'a Interrupt,
}

/// The content of a namespace of documents.
#[derive(Debug)]
pub(super) struct NamespaceRead {
    pub(super) target: String,
    pub(super) columns: usize,
    pub(super) texts: Texts,
}

impl Verifier<'_> {
    /// Reads every file and compares size, SHA-256 and entity tag.
    ///
    /// * `done`: called with the bytes of each file read.
    /// * Returns a line for each that differs, and the bytes read.
    pub(super) fn files(
        &self,
        oracle: &Oracle,
        done: &(dyn Fn(u64) + Sync),
    ) -> anyhow::Result<(Vec<String>, u64)> {
        let queue: VecDeque<(&Key, &Kept)> = oracle.files.iter().collect();
        let (queue, problems, bytes) =
            (Mutex::new(queue), Mutex::new(Vec::new()), AtomicU64::new(0));
        let first = First::default();
        on_threads(self.connections, &first, &|_| {
            let mut connection = Connection::new(self.address);
            while !first.is_noted() {
                self.interrupt.check()?;
                let Some((key, kept)) = queue.lock().pop_front() else { break };
                let (size, found) = file(&mut connection, key, kept)?;
                problems.lock().extend(found);
                bytes.fetch_add(size, Ordering::Relaxed);
                done(size);
            }
            Ok(())
        });
        first.result()?;
        let mut problems = problems.into_inner();
        problems.sort();
        Ok((problems, bytes.into_inner()))
    }

    /// Requests a range of a sample of the files, and makes conditional requests.
    ///
    /// * Returns the number of requests, and the wrong responses.
    pub(super) fn ranges_and_tags(&self, oracle: &Oracle) -> anyhow::Result<(u64, Vec<String>)> {
        let mut connection = Connection::new(self.address);
        let (mut asked, mut problems) = (0, Vec::new());
        let step = (oracle.files.len() / SAMPLES).max(1);
        let fit = oracle.files.iter().filter(|(_, kept)| (2..=32 << 20).contains(&kept.size));
        for ((namespace, name), kept) in fit.step_by(step).take(SAMPLES) {
            self.interrupt.check()?;
            asked += 1;
            let path = file_url(namespace, name);
            let whole = ask(&mut connection, Request::get(&path))?;
            let (from, to) = (kept.size / 3, kept.size - 1);
            let range = [("range", format!("bytes={from}-{to}"))];
            let part = ask(&mut connection, Request { headers: &range, ..Request::get(&path) })?;
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            let content_range = format!("bytes {from}-{to}/{}", kept.size);
            if part.status != 206
                || part.header("content-range") != Some(&content_range)
                || whole.body.get(from..) != Some(&*part.body)
            {
                problems.push(format!("{namespace}/{name}: a range got {}", part.status));
            }
            let tag = [("if-none-match", format!("\"{}\"", kept.digest))];
            let same = ask(&mut connection, Request { headers: &tag, ..Request::get(&path) })?;
            if same.status != 304 || !same.body.is_empty() {
                problems.push(format!("{namespace}/{name}: If-None-Match got {}", same.status));
            }
        }
        Ok((asked, problems))
    }

    /// Returns every file the server lists, page by page.
    pub(super) fn listing(&self) -> anyhow::Result<BTreeMap<Key, Kept>> {
        let mut connection = Connection::new(self.address);
        let (mut found, mut cursor) = (BTreeMap::new(), None::<String>);
        loop {
            self.interrupt.check()?;
            let mut path = "/v1/files?limit=1000".to_owned();
            if let Some(cursor) = &cursor {
                path.push_str("&cursor=");
                path.push_str(&escape(cursor));
            }
            let page: FilesPage = json(&ask_ok(&mut connection, &path)?)?;
            for file in page.files {
                let digest =
                    Digest::from_hex(&file.sha256).context("a listed digest is not valid")?;
                let key = (file.namespace, file.name);
                if found.insert(key.clone(), Kept { digest, size: file.size }).is_some() {
                    bail!("{}/{} is listed twice", key.0, key.1);
                }
            }
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// Returns everything a namespace of documents holds, page by page.
    pub(super) fn documents(&self, namespace: &str) -> anyhow::Result<NamespaceRead> {
        let mut connection = Connection::new(self.address);
        let mut path = format!("/v1/documents/{namespace}?limit=1000");
        let mut read = NamespaceRead { target: String::new(), columns: 0, texts: Texts::default() };
        loop {
            self.interrupt.check()?;
            let answer = ask_ok(&mut connection, &path)?;
            let page: DocumentsPage<'_> = json(&answer)?;
            page.documents.iter().for_each(|one| read.texts.add(one.document.get()));
            read.target = page.target;
            read.columns = page.columns.len();
            match page.next_cursor {
                Some(next) => {
                    path = format!("/v1/documents/{namespace}?limit=1000&cursor={}", escape(&next));
                }
                None => return Ok(read),
            }
        }
    }

    /// Checks whether a file is complete, or absent.
    pub(super) fn presence(&self, key: &Key, kept: &Kept) -> anyhow::Result<Presence> {
        let mut connection = Connection::new(self.address);
        let answer = ask(&mut connection, Request::get(&file_url(&key.0, &key.1)))?;
        Ok(match answer.status {
            404 => Presence::Absent,
            200 if Digest::of(&answer.body) == kept.digest => Presence::Whole,
            200 => Presence::Half(format!(
                "{}/{}: {} bytes were returned",
                key.0,
                key.1,
                answer.body.len()
            )),
            _ => bail!("GET {}/{} was answered {}", key.0, key.1, answer.describe()),
        })
    }
}

/// The state of a file whose upload was interrupted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Whole,
    Absent,
    Half(String),
}

fn file(
    connection: &mut Connection,
    (namespace, name): &Key,
    kept: &Kept,
) -> anyhow::Result<(u64, Option<String>)> {
    let (mut hasher, mut size) = (Sha256::new(), 0);
    let path = file_url(namespace, name);
    let answer = connection
        .fetch(Request::get(&path), &mut |bytes| {
            hasher.update(bytes);
            size += bytes.len() as u64;
        })
        .with_context(|| format!("GET {path} failed"));
    // A file that cannot be read is a problem of that file, not the end of the comparison.
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Ok((size, Some(format!("{namespace}/{name}: {error:#}")))),
    };
    let found = Digest(hasher.finalize().into());
    let problem = if answer.status != 200 {
        Some(format!("{namespace}/{name}: answered {}", answer.status))
    } else if (found, size) != (kept.digest, kept.size) {
        let Kept { digest, size: sent } = kept;
        Some(format!("{namespace}/{name}: sent {sent} bytes {digest}, read {size} bytes {found}"))
    } else if answer.header("etag") != Some(&format!("\"{found}\"")) {
        Some(format!("{namespace}/{name}: its ETag is not its SHA-256"))
    } else {
        None
    };
    Ok((size, problem))
}

fn ask(connection: &mut Connection, request: Request<'_>) -> anyhow::Result<Answer> {
    let (method, path) = (request.method, request.path);
    connection.ask(request).with_context(|| format!("{method} {path} failed"))
}

fn ask_ok(connection: &mut Connection, path: &str) -> anyhow::Result<Answer> {
    let answer = ask(connection, Request::get(path))?;
    if answer.status != 200 {
        bail!("GET {path} was answered {}", answer.describe());
    }
    Ok(answer)
}

fn json<'a, T: Deserialize<'a>>(answer: &'a Answer) -> anyhow::Result<T> {
    serde_json::from_slice(&answer.body).context("a response is not the expected JSON")
}

#[derive(Deserialize)]
struct FilesPage {
    files: Vec<ListedFile>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct ListedFile {
    namespace: String,
    name: String,
    size: u64,
    sha256: String,
}

#[derive(Deserialize)]
struct DocumentsPage<'a> {
    target: String,
    columns: Vec<serde_json::Value>,
    #[serde(borrow)]
    documents: Vec<StoredDocument<'a>>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct StoredDocument<'a> {
    #[serde(borrow)]
    document: &'a RawValue,
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Returns what the comparison reports for a server that answers a request for `sent` with
    /// `answer`.
    fn problem(sent: &[u8], answer: &str) -> Option<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = Connection::new(listener.local_addr().unwrap());
        let key = ("n".to_owned(), "name".to_owned());
        let kept = Kept { digest: Digest::of(sent), size: sent.len() as u64 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = [0; 4_096];
                assert!(stream.read(&mut head).unwrap() > 0);
                stream.write_all(answer.as_bytes()).unwrap();
            });
            file(&mut connection, &key, &kept).unwrap().1
        })
    }

    fn answer(tag: Digest, length: usize, body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\netag: \"{tag}\"\r\ncontent-length: {length}\r\n\r\n{body}")
    }

    #[test]
    fn a_file_that_comes_back_as_sent_is_no_problem() {
        assert_eq!(problem(b"hello", &answer(Digest::of(b"hello"), 5, "hello")), None);
    }

    #[test]
    fn a_missing_truncated_altered_or_wrongly_tagged_file_is_named() {
        let right = Digest::of(b"hello");
        let wrong = [
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
            answer(right, 5, "hell"),
            answer(right, 4, "hell"),
            answer(right, 5, "hellO"),
            answer(Digest::of(b""), 5, "hello"),
        ];
        for answer in wrong {
            let problem = problem(b"hello", &answer);
            assert!(problem.as_ref().is_some_and(|text| text.contains("n/name")), "{problem:?}");
        }
    }
}
