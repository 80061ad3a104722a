//! Random lives of sinks against a model of what they promise.

#![expect(clippy::unwrap_used, reason = "what a test sets up itself either works or ends the test")]

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{DocumentSubject, RowSubject};
use crate::column::{ColumnType, Value};
use crate::error::SinkError;
use crate::schema::Field;
use crate::sink::{Document, Position, RowSink, StoredDocument, Written};

const NAMESPACES: [&str; 3] = ["a", "b", "sqlite_c"];

#[derive(Debug, Clone)]
enum Step {
    /// Documents at the next position, or this many positions back.
    Write {
        namespace: usize,
        back: u64,
        raws: Vec<Vec<u8>>,
        columns: Vec<u8>,
    },
    /// The last write once more: its ids are taken, or its position is.
    Repeat,
    Commit,
    RollBack,
    Reopen,
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    let raw = prop_oneof![
        Just(b"{\"n\": 1}".to_vec()),
        "\\{\"[a-z]{1,3}\":[0-9]{1,9}\\}\n?".prop_map(String::into_bytes),
        vec(any::<u8>(), 0..20),
    ];
    prop_oneof![
        6 => (0..NAMESPACES.len(), prop_oneof![3 => Just(0_u64), 1 => 1..3_u64],
              vec(raw, 0..4), vec(0..5_u8, 0..4))
            .prop_map(|(namespace, back, raws, columns)| Step::Write { namespace, back, raws, columns }),
        1 => Just(Step::Repeat),
        4 => Just(Step::Commit),
        1 => Just(Step::RollBack),
        1 => Just(Step::Reopen),
        1 => Just(Step::Checkpoint),
    ]
}

type Documents = BTreeMap<&'static str, Vec<StoredDocument>>;

/// What a sink is to hold.
#[derive(Debug, Default)]
struct Model {
    committed: Documents,
    position: Option<u64>,
    pending: Documents,
    written: Option<u64>,
    failed: bool,
    /// The last position and the last id handed out, whatever became of them.
    next: u64,
}

impl Model {
    /// What a write has to answer.
    fn write(&mut self, at: u64, namespace: &'static str, documents: &[StoredDocument]) -> Answer {
        if self.failed {
            return Answer::Refused;
        }
        if self.position.is_some_and(|position| at <= position) {
            return Answer::Replayed;
        }
        self.written = Some(self.written.map_or(at, |written| written.max(at)));
        for document in documents {
            let pending = self.pending.get(namespace).and_then(|it| it.last());
            let last = pending.or_else(|| self.committed.get(namespace).and_then(|it| it.last()));
            if last.is_some_and(|last| document.id <= last.id) {
                self.failed = true;
                return Answer::Refused;
            }
            self.pending.entry(namespace).or_default().push(document.clone());
        }
        Answer::Written(documents.len() as u64)
    }

    fn commit(&mut self, at: u64) -> bool {
        if self.failed {
            return false;
        }
        if self.written.is_some() || self.position.is_none_or(|position| at > position) {
            for (namespace, documents) in std::mem::take(&mut self.pending) {
                self.committed.entry(namespace).or_default().extend(documents);
            }
            self.position = Some(at);
        }
        self.written = None;
        true
    }

    fn roll_back(&mut self) {
        self.pending.clear();
        self.written = None;
        self.failed = false;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Written(u64),
    Replayed,
    Refused,
}

fn answer(result: Result<Written, SinkError>) -> Answer {
    match result {
        Ok(written) if written.replayed => Answer::Replayed,
        Ok(written) => Answer::Written(written.rows),
        Err(_) => Answer::Refused,
    }
}

/// Documents with values of these columns, or without any.
fn write(
    sink: &mut dyn RowSink,
    at: Position,
    namespace: &str,
    documents: &[Document<'_>],
    columns: &[u8],
) -> Answer {
    if columns.is_empty() {
        return answer(sink.write_documents(at, namespace, documents));
    }
    let paths: Vec<String> = columns.iter().map(|number| format!("f{number}")).collect();
    let fields: Vec<Field<'_>> =
        paths.iter().map(|path| Field { path, ty: ColumnType::Integer }).collect();
    let values = vec![Value::Number("7"); fields.len()];
    let Ok(mut writer) = sink.row_writer(at, namespace, &fields) else {
        return Answer::Refused;
    };
    if documents.iter().any(|document| writer.write(document, &values).is_err()) {
        return Answer::Refused;
    }
    answer(writer.finish())
}

fn live<S: DocumentSubject + RowSubject>(place: &S, steps: &[Step]) {
    let mut sink = RowSubject::open(place).unwrap();
    let mut model = Model::default();
    let mut last: Option<(u64, &'static str, Vec<StoredDocument>, &[u8])> = None;
    for step in steps {
        match step {
            Step::Write { .. } | Step::Repeat => {
                if let Step::Write { namespace, back, raws, columns } = step {
                    let documents = raws.iter().map(|raw| {
                        model.next += 1;
                        StoredDocument { id: model.next, received_ms: 3, raw: raw.clone() }
                    });
                    let documents = documents.collect();
                    model.next += 1;
                    let at = model.next.saturating_sub(back * 5);
                    last = Some((at, NAMESPACES[*namespace], documents, columns));
                }
                let Some((at, namespace, stored, columns)) = &last else { continue };
                let documents: Vec<Document<'_>> = stored
                    .iter()
                    .map(|it| Document { id: it.id, received_ms: it.received_ms, raw: &it.raw })
                    .collect();
                let found = write(&mut *sink, Position(*at), namespace, &documents, columns);
                assert_eq!(found, model.write(*at, namespace, stored));
            }
            Step::Commit => {
                assert_eq!(sink.commit(Position(model.next)).is_ok(), model.commit(model.next));
            }
            Step::RollBack => {
                sink.roll_back().unwrap();
                model.roll_back();
            }
            Step::Reopen => {
                drop(sink);
                sink = RowSubject::open(place).unwrap();
                model.roll_back();
            }
            Step::Checkpoint => {
                assert_eq!(sink.checkpoint().unwrap(), model.position.map(Position));
            }
        }
        assert_eq!(sink.position(), model.position.map(Position));
    }
    if place.locks_new_columns() {
        sink.roll_back().unwrap();
    }
    for namespace in NAMESPACES {
        let expected = model.committed.get(namespace).cloned().unwrap_or_default();
        assert_eq!(DocumentSubject::read(place, namespace).unwrap(), expected, "{namespace}");
    }
}

/// Random lives of sinks, each in a new place, against a model of what they promise.
///
/// * `cases`: how many.
///
/// # Panics
/// If a sink is not as the model says; the message has the shortest life that shows it.
pub fn lives<S: DocumentSubject + RowSubject>(cases: u32, make: impl Fn() -> S) {
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let life = runner.run(&vec(step(), 1..40), |steps| {
        live(&make(), &steps);
        Ok(())
    });
    life.unwrap();
}
