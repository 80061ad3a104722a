//! The queue of the view, and what it refuses.

use forebay_base::fs::sim::SimFs;

use super::*;
use crate::format::{DocumentCommit, Documents, TargetCode, encode_documents};
use crate::names::Namespace;

/// Appends a commit of one document.
fn append(log: &Log, first_id: u64) {
    let commit = DocumentCommit {
        request: [1; 16],
        received_ms: 1,
        namespace: Namespace::parse("n").unwrap(),
        target: TargetCode::Collection,
        first_id,
        count: 1,
        columns: Vec::new(),
        flags: crate::format::CommitFlags::default(),
        chunks: Vec::new(),
        idempotency: None,
        status: 201,
        answer: &[],
        documents: Documents::EMPTY,
    };
    let mut run = Vec::new();
    encode_documents(&mut run, b"{}");
    let end = log.try_append(&[&commit.encode_header(1), &run]).unwrap().end;
    log.sync_to(end).unwrap();
}

#[tokio::test]
async fn requests_wait_for_the_view_only_when_very_many_commits_do() {
    let reserve = Arc::new(Reserve::keep(Arc::new(SimFs::new(1)), std::path::Path::new("/")));
    let queue = ViewQueue::new(Lsn(0), Lsn(0), None, None, reserve);
    let room = || tokio::time::timeout(Duration::ZERO, queue.wait_for_room());
    for lsn in 0..COMMITS_MAX as u64 {
        if lsn.is_power_of_two() {
            room().await.unwrap().unwrap();
        }
        let commit = QueuedCommit {
            first: Lsn(lsn),
            lsn: Lsn(lsn),
            end: Lsn(lsn + 1),
            count: 1,
            received_ms: 1,
            prepared: None,
        };
        queue.push([1; 16], commit);
    }
    assert!(room().await.is_err());
    queue.forget(1);
    room().await.unwrap().unwrap();
    assert!(size_of::<QueuedCommit>() <= 60, "{}", size_of::<QueuedCommit>());
}

#[test]
fn documents_that_are_neither_in_the_log_nor_in_the_database_are_not_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = Log::open(
        Arc::new(SimFs::new(1)),
        std::path::Path::new("/log"),
        forebay_log::Options::default(),
    )
    .unwrap();
    let sink = SqliteSink::open(&dir.path().join("documents.sqlite")).unwrap();
    let bounds = Bounds { depth_max: 9, key_size_max: 99, flatten_depth: 4 };
    let mut writer = Writer { sink, bounds };
    for id in [1, 2, 3] {
        append(&log, id);
    }
    assert_eq!(writer.replay(&log, log.start()).unwrap(), 3);
    append(&log, 7);
    let from = Lsn(writer.sink.position().unwrap().0);
    let refused = writer.replay(&log, from).unwrap_err();
    assert!(matches!(refused, ApplyError::Gap { last: 3, first: 7, .. }), "{refused:?}");
}
