//! Documents that are changed while the disk fails: what was sent, what was acknowledged, and what may
//! therefore be found.
//!
//! Each document has a number that no change takes from it, so it is known again whatever became of it.

use std::collections::BTreeMap;

use forebay_base::fs::sim::Rng;
use forebay_intake::documents::change::{ChangeRequest, NewContent};
use forebay_intake::{Condition, Intake, IntakeError};

use crate::crash_oracle::{Known, accepted};
use crate::requests::{documents, post};
use crate::support::namespace;

/// The namespace whose documents are changed.
pub(crate) const EDITED: &str = "e";

/// A document that was sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edited {
    /// Its id, if that is known.
    id: Option<u64>,
    state: Known,
}

/// All that were sent, by their numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edits(BTreeMap<u64, Edited>);

pub(crate) fn request(id: u64) -> ChangeRequest {
    request_in(EDITED, id)
}

pub(crate) fn request_in(name: &str, id: u64) -> ChangeRequest {
    let (namespace, condition) = (namespace(name), Condition::None);
    ChangeRequest { namespace, id, condition, idempotency: None }
}

pub(crate) async fn replace(intake: &Intake, id: u64, body: &str) -> Result<(), IntakeError> {
    let content = NewContent::Replaced(body.to_owned().into());
    intake.change_document(request(id), content).await.map(drop)
}

pub(crate) async fn merge(intake: &Intake, id: u64, patch: &str) -> Result<(), IntakeError> {
    let content = NewContent::Merged(patch.to_owned().into());
    intake.change_document(request(id), content).await.map(drop)
}

impl Edits {
    pub(crate) async fn run(&mut self, intake: &Intake, rng: &mut Rng) {
        let sure = self.0.iter().filter(|(_, it)| it.state.maybe.is_empty() && it.id.is_some());
        let there = sure.filter(|(_, it)| it.state.acknowledged.is_some());
        let there: Vec<u64> = there.map(|(number, _)| *number).collect();
        let action = rng.below(9);
        if there.is_empty() || action < 3 {
            return self.store(intake, rng).await;
        }
        let number = there[rng.below(there.len())];
        match action {
            3 | 4 => self.replace(intake, rng, number).await,
            5 => self.merge(intake, rng, number).await,
            6 | 7 => self.delete(intake, number).await,
            _ => self.drop_all(intake).await,
        }
    }

    fn entry(&mut self, number: u64) -> &mut Edited {
        self.0.entry(number).or_default()
    }

    fn settle(&mut self, number: u64, acknowledged: Option<Vec<u8>>) {
        self.entry(number).state = Known { acknowledged, maybe: Vec::new() };
    }

    async fn store(&mut self, intake: &Intake, rng: &mut Rng) {
        let number = self.0.len() as u64;
        let body = body(number, rng);
        self.entry(number).state.maybe.push(Some(body.clone().into_bytes()));
        let answer = post(intake, &namespace(EDITED), None, &body).await;
        if accepted(&answer) {
            let reply = answer.unwrap();
            self.entry(number).id = reply.json()["first_id"].as_u64();
            self.settle(number, Some(body.into_bytes()));
        }
    }

    async fn replace(&mut self, intake: &Intake, rng: &mut Rng, number: u64) {
        let body = body(number, rng);
        self.entry(number).state.maybe.push(Some(body.clone().into_bytes()));
        let id = self.entry(number).id.unwrap();
        if accepted(&replace(intake, id, &body).await) {
            self.settle(number, Some(body.into_bytes()));
        }
    }

    async fn merge(&mut self, intake: &Intake, rng: &mut Rng, number: u64) {
        let Edited { id, state } = self.entry(number);
        let text = String::from_utf8(state.acknowledged.clone().unwrap()).unwrap();
        let merged = format!("{},\"added\":true}}", text.strip_suffix('}').unwrap());
        let merged = if text.contains("added") { text } else { merged };
        state.maybe.push(Some(merged.clone().into_bytes()));
        let id = id.unwrap();
        // A patch that changes nothing in the end is a change, too.
        let patch = ["{\"added\":true}", "{\"added\":true,\"none\":null}"][rng.below(2)];
        if accepted(&merge(intake, id, patch).await) {
            self.settle(number, Some(merged.into_bytes()));
        }
    }

    async fn delete(&mut self, intake: &Intake, number: u64) {
        self.entry(number).state.maybe.push(None);
        let id = self.entry(number).id.unwrap();
        if accepted(&intake.delete_document(request(id)).await) {
            self.settle(number, None);
        }
    }

    async fn drop_all(&mut self, intake: &Intake) {
        self.0.values_mut().for_each(|it| it.state.maybe.push(None));
        if accepted(&intake.drop_documents(&namespace(EDITED), None).await) {
            let numbers: Vec<u64> = self.0.keys().copied().collect();
            numbers.into_iter().for_each(|number| self.settle(number, None));
        }
    }

    /// Checks what is there against what was acknowledged.
    ///
    /// * `all`: whether nothing that was acknowledged may be missing.
    pub(crate) async fn judge(&self, intake: &Intake, round: u64, all: bool) {
        let page = documents(intake, &namespace(EDITED)).await.unwrap();
        let mut found = BTreeMap::new();
        for document in page.into_iter().flat_map(|page| page.documents) {
            let value: serde_json::Value = serde_json::from_slice(&document.raw).unwrap();
            let number = value["number"].as_u64().unwrap();
            let again = found.insert(number, (document.id, document.raw));
            assert!(again.is_none(), "operation {round}: {number} is there twice");
        }
        for (number, edited) in &self.0 {
            let there = found.remove(number);
            if let (Some(id), Some((found, _))) = (edited.id, &there) {
                assert_eq!(id, *found, "operation {round}: {number}");
            }
            let bytes = there.map(|(_, bytes)| bytes);
            let known = &edited.state;
            let fits = bytes == known.acknowledged || known.maybe.contains(&bytes);
            assert!(!all || fits, "operation {round}: {number} is {bytes:?}, not {edited:?}");
        }
        assert!(found.is_empty(), "operation {round}: {found:?}");
    }
}

/// A document with a number, and values that may be of another type than those before.
fn body(number: u64, rng: &mut Rng) -> String {
    let value = ["1", "1.5", "\"text\"", "true"][rng.below(4)];
    let pad = "p".repeat(rng.below(300));
    format!("{{\"number\":{number},\"value\":{value},\"pad\":\"{pad}\"}}")
}
