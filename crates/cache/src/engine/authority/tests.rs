//! Keys that permit a part of the commands and data.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::*;
use crate::command;
use crate::engine::{Mailbox, Notify, Peer, Via};
use crate::resp::Reply;

/// Keys by their secrets, which are also their ids.
#[derive(Debug, Default)]
struct Keys {
    required: AtomicBool,
    generation: AtomicU64,
    grants: Mutex<HashMap<Vec<u8>, Grant>>,
}

impl Keys {
    fn put(&self, secret: &str, rights: &str, prefixes: &[&str]) {
        let has = |letter| rights.contains(letter);
        let grant = Grant {
            id: secret.as_bytes().into(),
            user: format!("key-{secret}"),
            read: has('r'),
            write: has('w'),
            admin: has('a'),
            prefixes: prefixes.iter().map(|prefix| prefix.as_bytes().into()).collect(),
        };
        self.grants.lock().insert(secret.as_bytes().to_vec(), grant);
        self.required.store(true, Ordering::SeqCst);
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn revoke(&self, secret: &str) {
        self.grants.lock().remove(secret.as_bytes());
        self.generation.fetch_add(1, Ordering::SeqCst);
    }
}

impl Authority for Keys {
    fn required(&self) -> bool {
        self.required.load(Ordering::SeqCst)
    }

    fn check(&self, _user: Option<&[u8]>, secret: &[u8]) -> Option<Grant> {
        self.grants.lock().get(secret).cloned()
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn recheck(&self, id: &[u8]) -> Option<Grant> {
        self.grants.lock().get(id).cloned()
    }
}

#[derive(Debug)]
struct Deaf;

impl Notify for Deaf {
    fn notify(&self, _connection: u64) {}
}

fn engine() -> (Engine, Arc<Keys>) {
    let engine = Engine::in_memory(1);
    let keys = Arc::new(Keys::default());
    engine.set_authority(Arc::<Keys>::clone(&keys));
    (engine, keys)
}

fn session(engine: &Engine) -> Session {
    let peer = Peer { address: String::new(), local: String::new(), via: Via::Resp };
    engine.session(peer, Arc::new(Mailbox::new(Arc::new(Deaf), 0)))
}

fn ask(engine: &Engine, session: &mut Session, line: &str) -> String {
    let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
    let mut out = Reply::default();
    engine.execute(session, &words, &mut out);
    String::from_utf8_lossy(&out.take()).into_owned()
}

/// A session that authenticated with a key.
fn with(engine: &Engine, secret: &str) -> Session {
    let mut session = session(engine);
    assert_eq!(ask(engine, &mut session, &format!("AUTH {secret}")), "+OK\r\n");
    session
}

const NOAUTH: &str = "-NOAUTH Authentication required.\r\n";

fn denied(user: &str, command: &str) -> String {
    format!("-NOPERM User key-{user} has no permissions to run the '{command}' command\r\n")
}

#[test]
fn the_lists_name_commands_there_are() {
    for name in WRITE_ONLY {
        let spec = command::find(name.as_bytes()).unwrap_or_else(|| panic!("no command {name}"));
        assert!(spec.flags.has(Flags::WRITE), "{name} does not write");
    }
    for name in ADMIN {
        assert!(command::find(name.as_bytes()).is_some(), "no command {name}");
    }
}

#[test]
fn a_command_of_the_administrator_needs_his_key_and_no_other_does() {
    let (engine, keys) = engine();
    keys.put("most", "rw", &[]);
    keys.put("admin", "rwa", &[]);
    let lines = "FLUSHALL;FLUSHDB;CONFIG SET maxmemory 0;CONFIG GET *;SAVE;BGSAVE;BGREWRITEAOF;\
        SHUTDOWN NOSAVE;SLOWLOG GET;FUNCTION FLUSH;CLIENT KILL TYPE pubsub;CLIENT LIST;\
        client no-evict on;CLIENT UNBLOCK 9";
    for line in lines.split(';').map(str::trim) {
        let name = line.split(' ').next().unwrap_or_default().to_ascii_lowercase();
        let mut session = with(&engine, "most");
        assert_eq!(ask(&engine, &mut session, line), denied("most", &name), "{line}");
        let mut admin = with(&engine, "admin");
        let answer = ask(&engine, &mut admin, line);
        assert!(!answer.starts_with("-NOPERM"), "{line}: {answer}");
    }
}

#[test]
fn reading_and_writing_are_rights_of_their_own() {
    let (engine, keys) = engine();
    keys.put("r", "r", &[]);
    keys.put("w", "w", &[]);
    let (mut reader, mut writer) = (with(&engine, "r"), with(&engine, "w"));
    for line in ["SET k v", "RPUSH l a", "HSET h f 1", "DEL x", "PUBLISH c m", "EXPIRE k 9"] {
        let answer = ask(&engine, &mut writer, line);
        assert!(!answer.starts_with('-'), "{line}: {answer}");
        assert!(ask(&engine, &mut reader, line).starts_with("-NOPERM"), "{line}");
    }
    for line in ["GET k", "LRANGE l 0 -1", "KEYS *", "SUBSCRIBE c", "WATCH k", "SCAN 0"] {
        let answer = ask(&engine, &mut reader, line);
        assert!(!answer.starts_with('-'), "{line}: {answer}");
        assert!(ask(&engine, &mut writer, line).starts_with("-NOPERM"), "{line}");
        ask(&engine, &mut reader, "UNSUBSCRIBE");
    }
    // A command that writes and returns the previous value also reads.
    for line in [
        "GETSET k x",
        "GETDEL k",
        "SET k v GET",
        "INCR k",
        "LPOP l",
        "COPY k l",
        "SORT l STORE m",
        "BLPOP l 1",
        "RENAME k m",
        "SUNIONSTORE a b",
        "ZADD z INCR 1 m",
        "SPOP s",
    ] {
        assert!(ask(&engine, &mut writer, line).starts_with("-NOPERM"), "{line}");
    }
    for line in ["PING", "ECHO x", "SELECT 1", "SELECT 0", "CLIENT ID", "INFO", "HELLO 3"] {
        assert!(!ask(&engine, &mut writer, line).starts_with('-'), "{line}");
    }
}

#[test]
fn a_limit_to_prefixes_holds_for_every_way_to_a_key() {
    let (engine, keys) = engine();
    keys.put("all", "rwa", &[]);
    keys.put("part", "rwa", &["a:", "b:"]);
    let mut all = with(&engine, "all");
    for key in ["a:1", "b:1", "c:1"] {
        ask(&engine, &mut all, &format!("SET {key} v"));
        ask(&engine, &mut all, &format!("RPUSH {key}:l 1"));
    }
    let mut part = with(&engine, "part");
    for line in [
        "GET c:1",
        "MGET a:1 c:1",
        "SET c:2 v",
        "MSET a:2 v c:2 v",
        "RENAME a:1 c:2",
        "COPY c:1 a:3",
        "COPY a:1 c:3",
        "SORT a:1:l BY c:*",
        "SORT a:1:l GET c:*",
        "SORT a:1:l STORE c:4",
        "SORT_RO c:1:l",
        "BLPOP a:0 c:1:l 1",
        "LMOVE a:1:l c:1:l LEFT LEFT",
        "LMPOP 2 a:9 c:1:l LEFT",
        "ZUNIONSTORE a:9 2 a:1 c:1",
        "OBJECT ENCODING c:1",
        "MEMORY USAGE c:1",
        "WATCH a:1 c:1",
        "RANDOMKEY",
        "DBSIZE",
        "FLUSHDB",
        "FLUSHALL",
        "EXISTS a:1 c:1",
        "MOVE c:1 1",
    ] {
        let answer = ask(&engine, &mut part, line);
        assert_eq!(answer, "-NOPERM No permissions to access a key\r\n", "{line}");
    }
    for line in [
        "PUBLISH c x",
        "SUBSCRIBE a:1 c",
        "PSUBSCRIBE *",
        "PSUBSCRIBE a*",
        "SSUBSCRIBE c",
        "PUBSUB CHANNELS",
    ] {
        let answer = ask(&engine, &mut part, line);
        assert_eq!(answer, "-NOPERM No permissions to access a channel\r\n", "{line}");
    }
    for line in ["GET a:1", "MGET a:1 b:1", "PSUBSCRIBE a:*", "SSUBSCRIBE b:1", "COPY a:1 b:2"] {
        let answer = ask(&engine, &mut with(&engine, "part"), line);
        assert!(!answer.starts_with('-'), "{line}: {answer}");
    }
    for line in ["KEYS *", "SCAN 0 COUNT 1000"] {
        let seen = ask(&engine, &mut part, line);
        assert!(seen.contains("a:1") && seen.contains("b:1") && !seen.contains("c:1"), "{seen}");
    }
}

#[test]
fn a_transaction_is_judged_when_it_is_queued_and_again_when_it_runs() {
    let (engine, keys) = engine();
    keys.put("k", "rw", &["a:"]);
    let mut session = with(&engine, "k");
    ask(&engine, &mut session, "MULTI");
    assert!(ask(&engine, &mut session, "SET c:1 v").starts_with("-NOPERM"));
    assert!(ask(&engine, &mut session, "EXEC").starts_with("-EXECABORT"));
    ask(&engine, &mut session, "MULTI");
    assert_eq!(ask(&engine, &mut session, "SET a:1 v"), "+QUEUED\r\n");
    keys.put("k", "r", &["a:"]);
    assert!(!engine.review(&mut session));
    let refused = ask(&engine, &mut session, "EXEC");
    assert!(refused.starts_with("-EXECABORT") && refused.contains("NOPERM"), "{refused}");
    assert_eq!(ask(&engine, &mut session, "EXISTS a:1"), ":0\r\n");
    let mut out = Reply::default();
    engine.transaction(&mut session, &[vec![b"SET", b"a:1", b"v"]], &mut out);
    assert!(out.take().starts_with(b"-NOPERM"), "what the text protocol runs is judged too");
}

#[test]
fn from_the_first_key_on_open_sessions_need_one_and_a_password_keeps_all_rights() {
    let (engine, keys) = engine();
    let mut open = session(&engine);
    let mut listening = session(&engine);
    assert!(ask(&engine, &mut open, "AUTH k").starts_with("-ERR AUTH <password> called without"));
    assert_eq!(ask(&engine, &mut open, "AUTH default anything"), "+OK\r\n");
    ask(&engine, &mut listening, "SUBSCRIBE c");
    keys.put("k", "r", &[]);
    assert!(!engine.review(&mut open));
    assert_eq!(ask(&engine, &mut open, "PING"), NOAUTH);
    assert!(engine.review(&mut listening), "it would go on listening");
    assert_eq!(ask(&engine, &mut session(&engine), "GET k"), NOAUTH);
    assert!(ask(&engine, &mut open, "AUTH wrong").starts_with("-WRONGPASS"));
    assert!(ask(&engine, &mut open, "AUTH default wrong").starts_with("-WRONGPASS"));
    assert_eq!(ask(&engine, &mut open, "AUTH anybody k"), "+OK\r\n");
    assert_eq!(ask(&engine, &mut open, "GET k"), "$-1\r\n");
    assert_eq!(ask(&engine, &mut open, "RESET"), "+RESET\r\n");
    assert_eq!(ask(&engine, &mut open, "GET k"), NOAUTH);
    assert!(ask(&engine, &mut open, "HELLO 3 AUTH x k").starts_with('%'));
    engine.config().set_password(Some(b"pass"));
    let mut full = with(&engine, "pass");
    assert_eq!(ask(&engine, &mut full, "FLUSHALL"), "+OK\r\n");
    keys.put("other", "r", &[]);
    assert!(!engine.review(&mut full));
    assert_eq!(ask(&engine, &mut full, "FLUSHALL"), "+OK\r\n");
}

#[test]
fn a_revoked_key_permits_nothing_more() {
    let (engine, keys) = engine();
    keys.put("k", "rw", &[]);
    let mut session = with(&engine, "k");
    let mut listening = with(&engine, "k");
    ask(&engine, &mut listening, "SUBSCRIBE c");
    assert_eq!(ask(&engine, &mut session, "SET k v"), "+OK\r\n");
    keys.revoke("k");
    assert!(!engine.review(&mut session) && engine.review(&mut listening));
    assert_eq!(ask(&engine, &mut session, "GET k"), NOAUTH);
}
