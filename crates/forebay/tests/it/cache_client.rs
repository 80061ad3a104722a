//! The cache through the library `redis`: a client that shares no code with the server.

use std::collections::{BTreeSet, HashMap};

use redis::{Client, Commands as _, Connection, pipe};

use crate::cache_support::Cache;
use crate::support::HANG;

/// Every value that a protocol or a log could confuse with its own syntax.
const BYTES: &[u8] = b"\0\r\n$-1\r\n*\xff\xfe \"quoted\" | \n";

fn connect(cache: &Cache, version: &str) -> Connection {
    let client = Client::open(format!("redis://{}/?protocol={version}", cache.resp)).unwrap();
    let connection = client.get_connection_with_timeout(HANG).unwrap();
    connection.set_read_timeout(Some(HANG)).unwrap();
    connection
}

#[test]
fn an_independent_client_reads_what_it_wrote_in_both_versions_of_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::start(&dir, &["--no-persist"]);
    for version in ["resp2", "resp3"] {
        let mut client = connect(&cache, version);
        let () = client.flushall().unwrap();
        let () = client.set("bytes", BYTES).unwrap();
        assert_eq!(client.get::<_, Vec<u8>>("bytes").unwrap(), BYTES);
        assert_eq!(client.get::<_, Option<String>>("missing").unwrap(), None);
        let () = client.mset(&[("a", 1), ("b", 2)]).unwrap();
        let three: [Option<i64>; 3] = client.mget(&["a", "missing", "b"]).unwrap();
        assert_eq!(three, [Some(1), None, Some(2)]);
        assert_eq!(client.incr::<_, _, i64>("a", i64::from(i32::MAX)).unwrap(), 1 << 31);

        let () = client.rpush("list", &["x", "y", "z"]).unwrap();
        assert_eq!(client.lrange::<_, Vec<String>>("list", 1, -1).unwrap(), ["y", "z"]);
        let () = client.hset_multiple("hash", &[("f", "1"), ("g", "2")]).unwrap();
        let hash: HashMap<String, i64> = client.hgetall("hash").unwrap();
        assert_eq!(hash, [("f".to_owned(), 1), ("g".to_owned(), 2)].into());
        let () = client.sadd("set", &["p", "q", "p"]).unwrap();
        let set: BTreeSet<String> = client.smembers("set").unwrap();
        assert_eq!(set, ["p".to_owned(), "q".to_owned()].into());
        let () = client.zadd_multiple("scores", &[(0.1, "low"), (1e300, "high")]).unwrap();
        let scores: Vec<(String, f64)> = client.zrange_withscores("scores", 0, -1).unwrap();
        assert_eq!(scores, [("low".to_owned(), 0.1), ("high".to_owned(), 1e300)]);

        assert!(client.expire::<_, bool>("list", 100).unwrap());
        assert!((99..=100).contains(&client.ttl::<_, i64>("list").unwrap()));
        let error = client.incr::<_, _, i64>("list", 1).unwrap_err();
        assert_eq!(error.code(), Some("WRONGTYPE"), "{error}");
        let error = client.set::<_, _, ()>("bytes", 1).and_then(|()| client.get::<_, bool>("a"));
        assert!(error.is_err(), "a number is not a boolean");
    }
}

#[test]
fn a_pipeline_of_an_independent_client_is_answered_in_order_and_scanned_completely() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::start(&dir, &["--no-persist"]);
    let mut client = connect(&cache, "resp3");
    let mut writes = pipe();
    for number in 0..2_000_u32 {
        writes.set(format!("key:{number}"), number).ignore().get(format!("key:{number}"));
    }
    let read: Vec<u32> = writes.query(&mut client).unwrap();
    assert!(read.into_iter().eq(0..2_000));
    let found: BTreeSet<String> = client.scan_match("key:*").unwrap().map(Result::unwrap).collect();
    assert!(found.into_iter().eq((0..2_000).map(|n| format!("key:{n}")).collect::<BTreeSet<_>>()));
}

#[test]
fn a_transaction_of_an_independent_client_is_repeated_when_a_watched_key_changes() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::start(&dir, &["--no-persist"]);
    let (mut client, mut other) = (connect(&cache, "resp2"), connect(&cache, "resp2"));
    let () = client.set("balance", 100).unwrap();
    let mut rounds = 0;
    let (left,): (i64,) = redis::transaction(&mut client, &["balance"], |client, pipe| {
        rounds += 1;
        let balance: i64 = client.get("balance")?;
        if rounds == 1 {
            let () = other.set("balance", 50)?;
        }
        pipe.set("balance", balance - 30).ignore().get("balance").query(client)
    })
    .unwrap();
    assert_eq!((left, rounds), (20, 2));
}

#[test]
fn a_subscriber_of_an_independent_client_receives_each_message_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::start(&dir, &["--no-persist"]);
    let (mut reader, mut writer) = (connect(&cache, "resp3"), connect(&cache, "resp2"));
    let mut subscription = reader.as_pubsub();
    subscription.subscribe("news").unwrap();
    subscription.psubscribe("new?").unwrap();
    for number in 0..100 {
        assert_eq!(writer.publish::<_, _, u32>("news", number).unwrap(), 2);
    }
    let mut received = [Vec::new(), Vec::new()];
    for _ in 0..200 {
        let message = subscription.get_message().unwrap();
        assert_eq!(message.get_channel_name(), "news");
        let number: u32 = message.get_payload().unwrap();
        received[usize::from(message.from_pattern())].push(number);
    }
    assert!(received.iter().all(|numbers| numbers.iter().copied().eq(0..100)), "{received:?}");
}
