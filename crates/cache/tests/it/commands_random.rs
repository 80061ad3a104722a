//! Random commands: templates of every family, filled in from small sets of words, so that commands
//! of all families are run on keys of all types.

use forebay_base::fs::sim::Rng;
use forebay_cache::command::find;

/// Templates with the same result each time they run on the same data.
pub(crate) const TEMPLATES: &[&str] = &[
    // Strings.
    "SET {k} {v}",
    "SET {k} {i}",
    "SET {k} {v} {setopt}",
    "SET {k} {v} {setopt} {setopt}",
    "SET {k} {v} PXAT 99999999999999",
    "SETNX {k} {v}",
    "SETEX {k} {n} {v}",
    "PSETEX {k} {n}00000 {v}",
    "GETSET {k} {v}",
    "GETDEL {k}",
    "GETEX {k}",
    "GETEX {k} PERSIST",
    "GETEX {k} PXAT 99999999999999",
    "GET {k}",
    "MGET {k} {k} {k}",
    "MSET {k} {v} {k} {v}",
    "MSETNX {k} {v} {k} {v}",
    "APPEND {k} {v}",
    "STRLEN {k}",
    "GETRANGE {k} {i} {i}",
    "SUBSTR {k} {i} {i}",
    "SETRANGE {k} {n} {v}",
    "INCR {k}",
    "DECR {k}",
    "INCRBY {k} {i}",
    "DECRBY {k} {i}",
    "INCRBY {k} 9223372036854775800",
    "INCRBYFLOAT {k} {f}",
    "LCS {k} {k}",
    "LCS {k} {k} LEN",
    "LCS {k} {k} IDX",
    "LCS {k} {k} IDX MINMATCHLEN {n} WITHMATCHLEN",
    "SETBIT {k} {n} {bit}",
    "GETBIT {k} {n}",
    "BITCOUNT {k}",
    "BITCOUNT {k} {i} {i}",
    "BITCOUNT {k} {i} {i} {unit}",
    "BITPOS {k} {bit}",
    "BITPOS {k} {bit} {i}",
    "BITPOS {k} {bit} {i} {i}",
    "BITPOS {k} {bit} {i} {i} {unit}",
    "BITOP {bitop} {k} {k} {k}",
    "BITOP NOT {k} {k}",
    // Keys.
    "DEL {k}",
    "DEL {k} {k}",
    "UNLINK {k}",
    "EXISTS {k} {k} {k}",
    "TOUCH {k} {k}",
    "TYPE {k}",
    "EXPIRE {k} {i}000",
    "EXPIRE {k} -1",
    "PEXPIREAT {k} 99999999999999",
    "PEXPIREAT {k} 99999999999{n} {expopt}",
    "EXPIREAT {k} 99999999999 {expopt}",
    "EXPIREAT {k} {n} {expopt} {expopt}",
    "PEXPIRETIME {k}",
    "EXPIRETIME {k}",
    "PERSIST {k}",
    "RENAME {k} {k}",
    "RENAMENX {k} {k}",
    "COPY {k} {k}",
    "COPY {k} {k} REPLACE",
    "COPY {k} {k} DB 1",
    "MOVE {k} 1",
    "KEYS {pattern}",
    "SCAN 0 COUNT 100000",
    "SCAN 0 COUNT 100000 TYPE {type}",
    "SCAN 0 MATCH {pattern} COUNT 100000",
    "DBSIZE",
    "SORT {k}",
    "SORT {k} ALPHA",
    "SORT {k} ALPHA DESC LIMIT {i} {i}",
    "SORT {k} DESC LIMIT {n} {n}",
    "SORT {k} BY nosort",
    "SORT {k} BY nosort DESC LIMIT {i} {i}",
    "SORT {k} BY {k}* ALPHA GET # GET * GET *->{m}",
    "SORT {k} BY * GET #",
    "SORT {k} BY *->{m} GET {m}->{m}",
    "SORT {k} ALPHA STORE {k}",
    "SORT {k} ALPHA GET * STORE {k}",
    "SORT_RO {k} ALPHA",
    "SORT_RO {k} ALPHA STORE {k}",
    // Lists.
    "LPUSH {k} {v}",
    "RPUSH {k} {v} {m} {i}",
    "LPUSH {k} {m} {m} {m}",
    "LPUSHX {k} {m}",
    "RPUSHX {k} {m} {v}",
    "LPOP {k}",
    "RPOP {k}",
    "LPOP {k} {i}",
    "RPOP {k} {n}",
    "LLEN {k}",
    "LINDEX {k} {i}",
    "LRANGE {k} {i} {i}",
    "LSET {k} {i} {v}",
    "LINSERT {k} BEFORE {m} {v}",
    "LINSERT {k} AFTER {m} {v}",
    "LREM {k} {i} {m}",
    "LTRIM {k} {i} {i}",
    "LTRIM {k} 0 100",
    "LPOS {k} {m}",
    "LPOS {k} {m} RANK {i}",
    "LPOS {k} {m} COUNT {i} MAXLEN {i}",
    "LPOS {k} {m} RANK {i} COUNT {n} MAXLEN {n}",
    "RPOPLPUSH {k} {k}",
    "LMOVE {k} {k} {end} {end}",
    "LMPOP {n} {k} {k} {end}",
    "LMPOP 2 {k} {k} {end} COUNT {n}",
    "BLPOP {k} {k} 0.001",
    "BRPOP {k} 0.001",
    "BLMOVE {k} {k} {end} {end} 0.001",
    "BRPOPLPUSH {k} {k} 0.001",
    "BLMPOP 0.001 2 {k} {k} {end} COUNT {n}",
    // Hashes.
    "HSET {k} {m} {v}",
    "HSET {k} {m} {i} {m} {v}",
    "HSET {k} {m} {i}",
    "HMSET {k} {m} {v} {m} {v}",
    "HSETNX {k} {m} {v}",
    "HGET {k} {m}",
    "HMGET {k} {m} {m} {m}",
    "HGETALL {k}",
    "HKEYS {k}",
    "HVALS {k}",
    "HLEN {k}",
    "HEXISTS {k} {m}",
    "HDEL {k} {m}",
    "HDEL {k} {m} {m}",
    "HSTRLEN {k} {m}",
    "HINCRBY {k} {m} {i}",
    "HINCRBY {k} {m} -9223372036854775800",
    "HINCRBYFLOAT {k} {m} {f}",
    "HRANDFIELD {k} 1000",
    "HRANDFIELD {k} 1000 WITHVALUES",
    "HRANDFIELD {k} 0",
    "HSCAN {k} 0 COUNT 1000",
    "HSCAN {k} 0 MATCH {pattern} COUNT 1000",
    // Sets.
    "SADD {k} {m}",
    "SADD {k} {m} {m} {m}",
    "SADD {k} {i} {i} {i}",
    "SREM {k} {m}",
    "SREM {k} {m} {i}",
    "SMEMBERS {k}",
    "SISMEMBER {k} {m}",
    "SMISMEMBER {k} {m} {m} {i}",
    "SCARD {k}",
    "SPOP {k} 1000",
    "SPOP {k} 0",
    "SRANDMEMBER {k} 1000",
    "SRANDMEMBER {k} 0",
    "SMOVE {k} {k} {m}",
    "SINTER {k} {k}",
    "SINTER {k} {k} {k}",
    "SINTERSTORE {k} {k} {k}",
    "SINTERCARD 2 {k} {k}",
    "SINTERCARD {i} {k} {k} LIMIT {i}",
    "SUNION {k} {k} {k}",
    "SUNIONSTORE {k} {k} {k}",
    "SDIFF {k} {k}",
    "SDIFF {k} {k} {k}",
    "SDIFFSTORE {k} {k} {k}",
    "SSCAN {k} 0 COUNT 1000",
    "SSCAN {k} 0 MATCH {pattern}",
    // Sorted sets.
    "ZADD {k} {s} {m}",
    "ZADD {k} {s} {m} {s} {m} {s} {m}",
    "ZADD {k} {zopt} {s} {m}",
    "ZADD {k} {zopt} {zopt} {s} {m} {s} {m}",
    "ZADD {k} {zopt} INCR {s} {m}",
    "ZINCRBY {k} {s} {m}",
    "ZREM {k} {m}",
    "ZREM {k} {m} {m}",
    "ZSCORE {k} {m}",
    "ZMSCORE {k} {m} {m}",
    "ZCARD {k}",
    "ZCOUNT {k} {bound} {bound}",
    "ZLEXCOUNT zl {lex} {lex}",
    "ZADD zl 0 {m} 0 {m} 0 {v}",
    "ZREM zl {m}",
    "ZRANK {k} {m}",
    "ZREVRANK {k} {m}",
    "ZRANGE {k} {i} {i}",
    "ZRANGE {k} {i} {i} REV WITHSCORES",
    "ZRANGE {k} {bound} {bound} BYSCORE",
    "ZRANGE {k} {bound} {bound} BYSCORE REV LIMIT {i} {i} WITHSCORES",
    "ZRANGE zl {lex} {lex} BYLEX LIMIT {i} {i}",
    "ZRANGE zl {lex} {lex} BYLEX REV",
    "ZRANGE {k} {i} {i} LIMIT {i} {i}",
    "ZRANGE {k} {i} {i} BYLEX WITHSCORES",
    "ZRANGESTORE {k} {k} {i} {i}",
    "ZRANGESTORE {k} {k} {bound} {bound} BYSCORE LIMIT {i} {i}",
    "ZRANGESTORE zl zl {lex} {lex} BYLEX REV",
    "ZREVRANGE {k} {i} {i}",
    "ZREVRANGE {k} {i} {i} WITHSCORES",
    "ZRANGEBYSCORE {k} {bound} {bound}",
    "ZRANGEBYSCORE {k} {bound} {bound} WITHSCORES LIMIT {i} {i}",
    "ZREVRANGEBYSCORE {k} {bound} {bound} LIMIT {n} {n}",
    "ZRANGEBYLEX zl {lex} {lex}",
    "ZREVRANGEBYLEX zl {lex} {lex} LIMIT {i} {i}",
    "ZREMRANGEBYRANK {k} {i} {i}",
    "ZREMRANGEBYSCORE {k} {bound} {bound}",
    "ZREMRANGEBYLEX zl {lex} {lex}",
    "ZPOPMIN {k}",
    "ZPOPMAX {k}",
    "ZPOPMIN {k} {i}",
    "ZPOPMAX {k} {n}",
    "ZMPOP 2 {k} {k} {minmax}",
    "ZMPOP {i} {k} {k} {minmax} COUNT {i}",
    "BZPOPMIN {k} {k} 0.001",
    "BZPOPMAX {k} 0.001",
    "BZMPOP 0.001 2 {k} {k} {minmax} COUNT {n}",
    "ZUNION 2 {k} {k} WITHSCORES",
    "ZUNION 3 {k} {k} {k} AGGREGATE {agg}",
    "ZINTER 2 {k} {k} WITHSCORES",
    "ZINTER 2 {k} {k} WEIGHTS {s} {s} AGGREGATE {agg} WITHSCORES",
    "ZDIFF 2 {k} {k}",
    "ZDIFF 3 {k} {k} {k} WITHSCORES",
    "ZUNIONSTORE {k} 2 {k} {k}",
    "ZUNIONSTORE {k} {i} {k} {k} WEIGHTS {s} {s}",
    "ZINTERSTORE {k} 2 {k} {k} AGGREGATE {agg}",
    "ZINTERSTORE {k} 2 {k} {k} WEIGHTS {s} {s} AGGREGATE {agg}",
    "ZDIFFSTORE {k} 2 {k} {k}",
    "ZINTERCARD 2 {k} {k}",
    "ZINTERCARD 2 {k} {k} LIMIT {i}",
    "ZRANDMEMBER {k} 1000",
    "ZRANDMEMBER {k} 1000 WITHSCORES",
    "ZSCAN {k} 0 COUNT 1000",
    // Transactions and databases.
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH {k}",
    "UNWATCH",
    "SELECT {db}",
    "SELECT 0",
    "SELECT 0",
    "PING",
    "ECHO {v}",
    "FLUSHDB",
];

/// Templates whose result depends on chance, for tests without a comparison.
pub(crate) const CHANCE: &[&str] = &[
    "SPOP {k}",
    "SPOP {k} {n}",
    "SRANDMEMBER {k}",
    "SRANDMEMBER {k} {i}",
    "HRANDFIELD {k}",
    "HRANDFIELD {k} {i} WITHVALUES",
    "ZRANDMEMBER {k} {i} WITHSCORES",
    "RANDOMKEY",
    "HGETDEL {k} FIELDS 2 {m} {m}",
];

fn pick<'a>(rng: &mut Rng, words: &[&'a str]) -> &'a str {
    words[rng.below(words.len())]
}

const KEYS: [[&str; 3]; 5] = [
    ["s1", "s2", "s3"],
    ["l1", "l2", "l3"],
    ["h1", "h2", "h3"],
    ["t1", "t2", "t3"],
    ["z1", "z2", "z3"],
];

/// A key, mostly one that holds what the command works on.
fn key(rng: &mut Rng, group: &str) -> &'static str {
    let kind = match group {
        _ if rng.one_in(12) => rng.below(5),
        "string" | "bitmap" => 0,
        "list" => 1,
        "hash" => 2,
        "set" => 3,
        "sorted-set" => 4,
        _ => rng.below(5),
    };
    KEYS[kind][rng.below(3)]
}

/// A word for a placeholder.
fn fill(rng: &mut Rng, name: &str, group: &str) -> String {
    let long = "compressible compressible compressible compressible compressible compressible";
    let picked = match name {
        "k" => key(rng, group),
        "m" => pick(rng, &["a", "b", "c", "1", "2", "10", "x", "member", "", "0.5"]),
        "v" => pick(rng, &["v", "foobar", "", "10", "-3", "1.5", "a b\r\nc", "ohmytext", long]),
        "i" => pick(rng, &["0", "1", "2", "3", "5", "-1", "-2", "-3", "-100", "100"]),
        "n" => pick(rng, &["0", "1", "2", "3", "7", "20"]),
        "f" => pick(rng, &["1.5", "-0.25", "3", "1e3", "0.1", "x", "5.0e-2"]),
        "s" => pick(rng, &["0", "1", "-1", "2.5", "-0.5", "10", "1e20", "inf", "-inf"]),
        "bound" => pick(rng, &["-inf", "+inf", "0", "(0", "1", "(2.5", "-1", "10", "(10"]),
        "lex" => pick(rng, &["-", "+", "[a", "(a", "[b", "(member", "[", "(1", "[2"]),
        "zopt" => pick(rng, &["NX", "XX", "GT", "LT", "CH", "INCR"]),
        "setopt" => pick(rng, &["NX", "XX", "GET", "KEEPTTL"]),
        "expopt" => pick(rng, &["NX", "XX", "GT", "LT"]),
        "agg" => pick(rng, &["SUM", "MIN", "MAX", "min"]),
        "end" => pick(rng, &["LEFT", "RIGHT", "left"]),
        "minmax" => pick(rng, &["MIN", "MAX", "min"]),
        "bit" => pick(rng, &["0", "1"]),
        "unit" => pick(rng, &["BYTE", "BIT"]),
        "bitop" => pick(rng, &["AND", "OR", "XOR"]),
        "pattern" => pick(rng, &["*", "[a-c]", "?", "m*", "[^a]*", "1*", "?[1-2]"]),
        "type" => pick(rng, &["string", "list", "hash", "set", "zset"]),
        "db" => pick(rng, &["0", "1"]),
        _ => panic!("no such placeholder: {name}"),
    };
    picked.to_owned()
}

/// A command; sometimes an invalid one.
pub(crate) fn command(rng: &mut Rng, templates: &[&str]) -> Vec<Vec<u8>> {
    let template = templates[rng.below(templates.len())];
    let name = template.split(' ').next().unwrap_or_default();
    let group = find(name.as_bytes()).unwrap().group;
    let mut words: Vec<Vec<u8>> = Vec::new();
    for word in template.split(' ') {
        let mut text = word.to_owned();
        while let (Some(open), Some(close)) = (text.find('{'), text.find('}')) {
            let filled = fill(rng, &text[open + 1..close], group);
            text.replace_range(open..=close, &filled);
        }
        words.push(text.into_bytes());
    }
    // Blocking commands would wait forever with another timeout; random picks would differ; rank
    // commands accept one more argument since Redis 7.2.
    let picks = name.contains("RAND") || name == "SPOP";
    let kept = name.starts_with('B') || name.ends_with("RANK") || picks;
    if rng.one_in(25) && words.len() > 1 && !kept {
        let at = 1 + rng.below(words.len() - 1);
        match rng.below(3) {
            0 => drop(words.remove(at)),
            1 => words.push(fill(rng, "i", group).into_bytes()),
            _ => {
                let wrong =
                    pick(rng, &["x", "", "-1", "1.5", "99999999999999999999", "nan", "LIMIT"]);
                words[at] = wrong.as_bytes().to_vec();
            }
        }
    }
    words
}
