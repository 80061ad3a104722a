//! The commands of the text protocol, implemented by commands of the engine.

use std::borrow::Cow;

use super::reply::Answer;
use super::{answer, ttl};
use crate::engine::{Engine, Flow, Session};
use crate::resp::Reply;

/// Maximum number of attempts at a conditional write while others change the key.
const TRIES: usize = 100;

/// What a `SET...` command stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Text,
    Array,
    Object,
}

/// A parsed `SET...` command.
#[derive(Debug)]
struct Store<'l> {
    shape: Shape,
    only_new: bool,
    key: &'l [u8],
    ttl_ms: Option<u64>,
    values: Vec<&'l [u8]>,
}

/// The context in which a command runs and replies.
#[derive(Debug)]
pub(super) struct Runner<'r> {
    pub(super) engine: &'r Engine,
    pub(super) session: &'r mut Session,
    pub(super) out: &'r mut Reply,
}

const STORES: [(&str, Shape, bool); 6] = [
    ("SET", Shape::Text, false),
    ("SETS", Shape::Array, false),
    ("SETX", Shape::Object, false),
    ("SETNX", Shape::Text, true),
    ("SETSNX", Shape::Array, true),
    ("SETXNX", Shape::Object, true),
];

impl Runner<'_> {
    /// Runs the words of a line.
    pub(super) fn run(mut self, name: &[u8], rest: &[Cow<'_, [u8]>]) -> Flow {
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        let first = rest.first().map(AsRef::as_ref);
        if is("AUTH") {
            return self.auth(rest);
        }
        if !self.session.authenticated {
            return self.fail("authentication required");
        }
        if let Some(&store) = STORES.iter().find(|(word, ..)| is(word)) {
            return self.store(store, rest);
        }
        match first {
            Some(key) if is("GET") => self.get(key),
            Some(key) if is("DEL") => self.ask(&[b"DEL", key], |found, out| match found.bytes() {
                b"0" => answer::word("NOT_FOUND", out),
                _ => answer::word("OK", out),
            }),
            None if is("GET") => self.fail("GET requires key"),
            None if is("DEL") => self.fail("DEL requires key"),
            _ if is("KEYS") => {
                self.ask(&[b"KEYS", first.unwrap_or(b"*")], |found, out| match found {
                    Answer::Array(keys) if !keys.is_empty() => {
                        answer::spaced(keys.iter().map(Answer::bytes), out);
                    }
                    _ => answer::word("EMPTY", out),
                })
            }
            _ if is("FLUSHALL") => self.ask(&[b"FLUSHALL"], |_, out| answer::word("OK", out)),
            _ => self.fail("unknown command"),
        }
    }

    fn fail(&mut self, reason: &str) -> Flow {
        answer::error(reason, self.out);
        Flow::Continue
    }

    /// Runs a command of the engine and replies with what `format_reply` makes of its reply; an
    /// error of the engine is returned as an error.
    fn ask(&mut self, words: &[&[u8]], format_reply: impl FnOnce(&Answer<'_>, &mut Reply)) -> Flow {
        let (flow, encoded) = self.execute(words);
        self.reply_with(&encoded, format_reply);
        flow
    }

    fn execute(&mut self, words: &[&[u8]]) -> (Flow, Vec<u8>) {
        let mut reply = Reply::default();
        let flow = self.engine.execute(self.session, words, &mut reply);
        (flow, reply.take())
    }

    fn reply_with(&mut self, encoded: &[u8], format_reply: impl FnOnce(&Answer<'_>, &mut Reply)) {
        match Answer::read(encoded) {
            Some(Answer::Error(text)) => {
                answer::error(&String::from_utf8_lossy(text), self.out);
            }
            Some(found) => {
                // A command of a transaction may have been refused: the first error is returned.
                let refused = match &found {
                    Answer::Array(items) => items.iter().find_map(|item| match item {
                        Answer::Error(text) => Some(*text),
                        _ => None,
                    }),
                    _ => None,
                };
                match refused {
                    Some(text) => answer::error(&String::from_utf8_lossy(text), self.out),
                    None => format_reply(&found, self.out),
                }
            }
            None => answer::error("no reply", self.out),
        }
    }

    fn auth(&mut self, rest: &[Cow<'_, [u8]>]) -> Flow {
        let [password] = rest else { return self.fail("AUTH requires password") };
        if !self.engine.needs_secret() {
            answer::word("OK no authentication required", self.out);
            return Flow::Continue;
        }
        let (flow, encoded) = self.execute(&[b"AUTH", password]);
        match Answer::read(&encoded) {
            Some(Answer::Plain(_)) => answer::word("OK authenticated", self.out),
            Some(Answer::Error(text)) if text.starts_with(b"WRONGPASS") => {
                answer::error("invalid password", self.out);
            }
            _ => self.reply_with(&encoded, |_, _| {}),
        }
        flow
    }

    fn get(&mut self, key: &[u8]) -> Flow {
        // A key of another type is read again by the command for that type. Another client may
        // change the type in between, hence the loop.
        for _ in 0..TRIES {
            let (flow, encoded) = self.execute(&[b"GET", key]);
            if !is_wrong_type(&encoded) {
                self.reply_with(&encoded, |found, out| match found {
                    Answer::Bulk(value) => answer::line(value, out),
                    _ => answer::word("NULL", out),
                });
                return flow;
            }
            let (_, kind) = self.execute(&[b"TYPE", key]);
            let (words, paired): (&[&[u8]], bool) = match Answer::read(&kind) {
                Some(Answer::Plain(b"list")) => (&[b"LRANGE", key, b"0", b"-1"], false),
                Some(Answer::Plain(b"hash")) => (&[b"HGETALL", key], true),
                Some(Answer::Plain(b"set")) => (&[b"SMEMBERS", key], false),
                Some(Answer::Plain(b"zset")) => {
                    (&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"], true)
                }
                _ => continue,
            };
            let (flow, encoded) = self.execute(words);
            if !is_wrong_type(&encoded) {
                self.reply_with(&encoded, |found, out| collection(found, paired, out));
                return flow;
            }
        }
        self.fail("the key changes its type repeatedly; try again")
    }

    fn store(&mut self, store: (&'static str, Shape, bool), rest: &[Cow<'_, [u8]>]) -> Flow {
        let store = match read_store(store, rest) {
            Ok(store) => store,
            Err(reason) => return self.fail(&reason),
        };
        let ms = store.ttl_ms.map(|ms| ms.to_string());
        match (store.shape, store.only_new) {
            (Shape::Text, only_new) => self.store_text(&store, ms.as_deref(), only_new),
            (_, false) => {
                let mut reply = Reply::default();
                let mut commands = vec![vec![&b"DEL"[..], store.key]];
                commands.extend(writes(&store, ms.as_deref()));
                self.engine.transaction(self.session, &commands, &mut reply);
                self.reply_with(&reply.take(), |_, out| answer::word("OK", out));
                Flow::Continue
            }
            (_, true) => self.store_new(&store, ms.as_deref()),
        }
    }

    fn store_text(&mut self, store: &Store<'_>, ms: Option<&str>, only_new: bool) -> Flow {
        let value = store.values.join(&b' ');
        let mut words = vec![&b"SET"[..], store.key, &value];
        if let Some(ms) = ms {
            words.extend([&b"PX"[..], ms.as_bytes()]);
        }
        if only_new {
            words.push(b"NX");
        }
        self.ask(&words, |found, out| match found {
            Answer::Null => answer::word("NOT_SET", out),
            _ => answer::word("OK", out),
        })
    }

    /// Stores an array or an object if there is no such key: checked and written atomically, by
    /// WATCH and MULTI as a client would.
    fn store_new(&mut self, store: &Store<'_>, ms: Option<&str>) -> Flow {
        for _ in 0..TRIES {
            self.execute(&[b"WATCH", store.key]);
            let (_, there) = self.execute(&[b"EXISTS", store.key]);
            if Answer::read(&there) != Some(Answer::Plain(b"0")) {
                self.execute(&[b"UNWATCH"]);
                self.reply_with(&there, |_, out| answer::word("NOT_SET", out));
                return Flow::Continue;
            }
            self.execute(&[b"MULTI"]);
            for words in writes(store, ms) {
                self.execute(&words);
            }
            let (flow, encoded) = self.execute(&[b"EXEC"]);
            if Answer::read(&encoded) != Some(Answer::Null) {
                self.reply_with(&encoded, |_, out| answer::word("OK", out));
                return flow;
            }
        }
        self.fail("the key changes repeatedly; try again")
    }
}

/// A whole list, set, hash or sorted set.
fn collection(found: &Answer<'_>, paired: bool, out: &mut Reply) {
    match found {
        Answer::Array(items) if items.is_empty() => answer::word("NULL", out),
        Answer::Array(items) if paired => answer::object(pairs(items), out),
        Answer::Array(items) => answer::array(items.iter().map(Answer::bytes), out),
        _ => answer::word("NULL", out),
    }
}

fn pairs<'r>(items: &[Answer<'r>]) -> Vec<(&'r [u8], &'r [u8])> {
    let pair = |pair: &[Answer<'r>]| match pair {
        [field, value] => Some((field.bytes(), value.bytes())),
        _ => None,
    };
    items.chunks(2).filter_map(pair).collect()
}

/// The commands that create an array or an object.
fn writes<'s>(store: &Store<'s>, ms: Option<&'s str>) -> Vec<Vec<&'s [u8]>> {
    let name: &[u8] = if store.shape == Shape::Array { b"RPUSH" } else { b"HSET" };
    let mut words = vec![name, store.key];
    words.extend(&store.values);
    let mut commands = vec![words];
    if let Some(ms) = ms {
        commands.push(vec![b"PEXPIRE", store.key, ms.as_bytes()]);
    }
    commands
}

fn is_wrong_type(encoded: &[u8]) -> bool {
    encoded.starts_with(b"-WRONGTYPE")
}

/// Parses the arguments of `SET` and its variants, or returns what is missing.
fn read_store<'l>(
    (name, shape, only_new): (&'static str, Shape, bool),
    rest: &'l [Cow<'_, [u8]>],
) -> Result<Store<'l>, String> {
    let mut ttl_ms = None;
    let mut values: Vec<&[u8]> = rest.iter().skip(1).map(AsRef::as_ref).collect();
    if let [b"-t", text, ..] = values.as_slice() {
        let wrong = || {
            let text = String::from_utf8_lossy(text);
            format!("invalid ttl value: invalid TTL format: {text}")
        };
        ttl_ms = Some(ttl::parse(text).ok_or_else(wrong)?).filter(|&ms| ms > 0);
        values.drain(..2);
    }
    let missing = match shape {
        Shape::Text => "value",
        Shape::Array => "at least one array element",
        Shape::Object => "at least one key-value pair",
    };
    let least = if shape == Shape::Object { 2 } else { 1 };
    let Some(key) = rest.first().filter(|_| values.len() >= least) else {
        return Err(format!("{name} requires key and {missing}"));
    };
    if shape == Shape::Object && !values.len().is_multiple_of(2) {
        return Err(format!("{name} requires even number of arguments for key-value pairs"));
    }
    Ok(Store { shape, only_new, key, ttl_ms, values })
}
