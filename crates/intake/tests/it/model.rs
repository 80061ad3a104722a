//! Any sequence of requests is answered as a map of names to bytes would, however often the intake
//! is closed, or dropped without being closed, and opened again in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_api::intake::router;
use forebay_base::fs::RealFs;
use forebay_intake::Intake;
use forebay_intake::digest::Digest;
use forebay_intake::fsck::fsck;
use proptest::prelude::*;

use super::support::{Answer, House, noise, open, send, text};

/// Files above this many bytes are kept as separate files.
const PACKED: usize = 300;

#[derive(Debug, Clone)]
enum Step {
    Put { name: usize, content: usize },
    PutIfAbsent { name: usize, content: usize },
    PutOver { name: usize, content: usize, expected: usize },
    Delete { name: usize },
    Get { name: usize },
    Range { name: usize, from: usize, length: usize },
    List { prefix: usize, limit: usize },
    Documents { count: usize },
    CountDocuments,
    Reopen,
    Drop,
}

const NAMES: [&str; 6] = ["n/a", "n/a/b", "n/a/c", "n/ab", "m/a", "m/%E9%A3%9F%20x"];
const DECODED: [&str; 6] = ["n/a", "n/a/b", "n/a/c", "n/ab", "m/a", "m/食 x"];
const PREFIXES: [&str; 4] = ["", "a", "a/", "zz"];

/// Six contents: empty, small, at the limit, above it, and over a block.
fn content(which: usize) -> Vec<u8> {
    let size = [0, 1, PACKED, PACKED + 1, 5_000, 70_000][which % 6];
    noise(which as u64, size)
}

fn step() -> impl Strategy<Value = Step> {
    let (name, content) = (0..NAMES.len(), 0..6usize);
    prop_oneof![
        6 => (name.clone(), content.clone()).prop_map(|(name, content)| Step::Put { name, content }),
        1 => (name.clone(), content.clone())
            .prop_map(|(name, content)| Step::PutIfAbsent { name, content }),
        1 => (name.clone(), content.clone(), content.clone())
            .prop_map(|(name, content, expected)| Step::PutOver { name, content, expected }),
        4 => name.clone().prop_map(|name| Step::Delete { name }),
        3 => name.clone().prop_map(|name| Step::Get { name }),
        2 => (name, 0..80_000usize, 1..80_000usize)
            .prop_map(|(name, from, length)| Step::Range { name, from, length }),
        2 => (0..PREFIXES.len(), 1..7usize).prop_map(|(prefix, limit)| Step::List { prefix, limit }),
        2 => (1..4usize).prop_map(|count| Step::Documents { count }),
        1 => Just(Step::CountDocuments),
        1 => Just(Step::Reopen),
        1 => Just(Step::Drop),
    ]
}

#[derive(Default)]
struct Model {
    /// Names as namespace and name, each with its content.
    files: BTreeMap<(String, String), usize>,
    documents: usize,
}

fn key(name: usize) -> (String, String) {
    let (namespace, name) = DECODED[name].split_once('/').unwrap();
    (namespace.to_owned(), name.to_owned())
}

fn etag(which: usize) -> String {
    format!("\"{}\"", Digest::of(&content(which)).to_hex())
}

async fn ask(
    intake: &Intake,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Answer {
    send(router(intake), method, path, headers, body).await
}

impl Model {
    async fn step(&mut self, intake: &Intake, step: &Step) {
        match *step {
            Step::Put { name, content } => self.put(intake, name, content, &[], true).await,
            Step::PutIfAbsent { name, content } => {
                let free = !self.files.contains_key(&key(name));
                self.put(intake, name, content, &[("if-none-match", "*")], free).await;
            }
            Step::PutOver { name, content, expected } => {
                let found = self.files.get(&key(name)).map(|found| etag(*found));
                let etag = etag(expected);
                let holds = found.as_ref() == Some(&etag);
                self.put(intake, name, content, &[("if-match", &etag)], holds).await;
            }
            Step::Delete { name } => {
                let path = format!("/v1/files/{}", NAMES[name]);
                let status = ask(intake, "DELETE", &path, &[], vec![]).await.status;
                let was = self.files.remove(&key(name));
                assert_eq!(status, if was.is_some() { 204 } else { 404 });
            }
            Step::Get { name } => self.get(intake, name).await,
            Step::Range { name, from, length } => self.range(intake, name, from, length).await,
            Step::List { prefix, limit } => self.list(intake, prefix, limit).await,
            Step::Documents { count } => {
                let at = self.documents;
                let lines: Vec<_> = (at..at + count).map(|n| format!("{{\"n\":{n}}}\n")).collect();
                let body = lines.concat().into_bytes();
                let answer = ask(intake, "POST", "/v1/documents/d", &[], body).await;
                assert_eq!((answer.status, &answer.json()["first_id"]), (201, &(at + 1).into()));
                self.documents += count;
            }
            Step::CountDocuments => self.count_documents(intake).await,
            Step::Reopen | Step::Drop => unreachable!("done by the caller"),
        }
    }

    async fn put(
        &mut self,
        intake: &Intake,
        name: usize,
        which: usize,
        headers: &[(&str, &str)],
        holds: bool,
    ) {
        let path = format!("/v1/files/{}", NAMES[name]);
        let answer = ask(intake, "PUT", &path, headers, content(which)).await;
        if !holds {
            assert_eq!(answer.error(), (412, "precondition".into()));
            return;
        }
        let stored = self.files.values().any(|found| content(*found) == content(which));
        let before = self.files.insert(key(name), which);
        let status = if before.is_none() { 201 } else { 200 };
        assert_eq!(answer.status, status, "{answer:?}");
        let replaced = before.is_some_and(|before| content(before) != content(which));
        let json = answer.json();
        assert_eq!(json["replaced"], replaced, "{json}");
        // Bytes that no name refers to any more may or may not still be stored.
        assert!(!stored || text(&json["status"]) == "duplicate", "{json}");
    }

    async fn get(&self, intake: &Intake, name: usize) {
        let answer = ask(intake, "GET", &format!("/v1/files/{}", NAMES[name]), &[], vec![]).await;
        match self.files.get(&key(name)) {
            None => assert_eq!(answer.status, 404),
            Some(which) => {
                assert_eq!((answer.status, answer.header("etag")), (200, etag(*which).as_str()));
                assert!(answer.body == content(*which));
            }
        }
    }

    async fn range(&self, intake: &Intake, name: usize, from: usize, length: usize) {
        let range = format!("bytes={from}-{}", from + length - 1);
        let path = format!("/v1/files/{}", NAMES[name]);
        let answer = ask(intake, "GET", &path, &[("range", &range)], vec![]).await;
        let Some(which) = self.files.get(&key(name)) else {
            assert_eq!(answer.status, 404);
            return;
        };
        let bytes = content(*which);
        match bytes.get(from..).filter(|rest| !rest.is_empty()) {
            None => assert_eq!(answer.status, 416),
            Some(rest) => {
                assert_eq!(answer.status, 206);
                assert!(answer.body == rest[..length.min(rest.len())]);
            }
        }
    }

    /// Pages through a listing and compares all of it with the model.
    async fn list(&self, intake: &Intake, prefix: usize, limit: usize) {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/files?prefix={}&limit={limit}{cursor}", PREFIXES[prefix]);
            let page = ask(intake, "GET", &path, &[], vec![]).await.json();
            for file in page["files"].as_array().unwrap() {
                found.push((text(&file["namespace"]).to_owned(), text(&file["name"]).to_owned()));
            }
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={}", next.replace('食', "%E9%A3%9F").replace(' ', "%20"));
        }
        let expected = self.files.keys().filter(|(_, name)| name.starts_with(PREFIXES[prefix]));
        assert!(found.iter().eq(expected), "{found:?}");
    }

    async fn count_documents(&self, intake: &Intake) {
        let page = ask(intake, "GET", "/v1/documents/d?limit=1", &[], vec![]).await;
        if self.documents == 0 {
            assert_eq!(page.status, 404);
        } else {
            assert_eq!(page.json()["count"], self.documents);
        }
    }
}

fn run(steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let house = House::with(|options| {
        options.limits.packed_size_max = PACKED;
        options.segment_size = 64 << 10;
    });
    let (intake, options, dir) = house.take_apart();
    let mut intake = Some(intake);
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Reopen | Step::Drop => {
                let old = intake.take().unwrap();
                if matches!(step, Step::Reopen) {
                    old.close().unwrap();
                }
                drop(old);
                intake = Some(open(options.clone(), Arc::new(RealFs)).0);
            }
            _ => runtime.block_on(model.step(intake.as_ref().unwrap(), step)),
        }
    }
    let last = intake.unwrap();
    runtime.block_on(async {
        model.list(&last, 0, 3).await;
        model.count_documents(&last).await;
        for name in 0..NAMES.len() {
            model.get(&last, name).await;
        }
    });
    last.close().unwrap();
    drop((last, runtime));
    let report = fsck(&options.dir, Arc::new(RealFs), |_| {}).unwrap();
    let blobs: BTreeSet<_> = model.files.values().map(|which| content(*which)).collect();
    assert!(report.findings.is_empty(), "{report:?}");
    assert_eq!((report.files, report.blobs), (model.files.len() as u64, blobs.len() as u64));
    assert_eq!(report.documents, model.documents as u64);
    drop(dir);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_requests_answers_as_a_map_would(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps);
    }
}
