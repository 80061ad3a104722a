//! Tables and documents in a database of a MongoDB, or of what speaks its protocol.
//!
//! Every namespace is a collection: the documents in `_document`, byte for byte (as BSON where that says the
//! same bytes, as text otherwise), beside the values lifted out of them, each under its column's name. The layout is described in `docs/formats/mongodb-sink.md`.
//!
//! From the bottom: `settings`, `connect`, `layout` (what is stored), `json` and `row` (documents and rows as BSON), `load` (inserting
//! and removing), `writer` (the traits that take rows), `reader`.
//!
//! # What holds without transactions
//! Servers without replicas have none, so none are used, and this is promised instead:
//! * **The position is one document's field**, written after everything it covers: what is committed is told
//!   by it alone, at any moment and after any crash.
//! * **Readers see what is committed.** Rows of a transaction that is not committed (yet, or ever) lie in the
//!   collections meanwhile; [`MongoReader`] reads up to the last id of the commit that holds, and so
//!   should others: `_at` of a row is at or below `position` once it is committed.
//! * **Leftovers go away.** Rows above the committed last id are removed by the next roll-back and whenever
//!   the sink is opened.
//! * **Nothing is there twice.** `_id` is the row's id: writing a row again meets its own key, which counts as
//!   written.
//! * **One writer.** Who opens a sink takes it over: it becomes the owner, and the one before is refused with
//!   its next commit. A roll-back raises the epoch, so that a commit whose answer was lost has happened
//!   before the position is read again, or never will.

mod connect;
mod json;
mod layout;
mod load;
mod reader;
mod row;
mod settings;
mod writer;

use std::collections::HashMap;

use mongodb::bson::{Document, doc};
use mongodb::options::ReturnDocument;

use crate::book::{Book, Commit};
use crate::error::{OpenError, SinkError};
use crate::server::ServerError;
use crate::sink::{Position, Sink};
use crate::sqlite::Identity;
use crate::transaction::Transaction;
use connect::Link;
use layout::{State, long};
use load::Load;

pub use layout::LAYOUT_VERSION;
pub use reader::MongoReader;
pub use settings::Settings;

/// Writes tables and documents into a MongoDB; see the [module](self).
///
/// Its calls block and have a thread of their own to wait for: they are not for tasks of a runtime.
#[derive(Debug)]
pub struct MongoSink {
    link: Link,
    load: Load,
    book: Book,
    /// Who this is to the server: random, made when it was opened.
    owner: String,
    epoch: i64,
    /// Namespaces as of the last commit.
    slots: HashMap<String, Document>,
}

impl MongoSink {
    /// Connects and opens the sink, making it where it is not there, taking it over where it is.
    ///
    /// # Errors
    /// [`OpenError::Server`]: the settings, the way to the server, the server, or what it has under these
    /// names; [`OpenError::is_transient`] tells whether to try again.
    pub fn open(settings: &Settings) -> Result<MongoSink, OpenError> {
        let link = Link::new(settings)?;
        let owner = mongodb::bson::Uuid::new().to_string();
        let sinks = link.database.collection::<Document>(layout::STATE);
        let there =
            link.wait("look for the sink", sinks.find_one(doc! { "_id": "state" }).into_future())?;
        if there.is_none() {
            let made = layout::new_state(mongodb::bson::Uuid::new().bytes());
            link.wait("make the sink", async { load::unless_there(sinks.insert_one(made).await) })?;
        }
        let claimed = claim(&link, doc! { "_id": "state" }, &owner)?;
        let book = Book::new(claimed.identity, claimed.position, Vec::new());
        let epoch = claimed.epoch;
        let slots = HashMap::new();
        let mut sink = MongoSink { link, load: Load::default(), book, owner, epoch, slots };
        sink.read(claimed)?;
        Ok(sink)
    }

    /// For people: which database of which server.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.link.place
    }

    /// Adopts a state that was just claimed: reads the namespaces and removes what is not committed.
    fn read(&mut self, state: State) -> Result<(), ServerError> {
        const ACT: &str = "read the namespaces";
        let documents = load::all(&self.link, ACT, layout::NAMESPACES)?;
        let (mut namespaces, mut slots, mut sweeps) = (Vec::new(), HashMap::new(), Vec::new());
        for (number, document) in (1..).zip(&documents) {
            let odd = |found| self.link.contents(ACT, found);
            let slot = layout::slot_at(document, state.position).map_err(odd)?;
            let mut namespace = layout::parse_namespace(document, slot).map_err(odd)?;
            namespace.number = number;
            sweeps.push((namespace.table.clone(), namespace.last_id));
            // One that only a transaction made which was not committed is none yet.
            if let Some(slot) = slot {
                slots.insert(namespace.name.clone(), slot.clone());
                namespaces.push(namespace);
            }
        }
        load::sweep(&self.link, sweeps)?;
        self.book = Book::new(state.identity, state.position, namespaces);
        self.epoch = state.epoch;
        self.slots = slots;
        Ok(())
    }

    /// Ends a transaction that went wrong; what it left behind is removed by the roll-back.
    fn abandon(&mut self) {
        self.load.forget();
        self.book.transaction = Transaction::Failed;
    }

    /// Passes `result` on; an error takes the transaction with it.
    fn settle<T>(&mut self, result: Result<T, SinkError>) -> Result<T, SinkError> {
        if result.is_err() {
            self.abandon();
        }
        result
    }

    /// Opens a transaction unless one is open. The server is not told.
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
            Commit::Nothing => return Ok(()),
            Commit::Begin => self.begin()?,
            Commit::Store => {}
        }
        self.load.flush_all(&self.link, &self.book)?;
        let saved = self.save_namespaces(position)?;
        let sinks = self.link.database.collection::<Document>(layout::STATE);
        let mine = doc! { "_id": "state", "owner": &self.owner, "epoch": self.epoch };
        let moved = doc! { "$set": { "position": long(position.0) } };
        let updated = self.link.wait("commit", sinks.update_one(mine, moved).into_future());
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
        Ok(())
    }

    /// Writes down what the namespaces will be once the position is there.
    fn save_namespaces(&self, position: Position) -> Result<Vec<(String, Document)>, SinkError> {
        let saved: Vec<(String, Document)> = self
            .book
            .dirty()
            .map(|namespace| (namespace.name.clone(), layout::slot(namespace, position)))
            .collect();
        let updates = saved.iter().map(|(name, slot)| {
            let before = self.slots.get(name).cloned();
            // Whoever took the sink over has a higher epoch.
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

/// Takes the sink over where `filter` finds it, with a new epoch.
fn claim(link: &Link, filter: Document, owner: &str) -> Result<State, ServerError> {
    const ACT: &str = "take the sink over";
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
        if self.book.transaction == Transaction::Idle {
            return Ok(());
        }
        self.abandon();
        // As its owner only: who was superseded stays so until the sink is opened again.
        let mine = doc! { "_id": "state", "owner": &self.owner };
        let read = claim(&self.link, mine, &self.owner).and_then(|state| self.read(state));
        read.map_err(|error| SinkError::Reread(error.into()))
    }

    fn checkpoint(&mut self) -> Result<Option<Position>, SinkError> {
        // Every write was answered once it was in the journal.
        Ok(self.book.position)
    }
}
