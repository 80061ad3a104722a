//! Commands whose work another thread does.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::DONE_MAX;
use crate::engine::{Drained, Engine, Flow, Mailbox, Notify, Peer, Session, Via};
use crate::resp::{Proto, Reply};

const SIZE: usize = 1 << 20;

#[derive(Debug)]
struct Notified(Sender<u64>);

impl Notify for Notified {
    fn notify(&self, connection: u64) {
        self.0.send(connection).unwrap();
    }
}

/// A client whose connection can wait.
struct Client {
    session: Session,
    mailbox: Arc<Mailbox>,
    notified: Receiver<u64>,
}

impl Client {
    fn new(engine: &Engine) -> Self {
        let (to, notified) = channel();
        let mailbox = Arc::new(Mailbox::new(Arc::new(Notified(to)), 1));
        let peer = Peer { address: "test".into(), local: String::new(), via: Via::Resp };
        let mut session = engine.session(peer, Arc::clone(&mailbox));
        session.may_wait = true;
        Self { session, mailbox, notified }
    }

    fn run(&mut self, engine: &Engine, words: &[&[u8]]) -> (Flow, Vec<u8>) {
        let mut out = Reply::new(Proto::Resp2);
        engine.begin_turn();
        let flow = engine.execute(&mut self.session, words, &mut out);
        engine.end_turn();
        (flow, out.take())
    }

    /// Waits until the work is done.
    fn wait(&self) {
        self.notified.recv().unwrap();
        let drained = self.mailbox.drain(&mut Reply::new(Proto::Resp2));
        assert_eq!(drained, Drained { unblocked: true, close: false });
    }
}

const XOR: [&[u8]; 5] = [b"BITOP", b"XOR", b"made", b"one", b"other"];

/// An engine with two long strings.
fn engine() -> Engine {
    let engine = Engine::in_memory(7);
    let mut client = Client::new(&engine);
    for (key, byte) in [(&b"one"[..], 0b1010), (b"other", 0b0110)] {
        assert_eq!(client.run(&engine, &[b"SET", key, &vec![byte; SIZE]]).1, b"+OK\r\n");
    }
    engine
}

fn made(engine: &Engine) -> Vec<u8> {
    let reply = Client::new(engine).run(engine, &[b"GET", b"made"]).1;
    let head = format!("${SIZE}\r\n");
    reply.strip_prefix(head.as_bytes()).unwrap()[..SIZE].to_vec()
}

#[test]
fn long_work_is_done_by_another_thread_and_the_command_runs_again() {
    let engine = engine();
    let mut client = Client::new(&engine);
    assert_eq!(client.run(&engine, &XOR), (Flow::Aside, Vec::new()));
    client.wait();
    let done = (Flow::Continue, format!(":{SIZE}\r\n").into_bytes());
    assert_eq!(client.run(&engine, &XOR), done);
    assert!(made(&engine) == vec![0b1100; SIZE]);
}

#[test]
fn a_result_is_not_used_if_a_string_has_changed_meanwhile() {
    let engine = engine();
    let (mut client, mut other) = (Client::new(&engine), Client::new(&engine));
    other.session.may_wait = false;
    let mut rounds = 0;
    loop {
        let (flow, reply) = client.run(&engine, &XOR);
        if flow == Flow::Continue {
            assert_eq!(reply, format!(":{SIZE}\r\n").into_bytes());
            break;
        }
        client.wait();
        rounds += 1;
        assert_eq!(other.run(&engine, &[b"SET", b"one", &vec![rounds; SIZE]]).1, b"+OK\r\n");
    }
    assert!(rounds > 1, "after some rounds it is done under the locks");
    assert!(made(&engine) == vec![rounds ^ 0b0110; SIZE]);
}

#[test]
fn results_that_are_not_taken_do_not_hold_up_other_commands() {
    let engine = engine();
    let mut idle: Vec<Client> = (0..DONE_MAX).map(|_| Client::new(&engine)).collect();
    for client in &mut idle {
        assert_eq!(client.run(&engine, &XOR).0, Flow::Aside);
        client.wait();
    }
    let mut client = Client::new(&engine);
    assert_eq!(client.run(&engine, &XOR).0, Flow::Aside);
    client.wait();
    assert_eq!(client.run(&engine, &XOR).0, Flow::Continue);
    assert!(made(&engine) == vec![0b1100; SIZE]);
    // One that ends frees its place.
    engine.close(idle.remove(0).session);
    assert_eq!(client.run(&engine, &XOR).0, Flow::Aside);
    client.wait();
    assert_eq!(client.run(&engine, &XOR).0, Flow::Continue);
}

#[test]
fn a_client_that_cannot_wait_gets_its_reply_at_once() {
    let engine = engine();
    let mut client = Client::new(&engine);
    client.session.may_wait = false;
    assert_eq!(client.run(&engine, &XOR).1, format!(":{SIZE}\r\n").into_bytes());
}
