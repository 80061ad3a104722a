//! An external database that can be unavailable, or fail at any call, for tests of forwarding.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use forebay_api::intake::router;
use forebay_intake::{Database, DatabaseStatus, ForwardOptions, Intake};
use forebay_sink::ServerError;
use forebay_sink::{
    Derive, Document, DocumentSink, Field, Identity, OpenError, Position, RowSink, RowWriter, Sink,
    SinkError, StoredDocument, TableSchema, Value, Written,
};
use forebay_sqlite::{PageLimits, SqliteReader, SqliteSink};

use super::support::send;

/// A test that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + HANG;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// When a call fails.
#[derive(Debug, Default)]
struct Switch {
    is_away: AtomicBool,
    calls: AtomicU64,
    /// The call that fails, counted from 1; 0 for none.
    fails_at: AtomicU64,
    /// Whether it fails after it has taken effect.
    fails_after: AtomicBool,
}

impl Switch {
    /// Runs a call that may fail.
    fn call<T>(&self, act: impl FnOnce() -> Result<T, SinkError>) -> Result<T, SinkError> {
        let call = self.calls.fetch_add(1, SeqCst) + 1;
        if self.is_away.load(SeqCst) {
            return Err(SinkError::RolledBack);
        }
        if call == self.fails_at.load(SeqCst) {
            if self.fails_after.load(SeqCst) {
                act()?;
            }
            return Err(SinkError::RolledBack);
        }
        act()
    }
}

/// A database in a file.
#[derive(Debug, Clone)]
pub(crate) struct Elsewhere {
    pub(crate) path: PathBuf,
    switch: Arc<Switch>,
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

    /// Runs SQL in it, as another program would.
    pub(crate) fn run(&self, sql: &str) {
        let db = rusqlite::Connection::open(&self.path).unwrap();
        db.busy_timeout(HANG).unwrap();
        db.execute_batch(sql).unwrap();
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

    /// All documents of a namespace.
    pub(crate) fn documents(&self, namespace: &str) -> Vec<StoredDocument> {
        if !self.path.exists() {
            return Vec::new();
        }
        let reader = SqliteReader::open(&self.path).unwrap();
        let limits = PageLimits { rows_max: 1 << 20, bytes_max: 1 << 30 };
        reader.documents(namespace, None, limits).unwrap().documents
    }

    /// Whether it has exactly the documents of the intake at `dir`, byte for byte, in the same
    /// tables.
    pub(crate) fn check_same(&self, dir: &Path, at: &str) {
        let (here, there) = (
            SqliteReader::open(&dir.join("documents.sqlite")).unwrap(),
            SqliteReader::open(&self.path).unwrap(),
        );
        let names = |reader: &SqliteReader| {
            let mut names: Vec<_> = reader.namespaces().unwrap();
            // Only the intake's own database has this mark.
            names.iter_mut().for_each(|info| info.undecided = false);
            names.sort_by(|a, b| a.name.cmp(&b.name));
            names
        };
        assert_eq!(names(&there), names(&here), "{at}");
        for info in names(&here) {
            let rows = |reader: &SqliteReader| {
                let limits = PageLimits { rows_max: 1 << 20, bytes_max: 1 << 30 };
                let page = reader.rows(&info.name, None, limits).unwrap();
                let columns: Vec<_> = page.schema.columns().to_vec();
                (columns, page.rows)
            };
            assert!(rows(&there) == rows(&here), "{at}: {} differs", info.name);
        }
    }
}

/// Waits until the database has everything.
pub(crate) async fn caught_up(intake: &Intake) -> DatabaseStatus {
    // The local database shows a document only after forwarding was informed.
    let shown = send(router(intake), "GET", "/v1/documents", &[], "").await;
    assert_eq!(shown.status, 200, "{shown:?}");
    let mut last = intake.database().unwrap();
    until("the database has everything", || {
        last = intake.database().unwrap();
        last.state.name() == "following" && last.documents_waiting == 0
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
        Ok(Box::new(Faulty { sink, switch: self.switch.clone() }))
    }
}

/// A sink whose calls may fail.
struct Faulty {
    sink: SqliteSink,
    switch: Arc<Switch>,
}

impl Sink for Faulty {
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
        self.switch.call(|| self.sink.checkpoint())
    }
}

impl DocumentSink for Faulty {
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

impl RowSink for Faulty {
    fn row_writer<'s>(
        &'s mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Box<dyn RowWriter + 's>, SinkError> {
        let writer = self.sink.row_writer(at, namespace, fields)?;
        Ok(Box::new(FaultyWriter { writer, switch: self.switch.clone() }))
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

    fn amend(&mut self) {
        self.sink.amend();
    }

    fn columns(&mut self, namespace: &str) -> Result<Option<&TableSchema>, SinkError> {
        self.sink.columns(namespace)
    }
}

struct FaultyWriter<'s> {
    writer: Box<dyn RowWriter + 's>,
    switch: Arc<Switch>,
}

impl RowWriter for FaultyWriter<'_> {
    fn write(&mut self, document: &Document<'_>, values: &[Value<'_>]) -> Result<(), SinkError> {
        self.writer.write(document, values)
    }

    fn finish(self: Box<Self>) -> Result<Written, SinkError> {
        let Self { writer, switch } = *self;
        switch.call(|| writer.finish())
    }
}
