//! Any sequence of requests is answered as a map of names to bytes would, however often the intake
//! is closed, or dropped without being closed, and opened again in between.

mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_base::fs::RealFs;
use forebay_intake::attributes::{AttributeKind, Attributes};
use forebay_intake::catalogue::{
    Browse, FileFilter, FileRecord, NamespaceRecord, Quota, Usage, Versioning,
};
use forebay_intake::digest::Digest;
use forebay_intake::documents::change::NewContent;
use forebay_intake::fsck::fsck;
use forebay_intake::{Condition, FileCopy, FileDetails, Intake, IntakeError, NameKey};
use proptest::prelude::*;

use crate::edits::request_in;
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
    Copy { from: usize, to: usize },
    Rename { from: usize, to: usize },
    Tag { name: usize, value: usize },
    Browse { prefix: usize, limit: usize },
    Record { name: usize },
    Unrecord { name: usize },
    Keep { name: usize },
    Suspend { name: usize },
    Limit { name: usize },
    History { name: usize },
    Restore { name: usize, version: usize },
    Prune { name: usize, kept: usize },
    Erase { name: usize, state: usize },
    Amend { name: usize, state: usize, value: usize },
    BrowseStates { prefix: usize, limit: usize, delimiter: bool },
    Get { name: usize },
    Range { name: usize, from: usize, length: usize },
    List { prefix: usize, limit: usize },
    Documents { count: usize },
    Replace { which: usize, value: usize },
    Merge { which: usize, value: usize },
    Remove { which: usize },
    DropAll,
    CountDocuments,
    Reopen,
    Drop,
}

const NAMES: [&str; 6] = ["n/a", "n/a/b", "n/a/c", "n/ab", "m/a", "m/食 x"];
/// Values that a document gets: of several types, so that columns are widened.
const VALUES: [&str; 4] = ["7", "7.5", "\"seven\"", "{\"a\":[7]}"];
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
        2 => (name.clone(), name.clone()).prop_map(|(from, to)| Step::Copy { from, to }),
        2 => (name.clone(), name.clone()).prop_map(|(from, to)| Step::Rename { from, to }),
        2 => (name.clone(), 0..3usize).prop_map(|(name, value)| Step::Tag { name, value }),
        2 => (0..PREFIXES.len(), 1..4usize)
            .prop_map(|(prefix, limit)| Step::Browse { prefix, limit }),
        1 => name.clone().prop_map(|name| Step::Record { name }),
        1 => name.clone().prop_map(|name| Step::Unrecord { name }),
        2 => name.clone().prop_map(|name| Step::Keep { name }),
        1 => name.clone().prop_map(|name| Step::Suspend { name }),
        2 => name.clone().prop_map(|name| Step::Limit { name }),
        3 => name.clone().prop_map(|name| Step::History { name }),
        3 => (name.clone(), 0..4usize).prop_map(|(name, state)| Step::Erase { name, state }),
        2 => (name.clone(), 0..4usize, 0..3usize)
            .prop_map(|(name, state, value)| Step::Amend { name, state, value }),
        2 => (0..PREFIXES.len(), 1..5usize, any::<bool>()).prop_map(
            |(prefix, limit, delimiter)| Step::BrowseStates { prefix, limit, delimiter }),
        2 => (name.clone(), 0..4usize)
            .prop_map(|(name, version)| Step::Restore { name, version }),
        1 => (name.clone(), 0..3usize).prop_map(|(name, kept)| Step::Prune { name, kept }),
        3 => name.clone().prop_map(|name| Step::Get { name }),
        2 => (name, 0..80_000usize, 1..80_000usize)
            .prop_map(|(name, from, length)| Step::Range { name, from, length }),
        2 => (0..PREFIXES.len(), 1..7usize).prop_map(|(prefix, limit)| Step::List { prefix, limit }),
        2 => (1..4usize).prop_map(|count| Step::Documents { count }),
        2 => (0..8usize, 0..4usize).prop_map(|(which, value)| Step::Replace { which, value }),
        2 => (0..8usize, 0..4usize).prop_map(|(which, value)| Step::Merge { which, value }),
        2 => (0..8usize).prop_map(|which| Step::Remove { which }),
        1 => Just(Step::DropAll),
        1 => Just(Step::CountDocuments),
        1 => Just(Step::Reopen),
        1 => Just(Step::Drop),
    ]
}

/// A content, its tag, and the step that stored it.
type Version = (usize, Option<String>, usize);

#[derive(Default)]
struct Model {
    /// Names as namespace and name, each with its content.
    files: BTreeMap<(String, String), usize>,
    tags: BTreeMap<(String, String), String>,
    /// Namespaces with a record.
    records: BTreeSet<String>,
    /// Namespaces that keep versions.
    keeps: BTreeSet<String>,
    /// Namespaces that keep what was stored before a step.
    suspended: BTreeMap<String, usize>,
    /// Namespaces with a quota.
    limited: BTreeSet<String>,
    /// The step that stored what a name refers to.
    stored: BTreeMap<(String, String), usize>,
    /// Number of steps so far.
    steps: usize,
    /// Versions of each name with their tags, the oldest first; `None` for a deletion.
    history: BTreeMap<(String, String), Vec<Option<Version>>>,
    /// Documents by their ids; `None` if the namespace does not exist.
    documents: Option<BTreeMap<u64, String>>,
    last_document: u64,
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
        self.steps += 1;
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
                assert_eq!(deleted, self.files.contains_key(&of(name)));
                if deleted {
                    self.replaced(name, true);
                }
                self.set(name, None);
            }
            Step::Copy { from, to } => self.copy(intake, from, to, false).await,
            Step::Rename { from, to } => self.copy(intake, from, to, true).await,
            Step::Tag { name, value } => self.tag(intake, name, value).await,
            Step::Browse { prefix, limit } => self.browse(intake, prefix, limit).await,
            Step::Record { .. }
            | Step::Keep { .. }
            | Step::Suspend { .. }
            | Step::Limit { .. }
            | Step::Unrecord { .. } => {
                self.namespace_step(intake, step).await;
            }
            Step::History { name } => self.check_history(intake, name).await,
            Step::Restore { name, version } => self.restore(intake, name, version).await,
            Step::Prune { name, kept } => self.prune(intake, name, kept).await,
            Step::Erase { name, state } => self.erase(intake, name, state).await,
            Step::Amend { name, state, value } => self.amend(intake, name, state, value).await,
            Step::BrowseStates { prefix, limit, delimiter } => {
                let delimiter = if delimiter { "/" } else { "" };
                self.browse_states(intake, PREFIXES[prefix], limit, delimiter).await;
            }
            Step::Get { name } => self.get(intake, name).await,
            Step::Range { name, from, length } => self.range(intake, name, from, length).await,
            Step::List { prefix, limit } => self.list(intake, prefix, limit).await,
            Step::Documents { count } => {
                let first = self.last_document + 1;
                let bodies = (first..).take(count).map(|n| (n, format!("{{\"n\":{n}}}")));
                let bodies: Vec<_> = bodies.collect();
                let lines: Vec<_> = bodies.iter().map(|(_, body)| format!("{body}\n")).collect();
                let reply = post(intake, &namespace("d"), None, &lines.concat()).await.unwrap();
                assert_eq!((reply.status, &reply.json()["first_id"]), (201, &first.into()));
                self.documents.get_or_insert_default().extend(bodies);
                self.last_document += count as u64;
            }
            Step::Replace { .. } | Step::Merge { .. } | Step::Remove { .. } | Step::DropAll => {
                self.change_documents(intake, step).await;
            }
            Step::CountDocuments => self.count_documents(intake).await,
            Step::Reopen | Step::Drop => unreachable!("done by the caller"),
        }
    }

    async fn namespace_step(&mut self, intake: &Intake, step: &Step) {
        match *step {
            Step::Record { name } => {
                let name = of(name).0;
                let set = intake.set_namespace(&namespace(&name), Attributes::default()).await;
                assert_eq!(set.unwrap(), self.records.insert(name.clone()));
                self.keeps.remove(&name);
                self.suspended.remove(&name);
                self.limited.remove(&name);
                self.namespaces(intake).await;
            }
            Step::Limit { name } => {
                let name = of(name).0;
                let quota = Quota { files: Some(100), bytes: Some(1 << 40) };
                let of = namespace(&name);
                let set = intake.limit_namespace(&of, |attributes, _| {
                    Ok(NamespaceRecord::with_quota(attributes, quota).unwrap())
                });
                assert_eq!(set.await.unwrap(), self.records.insert(name.clone()));
                self.limited.insert(name);
            }
            Step::Keep { name } => {
                let name = of(name).0;
                let attributes =
                    NamespaceRecord::with_versioning(Attributes::default(), Versioning::On);
                let set = intake.set_namespace(&namespace(&name), attributes.unwrap()).await;
                assert_eq!(set.unwrap(), self.records.insert(name.clone()));
                self.suspended.remove(&name);
                self.limited.remove(&name);
                self.keeps.insert(name);
            }
            Step::Suspend { name } => {
                let name = of(name).0;
                let of = namespace(&name);
                let set = intake.change_namespace(&of, |attributes, at| {
                    let suspended = Versioning::Suspended { at };
                    Ok(NamespaceRecord::with_versioning(attributes, suspended).unwrap())
                });
                assert_eq!(set.await.unwrap(), self.records.insert(name.clone()));
                self.keeps.remove(&name);
                self.suspended.insert(name, self.steps);
            }
            Step::Unrecord { name } => {
                let name = of(name).0;
                let removed = intake.remove_namespace(&namespace(&name)).await;
                let versions = self.history.iter().filter(|(_, all)| !all.is_empty());
                let mut names = self.files.keys().chain(versions.map(|(name, _)| name));
                if names.any(|(of, _)| *of == name) && self.records.contains(&name) {
                    assert!(matches!(removed, Err(IntakeError::Rejected { .. })), "{removed:?}");
                } else if let Ok(removed) = removed {
                    assert_eq!(removed, self.records.remove(&name));
                    self.keeps.remove(&name);
                    self.suspended.remove(&name);
                    self.limited.remove(&name);
                }
                self.namespaces(intake).await;
            }
            _ => unreachable!("another step"),
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
        let same =
            self.files.get(&of(name)).is_some_and(|before| content(*before) == content(which));
        let is_tagged = self.tags.contains_key(&of(name));
        if self.files.contains_key(&of(name)) && (is_tagged || !same) {
            self.replaced(name, false);
        }
        let before = self.files.get(&of(name)).copied();
        if before.is_none() || is_tagged || !same {
            self.set(name, Some((which, None, self.steps)));
        }
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
        let tag =
            found.as_ref().and_then(|file| file.record.attributes.get(AttributeKind::Tag, "t"));
        assert_eq!(tag, self.tags.get(&of(name)).map(String::as_str));
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

    async fn copy(&mut self, intake: &Intake, from: usize, to: usize, is_moved: bool) {
        let copy = FileCopy {
            from: name_key(from),
            to: name_key(to),
            source: Condition::None,
            condition: Condition::None,
            comment: None,
            attributes: None,
            idempotency: None,
        };
        let done = if is_moved { intake.rename(copy).await } else { intake.copy(copy).await };
        if is_moved && from == to {
            assert!(matches!(done, Err(IntakeError::Rejected { .. })), "{done:?}");
            return;
        }
        let Some(which) = self.files.get(&of(from)).copied() else {
            assert!(matches!(done, Err(IntakeError::NotFound { .. })), "{done:?}");
            return;
        };
        let done = done.unwrap();
        assert!(done.duplicate, "{done:?}");
        let tag = self.tags.get(&of(from)).cloned();
        let before = self.files.get(&of(to));
        let same = before.is_some_and(|before| content(*before) == content(which))
            && tag == self.tags.get(&of(to)).cloned();
        if before.is_some() && (is_moved || !same) {
            self.replaced(to, false);
        }
        if is_moved {
            self.replaced(from, true);
        }
        assert_eq!(done.created, !self.files.contains_key(&of(to)));
        if done.created || is_moved || !same {
            self.set(to, Some((which, tag, self.steps)));
        }
        if is_moved {
            self.set(from, None);
        }
    }

    async fn tag(&mut self, intake: &Intake, name: usize, value: usize) {
        let value = value.to_string();
        let change = |file: &FileRecord| {
            let mut attributes = file.attributes.clone();
            attributes.set(AttributeKind::Tag, "t", &value).unwrap();
            Ok(FileDetails { comment: file.comment.clone(), attributes })
        };
        let done = intake.change_details(&name_key(name), Condition::None, None, change).await;
        if self.files.contains_key(&of(name)) {
            assert!(!done.unwrap().replaced);
            if self.tags.get(&of(name)) != Some(&value) {
                self.replaced(name, false);
                let which = self.files[&of(name)];
                self.set(name, Some((which, Some(value), self.steps)));
            }
        } else {
            assert!(matches!(done, Err(IntakeError::NotFound { .. })), "{done:?}");
        }
    }

    /// Pages through a directory and compares all of it with the model.
    async fn browse(&self, intake: &Intake, prefix: usize, limit: usize) {
        let prefix = PREFIXES[prefix];
        let mut browse = Browse {
            namespace: namespace("n"),
            prefix: prefix.to_owned(),
            delimiter: "/".to_owned(),
            after: None,
        };
        let (mut files, mut prefixes) = (Vec::new(), Vec::new());
        loop {
            let page = intake.browse(browse.clone(), limit).await.unwrap();
            assert!(page.files.len() + page.prefixes.len() <= limit);
            files.extend(page.files.iter().map(|file| file.name.to_string()));
            prefixes.extend(page.prefixes);
            browse.after = page.next;
            if browse.after.is_none() {
                break;
            }
        }
        let names = self.files.keys().filter(|(of, name)| of == "n" && name.starts_with(prefix));
        let (mut plain, mut shared) = (Vec::new(), BTreeSet::new());
        for (_, name) in names {
            match name[prefix.len()..].find('/') {
                Some(at) => drop(shared.insert(name[..=prefix.len() + at].to_owned())),
                None => plain.push(name.clone()),
            }
        }
        assert_eq!((files, prefixes), (plain, shared.into_iter().collect()));
    }

    async fn namespaces(&self, intake: &Intake) {
        let found = intake.file_namespaces(None, 100).await.unwrap();
        let found: Vec<_> =
            found.iter().map(|of| (of.namespace.to_string(), of.record.is_some())).collect();
        let names: BTreeSet<&String> =
            self.files.keys().map(|(of, _)| of).chain(&self.records).collect();
        let expected: Vec<_> =
            names.into_iter().map(|of| (of.clone(), self.records.contains(of))).collect();
        assert_eq!(found, expected);
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
        let text = |raw: Vec<u8>| String::from_utf8(raw).unwrap();
        let found = page.map(|page| {
            assert_eq!(page.info.row_count, page.documents.len() as u64);
            page.documents.into_iter().map(|it| (it.id, text(it.raw))).collect()
        });
        assert_eq!(found, self.documents);
    }

    /// Changes one document, which may not exist, or drops all.
    async fn change_documents(&mut self, intake: &Intake, step: &Step) {
        let id = |which: usize| which as u64 + self.last_document.saturating_sub(5);
        let (id, done) = match *step {
            Step::Replace { which, value } => {
                let body = format!("{{\"n\":{}}}", VALUES[value]);
                let content = NewContent::Replaced(body.clone().into());
                let changed = intake.change_document(request_in("d", id(which)), content).await;
                (id(which), changed.map(|_| Some(body)))
            }
            Step::Merge { which, value } => {
                let patch = format!("{{\"n\":null,\"m\":{}}}", VALUES[value]);
                let content = NewContent::Merged(patch.into());
                let changed = intake.change_document(request_in("d", id(which)), content).await;
                let body = format!("{{\"m\":{}}}", VALUES[value]);
                (id(which), changed.map(|_| Some(body)))
            }
            Step::Remove { which } => {
                let removed = intake.delete_document(request_in("d", id(which))).await;
                (id(which), removed.map(|()| None))
            }
            _ => {
                let dropped = intake.drop_documents(&namespace("d"), None).await;
                assert_eq!(dropped.is_ok(), self.documents.take().is_some(), "{dropped:?}");
                return;
            }
        };
        let known = self.documents.as_mut().filter(|all| all.contains_key(&id));
        match (known, done) {
            (Some(all), Ok(Some(body))) => drop(all.insert(id, body)),
            (Some(all), Ok(None)) => drop(all.remove(&id)),
            (known, done) => {
                let is_missing = matches!(done, Err(IntakeError::NotFound { .. }));
                assert!(known.is_none() && is_missing, "{id}: {done:?}");
            }
        }
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
        model.check_usage(intake.as_ref().unwrap());
    }
    let last = intake.unwrap();
    runtime.block_on(async {
        model.list(&last, 0, 3).await;
        model.count_documents(&last).await;
        model.browse(&last, 0, 2).await;
        model.namespaces(&last).await;
        for name in 0..NAMES.len() {
            model.get(&last, name).await;
            model.check_history(&last, name).await;
        }
    });
    last.close().unwrap();
    drop((last, runtime));
    let report = fsck(&options.dir, Arc::new(RealFs), |_| {}).unwrap();
    let blobs: BTreeSet<_> = model.files.values().map(|which| content(*which)).collect();
    assert!(report.findings.is_empty(), "{report:?}");
    let kept = model.history.values().flatten().flatten().map(|(which, ..)| content(*which));
    let blobs: BTreeSet<_> = blobs.into_iter().chain(kept).collect();
    assert_eq!((report.files, report.blobs), (model.files.len() as u64, blobs.len() as u64));
    let documents = model.documents.map_or(0, |all| all.len() as u64);
    assert_eq!(report.documents, documents);
    drop(dir);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_requests_answers_as_a_map_would(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps);
    }
}
