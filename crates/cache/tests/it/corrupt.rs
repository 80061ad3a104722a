//! Files are truncated and bits flipped, one at a time: the opened data is then right, or opening
//! fails with an error that names the file.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use forebay_base::Durability;
use forebay_base::error_chain::chain;
use forebay_base::fs::sim::SimFs;
use forebay_base::fs::{Access, FileSystem};
use forebay_cache::persist::{OpenError, Opened, PersistOptions, check, snapshot};
use forebay_cache::store::Keyspace;

use crate::crash_model::{DIR, Op, State, dump, execute, options, reopen_with};

const NOW_MS: u64 = 5_000;

fn op(database: usize, words: &[&[u8]]) -> Op {
    (database, words.iter().map(|word| word.to_vec()).collect())
}

/// A disk with a log and this many snapshots, closed properly; and its contents.
fn disk(snapshots: usize) -> (SimFs, State) {
    let disk = SimFs::new(3);
    let opened = again(&disk).unwrap();
    let (keyspace, journal) = (&opened.store, &opened.journal);
    let run = |ops: &[Op]| execute(keyspace, journal, NOW_MS, ops).unwrap();
    for round in 0..=snapshots {
        run(&[op(0, &[b"RPUSH", b"list", b"x", &[b'a' + u8::try_from(round).unwrap(); 9]])]);
        run(&[op(0, &[b"APPEND", b"text", b"|\r\n"]), op(0, &[b"HSET", b"hash", b"f", b"v"])]);
        run(&[op(0, &[b"SETAT", b"soon", b"gone", b"9000"])]);
        let long = vec![b'z'; 1_000];
        run(&[op(0, &[b"RPUSH", b"long", &long])]);
        if round < snapshots {
            let report =
                snapshot(keyspace, journal, NOW_MS, &AtomicBool::new(false), &|_| ()).unwrap();
            assert!(report.untidy.is_none() && report.info.keys >= 5);
            run(&[op(0, &[b"ZINCR", b"zset", b"m", b"1.5"]), op(0, &[b"DEL", b"hash"])]);
        }
    }
    let state = dump(keyspace, NOW_MS);
    journal.log().start_committer().stop().unwrap();
    drop(opened);
    (disk, state)
}

/// Small segments, so that there are several.
fn again(disk: &SimFs) -> Result<Opened<Keyspace>, OpenError> {
    let options = PersistOptions { segment_size: 1 << 10, ..options(Durability::Sync) };
    reopen_with(disk.clone(), &options)
}

fn files(disk: &SimFs, under: &str) -> Vec<PathBuf> {
    let dir = Path::new(DIR).join(under);
    disk.list(&dir).unwrap().into_iter().map(|entry| dir.join(entry.name)).collect()
}

/// Opens a changed disk: the data must be right, or the damage reported.
fn judge(changed: &SimFs, file: &Path, state: &State) -> Result<(), String> {
    match again(changed) {
        Ok(opened) => {
            assert_eq!(&dump(&opened.store, NOW_MS), state, "{}", file.display());
            Ok(())
        }
        Err(error) => {
            let text = chain(&error).to_string();
            assert!(text.contains(&file.display().to_string()), "{} in: {text}", file.display());
            Err(text)
        }
    }
}

fn damages(disk: &SimFs) -> Vec<String> {
    let mut found = Vec::new();
    check(disk, Path::new(DIR), &|_| Ok(()), &mut |damage| found.push(damage)).unwrap();
    found
}

#[test]
fn a_log_cut_anywhere_is_opened_right_or_not_at_all() {
    let (disk, state) = disk(0);
    let files = files(&disk, "log");
    assert!(files.len() > 1 && damages(&disk).is_empty());
    for file in &files {
        let len = disk.len(file).unwrap();
        let mut detected = 0;
        for cut in 0..len {
            let changed = disk.fork();
            changed.open(file, Access::ReadWrite).unwrap().set_len(cut).unwrap();
            detected += u64::from(judge(&changed, file, &state).is_err());
        }
        assert!(detected > 0, "a segment cut short is missed");
    }
}

#[test]
fn a_log_with_any_bit_flipped_is_opened_right_or_not_at_all() {
    let (disk, state) = disk(0);
    for file in files(&disk, "log") {
        let mut detected = 0;
        for offset in 0..disk.len(&file).unwrap() {
            for bit in 0..8 {
                let changed = disk.fork();
                changed.corrupt(&file, offset, 1 << bit).unwrap();
                detected += u64::from(judge(&changed, &file, &state).is_err());
            }
        }
        assert!(detected > 0);
    }
}

#[test]
fn a_newest_snapshot_with_any_byte_damaged_is_passed_over() {
    let (disk, state) = disk(2);
    let files = files(&disk, "snapshots");
    assert_eq!(files.len(), 2);
    let newest = &files[1];
    for offset in 0..disk.len(newest).unwrap() {
        let changed = disk.fork();
        changed.corrupt(newest, offset, 1 << (offset % 8)).unwrap();
        let opened = again(&changed).unwrap();
        assert_eq!(dump(&opened.store, NOW_MS), state);
        let [message] = opened.recovered.passed_over.as_slice() else { panic!("not passed over") };
        assert!(
            message.contains(&newest.display().to_string()) && message.contains("at byte"),
            "{message}"
        );
        drop(opened);
        assert!(damages(&changed)[0].contains(&newest.display().to_string()));
        let cut = disk.fork();
        cut.open(newest, Access::ReadWrite).unwrap().set_len(offset).unwrap();
        let opened = again(&cut).unwrap();
        assert_eq!(dump(&opened.store, NOW_MS), state);
        assert_eq!(opened.recovered.passed_over.len(), 1);
    }
}

#[test]
fn an_older_snapshot_does_not_matter_while_the_newest_is_good() {
    let (disk, state) = disk(2);
    let older = &files(&disk, "snapshots")[0];
    disk.corrupt(older, 70, 1).unwrap();
    assert!(judge(&disk, older, &state).is_ok());
    assert_eq!(damages(&disk).len(), 1);
}

#[test]
fn without_any_good_snapshot_a_trimmed_log_is_refused_and_a_whole_one_is_enough() {
    for (count, enough) in [(1, true), (3, false)] {
        let (disk, state) = disk(count);
        let files = files(&disk, "snapshots");
        for file in &files {
            disk.corrupt(file, 70, 1).unwrap();
        }
        let opened = again(&disk);
        if enough {
            assert_eq!(dump(&opened.unwrap().store, NOW_MS), state);
        } else {
            let error = opened.err().unwrap();
            assert!(matches!(&error, OpenError::NoSnapshot { reasons, .. } if reasons.len() == 2));
            let text = error.to_string();
            assert!(files.iter().all(|file| text.contains(&file.display().to_string())), "{text}");
            assert!(text.contains("Restore the directory from a backup"), "{text}");
            assert_eq!(damages(&disk).len(), 3);
        }
    }
}

#[test]
fn snapshots_without_their_log_are_refused() {
    let (disk, _) = disk(2);
    let other = self::disk(1).0;
    for file in files(&disk, "log") {
        disk.remove_file(&file).unwrap();
    }
    let error = again(&disk).err().unwrap();
    assert!(matches!(error, OpenError::NoLog { .. }), "{error}");
    assert_eq!(damages(&disk).len(), 1);
    // The log of other data in its place fails, too.
    for file in files(&other, "log") {
        let len = usize::try_from(other.len(&file).unwrap()).unwrap();
        let mut bytes = vec![0; len];
        other.open(&file, Access::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        disk.create_new(&file).unwrap().write_all_at(&bytes, 0).unwrap();
    }
    let error = again(&disk).err().unwrap();
    assert!(matches!(error, OpenError::Foreign { .. } | OpenError::Log { .. }), "{error}");
    assert!(!damages(&disk).is_empty());
}

#[test]
fn a_log_that_lost_what_a_snapshot_knows_is_refused() {
    let (disk, _) = disk(1);
    let logs = files(&disk, "log");
    let (last, whole) = (logs.last().unwrap(), disk.fork());
    disk.remove_file(last).unwrap();
    let error = again(&disk).err().unwrap();
    let message = chain(&error).to_string();
    assert!(matches!(error, OpenError::Behind { .. } | OpenError::Log { .. }), "{message}");
    assert!(again(&whole).is_ok());
}

#[test]
fn one_process_at_a_time_has_the_data() {
    let (disk, _) = disk(0);
    let first = again(&disk).unwrap();
    let second = again(&disk).err().unwrap();
    assert!(matches!(second, OpenError::Locked { .. }));
    let checked = check(&disk, Path::new(DIR), &|_| Ok(()), &mut |_| ()).unwrap_err();
    assert!(matches!(checked, OpenError::Locked { .. }));
    drop(first);
    assert!(again(&disk).is_ok());
}

#[test]
fn a_snapshot_that_was_cancelled_leaves_nothing() {
    let disk = SimFs::new(9);
    let opened = again(&disk).unwrap();
    let (keyspace, journal): (&Keyspace, _) = (&opened.store, &opened.journal);
    execute(keyspace, journal, NOW_MS, &[op(0, &[b"SET", b"k", b"v"])]).unwrap();
    let cancel = AtomicBool::new(true);
    assert!(snapshot(keyspace, journal, NOW_MS, &cancel, &|_| ()).is_err());
    assert!(files(&disk, "snapshots").is_empty() && journal.last_snapshot().is_none());
    let report = snapshot(keyspace, journal, NOW_MS, &AtomicBool::new(false), &|_| ()).unwrap();
    assert_eq!(journal.last_snapshot(), Some(report.info));
}

#[test]
fn a_snapshot_is_due_when_the_log_outgrew_the_last() {
    let opened = again(&SimFs::new(9)).unwrap();
    let (keyspace, journal) = (&opened.store, &opened.journal);
    let mut appends = 0;
    while !journal.snapshot_due() {
        execute(keyspace, journal, NOW_MS, &[op(0, &[b"SET", b"key", &[b'v'; 80]])]).unwrap();
        appends += 1;
    }
    assert!((15..30).contains(&appends), "2000 bytes take {appends} entries");
    let report = snapshot(keyspace, journal, NOW_MS, &AtomicBool::new(false), &|_| ()).unwrap();
    assert!(!journal.snapshot_due() && report.info.bytes > 2_000);
    let again = (0..1_000).take_while(|_| !journal.snapshot_due()).map(|_| {
        execute(keyspace, journal, NOW_MS, &[op(0, &[b"SET", b"key", &[b'v'; 80]])]).unwrap();
    });
    assert!(again.count() > appends, "the larger snapshot is followed by the longer log");
}
