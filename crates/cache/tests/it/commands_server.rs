//! Commands about the server and the connection, as unmodified clients use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_cache::CacheOptions;
use forebay_cache::engine::{Engine, Flow, Mailbox, Notify, Peer, Stopper, Via};
use forebay_cache::resp::{Proto, Reply};

use crate::commands_support::{Node, Ours, transcript, words};

#[derive(Debug, Default)]
struct Stops(AtomicUsize);

impl Stopper for Stops {
    fn stop_soon(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a line in a new session: returns the reply as sent, and what follows.
fn raw(engine: &Engine, line: &str) -> (String, Flow) {
    let words = words(line);
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let mut out = Reply::new(Proto::Resp2);
    let flow = engine.execute(&mut engine.inner_session(), &words, &mut out);
    (String::from_utf8_lossy(out.as_bytes()).into_owned(), flow)
}

#[test]
fn shutdown_ends_the_server_that_offers_it_and_is_refused_elsewhere() {
    let engine = Engine::in_memory(7);
    let (reply, flow) = raw(&engine, "SHUTDOWN");
    assert!(reply.starts_with("-ERR SHUTDOWN is refused"), "{reply}");
    assert_eq!(flow, Flow::Continue);

    let stops = Arc::new(Stops::default());
    engine.set_stopper(stops.clone());
    for (refused, why) in [
        ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
        ("SHUTDOWN LATER", "-ERR syntax error"),
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
        ("SHUTDOWN ABORT NOW", "-ERR syntax error"),
        // There is no data directory to save to.
        ("SHUTDOWN SAVE", "-ERR persistence is off"),
    ] {
        let (reply, flow) = raw(&engine, refused);
        assert!(reply.starts_with(why) && flow == Flow::Continue, "{refused}: {reply}");
    }
    assert_eq!(stops.0.load(Ordering::Relaxed), 0);
    for line in ["SHUTDOWN", "shutdown nosave now", "SHUTDOWN SAVE FORCE"] {
        assert_eq!(raw(&engine, line), (String::new(), Flow::Close), "{line}");
    }
    assert_eq!(stops.0.load(Ordering::Relaxed), 3);
}

#[test]
fn settings_are_changed_all_or_none_and_refusals_say_why() {
    transcript(
        Proto::Resp2,
        r#"
        CONFIG SET maxmemory 10mb timeout 7 => OK
        CONFIG GET maxmemory timeout => ["maxmemory" "10485760" "timeout" "7"]
        CONFIG SET maxmemory 20mb timeout soon => !ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into a valid value
        CONFIG SET maxmemory 20mb nonesuch 1 => !ERR Unknown option or number of arguments for CONFIG SET - 'nonesuch'
        CONFIG SET maxmemory 20mb maxmemory 30mb => !ERR CONFIG SET failed (possibly related to argument 'maxmemory') - duplicate parameter
        CONFIG GET maxmemory timeout => ["maxmemory" "10485760" "timeout" "7"]
        CONFIG SET maxmemory-policy best => !ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument(s) must be one of the following: allkeys-s3fifo, noeviction, allkeys-lru, volatile-lru, allkeys-lfu, volatile-lfu, allkeys-random, volatile-random, volatile-ttl
        # What the start decides can be asked for, if it is that.
        CONFIG SET save "" => OK
        CONFIG SET appendonly no => OK
        CONFIG SET appendonly yes => !ERR CONFIG SET failed (possibly related to argument 'appendonly') - can't set immutable config: it is 'no' until a restart
        CONFIG SET hash-max-listpack-value 256 => !ERR CONFIG SET failed (possibly related to argument 'hash-max-listpack-value') - argument must be between 0 and 255 inclusive
        CONFIG SET list-max-listpack-size -6 => !ERR CONFIG SET failed (possibly related to argument 'list-max-listpack-size') - argument must be between -5 and 4294967295 inclusive
        "#,
    );
}

/// The limits apply to the process: only this test changes them, and no other checks encodings.
#[test]
fn packing_limits_apply_to_what_grows_after_them() {
    transcript(
        Proto::Resp2,
        r#"
        CONFIG GET hash-max-listpack-entries => ["hash-max-listpack-entries" "128"]
        HSET before f v => 1
        CONFIG SET hash-max-ziplist-entries 1 zset-max-listpack-value 3 set-max-intset-entries 2 => OK
        CONFIG GET hash-max-listpack-entries => ["hash-max-listpack-entries" "1"]
        OBJECT ENCODING before => "listpack"
        HSET before g v => 1
        OBJECT ENCODING before => "hashtable"
        HGETALL before => ["f" "v" "g" "v"]
        ZADD z 1 abc => 1
        OBJECT ENCODING z => "listpack"
        ZADD z 2 abcd => 1
        OBJECT ENCODING z => "skiplist"
        SADD s 1 2 => 2
        OBJECT ENCODING s => "intset"
        SADD s 3 => 1
        OBJECT ENCODING s => "listpack"
        CONFIG GET list-max-listpack-size => ["list-max-listpack-size" "-1"]
        CONFIG SET list-max-ziplist-size 2 => OK
        CONFIG GET list-max-listpack-size => ["list-max-listpack-size" "2"]
        RPUSH l a b => 2
        OBJECT ENCODING l => "listpack"
        RPUSH l c d e => 5
        OBJECT ENCODING l => "quicklist"
        LINSERT l BEFORE b x => 6
        LRANGE l 0 -1 => ["a" "x" "b" "c" "d" "e"]
        CONFIG SET list-max-listpack-size -1 hash-max-listpack-entries 128 zset-max-listpack-value 64 set-max-intset-entries 512 => OK
        CONFIG GET list-max-listpack-size => ["list-max-listpack-size" "-1"]
        "#,
    );
}

#[test]
fn exec_is_refused_when_memory_ran_out_since_it_queued() {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp2);
    ours.line("CONFIG SET maxmemory-policy noeviction");
    ours.line("SET k v");
    ours.line("MULTI");
    ours.line("SET k w");
    Ours::new(&engine, Proto::Resp2).line("CONFIG SET maxmemory 1");
    let refused = "!EXECABORT Transaction discarded because of: OOM command not allowed when \
                   used memory > 'maxmemory'.";
    assert_eq!(ours.line("EXEC").text(), refused);
    // The transaction is over; one that only reads runs.
    ours.line("MULTI");
    ours.line("GET k");
    assert_eq!(ours.line("EXEC").text(), r#"["v"]"#);
}

#[test]
fn a_client_that_wants_no_replies_still_learns_what_it_listens_to() {
    let engine = Engine::in_memory(7);
    let mut session = engine.inner_session();
    let mut out = Reply::new(Proto::Resp3);
    for (line, expected) in [
        ("CLIENT REPLY OFF", ""),
        ("SUBSCRIBE c", ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"),
        ("SUBSCRIBE", ""),
        ("GET k", ""),
        ("UNSUBSCRIBE c", ">3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n"),
        ("CLIENT REPLY ON", "+OK\r\n"),
    ] {
        let words = words(line);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        engine.execute(&mut session, &words, &mut out);
        assert_eq!(String::from_utf8_lossy(&out.take()), expected, "{line}");
    }
    engine.close(session);
}

#[test]
fn moving_a_member_that_is_there_already_changes_no_target() {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp2);
    let mut other = Ours::new(&engine, Proto::Resp2);
    ours.line("SADD from a b");
    ours.line("SADD to a");
    ours.line("WATCH to");
    assert_eq!(other.line("SMOVE from to a").text(), "1");
    ours.line("MULTI");
    ours.line("SCARD to");
    assert_eq!(ours.line("EXEC").text(), "[1]");
    ours.line("WATCH to");
    assert_eq!(other.line("SMOVE from to b").text(), "1");
    ours.line("MULTI");
    assert_eq!(ours.line("EXEC").text(), "nil[]");
}

#[test]
fn the_slow_log_takes_even_quick_commands_where_asked_to() {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp2);
    ours.line("CONFIG SET slowlog-log-slower-than 0");
    ours.line("SLOWLOG RESET");
    ours.line("PING hello");
    // RESET noted itself, too.
    assert_eq!(ours.line("SLOWLOG LEN").text(), "2");
    ours.line("CONFIG SET slowlog-log-slower-than -1");
}

#[test]
fn a_password_is_shown_by_no_command() {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp2);
    ours.line("CONFIG SET slowlog-log-slower-than 0");
    ours.line("CONFIG SET timeout 0 requirepass swordfish");
    ours.line("AUTH swordfish");
    ours.line("AUTH default swordfish");
    ours.line("HELLO 2 AUTH default swordfish SETNAME me");
    ours.line("MULTI");
    ours.line("CONFIG SET requirepass swordfish");
    ours.line("EXEC");
    let slow = ours.line("SLOWLOG GET -1").text();
    assert_eq!(slow.matches("(redacted)").count(), 7, "{slow}");
    for line in ["SLOWLOG GET -1", "CONFIG GET *", "CLIENT LIST", "CLIENT INFO", "INFO"] {
        let shown = ours.line(line).text();
        assert!(!shown.contains("swordfish"), "{line}: {shown}");
    }
    let options = CacheOptions { password: Some(b"swordfish".to_vec()), ..CacheOptions::default() };
    let shown = format!("{options:?} {engine:?}");
    assert!(!shown.contains("swordfish") && !shown.contains(&format!("{:?}", b"swordfish")));
}

#[test]
fn clients_learn_what_they_got_wrong() {
    transcript(
        Proto::Resp2,
        r#"
        CLIENT KILL => !ERR wrong number of arguments for 'client|kill' command
        CLIENT KILL TYPE odd => !ERR Unknown client type 'odd'
        CLIENT KILL TYPE replica => 0
        CLIENT KILL SKIPME perhaps => !ERR syntax error
        CLIENT LIST TYPE odd => !ERR Unknown client type 'odd'
        COMMAND GETKEYS SORT k STORE a GET store STORE b => ["k" "b"]
        COMMAND GETKEYS SORT k LIMIT 0 1 BY w => ["k"]
        "#,
    );
}

#[test]
fn asking_about_a_key_is_no_use_of_it() {
    transcript(
        Proto::Resp2,
        r#"
        # Uses are noted where they may matter.
        CONFIG SET maxmemory 1gb maxmemory-policy allkeys-s3fifo => OK
        SET k v => OK
        OBJECT FREQ k => 0
        EXISTS k => 1
        TYPE k => string
        TTL k => -1
        OBJECT ENCODING k => "embstr"
        OBJECT FREQ k => 0
        GET k => "v"
        TOUCH k => 1
        OBJECT FREQ k => 2
        "#,
    );
}

#[test]
fn the_version_is_that_of_the_redis_whose_commands_there_are() {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp2);
    for line in ["INFO server", "INFO", "INFO everything"] {
        let shown = ours.line(line).text();
        assert_eq!(shown.matches("redis_version:7.2.").count(), 1, "{line}: {shown}");
    }
    let hello = ours.line("HELLO 2").text();
    assert!(hello.contains(r#""version" "7.2."#), "{hello}");
}

#[test]
fn a_pattern_with_thousands_of_stars_is_answered_and_the_server_goes_on() {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp2);
    let mut other = Ours::new(&engine, Proto::Resp2);
    let long = "a".repeat(10_000);
    assert_eq!(ours.run(&["SET", &long, "v"]).text(), "OK");
    // Backtracking would take longer than anyone waits.
    let pattern = "a*".repeat(1_000) + "b";
    assert_eq!(ours.run(&["KEYS", &pattern]).text(), "[]");
    assert_eq!(ours.run(&["SCAN", "0", "MATCH", &pattern]).text(), r#"["0" []]"#);
    assert_eq!(other.run(&["GET", &long]).text(), "\"v\"");
    let found = other.run(&["KEYS", &"a*".repeat(1_000)]).text();
    assert_eq!(found, format!("[\"{long}\"]"));
    assert_eq!(other.line("DBSIZE").text(), "1");
}

#[test]
fn a_string_takes_hardly_more_memory_than_its_bytes() {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp2);
    for size in [20_000, 100_000, 300_000] {
        // A buffer with much room, in which no byte repeats in a way that compresses.
        let mut value = Vec::with_capacity(16 * size);
        let mut state = 7_u64;
        value.extend((0..size).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[5]
        }));
        ours.run(&[&b"SET"[..], b"k", &value]);
        let Node::Int(usage) = ours.line("MEMORY USAGE k") else { panic!("{size}") };
        let usage = usize::try_from(usage).unwrap();
        assert!((size..size + 1_024).contains(&usage), "{usage} for {size}");
    }
}

#[test]
fn commands_are_listed_by_pattern_and_category() {
    transcript(
        Proto::Resp2,
        r#"
        COMMAND LIST FILTERBY PATTERN h[ml]* => ["hmset" "hmget" "hlen"]
        COMMAND LIST FILTERBY ACLCAT nonesuch => []
        COMMAND LIST FILTERBY MODULE any => []
        COMMAND LIST FILTERBY COLOUR red => !ERR syntax error
        COMMAND LIST odd => !ERR syntax error
        "#,
    );
}

#[test]
fn clients_of_the_third_version_get_what_they_expect() {
    transcript(
        Proto::Resp3,
        r#"
        PUBSUB NUMSUB a b => ["a" 0 "b" 0]
        PUBSUB SHARDNUMSUB => []
        ROLE => ["master" 0 []]
        "#,
    );
    let engine = Engine::in_memory(7);
    let shown = Ours::new(&engine, Proto::Resp3).line("LASTSAVE").text();
    assert!(shown.parse::<u64>().unwrap() > 1_600_000_000, "no snapshot yet: the start, {shown}");
}

#[test]
fn a_killed_client_is_gone_at_once_for_the_others() {
    #[derive(Debug)]
    struct NoNotify;
    impl Notify for NoNotify {
        fn notify(&self, _connection: u64) {}
    }
    let engine = Engine::in_memory(7);
    let mailbox = Arc::new(Mailbox::new(Arc::new(NoNotify), 1));
    let peer = Peer { address: "there:1".to_owned(), local: "here:2".to_owned(), via: Via::Resp };
    let victim = engine.session(peer, mailbox.clone());
    let mut ours = Ours::new(&engine, Proto::Resp2);
    assert!(ours.line("CLIENT LIST").text().contains("addr=there:1"));
    assert_eq!(ours.line("CLIENT KILL ADDR there:1").text(), "1");
    // Its thread has not checked yet.
    assert_eq!(ours.line("CLIENT LIST").text(), "\"\"");
    assert_eq!(ours.line("CLIENT KILL ADDR there:1").text(), "0");
    assert!(mailbox.drain(&mut Reply::new(Proto::Resp2)).close);
    engine.close(victim);
}
