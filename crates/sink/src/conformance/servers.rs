//! What sinks in servers promise when the server, or the connection to it, fails.

#![expect(clippy::unwrap_used, reason = "what a test sets up itself either works or ends the test")]

use forebay_base::error_chain::chain;

use super::{Cut, Proxy, Stored};
use crate::error::{OpenError, SinkError};
use crate::sink::{Document, DocumentSink, Position};

/// A kind of server, one that runs, and a sink in it.
pub trait ServerSubject {
    /// Its port on this machine.
    fn port(&self) -> u16;
    /// Kills it, as the system would.
    fn kill(&self);
    /// Starts it again, on the same port.
    fn start(&self);
    /// Opens the sink by way of a port.
    ///
    /// # Errors
    /// When that fails.
    fn open(&self, port: u16) -> Result<Box<dyn DocumentSink>, OpenError>;
    /// Reads it, past any proxy.
    fn read(&self, namespace: &str) -> Stored;
    /// What a request that commits has in it, and nothing else between a write and it.
    fn commit_request(&self) -> &'static [u8];
}

/// Writes an entry of three documents, whose ids follow from its position.
fn write(sink: &mut dyn DocumentSink, at: u64) -> Result<(), SinkError> {
    let raw = format!("{{\"at\":{at}}}");
    let document = |number| Document { id: at * 10 + number, received_ms: 7, raw: raw.as_bytes() };
    let documents: Vec<Document<'_>> = (0..3).map(document).collect();
    sink.write_documents(Position(at), "a", &documents).map(|_| ())
}

fn expected(last: u64) -> Vec<u64> {
    (1..=last).flat_map(|at| [at * 10, at * 10 + 1, at * 10 + 2]).collect()
}

/// What feeds a sink does after an error: rolls back until that works.
fn recover(sink: &mut dyn DocumentSink) -> Option<u64> {
    while let Err(error) = sink.roll_back() {
        assert!(error.is_transient(), "{}", chain(&error));
    }
    sink.position().map(|position| position.0)
}

/// A commit whose answer was lost has happened or not, and the position shows which.
///
/// # Panics
/// If the sink does not keep that promise.
pub fn the_position_shows_whether_a_lost_commit_happened(server: &dyn ServerSubject) {
    let proxy = Proxy::before(server.port());
    let mut sink = server.open(proxy.port).unwrap();
    write(&mut *sink, 1).unwrap();
    sink.commit(Position(1)).unwrap();
    for (at, arrives) in [(2, false), (3, true)] {
        write(&mut *sink, at).unwrap();
        proxy.cut(Cut { request: server.commit_request(), arrives });
        let error = sink.commit(Position(at)).unwrap_err();
        assert!(matches!(error, SinkError::CommitInDoubt { .. }), "{}", chain(&error));
        assert!(proxy.has_cut() && error.is_unreachable() && error.is_transient());
        let last = if arrives { at } else { at - 1 };
        assert_eq!(recover(&mut *sink), Some(last));
        assert_eq!(server.read("a").ids(), expected(last));
        // Writing it again does it once, whichever of the two it was.
        write(&mut *sink, at).unwrap();
        sink.commit(Position(at)).unwrap();
        assert_eq!(server.read("a").ids(), expected(at));
    }
    drop(sink);
    assert_eq!(server.open(server.port()).unwrap().position(), Some(Position(3)));
}

/// A server that is killed, in a transaction, between two, and while the sink is closed, loses nothing
/// that was committed, and nothing is there twice.
///
/// # Panics
/// If the sink does not keep that promise.
pub fn a_killed_server_loses_and_doubles_nothing(server: &dyn ServerSubject) {
    let mut sink = server.open(server.port()).unwrap();
    write(&mut *sink, 1).unwrap();
    sink.commit(Position(1)).unwrap();
    // Between two writes of a transaction.
    write(&mut *sink, 2).unwrap();
    server.kill();
    let failed = write(&mut *sink, 3).and_then(|()| sink.commit(Position(3)));
    let error = failed.unwrap_err();
    assert!(error.is_transient(), "{}", chain(&error));
    let error = sink.roll_back().unwrap_err();
    assert!(error.is_unreachable(), "{}", chain(&error));
    let refused = write(&mut *sink, 2).unwrap_err();
    assert!(matches!(refused, SinkError::RolledBack));
    server.start();
    assert_eq!(recover(&mut *sink), Some(1));
    assert_eq!(server.read("a").ids(), expected(1));
    for at in 2..=3 {
        write(&mut *sink, at).unwrap();
    }
    sink.commit(Position(3)).unwrap();
    // Between two transactions: the next write finds its way by itself, or says that it did not.
    server.kill();
    server.start();
    if let Err(error) = write(&mut *sink, 4).and_then(|()| sink.commit(Position(4))) {
        assert!(error.is_transient(), "{}", chain(&error));
        assert_eq!(recover(&mut *sink), Some(3));
        write(&mut *sink, 4).unwrap();
        sink.commit(Position(4)).unwrap();
    }
    assert_eq!(server.read("a").ids(), expected(4));
    assert_eq!(server.read("a").position, Some(Position(4)));
    // While the sink was away as well.
    drop(sink);
    server.kill();
    let error = server.open(server.port()).err().unwrap();
    assert!(error.is_unreachable() && error.is_transient(), "{}", chain(&error));
    server.start();
    assert_eq!(server.open(server.port()).unwrap().position(), Some(Position(4)));
}
