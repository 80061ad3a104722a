//! A cache whose log fails reports that and acknowledges nothing more; what it had acknowledged is
//! restored when it is opened again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::clock::ManualClock;
use forebay_base::fs::FileSystem as _;
use forebay_base::fs::sim::{Fault, SimFs};
use forebay_cache::engine::Session;
use forebay_cache::persist::PersistOptions;
use forebay_cache::resp::{Proto, Reply};
use forebay_cache::{Cache, CacheOptions, Unhealthy};

use crate::crash_model::{DIR, options};

fn open(disk: &SimFs) -> Cache {
    let persist = PersistOptions { ..options("sync".parse().unwrap()) };
    let options =
        CacheOptions { dir: Some(PathBuf::from(DIR)), persist, ..CacheOptions::default() };
    let clock = Arc::new(ManualClock::new(1_000_000));
    Cache::open(Arc::new(disk.clone()), clock, &options).unwrap()
}

fn run(cache: &Cache, session: &mut Session, words: &[&[u8]]) -> Vec<u8> {
    let mut out = Reply::new(Proto::Resp2);
    cache.engine().execute(session, words, &mut out);
    out.take()
}

/// The value of a field of INFO.
fn reported(info: &[u8], field: &str) -> String {
    let text = String::from_utf8_lossy(info);
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().to_owned()
}

/// The status of the log in INFO.
fn reported_status(info: &[u8]) -> String {
    reported(info, "aof_last_write_status")
}

/// Waits until INFO reports that no snapshot is in progress.
fn wait_for_save(cache: &Cache, session: &mut Session) -> Vec<u8> {
    loop {
        let info = run(cache, session, &[b"INFO", b"persistence"]);
        if reported(&info, "rdb_bgsave_in_progress") == "0" {
            return info;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_background_save_is_reported_from_its_reply_until_its_snapshot_is_there() {
    let disk = SimFs::new(3);
    let cache = open(&disk);
    let mut session = cache.engine().inner_session();
    let newest = |disk: &SimFs| {
        let names = disk.list(&Path::new(DIR).join("snapshots")).unwrap_or_default();
        names.into_iter().map(|entry| entry.name).max()
    };
    for round in 0..50 {
        let before = newest(&disk);
        let reply = run(&cache, &mut session, &[b"BGSAVE"]);
        assert_eq!(reply, b"+Background saving started\r\n");
        let info = wait_for_save(&cache, &mut session);
        assert_ne!(newest(&disk), before, "round {round}");
        assert_eq!(reported(&info, "rdb_last_bgsave_status"), "ok");
    }
    let now = disk.operations();
    (now..now + 2_000).for_each(|at| disk.plan(at, Fault::Io));
    run(&cache, &mut session, &[b"BGSAVE"]);
    let info = wait_for_save(&cache, &mut session);
    assert_eq!(reported(&info, "rdb_last_bgsave_status"), "err");
    cache.engine().close(session);
}

#[test]
fn a_failed_log_is_reported_and_nothing_is_acknowledged_until_it_is_opened_again() {
    // A full disk is not a failure: see `full`.
    let disk = SimFs::new(1);
    let cache = open(&disk);
    let engine = cache.engine();
    let mut session = engine.inner_session();
    assert_eq!(run(&cache, &mut session, &[b"SET", b"k", b"kept"]), b"+OK\r\n");
    engine.settle().unwrap();
    cache.health().unwrap();
    let info = |session: &mut Session| run(&cache, session, &[b"INFO", b"persistence"]);
    assert!(reported_status(&info(&mut session)) == "ok");
    let now = disk.operations();
    (now..now + 20).for_each(|at| disk.plan(at, Fault::Io));
    run(&cache, &mut session, &[b"SET", b"lost", b"1"]);
    assert!(engine.settle().is_err(), "nothing is acknowledged");
    let error = cache.health().unwrap_err();
    assert!(matches!(error, Unhealthy::Log { .. }), "{error}");
    assert!(reported_status(&info(&mut session)) == "err");
    let refused = run(&cache, &mut session, &[b"SET", b"k", b"2"]);
    assert!(refused.starts_with(b"-MISCONF"), "{}", refused.escape_ascii());
    engine.close(session);
    cache.close().unwrap_err();
    drop(cache);
    let cache = open(&disk.power_off(1));
    cache.health().unwrap();
    let mut session = cache.engine().inner_session();
    assert_eq!(run(&cache, &mut session, &[b"GET", b"k"]), b"$4\r\nkept\r\n");
    cache.engine().close(session);
}
