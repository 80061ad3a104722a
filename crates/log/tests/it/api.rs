use std::{path::Path, sync::Arc};

use forebay_base::{Durability, fs::RealFs};
use forebay_log::{Log, Lsn, Options, ReadError, Recovery};

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
            for i in 0..100u8 {
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
