//! The server is killed under load, repeatedly; everything it acknowledged survives.
//!
//! Several clients write over real sockets and record, outside the server, what was acknowledged.
//! The kill happens at a seeded number of acknowledgements, so it meets requests in every state.

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};

use forebay_base::fs::sim::Rng;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{HANG, Sent, Server, agent, forebay, stderr};

const CLIENTS: u64 = 4;
const ROUNDS: u64 = 4;

/// A file's content: a seed and a size determine the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Content {
    seed: u64,
    size: usize,
}

impl Content {
    /// * `has_large`: whether some are larger than what is sent with others to a bucket.
    fn some(rng: &mut Rng, has_large: bool) -> Self {
        let size = match rng.below(8) {
            0 if has_large && rng.below(4) == 0 => 1_500_000 + rng.below(8_000_000),
            0 => 100_000 + rng.below(300_000),
            1 => 60_000 + rng.below(10_000),
            _ => rng.below(8_000),
        };
        Self { seed: rng.next_u64() % 50, size }
    }

    fn bytes(self) -> Vec<u8> {
        let mut rng = Rng::new(self.seed);
        let mut bytes = Vec::with_capacity(self.size + 8);
        while bytes.len() < self.size {
            bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
        }
        bytes.truncate(self.size);
        bytes
    }
}

/// The record of one client.
#[derive(Debug)]
pub(crate) struct Client {
    id: u64,
    rng: Rng,
    has_large: bool,
    acknowledged: BTreeMap<String, Content>,
    /// The change in progress when the server was killed: to this content, or to nothing.
    unsure: Option<(String, Option<Content>)>,
    /// Documents of each request, and whether it was acknowledged.
    requests: Vec<(usize, bool)>,
}

/// Whether the write was acknowledged; a killed server does not respond.
fn acknowledged(sent: Sent) -> bool {
    let Ok(mut answer) = sent else { return false };
    let status = answer.status().as_u16();
    assert!((200..300).contains(&status), "{status}: {:?}", answer.body_mut().read_to_string());
    // The head was the acknowledgement: whether the response is complete no longer matters.
    true
}

impl Client {
    pub(crate) fn new(id: u64) -> Self {
        let (acknowledged, requests) = (BTreeMap::new(), Vec::new());
        let rng = Rng::new(id * 7_919);
        Self { id, rng, has_large: false, acknowledged, unsure: None, requests }
    }

    /// The same, which also stores large files.
    pub(crate) fn with_large(self) -> Self {
        Self { has_large: true, ..self }
    }

    /// Number of files that were acknowledged and not deleted.
    pub(crate) fn files(&self) -> usize {
        self.acknowledged.len()
    }

    /// Writes until the server has ended; sends a message for each acknowledgement.
    fn load(&mut self, url: &str, acks: &Sender<()>) {
        let agent = agent();
        loop {
            let done = match self.rng.below(10) {
                0..6 => self.put(&agent, url),
                6 => self.delete(&agent, url),
                _ => self.documents(&agent, url),
            };
            if !done || acks.send(()).is_err() {
                return;
            }
        }
    }

    fn url(&self, url: &str, name: &str) -> String {
        format!("{url}/v1/files/client-{}/{name}", self.id)
    }

    fn put(&mut self, agent: &ureq::Agent, url: &str) -> bool {
        let name = format!("dir/{}", self.rng.below(40));
        let content = Content::some(&mut self.rng, self.has_large);
        self.unsure = Some((name.clone(), Some(content)));
        let done = acknowledged(agent.put(self.url(url, &name)).send(&content.bytes()[..]));
        if done {
            self.acknowledged.insert(name, content);
            self.unsure = None;
        }
        done
    }

    fn delete(&mut self, agent: &ureq::Agent, url: &str) -> bool {
        let at = self.rng.below(self.acknowledged.len());
        let Some(name) = self.acknowledged.keys().nth(at).cloned() else { return true };
        self.unsure = Some((name.clone(), None));
        let done = acknowledged(agent.delete(self.url(url, &name)).call());
        if done {
            self.acknowledged.remove(&name);
            self.unsure = None;
        }
        done
    }

    fn documents(&mut self, agent: &ureq::Agent, url: &str) -> bool {
        self.requests.push((1 + self.rng.below(20), false));
        let request = self.requests.len() - 1;
        let done = self.post(agent, url, request);
        self.requests[request].1 = done;
        done
    }

    fn post(&self, agent: &ureq::Agent, url: &str, request: usize) -> bool {
        let id = self.id;
        let body: String = (0..self.requests[request].0)
            .map(|at| format!("{{\"client\":{id},\"request\":{request},\"at\":{at}}}\n"))
            .collect();
        let key = format!("client {id} request {request}");
        acknowledged(
            agent
                .post(format!("{url}/v1/documents/load"))
                .header("idempotency-key", key)
                .header("content-type", "application/x-ndjson")
                .send(body),
        )
    }

    /// Reads back everything acknowledged, and settles the changes in progress.
    pub(crate) fn check(&mut self, agent: &ureq::Agent, url: &str) {
        let mut possible: BTreeMap<String, Vec<Option<Content>>> =
            self.acknowledged.iter().map(|(name, c)| (name.clone(), vec![Some(*c)])).collect();
        if let Some((name, content)) = self.unsure.take() {
            possible.entry(name).or_insert_with(|| vec![None]).push(content);
        }
        let mut there = Vec::new();
        for (name, states) in &possible {
            let found = read(agent, &self.url(url, name));
            let state = states.iter().find(|state| state.map(Content::bytes) == found);
            let size = found.as_ref().map(Vec::len);
            let state = state.unwrap_or_else(|| panic!("{name}: {size:?} bytes, not {states:?}"));
            match state {
                Some(content) => {
                    self.acknowledged.insert(name.clone(), *content);
                    there.push(name.clone());
                }
                None => drop(self.acknowledged.remove(name)),
            }
        }
        assert_eq!(self.listed(agent, url), there, "the listing shows just these");
    }

    fn listed(&self, agent: &ureq::Agent, url: &str) -> Vec<String> {
        let path = format!("{url}/v1/files?namespace=client-{}&limit=1000", self.id);
        let page = json(agent, &path);
        let files = page["files"].as_array().unwrap();
        files.iter().map(|file| file["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn read(agent: &ureq::Agent, url: &str) -> Option<Vec<u8>> {
    let mut answer = agent.get(url).call().unwrap();
    match answer.status().as_u16() {
        200 => Some(answer.body_mut().read_to_vec().unwrap()),
        404 => None,
        other => panic!("{other} for {url}"),
    }
}

fn json(agent: &ureq::Agent, url: &str) -> Value {
    serde_json::from_slice(&read(agent, url).unwrap()).unwrap()
}

/// Returns the number of documents of each request of each client.
fn documents(agent: &ureq::Agent, url: &str) -> BTreeMap<(u64, usize), usize> {
    let mut counts = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let path = format!("{url}/v1/documents/load?limit=1000{cursor}");
        let Some(page) = read(agent, &path) else { return counts };
        let page: Value = serde_json::from_slice(&page).unwrap();
        for document in page["documents"].as_array().unwrap() {
            let of = |key: &str| document["document"][key].as_u64().unwrap();
            let request = (of("client"), usize::try_from(of("request")).unwrap());
            *counts.entry(request).or_insert(0) += 1;
        }
        let Some(next) = page["next_cursor"].as_str() else { return counts };
        cursor = format!("&cursor={next}");
    }
}

/// Loads the server from all clients and kills it after this many acknowledgements.
///
/// * `beside`: runs meanwhile; it gets the URL, and ends when the server does not answer.
pub(crate) fn load_and_kill(
    server: Server,
    clients: &mut [Client],
    acknowledgements: usize,
    beside: fn(&str),
) {
    let (acks, hears) = channel();
    std::thread::scope(|scope| {
        for client in &mut *clients {
            let (acks, url) = (acks.clone(), server.url.clone());
            scope.spawn(move || client.load(&url, &acks));
        }
        let url = server.url.clone();
        scope.spawn(move || beside(&url));
        for _ in 0..acknowledgements {
            hears.recv_timeout(HANG).unwrap();
        }
        server.signal("KILL");
        assert_eq!(server.wait(), None, "ended by the signal");
    });
}

/// Variables of the server.
pub(crate) type Settings = [(&'static str, String)];

pub(crate) fn start(dir: &TempDir, settings: &Settings) -> Server {
    Server::start_with(dir, &[], |command| {
        command.envs(settings.iter().cloned());
    })
}

pub(crate) fn check_all(dir: &TempDir, settings: &Settings, clients: &mut [Client]) -> Server {
    let server = start(dir, settings);
    let agent = agent();
    let found = documents(&agent, &server.url);
    for client in &mut *clients {
        client.check(&agent, &server.url);
        for (request, (count, was_acknowledged)) in client.requests.iter().enumerate() {
            let found = found.get(&(client.id, request)).copied().unwrap_or(0);
            let whole = found == *count || found == 0 && !was_acknowledged;
            assert!(whole, "request {request} of client {}: {found} of {count}", client.id);
        }
        // The same request under the same key makes it certain, and never twice.
        for request in 0..client.requests.len() {
            assert!(client.post(&agent, &server.url, request));
            client.requests[request].1 = true;
        }
    }
    let found = documents(&agent, &server.url);
    let sent: usize = clients.iter().flat_map(|client| &client.requests).map(|sent| sent.0).sum();
    assert_eq!(found.values().sum::<usize>(), sent, "each exactly once");
    server
}

/// Kills a server under load, repeatedly, and checks it each time; then stops and checks what is stored.
///
/// * `each`: settings of the starts, in turn.
/// * `beside`: runs under load.
pub(crate) fn kill_repeatedly(
    dir: &TempDir,
    each: &[&Settings],
    clients: &mut [Client],
    seed: u64,
    beside: fn(&str),
) {
    let mut settings = each.iter().cycle().copied();
    let mut next = || settings.next().unwrap();
    let mut now = next();
    let mut server = start(dir, now);
    let mut rng = Rng::new(seed);
    for _ in 0..ROUNDS {
        load_and_kill(server, clients, 20 + rng.below(200), beside);
        now = next();
        server = check_all(dir, now, clients);
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let staging = dir.path().join("forebay-data/intake/staging");
    assert_eq!(std::fs::read_dir(staging).unwrap().count(), 0);
    check_stored(dir, now, clients);
}

/// Clients of the number that loads a server.
pub(crate) fn clients() -> Vec<Client> {
    (0..CLIENTS).map(Client::new).collect()
}

pub(crate) fn check_stored(dir: &TempDir, settings: &Settings, clients: &[Client]) {
    let output = forebay(dir).args(["fsck", "--json"]).envs(settings.iter().cloned()).output();
    let output = output.unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    assert_eq!((output.status.code(), &report["sound"]), (Some(0), &true.into()), "{report}");
    let names: usize = clients.iter().map(Client::files).sum();
    assert_eq!(report["files"], names);
}

#[test]
fn killed_under_load_repeatedly_nothing_acknowledged_is_lost_or_partial() {
    let dir = tempfile::tempdir().unwrap();
    kill_repeatedly(&dir, &[&[]], &mut clients(), 2, |_| {});
}
