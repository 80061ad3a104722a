use std::{path::Path, sync::Arc};

use forebay_base::{Durability, fs::RealFs};
use forebay_log::{Log, Lsn, Options, Recovery};

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
            for i in 0..100u32 {
                let payload = vec![i as u8; (i * 37 % 500) as usize];
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
