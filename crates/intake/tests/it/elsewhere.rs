//! A database that documents are forwarded to: another file, that can be unavailable, refuse, or fail
//! at any call.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use forebay_intake::documents::PageLimits;
use forebay_intake::{Database, DatabaseStatus, ForwardOptions, Intake};
use forebay_sink::{
    Derive, Document, DocumentSink, Field, Identity, OpenError, Position, RowSink, RowWriter,
    ServerError, Sink, SinkError, StoredDocument, TableSchema, Value, Written,
};
use forebay_sqlite::{SqliteReader, SqliteSink};
use rusqlite::Connection;

use crate::support::{DOCUMENTS, block_on};

/// A test that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);
/// All rows of a test.
const ALL: PageLimits = PageLimits { rows_max: 1 << 20, bytes_max: 1 << 30 };

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + HANG;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// The database.
#[derive(Debug, Clone)]
pub(crate) struct Elsewhere {
    pub(crate) path: PathBuf,
    switch: Arc<Switch>,
}

/// When a call fails.
#[derive(Debug, Default)]
struct Switch {
    is_away: AtomicBool,
    refuses: AtomicBool,
    calls: AtomicU64,
    /// The call that fails, counted from 1; 0 for none.
    fails_at: AtomicU64,
    /// Whether it fails after it has taken effect.
    fails_after: AtomicBool,
}

impl Switch {
    fn check(&self) -> Result<(), SinkError> {
        let (act, server) = ("write".to_owned(), "elsewhere".to_owned());
        if self.is_away.load(SeqCst) {
            let source = "it is away".into();
            return Err(SinkError::Server(ServerError::Unreachable { act, server, source }));
        }
        if self.refuses.load(SeqCst) {
            let source = "permission denied".into();
            return Err(SinkError::Server(ServerError::Refused { act, server, source }));
        }
        Ok(())
    }

    /// Runs a call that may fail.
    fn call<T>(&self, act: impl FnOnce() -> Result<T, SinkError>) -> Result<T, SinkError> {
        let call = self.calls.fetch_add(1, SeqCst) + 1;
        self.check()?;
        if call == self.fails_at.load(SeqCst) {
            if self.fails_after.load(SeqCst) {
                act()?;
            }
            return Err(SinkError::RolledBack);
        }
        act()
    }
}

impl Elsewhere {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, switch: Arc::default() }
    }

    /// Options that send documents there and try again at once.
    pub(crate) fn options(&self) -> ForwardOptions {
        let mut options = ForwardOptions::new(Arc::new(self.clone()));
        options.spill_after = Duration::ZERO;
        options.retry_min = Duration::from_millis(1);
        options.retry_max = Duration::from_millis(5);
        options
    }

    pub(crate) fn go_away(&self, is_away: bool) {
        self.switch.is_away.store(is_away, SeqCst);
    }

    /// Refuses every write from here on, or no longer.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.switch.refuses.store(refuses, SeqCst);
    }

    /// Makes one call fail, counted from now, after or before it takes effect.
    pub(crate) fn fail_at(&self, call: u64, after: bool) {
        self.switch.calls.store(0, SeqCst);
        self.switch.fails_after.store(after, SeqCst);
        self.switch.fails_at.store(call, SeqCst);
    }

    /// Whether the failing call was made.
    pub(crate) fn has_failed(&self) -> bool {
        self.switch.calls.load(SeqCst) >= self.switch.fails_at.load(SeqCst)
    }

    /// Whether the database has exactly the documents of the intake at `dir`, byte for byte, in the
    /// same tables.
    pub(crate) fn is_same(&self, dir: &Path) -> bool {
        self.difference(dir).is_none()
    }

    /// Fails unless [`Elsewhere::is_same`].
    pub(crate) fn check_same(&self, dir: &Path, at: &str) {
        assert_eq!(self.difference(dir), None, "{at}");
    }

    fn difference(&self, dir: &Path) -> Option<String> {
        let here = SqliteReader::open(&dir.join(DOCUMENTS)).unwrap();
        let there = SqliteReader::open(&self.path).unwrap();
        assert_eq!(there.check().unwrap(), []);
        let namespaces = |reader: &SqliteReader| {
            let mut namespaces = reader.namespaces().unwrap();
            // Only the intake's own database has this mark.
            namespaces.iter_mut().for_each(|info| info.undecided = false);
            // What was copied instead of followed was changed at another position.
            for info in &mut namespaces {
                (info.changed_at, info.removed_at, info.dropped_at) = (None, None, None);
            }
            namespaces.sort_by(|a, b| a.name.cmp(&b.name));
            namespaces
        };
        let (expected, found) = (namespaces(&here), namespaces(&there));
        if found != expected {
            return Some(format!("{found:?}, expected {expected:?}"));
        }
        let rows = |reader: &SqliteReader, name: &str| {
            let page = reader.rows(name, None, ALL).unwrap();
            (page.schema.columns().to_vec(), page.rows)
        };
        let differs = |name: &str| rows(&there, name) != rows(&here, name);
        expected.into_iter().map(|info| info.name).find(|name| differs(name))
    }

    /// All documents of a namespace.
    pub(crate) fn documents(&self, namespace: &str) -> Vec<StoredDocument> {
        if !self.path.exists() {
            return Vec::new();
        }
        let reader = SqliteReader::open(&self.path).unwrap();
        reader.documents(namespace, None, ALL).unwrap().documents
    }

    /// Number of rows of a namespace.
    pub(crate) fn count(&self, namespace: &str) -> u64 {
        SqliteReader::open(&self.path).unwrap().count(namespace).unwrap()
    }

    /// Runs SQL in it, as another program would.
    pub(crate) fn run(&self, sql: &str) {
        let db = Connection::open(&self.path).unwrap();
        db.busy_timeout(HANG).unwrap();
        db.execute_batch(sql).unwrap();
    }
}

/// Waits until the database has everything.
pub(crate) async fn caught_up(intake: &Intake) -> DatabaseStatus {
    follows(intake, 0).await
}

/// Waits until the database has everything, except for this many documents.
pub(crate) fn caught_up_but_for(intake: &Intake, lacking: u64) -> DatabaseStatus {
    block_on(follows(intake, lacking))
}

async fn follows(intake: &Intake, lacking: u64) -> DatabaseStatus {
    // The local database shows a document only after forwarding was informed.
    intake.namespaces().await.unwrap();
    let mut last = intake.database().unwrap();
    until("the database has everything", || {
        last = intake.database().unwrap();
        last.state.name() == "following" && last.documents_waiting == lacking
    });
    last
}

impl Database for Elsewhere {
    fn name(&self) -> String {
        "elsewhere".into()
    }

    fn open(&self) -> Result<Box<dyn RowSink>, OpenError> {
        if self.switch.is_away.load(SeqCst) {
            return Err(OpenError::Server(ServerError::Unreachable {
                act: "connect".into(),
                server: "elsewhere".into(),
                source: "it is away".into(),
            }));
        }
        let sink = SqliteSink::open(&self.path)?;
        Ok(Box::new(Gate { sink, switch: self.switch.clone() }))
    }
}

/// A sink whose calls may fail.
struct Gate {
    sink: SqliteSink,
    switch: Arc<Switch>,
}

impl Sink for Gate {
    fn position(&self) -> Option<Position> {
        self.sink.position()
    }

    fn identity(&self) -> Option<Identity> {
        Some(self.sink.identity())
    }

    fn commit(&mut self, position: Position) -> Result<(), SinkError> {
        self.switch.call(|| self.sink.commit(position))
    }

    fn roll_back(&mut self) -> Result<(), SinkError> {
        self.sink.roll_back()
    }

    fn checkpoint(&mut self) -> Result<Option<Position>, SinkError> {
        if self.switch.is_away.load(SeqCst) {
            // As the drivers of servers: what was acknowledged is durable there, and known here.
            return self.sink.checkpoint();
        }
        self.switch.call(|| self.sink.checkpoint())
    }
}

impl DocumentSink for Gate {
    fn write_documents(
        &mut self,
        at: Position,
        namespace: &str,
        documents: &[Document<'_>],
    ) -> Result<Written, SinkError> {
        self.switch.call(|| self.sink.write_documents(at, namespace, documents))
    }

    fn last_id(&mut self, namespace: &str) -> Result<Option<u64>, SinkError> {
        self.sink.last_id(namespace)
    }
}

impl RowSink for Gate {
    fn row_writer<'s>(
        &'s mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Box<dyn RowWriter + 's>, SinkError> {
        let writer = self.sink.row_writer(at, namespace, fields)?;
        Ok(Box::new(GateWriter { writer, switch: self.switch.clone() }))
    }

    fn reshape(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
        derive: &mut Derive<'_>,
    ) -> Result<Written, SinkError> {
        self.switch.call(|| self.sink.reshape(at, namespace, fields, derive))
    }

    fn replace(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
        document: &Document<'_>,
        values: &[Value<'_>],
    ) -> Result<Written, SinkError> {
        self.switch.call(|| self.sink.replace(at, namespace, fields, document, values))
    }

    fn remove(&mut self, at: Position, namespace: &str, id: u64) -> Result<Written, SinkError> {
        self.switch.call(|| self.sink.remove(at, namespace, id))
    }

    fn clear(&mut self, at: Position, namespace: &str, last_id: u64) -> Result<Written, SinkError> {
        self.switch.call(|| self.sink.clear(at, namespace, last_id))
    }

    fn amend(&mut self) {
        self.sink.amend();
    }

    fn columns(&mut self, namespace: &str) -> Result<Option<&TableSchema>, SinkError> {
        self.sink.columns(namespace)
    }
}

struct GateWriter<'s> {
    writer: Box<dyn RowWriter + 's>,
    switch: Arc<Switch>,
}

impl RowWriter for GateWriter<'_> {
    fn write(&mut self, document: &Document<'_>, values: &[Value<'_>]) -> Result<(), SinkError> {
        self.writer.write(document, values)
    }

    fn finish(self: Box<Self>) -> Result<Written, SinkError> {
        let Self { writer, switch } = *self;
        switch.call(|| writer.finish())
    }
}
