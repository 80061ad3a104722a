//! Commands that panic before, during and after a change.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use forebay_base::clock::ManualClock;
use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::SimFs;

use crate::cache::{Cache, CacheOptions};
use crate::command::{Context, Flags, Keys, Spec};
use crate::engine::{Drained, Engine, Flow, Mailbox, Notify, Peer, Session, Via};
use crate::resp::{Proto, Reply};
use crate::store::{DATABASES, Deadline, SHARDS};
use crate::types::List;

/// A command with the row and name of another, which panics.
const fn panics(name: &'static str, run: crate::command::Run) -> Spec {
    Spec {
        name,
        arity: -2,
        flags: Flags::WRITE,
        keys: Keys::Range(1, -1, 1),
        group: "list",
        summary: "Panics.",
        run,
    }
}

static BEFORE: Spec = panics("before", |cx: &mut Context<'_, '_>, args| {
    let key = cx.key(args[1]);
    assert!(cx.shard(&key).find(&key).is_none(), "a key that is there");
    Ok(())
});

static AMID: Spec = panics("amid", |cx, args| {
    let key = cx.key(args[1]);
    let edited = cx.shard(&key).edit_or_new(&key, |list: &mut List| {
        list.push_back(b"half");
        assert!(list.is_empty(), "amid a change");
    });
    edited.map_err(Into::into)
});

static BETWEEN: Spec = panics("between", |cx, args| {
    let first = cx.key(args[1]);
    cx.shard(&first).put_string(&first, b"half", Deadline::None);
    cx.log(&[b"SET", args[1], b"half"]);
    assert!(args.is_empty(), "between two keys");
    Ok(())
});

static WAITS: Spec = panics("waits", |cx, args| {
    let key = cx.key(args[1]);
    if cx.shard(&key).find(&key).is_none() {
        cx.block(&args[1..], None);
        return Ok(());
    }
    assert!(args.is_empty(), "once it is served");
    Ok(())
});

#[derive(Debug)]
struct Silent;

impl Notify for Silent {
    fn notify(&self, _connection: u64) {}
}

fn session(engine: &Engine) -> (Session, Arc<Mailbox>) {
    let mailbox = Arc::new(Mailbox::new(Arc::new(Silent), 1));
    let peer = Peer { address: "test".into(), local: "test".into(), via: Via::Resp };
    (engine.session(peer, Arc::clone(&mailbox)), mailbox)
}

fn reply_to(engine: &Engine, session: &mut Session, line: &str) -> String {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let mut out = Reply::new(Proto::Resp2);
    engine.execute(session, &args, &mut out);
    String::from_utf8_lossy(out.as_bytes()).into_owned()
}

/// Runs a command that panics, in a session that is closed afterwards.
fn panic_with(engine: &Engine, spec: &'static Spec, keys: &str) {
    let (mut session, _) = session(engine);
    session.last = Some(spec);
    let line = format!("{} {keys}", spec.name);
    assert!(catch_unwind(AssertUnwindSafe(|| reply_to(engine, &mut session, &line))).is_err());
    engine.close(session);
}

/// Checks that every lock can be taken, and that the counters match the shards.
fn check_shards(engine: &Engine) {
    let mut sum = 0;
    for database in (0..DATABASES).filter(|&database| engine.keyspace().is_made(database)) {
        sum += (0..SHARDS)
            .map(|number| engine.keyspace().lock(database, number, 0).bytes())
            .sum::<usize>();
    }
    assert_eq!(engine.keyspace().used(), sum);
}

#[test]
fn a_panic_before_any_change_leaves_nothing_behind() {
    let engine = Engine::in_memory(3);
    let (mut one, _) = session(&engine);
    reply_to(&engine, &mut one, "SET k v");
    panic_with(&engine, &BEFORE, "k other");
    check_shards(&engine);
    assert_eq!(reply_to(&engine, &mut one, "SET k w"), "+OK\r\n");
    assert_eq!(engine.clients().len(), 1);
}

#[test]
fn after_a_panic_amid_a_change_nothing_is_written_and_reads_are_answered() {
    for spec in [&AMID, &BETWEEN] {
        let engine = Engine::in_memory(3);
        let (mut one, _) = session(&engine);
        reply_to(&engine, &mut one, "SET k v");
        panic_with(&engine, spec, "a b c");
        check_shards(&engine);
        for line in ["SET k w", "DEL a", "FLUSHALL"] {
            assert!(reply_to(&engine, &mut one, line).starts_with("-MISCONF"), "{line}");
        }
        assert_eq!(reply_to(&engine, &mut one, "GET k"), "$1\r\nv\r\n");
        reply_to(&engine, &mut one, "MULTI");
        reply_to(&engine, &mut one, "SET k w");
        assert!(reply_to(&engine, &mut one, "EXEC").contains("MISCONF"));
        assert_eq!(reply_to(&engine, &mut one, "GET k"), "$1\r\nv\r\n");
    }
}

#[test]
fn what_a_command_did_before_it_panicked_is_in_no_log_and_no_snapshot() {
    for (spec, keys) in [(&BETWEEN, "a b"), (&AMID, "l")] {
        let disk = SimFs::new(1);
        let open = || {
            let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
            let options =
                CacheOptions { dir: Some(PathBuf::from("/cache")), ..CacheOptions::default() };
            Cache::open(fs, Arc::new(ManualClock::new(1_000)), &options).unwrap()
        };
        let cache = open();
        let engine = cache.engine();
        let (mut one, _) = session(engine);
        reply_to(engine, &mut one, "SET a whole");
        reply_to(engine, &mut one, "RPUSH l x y");
        panic_with(engine, spec, keys);
        assert!(reply_to(engine, &mut one, "SET a other").starts_with("-MISCONF"));
        assert!(reply_to(engine, &mut one, "SAVE").contains("partial change"));
        engine.settle().unwrap();
        cache.close().unwrap();
        drop(cache);
        let cache = open();
        let (mut one, _) = session(cache.engine());
        assert_eq!(reply_to(cache.engine(), &mut one, "GET a"), "$5\r\nwhole\r\n");
        assert_eq!(reply_to(cache.engine(), &mut one, "LLEN l"), ":2\r\n");
        assert_eq!(reply_to(cache.engine(), &mut one, "SET a other"), "+OK\r\n");
    }
}

#[test]
fn who_waits_is_answered_when_being_served_panics() {
    let engine = Engine::in_memory(3);
    let (mut waiting, mail) = session(&engine);
    waiting.last = Some(&WAITS);
    let mut out = Reply::new(Proto::Resp2);
    let flow = engine.execute(&mut waiting, &[b"waits", b"k"], &mut out);
    assert_eq!((flow, engine.blocked()), (Flow::Blocked { deadline: None }, 1));
    let (mut giver, _) = session(&engine);
    let given = || reply_to(&engine, &mut giver, "RPUSH k x");
    assert!(catch_unwind(AssertUnwindSafe(given)).is_err());
    let Drained { unblocked, .. } = mail.drain(&mut out);
    assert!(unblocked && out.as_bytes().starts_with(b"-ERR"), "{out:?}");
    assert_eq!(engine.blocked(), 0);
    // What was pushed is complete and in the log; the blocked command changed nothing.
    assert_eq!(reply_to(&engine, &mut giver, "RPUSH k y"), ":2\r\n");
    check_shards(&engine);
}
