//! Files in a bucket that loses requests and answers, refuses, is slow, and returns other bytes than it was given:
//! clients get errors, or what they stored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use forebay_base::fs::sim::Rng;
use forebay_testing::{Fate, HttpProxy, Versity};
use serde_json::Value;
use tempfile::TempDir;

use crate::blobs_kill::in_bucket;
use crate::intake_kill::start;
use crate::support::{Server, agent, forebay, run_ok};

type Settings = Vec<(&'static str, String)>;

/// A server whose files are in a bucket behind a proxy.
struct Behind {
    dir: TempDir,
    bucket: Versity,
    settings: Settings,
}

impl Behind {
    /// * `fate`: of each request, by its head.
    fn start(fate: impl Fn(&str) -> Fate + Send + Sync + 'static) -> Option<Self> {
        let bucket = Versity::start("archive")?;
        let proxy = HttpProxy::start(bucket.port(), move |head, _| fate(head));
        let endpoint = format!("http://127.0.0.1:{}", proxy.port());
        let settings = in_bucket(&endpoint, "FOREBAY_INTAKE_BLOBS");
        Some(Self { dir: tempfile::tempdir().unwrap(), bucket, settings })
    }

    fn serve(&self) -> Server {
        start(&self.dir, &self.settings)
    }

    fn fsck(&self) -> (Option<i32>, Value) {
        let mut fsck = forebay(&self.dir);
        fsck.args(["fsck", "--json"]).envs(self.settings.iter().cloned());
        let output = fsck.output().unwrap();
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
    }

    /// The objects with files.
    fn packs(&self) -> Vec<PathBuf> {
        let dir = self.bucket.bucket("archive").join("of/files/packs");
        let entries = walkdir::WalkDir::new(dir).into_iter().flatten();
        let files = entries.filter(|entry| entry.file_type().is_file());
        files.map(walkdir::DirEntry::into_path).collect()
    }
}

/// Bytes that differ by a seed.
fn content(seed: u64, size: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| rng.next_u64().to_le_bytes())
        .take(size / 8 + 1)
        .flatten()
        .collect();
    bytes.truncate(size);
    bytes
}

fn url(server: &str, name: &str) -> String {
    format!("{server}/v1/files/f/{name}")
}

/// Stores a file. Returns the status.
fn put(agent: &ureq::Agent, server: &str, name: &str, bytes: &[u8]) -> u16 {
    agent.put(url(server, name)).send(bytes).unwrap().status().as_u16()
}

/// What reading a file leads to.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Bytes(Vec<u8>),
    Absent,
    /// A status of failure, or a body that ends too early.
    Failed,
}

fn get(agent: &ureq::Agent, server: &str, name: &str) -> Read {
    let Ok(mut answer) = agent.get(url(server, name)).call() else { return Read::Failed };
    match answer.status().as_u16() {
        200 => answer
            .body_mut()
            .with_config()
            .limit(64 << 20)
            .read_to_vec()
            .map_or(Read::Failed, Read::Bytes),
        404 => Read::Absent,
        status if status >= 500 => Read::Failed,
        status => panic!("{status} for {name}"),
    }
}

/// One client: which contents each of its files may have.
struct Oracle {
    id: u64,
    rng: Rng,
    possible: BTreeMap<String, Vec<Option<u64>>>,
    failed: usize,
}

const SIZES: [usize; 5] = [3_000, 20_000, 150_000, 1_200_000, 3_000_000];

impl Oracle {
    fn new(id: u64) -> Self {
        Self { id, rng: Rng::new(id), possible: BTreeMap::new(), failed: 0 }
    }

    fn bytes(seed: u64) -> Vec<u8> {
        content(seed, SIZES[usize::try_from(seed).unwrap() % SIZES.len()])
    }

    fn act(&mut self, agent: &ureq::Agent, server: &str) {
        let name = format!("{}-{}", self.id, self.rng.below(6));
        let states = self.possible.entry(name.clone()).or_insert_with(|| vec![None]);
        let status = match self.rng.below(5) {
            0 | 1 => {
                let seed = self.rng.next_u64() % 1_000;
                states.push(Some(seed));
                put(agent, server, &name, &Self::bytes(seed))
            }
            2 => {
                states.push(None);
                agent.delete(url(server, &name)).call().unwrap().status().as_u16()
            }
            _ => return self.read(agent, server, &name, false),
        };
        match status {
            200..300 | 404 => drop(states.drain(..states.len() - 1)),
            500.. => self.failed += 1,
            other => panic!("{other} for {name}"),
        }
    }

    fn read(&mut self, agent: &ureq::Agent, server: &str, name: &str, must_succeed: bool) {
        let states = &self.possible[name];
        let is = |state: &Option<u64>, found: &Read| match (state, found) {
            (Some(seed), Read::Bytes(bytes)) => Self::bytes(*seed) == *bytes,
            (None, Read::Absent) => true,
            _ => false,
        };
        match get(agent, server, name) {
            Read::Failed if !must_succeed => self.failed += 1,
            found => {
                assert!(states.iter().any(|state| is(state, &found)), "{name}: not {states:?}")
            }
        }
    }
}

#[test]
fn a_bucket_that_cuts_refuses_and_alters_leads_to_errors_and_never_to_other_bytes() {
    let is_faulty = Arc::new(AtomicBool::new(false));
    let (faulty, rng) = (Arc::clone(&is_faulty), Mutex::new(Rng::new(11)));
    let Some(behind) = Behind::start(move |_| match faulty.load(Ordering::Relaxed) {
        false => Fate::Pass,
        true => match rng.lock().unwrap().below(24) {
            0 => Fate::Lose,
            1 => Fate::LoseAnswer,
            2 => Fate::CutBody,
            3 => Fate::CutAnswer,
            4 => Fate::Busy,
            5 | 6 => Fate::AlterAnswer,
            _ => Fate::Pass,
        },
    }) else {
        return;
    };
    let server = behind.serve();
    is_faulty.store(true, Ordering::Relaxed);
    let mut oracles: Vec<Oracle> = (0..3).map(Oracle::new).collect();
    std::thread::scope(|scope| {
        for oracle in &mut oracles {
            let server = &server.url;
            scope.spawn(move || {
                let agent = agent();
                (0..60).for_each(|_| oracle.act(&agent, server));
            });
        }
    });
    is_faulty.store(false, Ordering::Relaxed);
    server.signal("KILL");
    assert_eq!(server.wait(), None);
    let server = behind.serve();
    for oracle in &mut oracles {
        let names: Vec<String> = oracle.possible.keys().cloned().collect();
        names.iter().for_each(|name| oracle.read(&agent(), &server.url, name, true));
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let (exit, report) = behind.fsck();
    assert_eq!((exit, &report["sound"]), (Some(0), &true.into()), "{report}");
}

/// Requests wait here while it is closed.
#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set_closed(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let closed = self.is_closed.lock().unwrap();
        drop(self.opened.wait_while(closed, |is_closed| *is_closed).unwrap());
    }
}

#[test]
fn while_a_bucket_does_not_answer_what_does_not_need_it_is_served_and_the_rest_waits() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let Some(behind) = Behind::start(move |_| {
        held.pass();
        Fate::Pass
    }) else {
        return;
    };
    let (server, agent) = (behind.serve(), agent());
    let (cached, large) = (content(1, 30_000), content(2, 12 << 20));
    assert_eq!(put(&agent, &server.url, "cached", &cached), 201);
    assert_eq!(put(&agent, &server.url, "large", &large), 201);
    gate.set_closed(true);
    std::thread::scope(|scope| {
        let (reads, writes) = (
            scope.spawn(|| get(&agent, &server.url, "large")),
            scope.spawn(|| put(&agent, &server.url, "new", &content(3, 50_000))),
        );
        assert_eq!(put(&agent, &server.url, "tiny", b"in the log"), 201);
        assert_eq!(get(&agent, &server.url, "tiny"), Read::Bytes(b"in the log".to_vec()));
        assert_eq!(get(&agent, &server.url, "cached"), Read::Bytes(cached.clone()));
        assert_eq!(put(&agent, &server.url, "again", &cached), 201, "its bytes are stored already");
        gate.set_closed(false);
        assert!(reads.join().unwrap() == Read::Bytes(large), "the large file");
        assert_eq!(writes.join().unwrap(), 201);
    });
    assert_eq!(get(&agent, &server.url, "new"), Read::Bytes(content(3, 50_000)));
}

#[test]
fn while_a_bucket_is_away_files_are_refused_with_503_and_the_server_says_so() {
    let is_away = Arc::new(AtomicBool::new(false));
    let away = Arc::clone(&is_away);
    let Some(behind) = Behind::start(move |_| match away.load(Ordering::Relaxed) {
        true => Fate::Lose,
        false => Fate::Pass,
    }) else {
        return;
    };
    let (server, agent) = (behind.serve(), agent());
    let metric = |name: &str| {
        let name = format!("forebay_intake_blobs_{name} ");
        let text = agent.get(format!("{}/metrics", server.url)).call().unwrap();
        let text = text.into_body().read_to_string().unwrap();
        let line = text.lines().find(|line| line.starts_with(&name));
        line.unwrap_or_else(|| panic!("no {name}")).rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(put(&agent, &server.url, "a", &content(1, 30_000)), 201);
    assert_eq!((metric("up"), metric("stored_count")), ("1".to_owned(), "1".to_owned()));
    is_away.store(true, Ordering::Relaxed);
    let refused = agent.put(url(&server.url, "b")).send(&content(2, 30_000)[..]).unwrap();
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    let text = refused.into_body().read_to_string().unwrap();
    assert!(text.contains("storage_busy") && !text.contains(Versity::SECRET), "{text}");
    assert_eq!(metric("up"), "0");
    let ready = agent.get(format!("{}/readyz", server.url)).call().unwrap();
    let ready = ready.into_body().read_to_string().unwrap();
    assert!(ready.contains("s3://archive/of/files is not available"), "{ready}");
    let shown = run_ok(&behind.dir, &["blobs", "show", "--server", &server.url]);
    assert!(shown.contains("trouble     s3://archive/of/files is not available"), "{shown}");
    is_away.store(false, Ordering::Relaxed);
    assert_eq!(put(&agent, &server.url, "b", &content(2, 30_000)), 201);
    assert_eq!(
        (metric("up"), get(&agent, &server.url, "b")),
        ("1".to_owned(), Read::Bytes(content(2, 30_000)))
    );
}

fn alter(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn an_object_that_was_altered_shortened_or_removed_is_an_error_of_reads_and_named_by_fsck() {
    let Some(behind) = Behind::start(|_| Fate::Pass) else { return };
    let bytes = content(1, 2_000_000);
    let server = behind.serve();
    assert_eq!(put(&agent(), &server.url, "a", &bytes), 201);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let packs = behind.packs();
    let [pack] = &packs[..] else { panic!("{packs:?}") };
    let whole = std::fs::read(pack).unwrap();
    let faults: [fn(&Path); 4] = [
        |pack| alter(pack, 1_000_000),
        |pack| alter(pack, 16),
        |pack| std::fs::File::options().write(true).open(pack).unwrap().set_len(700_000).unwrap(),
        |pack| std::fs::remove_file(pack).unwrap(),
    ];
    for (number, fault) in faults.iter().enumerate() {
        fault(pack);
        let server = behind.serve();
        assert_eq!(get(&agent(), &server.url, "a"), Read::Failed, "{number}");
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
        let (exit, report) = behind.fsck();
        assert_eq!((exit, &report["sound"]), (Some(1), &false.into()), "{number}: {report}");
        assert!(report.to_string().contains("\"f/a\""), "{number}: {report}");
        std::fs::write(pack, &whole).unwrap();
    }
    let server = behind.serve();
    assert_eq!(get(&agent(), &server.url, "a"), Read::Bytes(bytes));
}
