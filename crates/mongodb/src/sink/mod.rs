//! Tables and documents in a database of MongoDB, or of a compatible server.
//!
//! Every namespace is a collection: the documents in `_document`, byte for byte (as BSON if that
//! preserves every byte, as text otherwise), beside the values extracted from them, each under its
//! column's name. The layout is described in `docs/formats/mongodb-sink.md`.
//!
//! From the bottom: `settings`, `link` (the database, and the thread that waits for it), `layout` (what
//! is stored), `json` and `row` (documents and rows as BSON), `load` (inserting and removing), `reshape`
//! (changed columns), `writer` (the traits of writers).
//!
//! # Guarantees without transactions
//! Servers without replica sets have no transactions, so none are used. The guarantees are:
//! * **The position is one document's field**, written after everything it covers: it alone
//!   determines what is committed, at any moment and after any crash.
//! * **Readers can see what is committed.** Rows of an uncommitted transaction are in the
//!   collections meanwhile; a reader should read up to the last id of the valid commit: `_at` of a
//!   row is at or below `position` once it is committed.
//! * **Leftovers are removed.** Rows above the committed last id are removed by the next roll-back
//!   and whenever the sink is opened.
//! * **Nothing is duplicated.** `_id` is the row's id: writing a row again meets its own key, which
//!   counts as written.
//! * **Changed columns follow the commit.** Rows get the values of columns that were added or changed
//!   after the commit that did so, each once; a sink that was killed meanwhile continues when it is
//!   opened again.
//! * **Changed rows follow the commit**, too: they are replaced or removed after it, from what was written
//!   beside them before it.
//! * **One writer.** Opening a sink takes it over: the opener becomes the owner, and the previous
//!   one is refused with its next commit. A roll-back increments the epoch, so that a commit whose
//!   answer was lost has happened before the position is read again, or never will.

mod changes;
pub(crate) mod json;
mod layout;
mod link;
mod load;
mod reshape;
mod row;
mod settings;
mod writer;

use std::collections::HashMap;

use forebay_sink::server::book::{Book, Commit};
use forebay_sink::transaction::Transaction;
use forebay_sink::{Identity, OpenError, Position, ServerError, Sink, SinkError};
use mongodb::bson::{Document, doc};
use mongodb::options::ReturnDocument;

use changes::Changes;
use layout::{State, long};
use link::Link;
use load::Load;
use reshape::Shape;

pub use layout::LAYOUT_VERSION;
pub use settings::Settings;

/// Writes tables and documents into a MongoDB; see the [module](self).
///
/// Its calls block, waiting for a separate thread: they must not be made in tasks of a runtime.
#[derive(Debug)]
pub struct MongoSink {
    link: Link,
    load: Load,
    book: Book,
    /// Its identity towards the server: random, created on opening.
    owner: String,
    epoch: i64,
    /// Namespaces as of the last commit.
    slots: HashMap<String, Document>,
    /// Changes of columns in the open transaction, by namespace.
    shapes: HashMap<String, Shape>,
    /// Changes of rows in the open transaction, by the namespaces' places in the book.
    changes: HashMap<usize, Changes>,
    /// Changes of columns and of rows begun in this epoch.
    attempts: i64,
}

impl MongoSink {
    /// Connects and opens the sink; creates it if it does not exist, and takes it over if it does.
    ///
    /// # Errors
    /// [`OpenError::Server`]: the settings, the connection, the server, or its contents under these
    /// names; [`OpenError::is_transient`] shows whether to try again.
    pub fn open(settings: &Settings) -> Result<MongoSink, OpenError> {
        let link = Link::new(settings)?;
        let owner = mongodb::bson::Uuid::new().to_string();
        let sinks = link.database.collection::<Document>(layout::STATE);
        let there =
            link.wait("look up the sink", sinks.find_one(doc! { "_id": "state" }).into_future())?;
        if there.is_none() {
            let made = layout::new_state(mongodb::bson::Uuid::new().bytes());
            link.wait("create the sink", async {
                load::unless_there(sinks.insert_one(made).await)
            })?;
        }
        let claimed = claim(&link, doc! { "_id": "state" }, &owner)?;
        let book = Book::new(claimed.identity, claimed.position, Vec::new());
        let epoch = claimed.epoch;
        let (slots, shapes, changes) = (HashMap::new(), HashMap::new(), HashMap::new());
        let load = Load::default();
        let mut sink =
            MongoSink { link, load, book, owner, epoch, slots, shapes, changes, attempts: 0 };
        sink.read(claimed)?;
        Ok(sink)
    }

    /// Adopts a claimed state: reads the namespaces and removes what is not committed.
    fn read(&mut self, state: State) -> Result<(), ServerError> {
        const ACT: &str = "read the namespaces";
        self.epoch = state.epoch;
        self.attempts = 0;
        let documents = load::all(&self.link, ACT, layout::NAMESPACES)?;
        let (mut namespaces, mut slots, mut sweeps) = (Vec::new(), HashMap::new(), Vec::new());
        for (number, document) in (1..).zip(&documents) {
            let odd = |found| self.link.contents(ACT, found);
            let slot = layout::slot_at(document, state.position).map_err(odd)?;
            let mut namespace = layout::parse_namespace(document, slot).map_err(odd)?;
            namespace.number = number;
            sweeps.push((namespace.table.clone(), namespace.last_id));
            // A namespace that only an uncommitted transaction created does not exist yet.
            if let Some(slot) = slot {
                slots.insert(namespace.name.clone(), slot.clone());
                namespaces.push(namespace);
            }
        }
        load::sweep(&self.link, sweeps)?;
        changes::resume(&self.link, state.changes)?;
        for document in &documents {
            let slot = layout::slot_at(document, state.position);
            let slot = slot.map_err(|found| self.link.contents(ACT, found))?;
            self.resume(document, slot)?;
        }
        self.book = Book::new(state.identity, state.position, namespaces);
        self.slots = slots;
        Ok(())
    }

    /// Ends a failed transaction; the roll-back removes what it left behind.
    fn abandon(&mut self) {
        self.load.forget();
        self.shapes.clear();
        self.changes.clear();
        self.book.transaction = Transaction::Failed;
    }

    /// Returns `result`; an error ends the transaction.
    fn settle<T>(&mut self, result: Result<T, SinkError>) -> Result<T, SinkError> {
        if result.is_err() {
            self.abandon();
        }
        result
    }

    /// Opens a transaction unless one is open. Nothing is sent to the server.
    fn begin(&mut self) -> Result<(), SinkError> {
        match self.book.transaction {
            Transaction::Open { .. } => {}
            Transaction::Failed => return Err(SinkError::RolledBack),
            Transaction::Idle => self.book.transaction = Transaction::Open { written: None },
        }
        Ok(())
    }

    fn store(&mut self, position: Position) -> Result<(), SinkError> {
        match self.book.commit(position)? {
            Commit::Nothing => {
                self.book.amends = false;
                return Ok(());
            }
            Commit::Begin => self.begin()?,
            Commit::Store => {}
        }
        self.load.flush_all(&self.link, &self.book)?;
        let changes = self.stage_changes()?;
        let saved = self.save_namespaces(position)?;
        let sinks = self.link.database.collection::<Document>(layout::STATE);
        let mine = doc! { "_id": "state", "owner": &self.owner, "epoch": self.epoch };
        let mut moved = doc! { "position": long(position.0) };
        moved.extend(changes.map(|number| ("changes".to_owned(), number.into())));
        let moved = sinks.update_one(mine, doc! { "$set": moved });
        let updated = self.link.wait("commit", moved.into_future());
        match updated {
            Ok(updated) if updated.matched_count == 0 => return Err(self.superseded("commit")),
            Ok(_) => {}
            Err(source) if source.is_unreachable() => {
                return Err(SinkError::CommitInDoubt { position, source });
            }
            Err(source) => return Err(source.into()),
        }
        self.slots.extend(saved);
        self.book.committed(position);
        self.changes.clear();
        // An error from here on makes the next roll-back read what is committed, and continue.
        if let Some(number) = changes {
            changes::make(&self.link, number)?;
        }
        Ok(self.fill_all()?)
    }

    /// Stores the next state of the namespaces, which is valid once the position is stored.
    fn save_namespaces(&self, position: Position) -> Result<Vec<(String, Document)>, SinkError> {
        let saved: Vec<(String, Document)> = self
            .book
            .dirty()
            .map(|namespace| {
                let mut slot = layout::slot(namespace, position);
                if let Some(shape) = self.shape_of(&namespace.name) {
                    slot.insert("shape", shape);
                }
                (namespace.name.clone(), slot)
            })
            .collect();
        let updates = saved.iter().map(|(name, slot)| {
            let before = self.slots.get(name).cloned();
            // A sink that took it over has a higher epoch.
            let mine = doc! { "_id": name, "epoch": { "$lte": self.epoch } };
            let update = doc! { "$set": { "before": before, "now": slot, "epoch": self.epoch } };
            (mine, update)
        });
        let is_mine = load::update_all(&self.link, "save the namespaces", updates.collect())?;
        if is_mine { Ok(saved) } else { Err(self.superseded("save the namespaces")) }
    }

    fn superseded(&self, act: &str) -> SinkError {
        ServerError::InUse { act: act.to_owned(), server: self.link.place.clone() }.into()
    }
}

/// Takes the sink over if `filter` finds it, with a new epoch.
fn claim(link: &Link, filter: Document, owner: &str) -> Result<State, ServerError> {
    const ACT: &str = "take over the sink";
    let sinks = link.database.collection::<Document>(layout::STATE);
    let update = doc! { "$set": { "owner": owner }, "$inc": { "epoch": 1_i64 } };
    let claimed = sinks.find_one_and_update(filter, update).return_document(ReturnDocument::After);
    let claimed = link.wait(ACT, claimed.into_future())?;
    let Some(state) = claimed else {
        return Err(ServerError::InUse { act: ACT.to_owned(), server: link.place.clone() });
    };
    layout::parse_state(&state).map_err(|found| link.contents(ACT, found))
}

impl Sink for MongoSink {
    fn position(&self) -> Option<Position> {
        self.book.position
    }

    fn identity(&self) -> Option<Identity> {
        Some(self.book.identity)
    }

    fn commit(&mut self, position: Position) -> Result<(), SinkError> {
        let stored = self.store(position);
        self.settle(stored)
    }

    fn roll_back(&mut self) -> Result<(), SinkError> {
        self.book.amends = false;
        if self.book.transaction == Transaction::Idle {
            return Ok(());
        }
        self.abandon();
        // Only as its owner: a superseded sink stays so until it is opened again.
        let mine = doc! { "_id": "state", "owner": &self.owner };
        let read = claim(&self.link, mine, &self.owner).and_then(|state| self.read(state));
        read.map_err(|error| SinkError::Reread(error.into()))
    }

    fn checkpoint(&mut self) -> Result<Option<Position>, SinkError> {
        // Every write was acknowledged once it was in the journal.
        Ok(self.book.position)
    }
}
