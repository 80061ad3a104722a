//! Any sequence of operations has the same result as on a list.

use std::collections::BTreeMap;

use forebay_base::{Durability, fs::sim::SimFs};
use forebay_log::{Log, Lsn, ReadError};
use proptest::prelude::*;

use crate::workload::{open, read_all};

#[derive(Debug, Clone)]
enum Op {
    Append(usize),
    Commit,
    Truncate(prop::sample::Index),
    Erase(prop::sample::Index, u64),
    Reopen,
    Kill,
    ReadFrom(prop::sample::Index),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0usize..1200).prop_map(Op::Append),
        4 => Just(Op::Commit),
        1 => any::<prop::sample::Index>().prop_map(Op::Truncate),
        2 => (any::<prop::sample::Index>(), 1u64..5).prop_map(|(at, nth)| Op::Erase(at, nth)),
        1 => Just(Op::Reopen),
        1 => Just(Op::Kill),
        2 => any::<prop::sample::Index>().prop_map(Op::ReadFrom),
    ];
    prop::collection::vec(op, 1..80)
}

/// The expected contents of the log: written entries, buffered entries, and which were erased.
#[derive(Debug, Default)]
struct Model {
    entries: BTreeMap<Lsn, Option<Vec<u8>>>,
    buffered: Vec<(Lsn, Vec<u8>)>,
    appended: u64,
}

impl Model {
    fn written(&mut self) {
        self.entries.extend(self.buffered.drain(..).map(|(lsn, payload)| (lsn, Some(payload))));
    }

    /// Marks as written the entries that a full buffer wrote by itself.
    fn settle(&mut self, log: &Log) {
        let written = log.written();
        let kept = self.buffered.iter().position(|(lsn, _)| *lsn >= written);
        let later = self.buffered.split_off(kept.unwrap_or(self.buffered.len()));
        self.written();
        self.buffered = later;
    }

    fn from(&self, from: Lsn) -> Vec<(Lsn, Vec<u8>)> {
        let alive = |(lsn, payload): (&Lsn, &Option<Vec<u8>>)| Some((*lsn, payload.clone()?));
        self.entries.range(from..).filter_map(alive).collect()
    }

    fn first_from(&self, from: Lsn) -> Option<(Lsn, Vec<u8>)> {
        let mut alive = self.entries.range(from..);
        alive.find_map(|(lsn, payload)| Some((*lsn, payload.clone()?)))
    }

    fn check(&self, log: &Log) {
        assert_eq!(read_all(log), self.from(Lsn(0)));
        for (lsn, payload) in &self.entries {
            match (log.read(*lsn), payload) {
                (Ok(found), Some(payload)) => assert_eq!(&found, payload),
                (Err(ReadError::Erased { .. }), None) => {}
                (other, _) => panic!("{lsn}: {other:?}"),
            }
            let inside = log.read(Lsn(lsn.0 + 8));
            match inside {
                Err(ReadError::NotAnEntry { .. }) => {}
                // Among entries erased together, their positions are no longer known.
                Err(ReadError::Erased { .. }) => assert!(payload.is_none(), "{lsn}"),
                other => panic!("{other:?}"),
            }
            let mut reader = log.reader(*lsn);
            let first = reader.next().unwrap().map(|entry| (entry.lsn, entry.payload.to_vec()));
            assert_eq!(first, self.first_from(*lsn));
        }
        for (lsn, _) in &self.buffered {
            assert!(matches!(log.read(*lsn), Err(ReadError::Beyond { .. })));
        }
    }
}

fn apply(model: &mut Model, disk: &mut SimFs, log: Log, op: &Op) -> Log {
    match op {
        Op::Append(size) => {
            model.appended += 1;
            let payload = vec![u8::try_from(model.appended % 251).unwrap(); *size];
            let appended = log.append(&[&payload]).unwrap();
            model.settle(&log);
            model.buffered.push((appended.lsn, payload));
        }
        Op::Commit => {
            log.commit(log.end()).unwrap();
            model.written();
        }
        Op::Truncate(at) => {
            let lsns: Vec<Lsn> = model.entries.keys().copied().collect();
            if let Some(lsn) = lsns.get(at.index(lsns.len().max(1))) {
                log.truncate_before(*lsn).unwrap();
                let kept = model.entries.split_off(&log.start());
                assert!(kept.contains_key(lsn), "only what lies below goes");
                model.entries = kept;
            }
        }
        Op::Erase(at, nth) => {
            let segments = log.segments().unwrap();
            let segment = at.get(&segments);
            if segment.sealed {
                log.erase(segment.base, &mut |lsn| {
                    let dead = (lsn.0 / 8).is_multiple_of(*nth);
                    if dead {
                        model.entries.insert(lsn, None);
                    }
                    dead
                })
                .unwrap();
            }
        }
        Op::Reopen => {
            drop(log);
            model.written();
            return open(disk, Durability::Sync).unwrap().0;
        }
        Op::Kill => {
            // What was only buffered is lost with the process.
            *disk = disk.fork();
            model.buffered.clear();
            return open(disk, Durability::Sync).unwrap().0;
        }
        Op::ReadFrom(at) => {
            let lsns: Vec<Lsn> = model.entries.keys().copied().collect();
            if let Some(from) = lsns.get(at.index(lsns.len().max(1))) {
                let mut reader = log.reader(*from);
                let mut found = Vec::new();
                while let Some(entry) = reader.next().unwrap() {
                    found.push((entry.lsn, entry.payload.to_vec()));
                }
                assert_eq!(found, model.from(*from));
            }
        }
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn any_sequence_of_operations_gives_what_a_list_gives(ops in ops()) {
        let mut disk = SimFs::new(0);
        let mut model = Model::default();
        let mut log = open(&disk, Durability::Sync).unwrap().0;
        for op in &ops {
            log = apply(&mut model, &mut disk, log, op);
            model.check(&log);
        }
    }
}
