//! The same commands get the same replies from this cache and from Redis.

use forebay_base::fs::sim::Rng;
use forebay_cache::engine::Engine;
use forebay_cache::resp::Proto;

use super::commands_random::{TEMPLATES, command};
use super::commands_support::{Node, Ours, Redis};

const STEPS: usize = 4_000;

/// The seed of a run, from `FOREBAY_SEED` if set.
fn seed(of: u64) -> u64 {
    let given = std::env::var("FOREBAY_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    given.map_or(of, |given| given * 2 + of)
}

/// Sorts the parts of a reply that have no defined order.
fn settled(words: &[Vec<u8>], reply: Node) -> Node {
    let name = words[0].to_ascii_uppercase();
    match (&*name, reply) {
        (b"SCAN" | b"SSCAN", Node::Array(parts)) if parts.len() == 2 => {
            Node::Array(parts.into_iter().map(|part| part.sorted(1)).collect())
        }
        (b"HSCAN" | b"ZSCAN", Node::Array(parts)) if parts.len() == 2 => {
            Node::Array(parts.into_iter().map(|part| part.sorted(2)).collect())
        }
        (b"HGETALL", reply) => reply.sorted(2),
        (b"HRANDFIELD" | b"ZRANDMEMBER", reply) if words.len() > 3 => reply.sorted(2),
        (
            b"KEYS" | b"HKEYS" | b"HVALS" | b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF"
            | b"SPOP" | b"SRANDMEMBER" | b"HRANDFIELD" | b"ZRANDMEMBER",
            reply,
        ) => reply.sorted(1),
        // Unless an order is requested, that of a set is undefined.
        // Nor if the sort keys are equal.
        (b"SORT" | b"SORT_RO", reply) if words.iter().any(|word| word == b"BY") => {
            let gets = words.iter().filter(|word| *word == b"GET").count();
            reply.sorted(gets.max(1))
        }
        (_, reply) => reply,
    }
}

/// Intended differences.
fn excused(words: &[Vec<u8>], ours: &Node, theirs: &Node) -> bool {
    if let (Node::Bulk(ours), Node::Bulk(theirs)) = (ours, theirs)
        && words[0].ends_with(b"INCRBYFLOAT")
    {
        // Where a 64-bit mantissa loses digits, this cache does not.
        let number = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<f64>().unwrap();
        return number(ours) == number(theirs);
    }
    let Node::Error(text) = ours else { return false };
    match words[0].as_slice() {
        // As in Redis 7.2, but not 7.0, invalid arguments are refused before the key is looked up.
        b"BITCOUNT" | b"BITPOS" => matches!(theirs, Node::Int(_) | Node::Error(_)),
        // A cursor that no scan returned: Redis accepts signs and the empty text.
        b"SCAN" | b"HSCAN" | b"SSCAN" | b"ZSCAN" => text == "ERR invalid cursor",
        _ => false,
    }
}

fn compare(seed: u64, proto: Proto, steps: usize) {
    let Some(redis) = Redis::start() else { return };
    let mut theirs = redis.connect(proto);
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, proto);
    let mut rng = Rng::new(seed);
    let (mut queued, mut differences) = (Vec::new(), std::collections::BTreeMap::new());
    for step in 0..steps {
        let words = command(&mut rng, TEMPLATES);
        let line: Vec<String> =
            words.iter().map(|w| format!("{:?}", w.escape_ascii().to_string())).collect();
        let line = line.join(" ");
        let before = (ours.run(&words), theirs.run(&words));
        let (left, right) = match before {
            (Node::Array(left), Node::Array(right))
                if words[0] == b"EXEC" && left.len() == right.len() =>
            {
                let settle = |replies: Vec<Node>| {
                    let each = replies.into_iter().zip(&queued);
                    Node::Array(
                        each.map(|(reply, words): (_, &Vec<_>)| settled(words, reply)).collect(),
                    )
                };
                (settle(left), settle(right))
            }
            (left, right) => (settled(&words, left), settled(&words, right)),
        };
        if left == Node::Simple("QUEUED".to_owned()) {
            queued.push(words.clone());
        } else if left == Node::Simple("OK".to_owned()) && words[0] == b"MULTI" {
            queued.clear();
        }
        if left == right {
            continue;
        }
        if !excused(&words, &left, &right) {
            let name = String::from_utf8_lossy(&words[0]).into_owned();
            differences.entry(name).or_insert_with(|| {
                format!(
                    "seed {seed} {proto:?} step {step}: {line}\n  ours   {}\n  theirs {}\n",
                    left.text(),
                    right.text()
                )
            });
        }
        // From here on the data may differ: start over.
        for line in ["DISCARD", "UNWATCH", "SELECT 0", "FLUSHALL"] {
            let words = super::commands_support::words(line);
            ours.run(&words);
            theirs.run(&words);
        }
        queued.clear();
    }
    let all: Vec<String> = differences.into_values().collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn replies_are_those_of_redis_in_resp2() {
    compare(seed(1), Proto::Resp2, STEPS);
}

#[test]
fn replies_are_those_of_redis_in_resp3() {
    compare(seed(2), Proto::Resp3, STEPS);
}
