//! `kill -9` under everything at once: files, documents, jobs, uploads and versions, over HTTP and S3.
//!
//! Several clients write and record, outside the server, what was acknowledged. The kill comes at a seeded number
//! of acknowledgements, sometimes again right after the next start. Then `fsck` reads the data directory as the
//! kill left it, and a new server must show what the clients know, the same over both APIs.
//!
//! `FOREBAY_KILL_ROUNDS` sets the number of rounds, by default 20; `FOREBAY_SEED` repeats a run's choices. Which
//! request the kill meets depends on the threads, so a seed does not repeat it exactly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;
use std::time::Instant;

use forebay_base::fs::sim::Rng;
use serde_json::Value;
use tempfile::TempDir;

use crate::mixed_client::{Client, Link, Shared, acknowledged};
use crate::mixed_oracle::{File, Past, sha256};
use crate::mixed_uploads::finish_complete;
use crate::s3_client::{S3, path};
use crate::support::{HANG, Server, run, run_ok, stderr};

const CLIENTS: usize = 6;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A server in a directory, and the credentials of its clients.
struct House {
    dir: TempDir,
    id: String,
    secret: String,
}

impl House {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key: Value =
            serde_json::from_str(&run_ok(&dir, &["key", "new", "--name", "s3", "--json"])).unwrap();
        let id = key["id"].as_str().unwrap().to_owned();
        let secret: Value =
            serde_json::from_str(&run_ok(&dir, &["s3", "secret", &id, "--json"])).unwrap();
        let secret = secret["secret_access_key"].as_str().unwrap().to_owned();
        Self { dir, id, secret }
    }

    fn start(&self, durability: &str) -> (Server, Link) {
        let durability = format!("intake.durability={durability}");
        let settings =
            ["s3.listen=127.0.0.1:0", "server.auth=off", "jobs.queued_max=100000", &durability];
        let args: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        let server = Server::start(&self.dir, &args);
        let s3 = S3::new(server.s3_url.as_ref().unwrap(), &self.id, &self.secret);
        let link = Link::new(&server.url, s3);
        (server, link)
    }

    /// Checks the data directory as it is; returns the report.
    fn fsck(&self) -> Value {
        let output = run(&self.dir, &["fsck", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
        assert_eq!((output.status.code(), &report["sound"]), (Some(0), &true.into()), "{report}");
        report
    }
}

fn kill(server: Server) {
    server.signal("KILL");
    assert_eq!(server.wait(), None, "ended by the signal");
}

/// Loads a server from all clients and kills it after this many acknowledgements.
fn load_and_kill(
    server: Server,
    link: &Link,
    clients: &mut [Client],
    shared: &Shared,
    acknowledgements: usize,
) {
    let (acks, hears) = channel();
    std::thread::scope(|scope| {
        for client in clients {
            let acks = acks.clone();
            scope.spawn(move || client.load(link, shared, || acks.send(()).is_ok()));
        }
        drop(acks);
        for _ in 0..acknowledgements {
            hears.recv_timeout(HANG).unwrap();
        }
        kill(server);
    });
}

/// Waits until no job waits or runs.
fn until_jobs_have_ended(link: &Link) {
    let deadline = Instant::now() + HANG;
    loop {
        let mut open = Vec::new();
        for status in ["queued", "running"] {
            let page = link.json(&format!("/v1/jobs?status={status}"));
            let jobs = page["jobs"].as_array().unwrap().iter();
            open.extend(jobs.map(|job| job["job_id"].as_str().unwrap().to_owned()));
        }
        if open.is_empty() {
            return;
        }
        for job in open {
            assert!(Instant::now() < deadline, "job {job} has not ended");
            // The stream of events ends with the job.
            link.get(&format!("/v1/jobs/{job}/events"));
        }
    }
}

/// The files of a namespace: listed, and read over one API or the other.
fn found(link: &Link, space: &str) -> BTreeMap<String, File> {
    let (mut files, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = link.json(&format!("/v1/files?namespace={space}&limit=7{cursor}"));
        for file in page["files"].as_array().unwrap() {
            let text = |name: &str| file[name].as_str().unwrap_or_default().to_owned();
            let size = usize::try_from(file["size"].as_u64().unwrap()).unwrap();
            let found = File { sha256: text("sha256"), size, comment: text("comment") };
            assert!(files.insert(text("name"), found).is_none(), "{file} is listed twice");
        }
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={}", path(next));
    }
    let objects = listed_by_s3(link, space);
    assert!(objects.keys().eq(files.keys()), "S3 lists {objects:?}, HTTP {files:?}");
    for (at, (name, file)) in files.iter().enumerate() {
        let (size, tag) = &objects[name];
        assert_eq!(*size, file.size, "{space}/{name}");
        let reply = if at % 2 == 0 {
            link.get(&format!("/v1/files/{space}/{}", path(name)))
        } else {
            let reply = link.s3.send("GET", &format!("/{space}/{name}"), &[], &[], &[]).unwrap();
            assert_eq!(reply.header("etag"), Some(&**tag), "{space}/{name}");
            reply
        };
        assert_eq!(reply.status, 200, "{space}/{name} is listed: {}", reply.text());
        let bytes = reply.body.unwrap();
        assert_eq!(
            (sha256(&bytes), bytes.len()),
            (file.sha256.clone(), file.size),
            "{space}/{name}"
        );
    }
    files
}

/// The objects of a bucket, with sizes and tags.
fn listed_by_s3(link: &Link, space: &str) -> BTreeMap<String, (usize, String)> {
    let (mut objects, mut token) = (BTreeMap::new(), None);
    loop {
        let mut query = vec![("list-type", "2"), ("max-keys", "9")];
        query.extend(token.as_ref().map(|token: &String| ("continuation-token", &**token)));
        let reply = link.s3.send("GET", &format!("/{space}"), &query, &[], &[]).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        let (sizes, tags) = (reply.elements("Size"), reply.elements("ETag"));
        for ((name, size), tag) in reply.elements("Key").into_iter().zip(sizes).zip(tags) {
            let size = size.parse().unwrap();
            assert!(objects.insert(name.clone(), (size, tag)).is_none(), "{name} is listed twice");
        }
        token = reply.elements("NextContinuationToken").pop();
        if token.is_none() {
            return objects;
        }
    }
}

/// Number of documents of each request in a namespace.
fn documents(link: &Link, space: &str) -> BTreeMap<usize, usize> {
    let (mut counts, mut cursor) = (BTreeMap::new(), String::new());
    let mut seen = BTreeSet::new();
    loop {
        let reply = link.get(&format!("/v1/documents/{space}?limit=1000{cursor}"));
        if reply.status == 404 {
            return counts;
        }
        let page: Value = serde_json::from_slice(&reply.body.unwrap()).unwrap();
        for document in page["documents"].as_array().unwrap() {
            let of = |key: &str| document["document"][key].as_u64().unwrap();
            assert!(seen.insert((of("request"), of("at"))), "{document} is there twice");
            *counts.entry(usize::try_from(of("request")).unwrap()).or_insert(0) += 1;
        }
        let Some(next) = page["next_cursor"].as_str() else { return counts };
        cursor = format!("&cursor={next}");
    }
}

/// The past of a name, the oldest state first.
fn past(link: &Link, space: &str, name: &str) -> Past {
    let (mut past, mut cursor) = (Past::new(), String::new());
    loop {
        let reply = link.get(&format!("/v1/files/{space}/{name}?versions=true&limit=5{cursor}"));
        if reply.status == 404 {
            return past;
        }
        let history: Value = serde_json::from_slice(&reply.body.unwrap()).unwrap();
        let sha256 = |file: &Value| file["sha256"].as_str().map(str::to_owned);
        if cursor.is_empty() && !history["current"].is_null() {
            past.push(sha256(&history["current"]));
        }
        for version in history["versions"].as_array().unwrap() {
            assert_eq!(version["deleted"].as_bool(), Some(version["file"].is_null()), "{version}");
            past.push(sha256(&version["file"]));
        }
        match history["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    past.reverse();
    past
}

impl Client {
    /// Compares the server with what the client knows, and settles the request in progress.
    fn check(&mut self, link: &Link) {
        self.check_uploads(link);
        let space = self.space();
        self.names.settle(&found(link, &space)).unwrap_or_else(|error| panic!("{space}: {error}"));
        let late = self.late_space();
        self.late.settle(&found(link, &late)).unwrap_or_else(|error| panic!("{late}: {error}"));
        for job in self.jobs.drain(..) {
            let job = link.json(&format!("/v1/jobs/{job}"));
            assert_eq!(job["status"], "completed", "{job}");
        }
        let kept = self.kept_space();
        for (name, history) in &mut self.kept {
            let past = past(link, &kept, name);
            let query = [("versions", ""), ("prefix", &**name)];
            let reply = link.s3.send("GET", &format!("/{kept}"), &query, &[], &[]).unwrap();
            let listed = reply.elements("VersionId").len();
            assert_eq!(listed, past.len(), "{kept}/{name}: {past:?}, {}", reply.text());
            history.settle(&past).unwrap_or_else(|error| panic!("{kept}/{name}: {error}"));
        }
        self.check_records(link);
        self.repeat(link);
        self.check_documents(link);
    }

    /// Documents are there whole or not at all; sent again under the same key they are there once.
    fn check_documents(&mut self, link: &Link) {
        let now = documents(link, &self.documents_space());
        self.documents.check(&now).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        let later = documents(link, &self.late_documents_space());
        self.late_documents.check(&later).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        for request in 0..self.documents.sent.len() {
            if !self.documents.sent[request].1 {
                assert!(self.post_documents(link, request), "no answer");
                self.documents.sent[request].1 = true;
            }
        }
        for request in 0..self.late_documents.sent.len() {
            if !self.late_documents.sent[request].1 {
                self.jobs.extend(self.post_documents_later(link, request));
                self.late_documents.sent[request].1 = true;
            }
        }
    }
}

/// Checks everything on a server that was started after a kill.
fn check_all(link: &Link, clients: &mut [Client], shared: &Shared) {
    finish_complete(link);
    until_jobs_have_ended(link);
    for client in &mut *clients {
        client.check(link);
    }
    let now = found(link, "shared");
    for (name, register) in shared.names.lock().unwrap().iter_mut() {
        let value = now.get(name).map(|file| file.sha256.as_str());
        register
            .settle(value, shared.now())
            .unwrap_or_else(|error| panic!("shared/{name}: {error}"));
    }
}

#[test]
fn killed_under_mixed_load_repeatedly_everything_acknowledged_is_there_and_nothing_is_half() {
    let rounds = from_environment("FOREBAY_KILL_ROUNDS", 20);
    let drawn = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let seed = from_environment("FOREBAY_SEED", drawn);
    // Shown if the test fails.
    println!("FOREBAY_SEED={seed}");
    let mut rng = Rng::new(seed);
    let house = House::new();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|id| Client::new(id, seed)).collect();
    let shared = Shared::default();
    let (mut server, mut link) = house.start("sync");
    for client in &clients {
        for (space, record) in [
            (client.space(), "{}"),
            (client.late_space(), "{}"),
            (client.kept_space(), "{\"versions\":true}"),
            ("shared".to_owned(), "{}"),
        ] {
            let made = link.http("PUT", &format!("/v1/namespaces/{space}"), &[], record.as_bytes());
            assert!(acknowledged(made.as_ref(), &[200, 201]));
        }
    }
    for round in 0..rounds {
        println!("round {round}");
        load_and_kill(server, &link, &mut clients, &shared, 20 + rng.below(250));
        house.fsck();
        let durability = ["sync", "os", "interval:50ms"][rng.below(3)];
        if rng.one_in(4) {
            // Killed again while it takes up what the first kill left.
            kill(house.start(durability).0);
            house.fsck();
        }
        (server, link) = house.start(durability);
        check_all(&link, &mut clients, &shared);
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let report = house.fsck();
    let names = |client: &Client| {
        let kept =
            client.kept.values().filter(|past| past.known.last().is_some_and(Option::is_some));
        client.names.known().len() + client.late.known().len() + kept.count()
    };
    let registers = shared.names.into_inner().unwrap();
    let is_there = |register: &&crate::mixed_oracle::Register| register.writes[0].value.is_some();
    let expected =
        clients.iter().map(names).sum::<usize>() + registers.values().filter(is_there).count();
    assert_eq!(report["files"], expected, "{report}");
    let staging = house.dir.path().join("forebay-data/intake/staging");
    assert_eq!(std::fs::read_dir(staging).unwrap().count(), 0);
}
