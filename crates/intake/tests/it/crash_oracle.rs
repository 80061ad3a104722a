//! What was sent to an intake on a disk that fails, what was acknowledged, and what may therefore be found.

use std::collections::BTreeMap;
use std::fmt::Debug;

use forebay_base::fs::sim::Rng;
use forebay_intake::catalogue::{NamespaceRecord, Versioning};
use forebay_intake::digest::Digest;
use forebay_intake::{Condition, FileCopy, Intake, IntakeError, NameKey};

use crate::crash::PACKED;
use crate::edits::Edits;
use crate::requests::{Reply, bytes_of, delete, documents, files, post, put};
use crate::support::{key, namespace, noise};

/// What a name may refer to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) acknowledged: Option<Vec<u8>>,
    /// The possible effects of requests without an answer, or with an error as the answer.
    pub(crate) maybe: Vec<Option<Vec<u8>>>,
}

/// A request of documents.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) key: String,
    pub(crate) body: String,
    pub(crate) count: usize,
    pub(crate) answer: Option<Vec<u8>>,
}

impl Sent {
    pub(crate) async fn post(&self, intake: &Intake) -> Result<Reply, IntakeError> {
        let reply = post(intake, &namespace("n"), Some(&self.key), &self.body).await?;
        assert_eq!(reply.status, 201, "{reply:?}");
        Ok(reply)
    }
}

/// What was sent, and what was acknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Oracle {
    pub(crate) names: BTreeMap<String, Known>,
    pub(crate) requests: Vec<Sent>,
    /// Names of files that were stored once and then renamed once, or not.
    pub(crate) renamed: Vec<(String, String)>,
    /// Documents that are changed.
    pub(crate) edits: Edits,
}

impl Oracle {
    pub(crate) async fn run(&mut self, intake: &Intake, rng: &mut Rng, steps: usize) {
        for _ in 0..steps {
            match rng.below(20) {
                0..3 => self.put(intake, rng, 0).await,
                3 | 4 => self.put(intake, rng, PACKED + 1).await,
                5 => {
                    let files = ["x/1", "x/2", "x/3"].map(|name| (name, content(rng, 0)));
                    self.put_together(intake, &files).await;
                }
                6 | 7 => self.delete(intake, rng).await,
                12 => self.rename(intake, rng).await,
                13 => self.copy(intake, rng).await,
                14..19 => self.edits.run(intake, rng).await,
                19 => self.erase(intake, rng).await,
                8 => {
                    let files =
                        ["y/1", "y/2"].map(|name| (name, content(rng, rng.clone().below(2) * 700)));
                    self.put_together(intake, &files).await;
                }
                _ => self.documents(intake, rng).await,
            }
        }
    }

    pub(crate) fn intend(&mut self, name: &str, state: Option<Vec<u8>>) {
        self.names.entry(name.to_owned()).or_default().maybe.push(state);
    }

    pub(crate) fn acknowledge(&mut self, name: &str, state: Option<Vec<u8>>) {
        let known = Known { acknowledged: state, maybe: Vec::new() };
        self.names.insert(name.to_owned(), known);
    }

    async fn put(&mut self, intake: &Intake, rng: &mut Rng, size_min: usize) {
        let (name, bytes) = (name(rng), content(rng, size_min));
        self.intend(&name, Some(bytes.clone()));
        if accepted(&store(intake, &name, &bytes).await) {
            self.acknowledge(&name, Some(bytes));
        }
    }

    /// Several at once, which share writes and syncs.
    async fn put_together(&mut self, intake: &Intake, files: &[(&str, Vec<u8>)]) {
        for (name, bytes) in files {
            self.intend(name, Some(bytes.clone()));
        }
        let answers = files.iter().map(|(name, bytes)| store(intake, name, bytes));
        let answers = futures_util::future::join_all(answers).await;
        for ((name, bytes), answer) in files.iter().zip(answers) {
            if accepted(&answer) {
                self.acknowledge(name, Some(bytes.clone()));
            }
        }
    }

    async fn delete(&mut self, intake: &Intake, rng: &mut Rng) {
        let name = name(rng);
        self.intend(&name, None);
        let answer = delete(intake, &of(&name)).await;
        if matches!(answer, Ok(false)) {
            // The name did not exist: nothing was done.
            self.names.get_mut(&name).unwrap().maybe.pop();
        } else if accepted(&answer) {
            self.acknowledge(&name, None);
        }
    }

    /// Stores a file and renames it: one of the two names has it, whatever happens.
    async fn rename(&mut self, intake: &Intake, rng: &mut Rng) {
        let number = self.renamed.len();
        let (from, to) = (format!("m/{number}-from"), format!("m/{number}-to"));
        let bytes = content(rng, 0);
        self.intend(&from, Some(bytes.clone()));
        if !accepted(&store(intake, &from, &bytes).await) {
            return;
        }
        self.acknowledge(&from, Some(bytes.clone()));
        self.renamed.push((from.clone(), to.clone()));
        self.intend(&from, None);
        self.intend(&to, Some(bytes.clone()));
        if accepted(&intake.rename(file_copy(&from, &to)).await) {
            self.acknowledge(&from, None);
            self.acknowledge(&to, Some(bytes));
        }
    }

    /// Replaces a file and erases what it was replaced by: what was before holds again.
    async fn erase(&mut self, intake: &Intake, rng: &mut Rng) {
        let name = format!("v/{}", rng.below(2));
        let on = |attributes, _| Ok(NamespaceRecord::with_versioning(attributes, Versioning::On)?);
        if !accepted(&intake.change_namespace(&namespace("n"), on).await) {
            return;
        }
        let (before, after) = (content(rng, 0), content(rng, PACKED));
        for bytes in [&before, &after] {
            self.intend(&name, Some(bytes.clone()));
            if !accepted(&store(intake, &name, bytes).await) {
                return;
            }
            self.acknowledge(&name, Some(bytes.clone()));
        }
        let Ok(Some(newest)) = intake.find(&of(&name)).await else { return };
        self.intend(&name, Some(before.clone()));
        if accepted(&intake.erase_version(&of(&name), newest.record.id).await) {
            self.acknowledge(&name, Some(before));
        }
    }

    async fn copy(&mut self, intake: &Intake, rng: &mut Rng) {
        let (from, to) = (name(rng), format!("c/{}", rng.below(3)));
        let known = self.names.get(&from).cloned().unwrap_or_default();
        let states = known.maybe.iter().chain([&known.acknowledged]);
        for bytes in states.flatten() {
            self.intend(&to, Some(bytes.clone()));
        }
        let answer = intake.copy(file_copy(&from, &to)).await;
        if matches!(answer, Err(IntakeError::NotFound { .. })) {
            return;
        }
        if accepted(&answer) {
            let bytes = bytes_of(intake, &of(&to)).await;
            if let Ok(found) = bytes {
                self.acknowledge(&to, found);
            }
        }
    }

    async fn documents(&mut self, intake: &Intake, rng: &mut Rng) {
        let (request, count) = (self.requests.len(), 1 + rng.below(3));
        let pad = "p".repeat(rng.below(400));
        let body = (0..count)
            .map(|at| format!("{{\"request\":{request},\"at\":{at},\"pad\":\"{pad}\"}}\n"))
            .collect();
        let mut sent = Sent { key: format!("request {request}"), body, count, answer: None };
        let answer = sent.post(intake).await;
        if accepted(&answer) {
            sent.answer = Some(answer.unwrap().json);
        }
        self.requests.push(sent);
    }

    /// Checks the contents against what was acknowledged, then continues.
    pub(crate) async fn judge(&mut self, intake: &Intake, round: u64) {
        intake.ready().unwrap();
        let mut there = Vec::new();
        for (name, known) in &self.names {
            let found = bytes_of(intake, &of(name)).await;
            let found = found.unwrap_or_else(|error| panic!("operation {round}: {error:?}"));
            assert!(
                found == known.acknowledged || known.maybe.contains(&found),
                "operation {round}: {name} has {:?} bytes, acknowledged were {:?}, possible {:?}",
                found.map(|bytes| bytes.len()),
                known.acknowledged.as_ref().map(Vec::len),
                known.maybe.iter().map(|state| state.as_ref().map(Vec::len)).collect::<Vec<_>>(),
            );
            if found.is_some() {
                there.push(name.clone());
            }
        }
        for (from, to) in &self.renamed {
            let (old, new) = (there.contains(from), there.contains(to));
            assert!(old != new, "operation {round}: {from} {old}, {to} {new}");
        }
        let listed = files(intake).await.unwrap();
        let listed: Vec<&str> = listed.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(listed, there, "operation {round}: listed and found differ");
        self.edits.judge(intake, round, true).await;
        let found = self.counts(intake).await;
        for (request, sent) in self.requests.iter().enumerate() {
            let count = found.get(&request).copied().unwrap_or(0);
            let whole = count == sent.count || count == 0 && sent.answer.is_none();
            assert!(
                whole,
                "operation {round}: request {request} has {count} of {} documents",
                sent.count
            );
        }
        self.send_again(intake, round, &found).await;
        self.go_on(intake, round).await;
    }

    /// Checks that every stored item is whole, that a repeated request is stored once, and that the
    /// intake continues.
    pub(crate) async fn judge_whole(&self, intake: &Intake, round: u64) {
        for file in files(intake).await.unwrap() {
            let bytes = bytes_of(intake, &(file.namespace, file.name)).await.unwrap().unwrap();
            assert_eq!(Digest::of(&bytes), file.digest, "operation {round}");
        }
        self.edits.judge(intake, round, false).await;
        let found = self.counts(intake).await;
        for (request, count) in &found {
            assert_eq!(*count, self.requests[*request].count, "operation {round}");
        }
        self.send_again(intake, round, &found).await;
        intake.ready().unwrap();
        Self::default().go_on(intake, round).await;
    }

    /// Repeats every request under its key. Afterwards each is stored exactly once.
    async fn send_again(&self, intake: &Intake, round: u64, before: &BTreeMap<usize, usize>) {
        for (request, sent) in self.requests.iter().enumerate() {
            let again = sent.post(intake).await.unwrap();
            let was_stored = before.contains_key(&request);
            assert_eq!(again.is_replay, was_stored, "operation {round}, request {request}");
            // What relaxed durability lost is stored again, perhaps with other ids.
            let is_same = sent.answer.as_ref().is_none_or(|answer| *answer == again.json);
            assert!(!was_stored || is_same, "operation {round}, request {request}");
        }
        let found = self.counts(intake).await;
        assert!(self.requests.iter().enumerate().all(|(at, sent)| found[&at] == sent.count));
    }

    /// Documents found of each request.
    pub(crate) async fn counts(&self, intake: &Intake) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        let Some(page) = documents(intake, &namespace("n")).await.unwrap() else { return counts };
        for document in page.documents {
            let document: serde_json::Value = serde_json::from_slice(&document.raw).unwrap();
            let request = usize::try_from(document["request"].as_u64().unwrap()).unwrap();
            *counts.entry(request).or_insert(0) += 1;
        }
        counts
    }

    async fn go_on(&mut self, intake: &Intake, round: u64) {
        for size in [10, PACKED, PACKED + 1, 70_000] {
            let bytes = noise(round ^ 0xA5A5, size);
            let answer = store(intake, "z/after", &bytes).await;
            assert!(answer.is_ok(), "operation {round}: {answer:?}");
            let found = bytes_of(intake, &of("z/after")).await.unwrap();
            assert!(found == Some(bytes), "operation {round}");
        }
    }
}

pub(crate) fn name(rng: &mut Rng) -> String {
    format!("a/{}", rng.below(4))
}

/// A few contents are repeated, so that there are duplicates.
pub(crate) fn content(rng: &mut Rng, size_min: usize) -> Vec<u8> {
    let which = rng.below(5);
    let size = if size_min == 0 { rng.clone().below(PACKED) } else { size_min + which * 900 };
    noise(which as u64, size)
}

pub(crate) fn file_copy(from: &str, to: &str) -> FileCopy {
    FileCopy {
        from: of(from),
        to: of(to),
        source: Condition::None,
        condition: Condition::None,
        comment: None,
        attributes: None,
        idempotency: None,
    }
}

pub(crate) fn of(name: &str) -> NameKey {
    key("n", name)
}

pub(crate) async fn store(intake: &Intake, name: &str, bytes: &[u8]) -> Result<(), IntakeError> {
    put(intake, &of(name), bytes).await.map(drop)
}

/// Whether a write was acknowledged; if not, storage must have failed.
pub(crate) fn accepted<T: Debug>(answer: &Result<T, IntakeError>) -> bool {
    let Err(error) = answer else { return true };
    let has_failed = matches!(error, IntakeError::Blob { .. } | IntakeError::Read { .. });
    assert!(has_failed || is_closed(error) || error.shortage().is_some(), "{error:?}");
    false
}

/// Whether the log takes nothing more until the intake is opened again.
pub(crate) fn is_closed(error: &IntakeError) -> bool {
    let is_of_log = match error {
        IntakeError::Append(_) | IntakeError::Commit(_) => true,
        // A view ends with the log that it follows.
        IntakeError::ViewStopped { reason } => {
            ["the log was closed", "the simulated machine has stopped"]
                .iter()
                .any(|why| reason.contains(why))
        }
        _ => false,
    };
    is_of_log && error.shortage().is_none() && !error.is_too_large()
}

pub(crate) fn is_refused_as_closed<T: Debug>(answer: &Result<T, IntakeError>) -> bool {
    answer.as_ref().is_err_and(is_closed)
}
