//! Any sequence of requests is answered as a map of names to bytes would, however often the intake
//! is closed, or dropped without being closed, and opened again in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_base::fs::RealFs;
use forebay_intake::catalogue::FileFilter;
use forebay_intake::digest::Digest;
use forebay_intake::fsck::fsck;
use forebay_intake::{Condition, Intake, IntakeError, NameKey};
use proptest::prelude::*;

use crate::requests::{self, documents, post, put_if};
use crate::support::{House, key, namespace, noise, open_on};

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

const NAMES: [&str; 6] = ["n/a", "n/a/b", "n/a/c", "n/ab", "m/a", "m/食 x"];
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

fn of(name: usize) -> (String, String) {
    let (namespace, name) = NAMES[name].split_once('/').unwrap();
    (namespace.to_owned(), name.to_owned())
}

fn name_key(name: usize) -> NameKey {
    let (namespace, name) = of(name);
    key(&namespace, &name)
}

fn digest(which: usize) -> Digest {
    Digest::of(&content(which))
}

impl Model {
    async fn step(&mut self, intake: &Intake, step: &Step) {
        match *step {
            Step::Put { name, content } => {
                self.put(intake, name, content, Condition::None, true).await;
            }
            Step::PutIfAbsent { name, content } => {
                let free = !self.files.contains_key(&of(name));
                self.put(intake, name, content, Condition::Absent, free).await;
            }
            Step::PutOver { name, content, expected } => {
                let found = self.files.get(&of(name)).map(|found| digest(*found));
                let expected = digest(expected);
                let holds = found == Some(expected);
                self.put(intake, name, content, Condition::OneOf(vec![expected]), holds).await;
            }
            Step::Delete { name } => {
                let deleted = requests::delete(intake, &name_key(name)).await.unwrap();
                assert_eq!(deleted, self.files.remove(&of(name)).is_some());
            }
            Step::Get { name } => self.get(intake, name).await,
            Step::Range { name, from, length } => self.range(intake, name, from, length).await,
            Step::List { prefix, limit } => self.list(intake, prefix, limit).await,
            Step::Documents { count } => {
                let at = self.documents;
                let lines: Vec<_> = (at..at + count).map(|n| format!("{{\"n\":{n}}}\n")).collect();
                let reply = post(intake, &namespace("d"), None, &lines.concat()).await.unwrap();
                assert_eq!((reply.status, &reply.json()["first_id"]), (201, &(at + 1).into()));
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
        condition: Condition,
        holds: bool,
    ) {
        let put = put_if(intake, &name_key(name), &content(which), condition).await;
        if !holds {
            assert!(matches!(put, Err(IntakeError::Precondition { .. })), "{put:?}");
            return;
        }
        let put = put.unwrap();
        let stored = self.files.values().any(|found| content(*found) == content(which));
        let before = self.files.insert(of(name), which);
        assert_eq!(put.created, before.is_none(), "{put:?}");
        let replaced = before.is_some_and(|before| content(before) != content(which));
        assert_eq!(put.replaced, replaced, "{put:?}");
        // Bytes that no name refers to any more may or may not still be stored.
        assert!(!stored || put.duplicate, "{put:?}");
    }

    async fn get(&self, intake: &Intake, name: usize) {
        let found = intake.find(&name_key(name)).await.unwrap();
        let expected = self.files.get(&of(name));
        assert_eq!(found.as_ref().map(|file| file.record.digest), expected.map(|of| digest(*of)));
        if let Some((file, which)) = found.zip(expected) {
            let bytes = requests::range(intake, &file, 0, file.record.size).unwrap();
            assert!(bytes == content(*which));
        }
    }

    async fn range(&self, intake: &Intake, name: usize, from: usize, length: usize) {
        let found = intake.find(&name_key(name)).await.unwrap();
        let expected = self.files.get(&of(name));
        assert_eq!(found.is_some(), expected.is_some());
        if let Some((file, which)) = found.zip(expected) {
            let end = (from + length) as u64;
            let read = requests::range(intake, &file, from as u64, end).unwrap();
            let bytes = content(*which);
            let rest = bytes.get(from..).unwrap_or_default();
            assert!(read == rest[..length.min(rest.len())]);
        }
    }

    /// Pages through a listing and compares all of it with the model.
    async fn list(&self, intake: &Intake, prefix: usize, limit: usize) {
        let filter = FileFilter { prefix: Some(PREFIXES[prefix].into()), ..FileFilter::default() };
        let mut found: Vec<(String, String)> = Vec::new();
        loop {
            let page = intake.list(filter.clone(), found.last().cloned(), limit).await.unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            let names = page.iter().map(|file| (file.namespace.to_string(), file.name.to_string()));
            found.extend(names);
        }
        let expected = self.files.keys().filter(|(_, name)| name.starts_with(PREFIXES[prefix]));
        assert!(found.iter().eq(expected), "{found:?}");
    }

    async fn count_documents(&self, intake: &Intake) {
        let page = documents(intake, &namespace("d")).await.unwrap();
        let count = page.map(|page| (page.info.row_count, page.documents.len()));
        let expected = (self.documents > 0).then_some((self.documents as u64, self.documents));
        assert_eq!(count, expected);
    }
}

fn run(steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let house = House::with(|options| {
        options.limits.packed_size_max = PACKED;
        options.segment_size = 64 << 10;
    });
    let House { intake, options, dir } = house;
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
                let opened = open_on(options.clone(), Arc::new(RealFs)).unwrap();
                intake = Some(opened.0);
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
