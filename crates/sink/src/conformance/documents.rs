//! The promises of a [`DocumentSink`].

use super::{Case, DocumentSubject, Failure, equal, refused};
use crate::error::SinkError;
use crate::sink::{Document, DocumentSink, Position, StoredDocument, Written};

type DocumentCase = Case<dyn DocumentSubject>;

/// Bytes that programs have been known to mangle: every sink returns each unchanged.
pub const HOSTILE_DOCUMENTS: &[&[u8]] = &[
    b"{}",
    br#"{"n":9007199254740993,"x":0.1,"big":1e400,"long":0.1000000000000000055511151231257827}"#,
    br#"{"n":-0,"m":-0.0,"e":1E+2,"z":0e0,"u":18446744073709551616}"#,
    b"{ \"spaced\" :\t[ 1 ,\n 2 ] }\r\n",
    b"  {\"padded\": true}  ",
    br#"{"a":1,"a":2}"#,
    br#"{"lone":"\ud800","null":"\u0000","quote":"\"'; DROP TABLE x; --"}"#,
    "{\"ключ\":\"значение\",\"e\u{301}\":\"\u{1f980}\",\"\u{feff}\":\"\u{2028}\"}".as_bytes(),
    b"[1,[2,[3]]]",
    b"\"text\"",
    b"null",
    b"",
    b"not json at all",
    b"{\"_id\":1}}\n{\"_id\":2}",
    b"\xff\xfe\x00 neither text",
    b"\0",
];

/// What every [`DocumentSink`] promises.
pub const DOCUMENT_CASES: &[DocumentCase] = &[
    Case { claim: "every byte of a document comes back", run: every_byte_comes_back },
    Case { claim: "a commit makes several namespaces visible", run: several_namespaces_at_once },
    Case { claim: "nothing is visible before the commit", run: nothing_before_the_commit },
    Case { claim: "a failed write leaves nothing", run: a_failed_write_leaves_nothing },
    Case { claim: "a roll-back leaves nothing", run: a_roll_back_leaves_nothing },
    Case { claim: "a committed position is not written again", run: replay_is_a_no_op },
    Case { claim: "a partly committed range is completed", run: a_range_is_completed },
    Case { claim: "reopening keeps position and documents", run: reopening_keeps_all },
    Case { claim: "an empty write moves the position", run: an_empty_write_moves_the_position },
    Case { claim: "a commit below its writes is refused", run: a_commit_below_its_writes },
    Case { claim: "numbers beyond 63 bits are refused", run: large_numbers_are_refused },
    Case { claim: "names that are none are refused", run: bad_names_are_refused },
    Case { claim: "names of files and tables are names like any", run: awkward_names_work },
    Case { claim: "a long document comes back", run: a_long_document_comes_back },
];

fn document(id: u64, raw: &[u8]) -> Document<'_> {
    Document { id, received_ms: 1_700_000_000_000 + id, raw }
}

fn stored(id: u64, raw: &[u8]) -> StoredDocument {
    StoredDocument { id, received_ms: 1_700_000_000_000 + id, raw: raw.to_owned() }
}

fn write(
    sink: &mut dyn DocumentSink,
    at: u64,
    namespace: &str,
    ids: &[u64],
) -> Result<Written, SinkError> {
    let raws: Vec<String> = ids.iter().map(|id| format!("{{\"id\":{id}}}")).collect();
    let documents: Vec<Document<'_>> =
        ids.iter().zip(&raws).map(|(&id, raw)| document(id, raw.as_bytes())).collect();
    sink.write_documents(Position(at), namespace, &documents)
}

fn ids(place: &dyn DocumentSubject, namespace: &str) -> Result<Vec<u64>, Failure> {
    Ok(place.read(namespace)?.iter().map(|document| document.id).collect())
}

fn every_byte_comes_back(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let documents: Vec<Document<'_>> =
        (0..).zip(HOSTILE_DOCUMENTS).map(|(id, raw)| document(id, raw)).collect();
    let written = sink.write_documents(Position(1), "hostile", &documents)?;
    equal("rows written", written.rows, HOSTILE_DOCUMENTS.len() as u64)?;
    sink.commit(Position(1))?;
    let expected: Vec<StoredDocument> =
        (0..).zip(HOSTILE_DOCUMENTS).map(|(id, raw)| stored(id, raw)).collect();
    equal("documents", place.read("hostile")?, expected)
}

fn several_namespaces_at_once(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    // More than any sink sends to a server at once.
    let names: Vec<String> = (0..150).map(|number| format!("space-{number}")).collect();
    for (at, name) in (1..).zip(&names) {
        write(&mut *sink, at, name, &[at])?;
    }
    for (at, name) in (1..).zip(&names) {
        write(&mut *sink, 200, name, &[at + 1000])?;
    }
    sink.commit(Position(200))?;
    for (at, name) in (1..).zip(&names) {
        equal("ids", ids(place, name)?, vec![at, at + 1000])?;
    }
    equal("ids of a namespace never written", ids(place, "elsewhere")?, vec![])
}

fn nothing_before_the_commit(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    equal("position of an empty sink", sink.position(), None)?;
    write(&mut *sink, 1, "a", &[1])?;
    sink.commit(Position(1))?;
    write(&mut *sink, 2, "a", &[2, 3])?;
    write(&mut *sink, 2, "b", &[4])?;
    equal("position", sink.position(), Some(Position(1)))?;
    drop(sink);
    let sink = place.open()?;
    equal("position after reopening", sink.position(), Some(Position(1)))?;
    equal("ids", (ids(place, "a")?, ids(place, "b")?), (vec![1], vec![]))
}

fn a_failed_write_leaves_nothing(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 1, "a", &[5])?;
    sink.commit(Position(1))?;
    write(&mut *sink, 2, "b", &[6])?;
    let failed = write(&mut *sink, 3, "a", &[7, 8, 8, 9]);
    refused("an id given twice", failed, |error| matches!(error, SinkError::IdOrder { .. }))?;
    let after = |error: &SinkError| matches!(error, SinkError::RolledBack);
    refused("a write after a failed one", write(&mut *sink, 4, "c", &[10]), after)?;
    refused("a commit after a failed write", sink.commit(Position(4)), after)?;
    sink.roll_back()?;
    equal("position", sink.position(), Some(Position(1)))?;
    equal("ids", (ids(place, "a")?, ids(place, "b")?), (vec![5], vec![]))?;
    write(&mut *sink, 3, "a", &[7, 8])?;
    sink.commit(Position(3))?;
    equal("ids once written rightly", ids(place, "a")?, vec![5, 7, 8])
}

fn a_roll_back_leaves_nothing(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    sink.roll_back()?;
    write(&mut *sink, 1, "a", &[1])?;
    sink.commit(Position(1))?;
    write(&mut *sink, 2, "a", &[2])?;
    write(&mut *sink, 2, "b", &[3])?;
    sink.roll_back()?;
    // The same ids and position are free again.
    write(&mut *sink, 2, "a", &[2])?;
    sink.commit(Position(2))?;
    equal("ids", (ids(place, "a")?, ids(place, "b")?), (vec![1, 2], vec![]))
}

fn replay_is_a_no_op(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 5, "a", &[1, 2])?;
    sink.commit(Position(5))?;
    for at in [0, 4, 5] {
        equal("a replay", write(&mut *sink, at, "a", &[1, 2])?, Written::replay())?;
        equal("a replay", write(&mut *sink, at, "new", &[7])?, Written::replay())?;
    }
    sink.commit(Position(5))?;
    sink.commit(Position(3))?;
    equal("position", sink.position(), Some(Position(5)))?;
    equal("ids", (ids(place, "a")?, ids(place, "new")?), (vec![1, 2], vec![]))
}

fn a_range_is_completed(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    for at in 1..=3 {
        write(&mut *sink, at, "a", &[at])?;
    }
    sink.commit(Position(3))?;
    drop(sink);
    let mut sink = place.open()?;
    let replayed: Vec<bool> = (1..=6)
        .map(|at| Ok(write(&mut *sink, at, "a", &[at])?.replayed))
        .collect::<Result<_, SinkError>>()?;
    equal("replayed", replayed, vec![true, true, true, false, false, false])?;
    sink.commit(Position(6))?;
    equal("ids", ids(place, "a")?, vec![1, 2, 3, 4, 5, 6])
}

fn reopening_keeps_all(place: &dyn DocumentSubject) -> Result<(), Failure> {
    for at in 1..=5 {
        let mut sink = place.open()?;
        let before = (at > 1).then(|| Position(at - 1));
        equal("position", sink.position(), before)?;
        write(&mut *sink, at, "a", &[at * 10, at * 10 + 1])?;
        sink.commit(Position(at))?;
        if at % 2 == 0 {
            equal("checkpoint", sink.checkpoint()?, Some(Position(at)))?;
        }
    }
    let expected: Vec<u64> = (1..=5).flat_map(|at| [at * 10, at * 10 + 1]).collect();
    equal("ids", ids(place, "a")?, expected)?;
    let mut sink = place.open()?;
    equal("the last id", (sink.last_id("a")?, sink.last_id("b")?), (Some(51), None))?;
    let failed = write(&mut *sink, 9, "a", &[51]);
    refused("an id of before", failed, |error| matches!(error, SinkError::IdOrder { .. }))
}

fn an_empty_write_moves_the_position(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    sink.commit(Position(0))?;
    equal("position", sink.position(), Some(Position(0)))?;
    let written = write(&mut *sink, 1, "a", &[])?;
    equal("an empty write", written, Written::default())?;
    sink.commit(Position(1))?;
    sink.commit(Position(8))?;
    drop(sink);
    equal("position", place.open()?.position(), Some(Position(8)))?;
    equal("ids", ids(place, "a")?, vec![])
}

fn a_commit_below_its_writes(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 3, "a", &[1])?;
    write(&mut *sink, 2, "a", &[2])?;
    refused("a commit below its writes", sink.commit(Position(2)), |error| {
        matches!(error, SinkError::PositionBehind { .. })
    })?;
    sink.roll_back()?;
    equal("position", sink.position(), None)?;
    equal("ids", ids(place, "a")?, vec![])
}

fn large_numbers_are_refused(place: &dyn DocumentSubject) -> Result<(), Failure> {
    const LARGEST: u64 = i64::MAX.cast_unsigned();
    let mut sink = place.open()?;
    let too_large = |error: &SinkError| matches!(error, SinkError::TooLarge { .. });
    refused("an id", write(&mut *sink, 1, "a", &[LARGEST + 1]), too_large)?;
    sink.roll_back()?;
    refused("a position", write(&mut *sink, LARGEST + 1, "a", &[1]), too_large)?;
    sink.roll_back()?;
    refused("a commit", sink.commit(Position(u64::MAX)), too_large)?;
    sink.roll_back()?;
    let far = Document { id: 1, received_ms: u64::MAX, raw: b"{}" };
    refused("a time", sink.write_documents(Position(1), "a", &[far]), too_large)?;
    sink.roll_back()?;
    let raw = b"{}";
    let last = Document { id: LARGEST, received_ms: LARGEST, raw };
    sink.write_documents(Position(LARGEST), "a", &[last])?;
    sink.commit(Position(LARGEST))?;
    let expected = StoredDocument { id: LARGEST, received_ms: LARGEST, raw: raw.to_vec() };
    equal("the largest numbers", place.read("a")?, vec![expected])
}

fn bad_names_are_refused(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let long = "x".repeat(129);
    for name in ["", "../up", "a/b", "A", "é", "a\0b", "a b", "a\"b", "a;b", long.as_str()] {
        let written = write(&mut *sink, 1, name, &[1]);
        refused("a bad name", written, |error| matches!(error, SinkError::Namespace { .. }))?;
        sink.roll_back()?;
    }
    Ok(())
}

fn awkward_names_work(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let long = "y".repeat(128);
    let names = [
        ".",
        "..",
        ".hidden",
        "-rf",
        "select",
        "sqlite_master",
        "sqlite_sequence",
        "pending",
        "_forebay_state",
        "_forebay_columns",
        "manifest.json",
        "con",
        "a.b.c",
        long.as_str(),
    ];
    let mut sink = place.open()?;
    for (id, name) in (1..).zip(names) {
        write(&mut *sink, 1, name, &[id])?;
    }
    sink.commit(Position(1))?;
    drop(sink);
    place.open()?;
    for (id, name) in (1..).zip(names) {
        equal("ids", ids(place, name)?, vec![id])?;
    }
    Ok(())
}

fn a_long_document_comes_back(place: &dyn DocumentSubject) -> Result<(), Failure> {
    let mut raw = Vec::from(*b"{\"text\":\"");
    raw.resize(3 << 20, b'x');
    raw.extend_from_slice(b"\"}");
    let mut sink = place.open()?;
    sink.write_documents(Position(1), "a", &[document(1, &raw), document(2, b"{}")])?;
    sink.commit(Position(1))?;
    let read = place.read("a")?;
    equal("lengths", read.iter().map(|it| it.raw.len()).collect(), vec![raw.len(), 2])?;
    equal("its bytes are the same", read.first().is_some_and(|it| it.raw == raw), true)
}
