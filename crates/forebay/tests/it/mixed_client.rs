//! A client of the mixed crash test: it uses everything, over both APIs, and records what was acknowledged.
//!
//! It sends one request at a time. A request that is not answered ends it: the server was killed. What it holds of
//! that request decides what the next server may show ([`crate::mixed_oracle`]).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_base::fs::sim::Rng;
use serde_json::{Value, json};

use crate::mixed_oracle::{Change, Content, File, History, Names, Past, Register, Requests, Write};
use crate::mixed_records::Records;
use crate::mixed_uploads::{Multipart, Resumable};
use crate::s3_client::{Reply, S3, path, send, value};
use crate::support::agent;

/// The server as it runs in one round.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) agent: ureq::Agent,
    pub(crate) url: String,
    pub(crate) s3: S3,
}

impl Link {
    pub(crate) fn new(url: &str, s3: S3) -> Self {
        Self { agent: agent(), url: url.to_owned(), s3 }
    }

    pub(crate) fn http(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Reply> {
        send(&self.agent, method, &format!("{}{target}", self.url), headers, body)
    }

    /// Asks a server that must answer.
    pub(crate) fn get(&self, target: &str) -> Reply {
        self.http("GET", target, &[], &[]).unwrap_or_else(|| panic!("no answer to GET {target}"))
    }

    pub(crate) fn json(&self, target: &str) -> Value {
        let reply = self.get(target);
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
        serde_json::from_slice(&reply.body.unwrap()).unwrap()
    }
}

/// What all clients write: names that they change at the same time.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    clock: AtomicU64,
    pub(crate) names: Mutex<BTreeMap<String, Register>>,
}

impl Shared {
    /// A number that is larger than all before.
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

/// A request that may be sent again until it is answered, and then has happened once.
#[derive(Debug)]
pub(crate) enum Repeatable {
    /// A `PUT` with an idempotency key.
    Put { target: String, key: String, content: Content },
    /// The end of a multipart upload.
    Complete { upload: Multipart },
    /// A file made of partial uploads.
    Final { concat: String, metadata: String },
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: usize,
    pub(crate) rng: Rng,
    next_seed: u64,
    pub(crate) names: Names,
    /// Files of requests that run later.
    pub(crate) late: Names,
    /// Names that keep their versions.
    pub(crate) kept: BTreeMap<String, History>,
    /// Documents, sent at once and as jobs.
    pub(crate) documents: Requests,
    pub(crate) late_documents: Requests,
    /// Documents that are changed one by one.
    pub(crate) records: Records,
    /// Jobs that were accepted.
    pub(crate) jobs: Vec<String>,
    pub(crate) resumable: Option<Resumable>,
    pub(crate) multipart: Option<Multipart>,
    /// The request in progress, if it can be repeated.
    pub(crate) repeatable: Option<(Repeatable, Vec<Change>)>,
}

/// Whether a request was acknowledged; it must not have been refused.
pub(crate) fn acknowledged(reply: Option<&Reply>, expected: &[u16]) -> bool {
    let Some(reply) = reply else { return false };
    assert!(expected.contains(&reply.status), "{}: {}", reply.status, reply.text());
    true
}

impl Client {
    pub(crate) fn new(id: usize, seed: u64) -> Self {
        Self {
            id,
            rng: Rng::new(seed ^ (id as u64 * 7_919)),
            // Of different clients different, so that no two write the same bytes.
            next_seed: (id as u64 + 1) << 40,
            names: Names::default(),
            late: Names::default(),
            kept: BTreeMap::new(),
            documents: Requests::default(),
            late_documents: Requests::default(),
            records: Records::default(),
            jobs: Vec::new(),
            resumable: None,
            multipart: None,
            repeatable: None,
        }
    }

    /// The namespace of its own names.
    pub(crate) fn space(&self) -> String {
        format!("mixed-{}", self.id)
    }

    pub(crate) fn late_space(&self) -> String {
        format!("late-{}", self.id)
    }

    pub(crate) fn kept_space(&self) -> String {
        format!("kept-{}", self.id)
    }

    pub(crate) fn documents_space(&self) -> String {
        format!("documents-{}", self.id)
    }

    pub(crate) fn late_documents_space(&self) -> String {
        format!("late-documents-{}", self.id)
    }

    pub(crate) fn content(&mut self) -> Content {
        self.next_seed += 1;
        Content::some(&mut self.rng, self.next_seed)
    }

    /// One of a few names, so that most of them exist; some have to be encoded.
    pub(crate) fn name(&mut self) -> String {
        match self.rng.below(30) {
            at @ 0..3 => format!("dir/a b+{at}"),
            at => format!("dir/{}/{at}", at % 3),
        }
    }

    /// Writes until the server has ended; calls `acked` for each acknowledgement.
    pub(crate) fn load(&mut self, link: &Link, shared: &Shared, acked: impl Fn() -> bool) {
        while self.act(link, shared) && acked() {}
    }

    /// One request; whether it was acknowledged. A new kind of request joins here.
    fn act(&mut self, link: &Link, shared: &Shared) -> bool {
        match self.rng.below(36) {
            0..3 => self.put(link),
            3..5 => self.put_with_key(link),
            5..8 => self.put_s3(link),
            8..11 => self.delete(link),
            11..13 => self.transfer(link),
            13 => self.copy_s3(link),
            14 => self.patch(link),
            15 => self.ingest(link),
            16 | 17 => self.post(link),
            18 | 19 => self.later(link),
            20 => self.post_later(link),
            21..24 => self.write_shared(link, shared),
            24..27 => self.change_kept(link),
            27..29 => self.resume(link),
            29 => self.concatenate(link),
            30..34 => self.change_record(link),
            _ => self.parts(link),
        }
    }

    /// Sends what changes names, and records whether it was acknowledged.
    pub(crate) fn change(
        &mut self,
        changes: Vec<Change>,
        expected: &[u16],
        ask: impl FnOnce() -> Option<Reply>,
    ) -> Option<Reply> {
        self.change_unless(0, changes, expected, ask)
    }

    /// The same, where one status means that nothing was changed.
    pub(crate) fn change_unless(
        &mut self,
        refusal: u16,
        changes: Vec<Change>,
        expected: &[u16],
        ask: impl FnOnce() -> Option<Reply>,
    ) -> Option<Reply> {
        self.names.begin(changes);
        let reply = ask();
        if reply.as_ref().is_some_and(|reply| reply.status == refusal) {
            self.names.refuse();
            return reply;
        }
        if !acknowledged(reply.as_ref(), expected) {
            return None;
        }
        self.names.acknowledge();
        self.repeatable = None;
        reply
    }

    fn put(&mut self, link: &Link) -> bool {
        let (name, content) = (self.name(), self.content());
        let comment =
            if self.rng.one_in(2) { format!("c {}", content.seed) } else { String::new() };
        let target =
            format!("/v1/files/{}/{}?comment={}", self.space(), path(&name), value(&comment));
        let change = vec![vec![(name, Some(File::new(content, &comment)))]];
        let ask = || link.http("PUT", &target, &[], &content.bytes());
        self.change(change, &[200, 201], ask).is_some()
    }

    fn put_with_key(&mut self, link: &Link) -> bool {
        let (name, content) = (self.name(), self.content());
        let target = format!("/v1/files/{}/{}", self.space(), path(&name));
        let key = format!("key {} {}", self.id, content.seed);
        let change = vec![vec![(name, Some(File::new(content, "")))]];
        let repeatable = Repeatable::Put { target: target.clone(), key: key.clone(), content };
        self.repeatable = Some((repeatable, change.clone()));
        let ask = || link.http("PUT", &target, &[("idempotency-key", &key)], &content.bytes());
        self.change(change, &[200, 201], ask).is_some()
    }

    fn put_s3(&mut self, link: &Link) -> bool {
        let (name, content) = (self.name(), self.content());
        let target = format!("/{}/{name}", self.space());
        let change = vec![vec![(name, Some(File::new(content, "")))]];
        self.change(change, &[200], || link.s3.send("PUT", &target, &[], &[], &content.bytes()))
            .is_some()
    }

    fn delete(&mut self, link: &Link) -> bool {
        let Some(name) = self.names.any(&mut self.rng) else { return true };
        let space = self.space();
        let one = vec![vec![(name.clone(), None)]];
        match self.rng.below(4) {
            0 => {
                let target = format!("/v1/files/{space}/{}", path(&name));
                self.change(one, &[204], || link.http("DELETE", &target, &[], &[])).is_some()
            }
            1 => {
                let target = format!("/{space}/{name}");
                self.change(one, &[204], || link.s3.send("DELETE", &target, &[], &[], &[]))
                    .is_some()
            }
            way => {
                let names = self.some_names(3);
                let changes = names.iter().map(|name| vec![(name.clone(), None)]).collect();
                if way == 2 {
                    let files: Vec<Value> = names
                        .iter()
                        .map(|name| json!({ "namespace": space, "name": name }))
                        .collect();
                    let body = json!({ "files": files }).to_string();
                    let ask = || link.http("POST", "/v1/files/delete", &[], body.as_bytes());
                    return self.change(changes, &[200], ask).is_some();
                }
                let keys: String = names
                    .iter()
                    .map(|name| format!("<Object><Key>{name}</Key></Object>"))
                    .collect();
                let body = format!("<Delete>{keys}</Delete>");
                let target = format!("/{space}");
                let ask = || link.s3.send("POST", &target, &[("delete", "")], &[], body.as_bytes());
                let done = self.change(changes, &[200], ask);
                done.inspect(|reply| assert!(!reply.text().contains("<Error>"), "{}", reply.text()))
                    .is_some()
            }
        }
    }

    /// Up to `most` different names that exist.
    fn some_names(&mut self, most: usize) -> Vec<String> {
        let mut names: Vec<String> =
            (0..most).filter_map(|_| self.names.any(&mut self.rng)).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Copies or moves a few files to names that none of them has.
    fn transfer(&mut self, link: &Link) -> bool {
        let (space, is_move) = (self.space(), self.rng.one_in(2));
        let sources = self.some_names(2);
        let (mut changes, mut files) = (Vec::new(), Vec::new());
        for (at, from) in sources.iter().enumerate() {
            let to = format!("moved/{}-{at}", self.rng.below(8));
            if sources.contains(&to) {
                continue;
            }
            let file = self.names.known().get(from).cloned();
            let mut change = vec![(to.clone(), file)];
            if is_move {
                change.push((from.clone(), None));
            }
            changes.push(change);
            files.push(json!({
                "from": { "namespace": space, "name": from },
                "to": { "namespace": space, "name": to },
                "overwrite": true,
            }));
        }
        if files.is_empty() {
            return true;
        }
        let target = if is_move { "/v1/files/move" } else { "/v1/files/copy" };
        let body = json!({ "files": files }).to_string();
        self.change(changes, &[200], || link.http("POST", target, &[], body.as_bytes())).is_some()
    }

    fn copy_s3(&mut self, link: &Link) -> bool {
        let Some(from) = self.names.any(&mut self.rng) else { return true };
        let to = format!("copied/{}", self.rng.below(6));
        if from == to {
            return true;
        }
        let file = self.names.known().get(&from).cloned();
        let (source, target) =
            (format!("/{}/{from}", self.space()), format!("/{}/{to}", self.space()));
        let ask = || {
            let source = path(&source);
            let reply =
                link.s3.send("PUT", &target, &[], &[("x-amz-copy-source", &source)], &[])?;
            // The head of a copy is no acknowledgement.
            (reply.status != 200 || reply.text().contains("</CopyObjectResult>")).then_some(reply)
        };
        self.change(vec![vec![(to, file)]], &[200], ask).is_some()
    }

    fn patch(&mut self, link: &Link) -> bool {
        let Some(name) = self.names.any(&mut self.rng) else { return true };
        let Some(mut file) = self.names.known().get(&name).cloned() else { return true };
        file.comment = format!("patched {}", self.rng.below(1_000));
        let target = format!("/v1/files/{}/{}", self.space(), path(&name));
        let body = json!({ "comment": file.comment }).to_string();
        let change = vec![vec![(name, Some(file))]];
        self.change(change, &[200], || link.http("PATCH", &target, &[], body.as_bytes())).is_some()
    }

    /// Several files in one request, each a change by itself.
    fn ingest(&mut self, link: &Link) -> bool {
        let mut body = format!(
            "--b\r\ncontent-disposition: form-data; name=\"namespace\"\r\n\r\n{}\r\n",
            self.space()
        )
        .into_bytes();
        let mut changes = Vec::new();
        for at in 0..3 {
            let content = self.content();
            let name = format!("batch/{}-{at}", self.rng.below(4));
            let head = "--b\r\ncontent-disposition: form-data; name=\"files\"; filename=";
            body.extend(format!("{head}\"{name}\"\r\n\r\n").into_bytes());
            body.extend(content.bytes());
            body.extend(b"\r\n");
            changes.push(vec![(name, Some(File::new(content, "")))]);
        }
        body.extend(b"--b--\r\n");
        let kind = [("content-type", "multipart/form-data; boundary=b")];
        self.change(changes, &[200, 201], || link.http("POST", "/v1/ingest", &kind, &body))
            .is_some()
    }

    fn post(&mut self, link: &Link) -> bool {
        let count = 1 + self.rng.below(20);
        self.documents.sent.push((count, false));
        let request = self.documents.sent.len() - 1;
        self.documents.sent[request].1 = self.post_documents(link, request);
        self.documents.sent[request].1
    }

    /// Sends documents, the first time or again.
    pub(crate) fn post_documents(&self, link: &Link, request: usize) -> bool {
        let target = format!("/v1/documents/{}", self.documents_space());
        let (body, key) =
            (lines(request, self.documents.sent[request].0), format!("d {} {request}", self.id));
        let headers = [("idempotency-key", &*key), ("content-type", "application/x-ndjson")];
        acknowledged(link.http("POST", &target, &headers, body.as_bytes()).as_ref(), &[201])
    }

    fn post_later(&mut self, link: &Link) -> bool {
        let count = 1 + self.rng.below(10);
        self.late_documents.sent.push((count, false));
        let request = self.late_documents.sent.len() - 1;
        let Some(job) = self.post_documents_later(link, request) else { return false };
        self.late_documents.sent[request].1 = true;
        self.jobs.push(job);
        true
    }

    /// Submits documents, the first time or again; returns the job.
    pub(crate) fn post_documents_later(&self, link: &Link, request: usize) -> Option<String> {
        let target =
            format!("/v1/documents/{}?async=true&target=collection", self.late_documents_space());
        let body = lines(request, self.late_documents.sent[request].0);
        let key = format!("l {} {request}", self.id);
        let headers = [("idempotency-key", &*key), ("content-type", "application/x-ndjson")];
        job_of(link.http("POST", &target, &headers, body.as_bytes()))
    }

    /// A file that is stored by a job.
    fn later(&mut self, link: &Link) -> bool {
        let content = self.content();
        // No name occurs twice, since jobs run in any order.
        let name = format!("job/{}", content.seed);
        let target = format!("/v1/files/{}/{name}?async=true", self.late_space());
        self.late.begin(vec![vec![(name, Some(File::new(content, "")))]]);
        let Some(job) = job_of(link.http("PUT", &target, &[], &content.bytes())) else {
            return false;
        };
        self.late.acknowledge();
        self.jobs.push(job);
        true
    }

    fn write_shared(&mut self, link: &Link, shared: &Shared) -> bool {
        let (name, content) = (format!("s/{}", self.rng.below(5)), self.content());
        let way = self.rng.below(3);
        let value = (way != 2).then(|| content.sha256());
        let begun = shared.now();
        let at = {
            let mut names = shared.names.lock().unwrap();
            let writes = &mut names.entry(name.clone()).or_default().writes;
            writes.push(Write { begun, ended: None, value });
            writes.len() - 1
        };
        let target = format!("/v1/files/shared/{name}");
        let reply = match way {
            0 => link.http("PUT", &target, &[], &content.bytes()),
            1 => link.s3.send("PUT", &format!("/shared/{name}"), &[], &[], &content.bytes()),
            _ => link.http("DELETE", &target, &[], &[]),
        };
        // Deleting what does not exist changes nothing, but it does not exist then.
        let done = acknowledged(reply.as_ref(), &[200, 201, 204, 404]);
        if done && let Some(register) = shared.names.lock().unwrap().get_mut(&name) {
            register.writes[at].ended = Some(shared.now());
        }
        done
    }

    /// Changes a name whose versions are kept.
    fn change_kept(&mut self, link: &Link) -> bool {
        let name = ["a", "b", "c"][self.rng.below(3)];
        let past = self.kept.entry(name.to_owned()).or_default().known.clone();
        let exists = past.last().is_some_and(Option::is_some);
        let target = format!("/v1/files/{}/{name}", self.kept_space());
        match self.rng.below(8) {
            0 | 1 if exists => {
                let after = past.into_iter().chain([None]).collect();
                self.keep(name, after, || link.http("DELETE", &target, &[], &[]))
            }
            2 if past.len() > 2 => self.restore(link, name, past),
            3 if past.len() > 6 => {
                let count = 1 + self.rng.below(3);
                let gone = past.len().saturating_sub(count + usize::from(exists));
                let target = format!("{target}?prune={count}");
                self.keep(name, past[gone..].to_vec(), || link.http("DELETE", &target, &[], &[]))
            }
            4 if past.len() > 3 => self.erase(link, name, past),
            way => {
                // Never empty: storing the same bytes again makes no version.
                let content = self.content();
                let content = Content { size: content.size + 9, ..content };
                let after = past.into_iter().chain([Some(content.sha256())]).collect();
                let object = format!("/{}/{name}", self.kept_space());
                self.keep(name, after, || match way {
                    5 | 6 => link.s3.send("PUT", &object, &[], &[], &content.bytes()),
                    _ => link.http("PUT", &target, &[], &content.bytes()),
                })
            }
        }
    }

    /// Sends what changes a name whose versions are kept.
    fn keep(&mut self, name: &str, after: Past, ask: impl FnOnce() -> Option<Reply>) -> bool {
        let history = self.kept.entry(name.to_owned()).or_default();
        history.begin(after);
        let done = acknowledged(ask().as_ref(), &[200, 201, 204]);
        if done {
            history.acknowledge();
        }
        done
    }

    /// Makes an earlier version with other bytes the current file.
    fn restore(&mut self, link: &Link, name: &str, past: Past) -> bool {
        let target = format!("/v1/files/{}/{name}", self.kept_space());
        let Some(states) = states(link, &target) else { return false };
        let current = past.last().cloned().flatten();
        let earlier = states.into_iter().find_map(|(id, sha256)| {
            sha256.filter(|sha256| Some(sha256) != current.as_ref()).map(|sha256| (id, sha256))
        });
        let Some((id, sha256)) = earlier else { return true };
        let after = past.into_iter().chain([Some(sha256)]).collect();
        let target = format!("{target}?restore={id}");
        self.keep(name, after, || link.http("POST", &target, &[], &[]))
    }

    /// Erases one state over S3. If it is the newest, the one before holds again.
    fn erase(&mut self, link: &Link, name: &str, mut past: Past) -> bool {
        let target = format!("/v1/files/{}/{name}", self.kept_space());
        let Some(states) = states(link, &target) else { return false };
        let at = self.rng.below(states.len());
        let number = u64::from_str_radix(&states[at].0, 16).unwrap().to_string();
        past.remove(past.len() - 1 - at);
        let object = format!("/{}/{name}", self.kept_space());
        self.keep(name, past, || {
            link.s3.send("DELETE", &object, &[("versionId", &number)], &[], &[])
        })
    }
}

/// The states of a name with their ids, the newest first; `None`: no answer.
fn states(link: &Link, target: &str) -> Option<Vec<(String, Option<String>)>> {
    let reply = link.http("GET", &format!("{target}?versions=true&limit=1000"), &[], &[])?;
    let history: Value = serde_json::from_slice(&reply.body?).unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let current = Some(&history["current"]).filter(|current| !current.is_null());
    let current = current.map(|file| (text(&file["id"]).unwrap(), text(&file["sha256"])));
    let versions = history["versions"].as_array().unwrap().iter();
    let versions =
        versions.map(|version| (text(&version["id"]).unwrap(), text(&version["file"]["sha256"])));
    Some(current.into_iter().chain(versions).collect())
}

fn lines(request: usize, count: usize) -> String {
    (0..count).map(|at| format!("{{\"request\":{request},\"at\":{at}}}\n")).collect()
}

/// The id of an accepted job.
fn job_of(reply: Option<Reply>) -> Option<String> {
    acknowledged(reply.as_ref(), &[202]).then_some(())?;
    let location = reply.as_ref()?.header("location")?.to_owned();
    Some(location.rsplit_once('/').unwrap().1.to_owned())
}
