//! Blocked commands are served when, and only when, there is an element for them.

use std::sync::Arc;

use forebay_cache::engine::{Engine, Flow, Mailbox, Notify, Peer, Session, Via};
use forebay_cache::resp::{Proto, Reply};

use crate::commands_support::{Node, Ours, transcript, words};

#[derive(Debug)]
struct NoNotify;

impl Notify for NoNotify {
    fn notify(&self, _connection: u64) {}
}

/// A blocked client.
struct Waiting<'e> {
    engine: &'e Engine,
    session: Session,
    mailbox: Arc<Mailbox>,
}

impl<'e> Waiting<'e> {
    fn new(engine: &'e Engine, line: &str) -> Self {
        let mailbox = Arc::new(Mailbox::new(Arc::new(NoNotify), 1));
        let peer = Peer { address: "a".to_owned(), local: "b".to_owned(), via: Via::Resp };
        let mut session = engine.session(peer, mailbox.clone());
        let words = words(line);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut out = Reply::new(Proto::Resp2);
        let flow = engine.execute(&mut session, &words, &mut out);
        assert!(matches!(flow, Flow::Blocked { .. }) && out.is_empty(), "{line} waits");
        Self { engine, session, mailbox }
    }

    /// The replies it received meanwhile.
    fn answer(&mut self) -> Option<String> {
        let mut out = Reply::new(Proto::Resp2);
        let unblocked = self.mailbox.drain(&mut out).unblocked;
        if unblocked {
            self.engine.unblocked(&mut self.session);
        }
        unblocked.then(|| Node::read(&mut out.as_bytes()).text())
    }
}

#[test]
fn a_value_of_another_type_leaves_it_waiting() {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp2);
    for (wait, give, answer) in [
        ("BZPOPMIN k other 0", "ZADD k 2 b 1 a", r#"["k" "a" "1"]"#),
        ("BZPOPMAX other k 0", "ZADD k 2 b 1 a", r#"["k" "b" "2"]"#),
        ("BZMPOP 0 2 other k MIN COUNT 2", "ZADD k 2 b 1 a", r#"["k" [["a" "1"] ["b" "2"]]]"#),
        ("BLPOP k 0", "RPUSH k x y", r#"["k" "x"]"#),
        ("BLMOVE k to LEFT LEFT 0", "RPUSH k x y", r#""x""#),
    ] {
        let mut waiting = Waiting::new(&engine, wait);
        ours.line("SET k text");
        ours.line("SADD k2 x");
        assert_eq!(waiting.answer(), None, "{wait}");
        ours.line("DEL k");
        ours.line(give);
        assert_eq!(waiting.answer().as_deref(), Some(answer), "{wait}");
        ours.line("FLUSHALL");
        engine.close(waiting.session);
    }
    assert_eq!(engine.blocked(), 0);
}

#[test]
fn every_command_that_waits_refuses_a_timeout_beyond_milliseconds_in_64_bits() {
    transcript(
        Proto::Resp2,
        r"
        BLPOP k 0x7FFFFFFFFFFFFF => !ERR timeout is out of range
        BRPOP k 0x7FFFFFFFFFFFFF => !ERR timeout is out of range
        BLMOVE k to LEFT LEFT 0x7FFFFFFFFFFFFF => !ERR timeout is out of range
        BRPOPLPUSH k to 0x7FFFFFFFFFFFFF => !ERR timeout is out of range
        BLMPOP 0x7FFFFFFFFFFFFF 1 k LEFT => !ERR timeout is out of range
        BZPOPMIN k 0x7FFFFFFFFFFFFF => !ERR timeout is out of range
        BZPOPMAX k 0x7FFFFFFFFFFFFF => !ERR timeout is out of range
        BZMPOP 0x7FFFFFFFFFFFFF 1 k MIN => !ERR timeout is out of range
        # Also where there is something to pop.
        RPUSH list x => 1
        BLPOP list 0x7FFFFFFFFFFFFF => !ERR timeout is out of range
        LLEN list => 1
        ",
    );
}

#[test]
fn those_who_wait_are_served_in_turn() {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp2);
    let mut waiting: Vec<_> = (0..3).map(|_| Waiting::new(&engine, "BZPOPMIN k 0")).collect();
    ours.line("ZADD k 1 a 2 b");
    let answers: Vec<_> = waiting.iter_mut().map(Waiting::answer).collect();
    assert_eq!(answers[0].as_deref(), Some(r#"["k" "a" "1"]"#));
    assert_eq!(answers[1].as_deref(), Some(r#"["k" "b" "2"]"#));
    assert_eq!(answers[2], None);
    // A sorted set stored by another command counts, too.
    ours.line("ZADD from 7 c");
    ours.line("ZRANGESTORE k from 0 -1");
    assert_eq!(waiting[2].answer().as_deref(), Some(r#"["k" "c" "7"]"#));
    assert_eq!(ours.line("EXISTS k").text(), "0");
}

#[test]
fn a_value_of_another_type_at_one_key_does_not_hide_what_another_key_was_given() {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp2);
    for (wait, give, answer) in [
        ("BLPOP odd k 0", "RPUSH k x", r#"["k" "x"]"#),
        ("BRPOP k odd 0", "RPUSH k x", r#"["k" "x"]"#),
        ("BLMPOP 0 2 odd k LEFT", "RPUSH k x", r#"["k" ["x"]]"#),
        ("BZPOPMIN odd k 0", "ZADD k 1 a", r#"["k" "a" "1"]"#),
        ("BZMPOP 0 2 odd k MAX", "ZADD k 1 a", r#"["k" [["a" "1"]]]"#),
    ] {
        let mut waiting = Waiting::new(&engine, wait);
        ours.line("SET odd text");
        ours.line(give);
        assert_eq!(waiting.answer().as_deref(), Some(answer), "{wait}");
        ours.line("FLUSHALL");
        engine.close(waiting.session);
    }
    assert_eq!(engine.blocked(), 0);
}

#[test]
fn who_waits_for_another_type_does_not_hide_those_behind() {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp2);
    let mut scored = Waiting::new(&engine, "BZPOPMIN k 0");
    let mut listed = Waiting::new(&engine, "BLPOP k 0");
    ours.line("RPUSH k x");
    assert_eq!(listed.answer().as_deref(), Some(r#"["k" "x"]"#));
    ours.line("ZADD k 1 a");
    assert_eq!(scored.answer().as_deref(), Some(r#"["k" "a" "1"]"#));
}

#[test]
fn who_waits_for_several_keys_is_served_from_the_one_given_first() {
    // Keys of different shards, so that the order does not match that of the shards by chance.
    for (first, second) in [("one", "two"), ("two", "one"), ("a", "z"), ("z", "a")] {
        let engine = Engine::in_memory(7);
        let mut ours = Ours::new(&engine, Proto::Resp2);
        let mut waiting = Waiting::new(&engine, &format!("BLPOP {second} {first} 0"));
        ours.line("MULTI");
        ours.line(&format!("RPUSH {first} x"));
        ours.line(&format!("RPUSH {second} y"));
        ours.line("EXEC");
        assert_eq!(waiting.answer(), Some(format!(r#"["{first}" "x"]"#)));
        assert_eq!(ours.line(&format!("LLEN {second}")).text(), "1");
    }
}
