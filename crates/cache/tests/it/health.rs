//! A cache whose log fails reports that and acknowledges nothing more; what it had acknowledged is
//! restored when it is opened again.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_base::clock::ManualClock;
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

/// The status of the log in INFO.
fn reported_status(info: &[u8]) -> String {
    let text = String::from_utf8_lossy(info);
    let status = text.lines().find_map(|line| line.strip_prefix("aof_last_write_status:"));
    status.unwrap_or_default().to_owned()
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
