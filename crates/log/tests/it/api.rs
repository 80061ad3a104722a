//! The public interface, one promise at a time.

use std::{
    future::Future,
    path::Path,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use forebay_base::{
    Durability,
    error_chain::chain,
    fs::{
        RealFs,
        sim::{Fault, SimFs},
    },
};
use forebay_log::{AppendError, CommitError, Log, Lsn, OpenError, Options, ReadError, Recovery};

fn open(dir: &Path, options: Options) -> (Log, Recovery) {
    Log::open(Arc::new(RealFs), dir, options).unwrap()
}

fn all(log: &Log) -> Vec<(Lsn, Vec<u8>)> {
    let mut reader = log.reader(log.start());
    let mut entries = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        entries.push((entry.lsn, entry.payload.to_vec()));
    }
    entries
}

#[test]
fn committed_entries_are_read_back_and_survive_reopening() {
    for durability in ["sync", "interval:1s", "os"] {
        let durability: Durability = durability.parse().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let options = Options { durability, segment_size: 4096, ..Options::default() };
        let mut written = Vec::new();
        for round in 0..3u32 {
            let (log, recovery) = open(dir.path(), options.clone());
            assert_eq!((recovery.created, recovery.clean), (round == 0, round > 0));
            let committer = (round == 1).then(|| log.start_committer());
            for i in 0..40u8 {
                let payload = vec![i; usize::from(i) * 37 % 500];
                let (head, tail) = payload.split_at(payload.len() / 3);
                let appended = log.append(&[head, tail]).unwrap();
                log.commit(appended.end).unwrap();
                assert_eq!(log.read(appended.lsn).unwrap(), payload);
                written.push((appended.lsn, payload));
            }
            assert_eq!(all(&log), written);
            if let Some(committer) = committer {
                committer.stop().unwrap();
            }
        }
        assert_eq!(all(&open(dir.path(), options).0), written);
    }
}

#[test]
fn truncation_drops_whole_segments_and_erasure_leaves_every_other_position() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), Options { segment_size: 1024, ..Options::default() });
    let mut lsns = Vec::new();
    for i in 0..60u8 {
        lsns.push(log.append(&[&[i; 100]]).unwrap().lsn);
    }
    log.sync().unwrap();
    let segments = log.segments().unwrap();
    let second = segments[1];
    let erased = log.erase(second.base, &mut |lsn| lsn.0 % 16 == 0).unwrap();
    assert!(erased.entries > 0 && erased.bytes == erased.entries * 100);
    for (i, lsn) in (0..60u8).zip(&lsns) {
        let gone = second.base <= *lsn && *lsn < second.end && lsn.0 % 16 == 0;
        match log.read(*lsn) {
            Ok(payload) => assert!(!gone && payload == [i; 100]),
            Err(error) => assert!(gone && matches!(error, ReadError::Erased { .. }), "{error}"),
        }
    }
    assert_eq!(all(&log).len() as u64, 60 - erased.entries);
    let verified = log.verify(&mut |damage| panic!("{damage}")).unwrap();
    assert_eq!((verified.entries, verified.erased), (60 - erased.entries, erased.entries));

    let freed = log.truncate_before(lsns[30]).unwrap();
    assert!(freed > 0);
    assert!(matches!(log.read(lsns[0]), Err(ReadError::BelowStart { .. })));
    assert!(matches!(log.reader(Lsn(0)).next(), Err(ReadError::BelowStart { .. })));
    let kept = all(&log);
    assert!(kept[0].0 <= lsns[30] && kept.last().unwrap().0 == lsns[59]);
    drop(log);
    assert_eq!(all(&open(dir.path(), Options::default()).0), kept);
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_log_is_open_once_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), Options::default());
    let again = Log::open(Arc::new(RealFs), dir.path(), Options::default());
    assert!(matches!(again, Err(OpenError::Locked { .. })));
    let reader = log.reader(log.start());
    drop(log);
    let again = Log::open(Arc::new(RealFs), dir.path(), Options::default());
    assert!(matches!(again, Err(OpenError::Locked { .. })), "a reader keeps it open");
    drop(reader);
    open(dir.path(), Options::default());
}

#[test]
fn options_out_of_bounds_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for (options, expected) in [
        (Options { segment_size: 100, ..Options::default() }, "segment_size"),
        (Options { entry_size_max: 0, ..Options::default() }, "entry_size_max"),
        (Options { entry_size_max: (1 << 30) + 1, ..Options::default() }, "entry_size_max"),
        (Options { buffer_size_max: 10, ..Options::default() }, "buffer_size_max"),
    ] {
        match Log::open(Arc::new(RealFs), dir.path(), options) {
            Err(OpenError::Option { name, .. }) => assert_eq!(name, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_entry_above_the_limit_is_refused_and_one_above_every_buffer_and_segment_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        segment_size: 4096,
        buffer_size_max: 1024,
        entry_size_max: 100_000,
        ..Options::default()
    };
    let (log, _) = open(dir.path(), options.clone());
    let refused = log.append(&[&vec![0; 60_000], &vec![0; 40_001]]).unwrap_err();
    assert!(matches!(refused, AppendError::TooLarge { len: 100_001, max: 100_000 }));
    let mut appended = Vec::new();
    for size in [10, 100_000, 0, 100_000, 5000, 1] {
        appended.push((log.append(&[&vec![9; size]]).unwrap().lsn, vec![9; size]));
    }
    log.sync().unwrap();
    assert_eq!(all(&log), appended);
    drop(log);
    assert_eq!(all(&open(dir.path(), options).0), appended);
}

#[test]
fn a_full_buffer_says_so_until_someone_writes_it() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), Options { buffer_size_max: 1000, ..Options::default() });
    log.try_append(&[&[1; 600]]).unwrap();
    let full = log.try_append(&[&[2; 600]]).unwrap_err();
    assert!(matches!(full, AppendError::Full { needed: 624 }), "{full}");
    let committer = log.start_committer();
    block_on(log.room(600));
    let mut called = None;
    let appended = log.append_then(&[&[2; 600]], |lsn| called = Some(lsn)).unwrap();
    assert_eq!(called, Some(appended.lsn));
    block_on(log.committed(appended.end)).unwrap();
    committer.stop().unwrap();
    assert_eq!(log.stats().full, 1);
}

#[test]
fn positions_never_handed_out_are_refused_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), Options::default());
    let end = log.append(&[b"x"]).unwrap().end;
    let beyond = Lsn(end.0 + 1);
    assert!(matches!(log.commit(beyond), Err(CommitError::Beyond { .. })));
    let committer = log.start_committer();
    assert!(matches!(block_on(log.committed(beyond)), Err(CommitError::Beyond { .. })));
    assert!(matches!(log.read(end), Err(ReadError::Beyond { .. })));
    assert!(matches!(log.reader(beyond).next(), Err(ReadError::Beyond { .. })));
    committer.stop().unwrap();
}

#[test]
fn futures_dropped_or_outliving_their_committer_leave_no_one_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), Options::default());
    let committer = log.start_committer();
    for _ in 0..50 {
        let end = log.append(&[b"dropped"]).unwrap().end;
        let mut committed = log.committed(end);
        let mut cx = Context::from_waker(Waker::noop());
        drop(std::pin::Pin::new(&mut committed).poll(&mut cx));
    }
    let end = log.append(&[b"outlives"]).unwrap().end;
    let late = log.committed(end);
    committer.stop().unwrap();
    block_on(late).unwrap();
    let end = log.append(&[b"after"]).unwrap().end;
    block_on(log.committed(end)).unwrap();
    assert_eq!(log.synced(), end);
    assert_eq!(all(&log).len(), 52);
}

#[test]
fn interval_is_synced_by_the_committer_without_anyone_asking() {
    let dir = tempfile::tempdir().unwrap();
    let durability = "interval:1ms".parse().unwrap();
    let (log, _) = open(dir.path(), Options { durability, ..Options::default() });
    let committer = log.start_committer();
    for _ in 0..3 {
        let end = log.append(&[b"soon"]).unwrap().end;
        log.commit(end).unwrap();
        while log.synced() < end {
            std::thread::yield_now();
        }
    }
    committer.stop().unwrap();
}

#[test]
fn sync_to_survives_power_loss_under_every_durability_and_syncs_no_more_than_it_must() {
    for durability in ["sync", "interval:1h", "os"] {
        let disk = SimFs::new(3);
        let (log, _) = crate::workload::open(&disk, durability.parse().unwrap()).unwrap();
        let committer = log.start_committer();
        let first = log.append(&[b"first"]).unwrap();
        log.sync_to(first.end).unwrap();
        assert!(log.synced() >= first.end);
        log.sync_to(first.end).unwrap();
        assert_eq!(log.stats().syncs, 1, "{durability}");
        let (again, _) =
            crate::workload::open(&disk.fork().power_off(1), Durability::Sync).unwrap();
        assert_eq!(again.read(first.lsn).unwrap(), b"first", "{durability}");

        // A failed sync closes the log, like any other failure.
        disk.plan(disk.operations() + 1, Fault::Io);
        let end = log.append(&[b"lost"]).unwrap().end;
        assert!(log.sync_to(end).is_err() && log.append(&[b"refused"]).is_err());
        assert!(committer.stop().is_err());
    }
}

#[test]
fn a_failure_reaches_everyone_who_waits_and_everyone_who_comes_later() {
    let disk = SimFs::new(0);
    let (log, _) = crate::workload::open(&disk, Durability::Sync).unwrap();
    let committer = log.start_committer();
    let kept = log.append(&[b"kept"]).unwrap();
    block_on(log.committed(kept.end)).unwrap();
    disk.plan(disk.operations() + 1, Fault::Io);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // Callers that come after the failure are refused at the append.
                match log.append(&[b"lost"]) {
                    Ok(appended) => {
                        let error = block_on(log.committed(appended.end)).unwrap_err();
                        assert!(matches!(error, CommitError::Poisoned { .. }));
                        assert!(chain(&error).to_string().contains("simulated device failure"));
                    }
                    Err(error) => assert!(matches!(error, AppendError::Poisoned { .. })),
                }
            });
        }
    });
    assert!(matches!(log.append(&[b"x"]), Err(AppendError::Poisoned { .. })));
    block_on(log.room(1));
    assert_eq!(log.read(kept.lsn).unwrap(), b"kept", "reading goes on");
    assert!(committer.stop().is_err());
}
