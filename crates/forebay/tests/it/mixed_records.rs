//! Documents that the mixed crash test changes one by one: posts, replaces, merges, deletes and drops.
//!
//! A document says which record it is, so that one whose id was not answered is recognised after the kill. Its
//! text depends on that name alone and its value on the change, so its bytes are known whichever request wrote it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::mixed_client::{Client, Link, acknowledged};
use crate::mixed_oracle::{Change, File, Names, sha256};
use crate::s3_client::{Reply, path};

/// The records of one client.
#[derive(Debug, Default)]
pub(crate) struct Records {
    names: Names,
    /// The ids of those that exist.
    ids: BTreeMap<String, u64>,
    /// Number of records that were posted.
    posted: usize,
}

/// The bytes of a record.
fn record(name: &str, value: u64) -> String {
    let number: usize = name[1..].parse().unwrap();
    let text = "t".repeat(if number.is_multiple_of(9) { 70_000 } else { number * 37 % 2_000 });
    format!("{{\"record\":\"{name}\",\"text\":\"{text}\",\"value\":{value}}}")
}

fn file(bytes: &[u8]) -> File {
    File { sha256: sha256(bytes), size: bytes.len(), comment: String::new() }
}

impl Client {
    fn records_space(&self) -> String {
        format!("/v1/documents/records-{}", self.id)
    }

    /// Posts a record, or changes one that exists.
    pub(crate) fn change_record(&mut self, link: &Link) -> bool {
        let space = self.records_space();
        let value = self.content().seed;
        let Some(name) = self.records.names.any(&mut self.rng) else {
            return self.post_record(link, value);
        };
        let one = format!("{space}/{}", self.records.ids[&name]);
        let changed = record(&name, value);
        let changes = vec![vec![(name.clone(), Some(file(changed.as_bytes())))]];
        match self.rng.below(24) {
            0..9 => self.post_record(link, value),
            9..14 => self.change_records(changes, &[200], || {
                link.http("PUT", &one, &[], changed.as_bytes())
            }),
            14..19 => {
                let patch = format!("{{\"value\":{value}}}");
                self.change_records(changes, &[200], || {
                    link.http("PATCH", &one, &[], patch.as_bytes())
                })
            }
            19..23 => self.change_records(vec![vec![(name, None)]], &[204], || {
                link.http("DELETE", &one, &[], &[])
            }),
            _ => {
                let all = self.records.names.known().keys();
                let all: Change = all.map(|name| (name.clone(), None)).collect();
                let target = format!("{space}?confirm=records-{}", self.id);
                self.change_records(vec![all], &[204], || link.http("DELETE", &target, &[], &[]))
            }
        }
    }

    fn post_record(&mut self, link: &Link, value: u64) -> bool {
        self.records.posted += 1;
        let name = format!("r{}", self.records.posted);
        let (target, body) = (self.records_space(), record(&name, value));
        self.records.names.begin(vec![vec![(name.clone(), Some(file(body.as_bytes())))]]);
        let reply = link.http("POST", &target, &[], body.as_bytes());
        if !acknowledged(reply.as_ref(), &[201]) {
            return false;
        }
        self.records.names.acknowledge();
        let answer: Value = serde_json::from_slice(&reply.unwrap().body.unwrap()).unwrap();
        let id = answer["first_id"].as_u64().unwrap();
        let is_new = self.records.ids.values().all(|known| *known < id);
        assert!(is_new, "{answer}: {:?}", self.records.ids);
        self.records.ids.insert(name, id);
        true
    }

    /// Sends what changes records, and records whether it was acknowledged.
    fn change_records(
        &mut self,
        changes: Vec<Change>,
        expected: &[u16],
        ask: impl FnOnce() -> Option<Reply>,
    ) -> bool {
        self.records.names.begin(changes);
        let done = acknowledged(ask().as_ref(), expected);
        if done {
            self.records.names.acknowledge();
            let known = self.records.names.known();
            self.records.ids.retain(|name, _| known.contains_key(name));
        }
        done
    }

    /// Compares the records with what the client knows, and settles the request in progress.
    pub(crate) fn check_records(&mut self, link: &Link) {
        let space = self.records_space();
        let (mut found, mut ids, mut cursor) = (BTreeMap::new(), BTreeMap::new(), String::new());
        loop {
            let reply = link.get(&format!("{space}?limit=7{cursor}"));
            if reply.status == 404 {
                break;
            }
            let page: Value = serde_json::from_slice(&reply.body.unwrap()).unwrap();
            for listed in page["documents"].as_array().unwrap() {
                let id = listed["id"].as_u64().unwrap();
                let one = link.get(&format!("{space}/{id}"));
                assert_eq!(one.status, 200, "{space}/{id} is listed: {}", one.text());
                let bytes = one.body.unwrap();
                let document: Value = serde_json::from_slice(&bytes).unwrap();
                assert_eq!(document, listed["document"], "{space}/{id}");
                let name = document["record"].as_str().unwrap().to_owned();
                let before = self.records.ids.get(&name);
                assert!(before.is_none_or(|before| *before == id), "{name}: {id}, {before:?}");
                assert!(ids.insert(name.clone(), id).is_none(), "{name} is there twice");
                found.insert(name, file(&bytes));
            }
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={}", path(next));
        }
        self.records.ids = ids;
        self.records.names.settle(&found).unwrap_or_else(|error| panic!("{space}: {error}"));
    }
}
