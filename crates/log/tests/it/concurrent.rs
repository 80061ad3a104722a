//! Many threads, one committer, real files.

use std::{path::Path, sync::Arc};

use forebay_base::{Durability, fs::RealFs};
use forebay_log::{AppendError, Log, Options};

use crate::{api::block_on, workload::read_all};

const THREADS: u32 = 8;
const EACH: u32 = 50;

fn options(durability: Durability) -> Options {
    Options { segment_size: 32 << 10, buffer_size_max: 16 << 10, durability, ..Options::default() }
}

fn payload(thread: u32, at: u32) -> Vec<u8> {
    let mut payload = vec![0; 8 + (at * 131 % 3000) as usize];
    payload[..4].copy_from_slice(&thread.to_le_bytes());
    payload[4..8].copy_from_slice(&at.to_le_bytes());
    payload
}

async fn append_waiting(log: &Log, payload: &[u8]) -> forebay_log::Appended {
    loop {
        match log.try_append(&[payload]) {
            Err(AppendError::Full { .. }) => log.room(payload.len()).await,
            result => return result.unwrap(),
        }
    }
}

/// Appends from many threads in one of three ways, commits each entry, and reads it immediately.
fn hammer(log: &Log) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for at in 0..EACH {
                    let payload = payload(thread, at);
                    let appended = if thread % 2 == 0 {
                        let appended = block_on(append_waiting(log, &payload));
                        block_on(log.committed(appended.end)).unwrap();
                        appended
                    } else {
                        let appended = log.append(&[&payload]).unwrap();
                        log.commit(appended.end).unwrap();
                        appended
                    };
                    assert_eq!(log.read(appended.lsn).unwrap(), payload);
                }
            });
        }
    });
}

fn check(dir: &Path, durability: Durability) {
    let (log, recovery) = Log::open(Arc::new(RealFs), dir, options(durability)).unwrap();
    assert!(recovery.clean && recovery.cut.is_none());
    let mut next = [0; THREADS as usize];
    for (_, found) in read_all(&log) {
        let thread = u32::from_le_bytes(found[..4].try_into().unwrap());
        let at = &mut next[thread as usize];
        assert_eq!(found, payload(thread, *at), "a thread's entries keep their order");
        *at += 1;
    }
    assert_eq!(next, [EACH; THREADS as usize]);
}

#[test]
fn every_thread_is_acknowledged_and_everything_is_there_afterwards() {
    for (word, with_committer) in
        [("sync", true), ("interval:1ms", true), ("os", true), ("sync", false), ("os", false)]
    {
        let durability = word.parse().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = Log::open(Arc::new(RealFs), dir.path(), options(durability)).unwrap();
        let committer = with_committer.then(|| log.start_committer());
        hammer(&log);
        let stats = log.stats();
        assert_eq!(stats.appended_entries, u64::from(THREADS * EACH));
        assert!(stats.rotations > 10 && stats.groups <= stats.appended_entries);
        if let Some(committer) = committer {
            committer.stop().unwrap();
        }
        drop(log);
        check(dir.path(), durability);
    }
}

#[test]
fn a_reader_follows_the_writers() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = Log::open(Arc::new(RealFs), dir.path(), options(Durability::Os)).unwrap();
    let committer = log.start_committer();
    std::thread::scope(|scope| {
        let reading = log.clone();
        let follower = scope.spawn(move || {
            let mut reader = reading.reader(reading.start());
            let mut lsns = Vec::new();
            while lsns.len() < (THREADS * EACH) as usize {
                match reader.next().unwrap() {
                    Some(entry) => lsns.push(entry.lsn),
                    None => std::thread::yield_now(),
                }
            }
            lsns
        });
        hammer(&log);
        let followed = follower.join().unwrap();
        let all: Vec<_> = read_all(&log).into_iter().map(|(lsn, _)| lsn).collect();
        assert_eq!(followed, all);
    });
    committer.stop().unwrap();
}
