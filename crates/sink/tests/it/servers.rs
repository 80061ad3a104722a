//! What sinks in servers promise when the server, or the connection to it, fails.

use forebay_sink::{
    Document, DocumentSink, MongoSink, OpenError, Position, PostgresSink, ServerError, SinkError,
};

use crate::proxy::{Cut, Proxy};
use crate::stored::Stored;
use crate::{ferret, pg};

/// A kind of server, one that runs, and a sink in it.
trait Server {
    fn port(&self) -> u16;
    fn kill(&self);
    fn start(&self);
    /// Opens the sink by way of a port.
    fn open(&self, port: u16) -> Result<Box<dyn DocumentSink>, OpenError>;
    /// Reads it, past any proxy.
    fn read(&self, namespace: &str) -> Stored;
    /// What a request that commits has in it, and nothing else between a write and it.
    fn commit_request(&self) -> &'static [u8];
}

impl Server for pg::Postgres {
    fn port(&self) -> u16 {
        forebay_testing::Postgres::port(self)
    }

    fn kill(&self) {
        forebay_testing::Postgres::kill(self);
    }

    fn start(&self) {
        self.start_again();
    }

    fn open(&self, port: u16) -> Result<Box<dyn DocumentSink>, OpenError> {
        Ok(Box::new(PostgresSink::open(&pg::settings_at(port, "cut"))?))
    }

    fn read(&self, namespace: &str) -> Stored {
        pg::Reader::connect(&pg::settings_at(Server::port(self), "cut")).read(namespace)
    }

    fn commit_request(&self) -> &'static [u8] {
        b"; COMMIT"
    }
}

impl Server for ferret::Ferret {
    fn port(&self) -> u16 {
        forebay_testing::Ferret::port(self)
    }

    fn kill(&self) {
        forebay_testing::Ferret::kill(self);
    }

    fn start(&self) {
        self.start_again();
    }

    fn open(&self, port: u16) -> Result<Box<dyn DocumentSink>, OpenError> {
        let settings = ferret::settings_at(port, "cut");
        // Not compressed, so that requests can be inspected; quick to notice a missing server.
        let connect_timeout = std::time::Duration::from_secs(2);
        let settings =
            forebay_sink::mongo::Settings { compression: false, connect_timeout, ..settings };
        Ok(Box::new(MongoSink::open(&settings)?))
    }

    fn read(&self, namespace: &str) -> Stored {
        ferret::Reader::connect(&ferret::settings_at(Server::port(self), "cut")).read(namespace)
    }

    fn commit_request(&self) -> &'static [u8] {
        b"_forebay_sink"
    }
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
        assert!(error.is_transient(), "{}", crate::chain(&error));
    }
    sink.position().map(|position| position.0)
}

fn the_position_tells_whether_a_lost_commit_happened(server: &dyn Server) {
    let proxy = Proxy::before(server.port());
    let mut sink = server.open(proxy.port).unwrap();
    write(&mut *sink, 1).unwrap();
    sink.commit(Position(1)).unwrap();
    for (at, arrives) in [(2, false), (3, true)] {
        write(&mut *sink, at).unwrap();
        proxy.cut(Cut { request: server.commit_request(), arrives });
        let error = sink.commit(Position(at)).unwrap_err();
        assert!(matches!(error, SinkError::CommitInDoubt { .. }), "{}", crate::chain(&error));
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

fn a_killed_server_loses_and_doubles_nothing(server: &dyn Server) {
    let mut sink = server.open(server.port()).unwrap();
    write(&mut *sink, 1).unwrap();
    sink.commit(Position(1)).unwrap();
    // Between two writes of a transaction.
    write(&mut *sink, 2).unwrap();
    server.kill();
    let failed = write(&mut *sink, 3).and_then(|()| sink.commit(Position(3)));
    let error = failed.unwrap_err();
    assert!(error.is_transient(), "{}", crate::chain(&error));
    let error = sink.roll_back().unwrap_err();
    assert!(error.is_unreachable(), "{}", crate::chain(&error));
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
        assert!(error.is_transient(), "{}", crate::chain(&error));
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
    assert!(error.is_unreachable() && error.is_transient(), "{}", crate::chain(&error));
    server.start();
    assert_eq!(server.open(server.port()).unwrap().position(), Some(Position(4)));
}

#[test]
fn postgres_position_tells_whether_a_lost_commit_happened() {
    let Some(server) = pg::postgres() else { return };
    the_position_tells_whether_a_lost_commit_happened(&server);
}

#[test]
fn postgres_killed_loses_and_doubles_nothing() {
    let Some(server) = pg::postgres() else { return };
    a_killed_server_loses_and_doubles_nothing(&server);
}

#[test]
fn mongodb_position_tells_whether_a_lost_commit_happened() {
    let Some(server) = ferret::ferret() else { return };
    the_position_tells_whether_a_lost_commit_happened(&server);
}

#[test]
fn mongodb_killed_loses_and_doubles_nothing() {
    let Some(server) = ferret::ferret() else { return };
    a_killed_server_loses_and_doubles_nothing(&server);
}

#[test]
fn settings_that_cannot_be_are_no_matter_of_time() {
    let mut settings = forebay_sink::postgres::Settings::default();
    settings.server.url = Some("postgres://user:geheim@[".to_owned());
    let error = PostgresSink::open(&settings).unwrap_err();
    assert!(matches!(error, OpenError::Server(ServerError::Settings { .. })));
    assert!(!error.is_transient() && !format!("{error} {error:?} {settings:?}").contains("geheim"));
    let url = "mongodb://user:geheim@host:port/".to_owned();
    let settings = forebay_sink::mongo::Settings { url, ..Default::default() };
    let error = MongoSink::open(&settings).unwrap_err();
    assert!(matches!(error, OpenError::Server(ServerError::Settings { .. })));
    assert!(!error.is_transient() && !format!("{error} {error:?} {settings:?}").contains("geheim"));
}
