//! A cache on a full disk: reads continue, writes are refused, and both work again as soon as there
//! is space.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_base::Durability;
use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::SimFs;
use forebay_cache::engine::Session;
use forebay_cache::resp::{Proto, Reply};
use forebay_cache::{Cache, CacheOptions};

use crate::crash_model::{DIR, options};

const DURABILITIES: [&str; 3] = ["sync", "interval:50ms", "os"];

fn open(disk: &SimFs, durability: &str) -> Cache {
    let durability: Durability = durability.parse().unwrap();
    let persist = options(durability);
    let options =
        CacheOptions { dir: Some(PathBuf::from(DIR)), persist, ..CacheOptions::default() };
    let clock = Arc::new(ManualClock::new(1_000_000));
    Cache::open(Arc::new(disk.clone()), clock, &options).unwrap()
}

/// A turn of one command, as in a server's thread; `None` if its reply must not be sent.
fn turn(cache: &Cache, session: &mut Session, line: &str) -> Option<String> {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let mut out = Reply::new(Proto::Resp2);
    cache.engine().begin_turn();
    cache.engine().execute(session, &words, &mut out);
    let settled = cache.engine().settle();
    cache.engine().end_turn();
    settled.ok().map(|()| String::from_utf8(out.take()).unwrap())
}

fn reply_to(cache: &Cache, session: &mut Session, line: &str) -> String {
    turn(cache, session, line).unwrap_or_else(|| panic!("{line} was not settled"))
}

/// Writes until a turn is not settled; returns how many were.
fn fill(cache: &Cache, session: &mut Session) -> usize {
    for number in 0..200 {
        match turn(cache, session, &format!("SET k{number} {}", "v".repeat(300))) {
            Some(reply) => assert_eq!(reply, "+OK\r\n"),
            None => return number,
        }
    }
    panic!("the disk does not fill up");
}

#[test]
fn reads_go_on_writes_are_refused_and_what_is_in_doubt_is_not_shown() {
    for durability in DURABILITIES {
        let disk = SimFs::new(1);
        let cache = open(&disk, durability);
        let mut session = cache.engine().inner_session();
        disk.set_capacity(Some(9_000));
        let kept = fill(&cache, &mut session);
        assert!(kept > 5, "{kept}");
        cache.health().unwrap();
        assert!(cache.stalled().unwrap().contains("waits until"), "{:?}", cache.stalled());
        for number in 0..kept {
            assert!(reply_to(&cache, &mut session, &format!("GET k{number}")).starts_with("$300"));
        }
        assert_eq!(reply_to(&cache, &mut session, "PING"), "+PONG\r\n");
        let in_doubt = format!("k{kept}");
        for line in [
            format!("GET {in_doubt}"),
            format!("EXISTS k0 {in_doubt}"),
            format!("MGET k0 {in_doubt}"),
            "KEYS *".to_owned(),
            "SCAN 0".to_owned(),
            "DBSIZE".to_owned(),
            "RANDOMKEY".to_owned(),
            "SORT_RO k0 BY k*".to_owned(),
        ] {
            assert!(reply_to(&cache, &mut session, &line).starts_with("-MISCONF"), "{line}");
        }
        for line in ["SET k0 x", "DEL k0", "FLUSHALL", "EXPIRE k0 1", "GETEX k0 EX 9"] {
            let reply = reply_to(&cache, &mut session, line);
            assert!(reply.starts_with("-MISCONF") && reply.contains("space"), "{line}: {reply}");
        }
        reply_to(&cache, &mut session, "MULTI");
        reply_to(&cache, &mut session, "SET k0 x");
        assert!(reply_to(&cache, &mut session, "EXEC").starts_with("-EXECABORT"));
        let info = reply_to(&cache, &mut session, "INFO persistence");
        assert!(info.contains("aof_last_write_status:err"), "{info}");
        cache.engine().close(session);
        // After a kill now, exactly what was acknowledged is stored.
        let killed = open(&disk.fork().kill(), durability);
        let mut session = killed.engine().inner_session();
        assert!(turn(&killed, &mut session, &format!("GET k{}", kept - 1)).is_some());
        assert_eq!(reply_to(&killed, &mut session, &format!("EXISTS {in_doubt}")), ":0\r\n");
        killed.engine().close(session);
    }
}

#[test]
fn with_space_again_the_cache_continues_without_being_opened() {
    for durability in DURABILITIES {
        let disk = SimFs::new(2);
        let cache = open(&disk, durability);
        let mut session = cache.engine().inner_session();
        disk.set_capacity(Some(9_000));
        let kept = fill(&cache, &mut session);
        cache.engine().try_resume();
        assert!(cache.stalled().is_some(), "there is no space yet");
        disk.set_capacity(None);
        cache.engine().try_resume();
        assert!(cache.stalled().is_none());
        // What was in doubt is durable now, and later writes follow it.
        assert_eq!(reply_to(&cache, &mut session, "DBSIZE"), format!(":{}\r\n", kept + 1));
        assert_eq!(reply_to(&cache, &mut session, "SET more 1"), "+OK\r\n");
        assert_eq!(reply_to(&cache, &mut session, &format!("APPEND k{kept} w")), ":301\r\n");
        // The disk may fill up again.
        disk.set_capacity(Some(1));
        let again = fill(&cache, &mut session);
        assert!(reply_to(&cache, &mut session, "GET more").starts_with("$1"));
        disk.set_capacity(None);
        cache.engine().try_resume();
        assert!(reply_to(&cache, &mut session, &format!("GET k{again}")).starts_with('$'));
        let size = reply_to(&cache, &mut session, "DBSIZE");
        cache.engine().close(session);
        cache.close().unwrap();
        drop(cache);
        let cache = open(&disk.power_off(4), durability);
        let mut session = cache.engine().inner_session();
        assert_eq!(reply_to(&cache, &mut session, "DBSIZE"), size);
        cache.engine().close(session);
    }
}

#[test]
fn a_cache_opens_on_a_full_disk_for_reading() {
    for durability in DURABILITIES {
        let disk = SimFs::new(3);
        let cache = open(&disk, durability);
        let mut session = cache.engine().inner_session();
        for number in 0..20 {
            reply_to(&cache, &mut session, &format!("SET k{number} v"));
        }
        cache.engine().close(session);
        let disk = disk.kill();
        disk.set_capacity(Some(1));
        let cache = open(&disk, durability);
        assert!(cache.stalled().is_some(), "known before the first client comes");
        let mut session = cache.engine().inner_session();
        assert_eq!(reply_to(&cache, &mut session, "GET k19"), "$1\r\nv\r\n");
        assert_eq!(reply_to(&cache, &mut session, "DBSIZE"), ":20\r\n");
        assert!(reply_to(&cache, &mut session, "SET k0 x").starts_with("-MISCONF"));
        disk.set_capacity(None);
        cache.engine().try_resume();
        assert_eq!(reply_to(&cache, &mut session, "SET k0 x"), "+OK\r\n");
        cache.engine().close(session);
        cache.close().unwrap();
        drop(cache);
        let cache = open(&disk.power_off(1), durability);
        let mut session = cache.engine().inner_session();
        assert_eq!(reply_to(&cache, &mut session, "GET k0"), "$1\r\nx\r\n");
        cache.engine().close(session);
    }
}

#[test]
fn a_flush_in_doubt_hides_every_key() {
    let disk = SimFs::new(6);
    let cache = open(&disk, "sync");
    let mut session = cache.engine().inner_session();
    reply_to(&cache, &mut session, "SET k v");
    disk.set_capacity(Some(1));
    // The existing segment lasts a few turns longer.
    let lines =
        [format!("SET pad {}", "p".repeat(300)), "SET k v".to_owned(), "FLUSHALL".to_owned()];
    let engine = cache.engine();
    loop {
        let mut out = Reply::new(Proto::Resp2);
        engine.begin_turn();
        for line in &lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            engine.execute(&mut session, &words, &mut out);
        }
        let settled = engine.settle();
        engine.end_turn();
        if settled.is_err() {
            break;
        }
    }
    assert!(reply_to(&cache, &mut session, "GET k").starts_with("-MISCONF"));
    assert!(reply_to(&cache, &mut session, "GET other").starts_with("-MISCONF"));
    disk.set_capacity(None);
    cache.engine().try_resume();
    assert_eq!(reply_to(&cache, &mut session, "DBSIZE"), ":0\r\n");
    cache.engine().close(session);
}
