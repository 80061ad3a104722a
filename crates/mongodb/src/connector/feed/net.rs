//! What changes amount to, as documents that are staged.
//!
//! A row that changes keeps its document, with the fields that the stream does not have: it gets the fields that were
//! sent. Where its key changes, or another index is unique, the document is removed and written again as a whole, so
//! that no two collide on the way.
//!
//! Where deleted rows are kept, one of them gives way to a row that is inserted with its key, or moved to it.
//!
//! Invariant: every change concerns exactly one document, or the unit fails before it is decided.

use std::collections::HashMap;

use forebay_sdk::changes::decoded::{Decoded, times};
use forebay_sdk::changes::feed::{Applied, changed_by_others};
use forebay_sdk::changes::{Effect, Field, NetChanges};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use mongodb::bson::raw::{RawBsonRef, RawDocument, cstr};
use mongodb::bson::{Bson, RawDocumentBuf, doc};

use super::super::bulk::Documents;
use super::super::encode::append_id;
use super::super::statement::{append_elements, broken, id_of, key, raw, without_id};
use super::DELETED_AT;
use super::alter::Step;
use super::current::{Current, Sweep};
use super::pending::{Pending, Work};
use super::staged::Staged;
use super::table::Table;
use super::values::{documents, key_of, merged, one, single};

/// A document without fields.
const EMPTY: &[u8] = b"\x05\0\0\0\0";
/// Number of effects whose documents are looked for at once.
const TAKEN: usize = 500;

/// What a unit has changed of a collection, and has not been decided.
pub(super) struct Changing {
    pub(super) staged: Staged,
    /// Whether the documents that are there are removed before.
    pub(super) empties: bool,
    /// The time with which they are marked as deleted before.
    pub(super) marks: Option<Bson>,
    /// Changes of fields, each with the part that it comes before.
    pub(super) steps: Vec<Step>,
    /// Number of the next document that is inserted.
    inserted: u64,
}

impl Changing {
    pub(super) fn new(staged: Staged) -> Self {
        Self { staged, empties: false, marks: None, steps: Vec::new(), inserted: 0 }
    }

    /// What is to be done; `None`: nothing.
    pub(super) fn pending(&self, into: &str) -> Option<Pending> {
        let pending = Pending {
            into: into.to_owned(),
            staged: self.staged.is_used.then(|| self.staged.collection.clone()),
            empties: self.empties,
            marks: self.marks.clone(),
            steps: self.steps.clone(),
        };
        let is_empty = Pending { into: into.to_owned(), ..Pending::default() } == pending;
        (!is_empty).then_some(pending)
    }

    /// Forgets what was decided and completed.
    pub(super) async fn clear(&mut self, work: &Work) -> Result<()> {
        (self.empties, self.marks) = (false, None);
        self.steps.clear();
        self.staged.part = 1;
        self.staged.clear(work).await
    }
}

/// A part of a unit that is being staged.
pub(super) struct Applying<'a> {
    pub(super) work: &'a Work,
    pub(super) table: &'a Table,
    pub(super) changing: &'a mut Changing,
    /// Whether a row that is changed must not be a deleted one.
    pub(super) is_live: bool,
    pub(super) applied: Applied,
}

/// Some effects with their documents.
struct Taken<'a> {
    effects: &'a [Effect],
    /// The keys of deletions and updates.
    keys: Documents,
    /// The fields of updates and insertions.
    rows: Documents,
    /// The time of a deletion for each, where deleted rows are kept.
    times: Option<Documents>,
    /// For each effect the numbers of its key and its row.
    places: Vec<(usize, usize)>,
}

impl<'a> Taken<'a> {
    fn of(table: &Table, effects: &'a [Effect]) -> Result<Self> {
        let (into, forms) = (&*table.into, &table.forms);
        let stored = effects.iter().map(|effect| stored(table, effect)).collect::<Vec<_>>();
        let deleted_at = table.deleted_at.as_ref();
        let decoded = Decoded::of(into, &table.columns, &table.key, deleted_at, &stored)?;
        let sent = effects.iter().filter_map(|effect| match effect {
            Effect::Update { row, .. } | Effect::Insert { row, .. } => {
                Some(row.fields().map(|field| field != Field::Unchanged).collect())
            }
            Effect::Delete { .. } => None,
        });
        let sent: Vec<Vec<bool>> = sent.collect();
        let is_sent = |row: usize, column: usize| {
            sent.get(row).and_then(|row| row.get(column)).copied().unwrap_or(false)
        };
        let times = match (decoded.times, deleted_at) {
            (Some(times), Some(column)) => Some(single(into, forms, column, times)?),
            _ => None,
        };
        let (mut keys, mut rows) = (0, 0);
        let places = effects.iter().map(|effect| {
            let place = (keys, rows);
            keys += usize::from(!matches!(effect, Effect::Insert { .. }));
            rows += usize::from(!matches!(effect, Effect::Delete { .. }));
            place
        });
        Ok(Self {
            effects,
            places: places.collect(),
            keys: documents(into, forms, &decoded.keys, &table.key, |_, _| true)?,
            rows: documents(into, forms, &decoded.rows, &table.columns, is_sent)?,
            times,
        })
    }

    /// An effect with its key, its row, and its time of deletion.
    fn get(
        &self,
        at: usize,
    ) -> Result<(&Effect, &RawDocument, &RawDocument, Option<&RawDocument>)> {
        let effect = self.effects.get(at).zip(self.places.get(at));
        let (effect, (key, row)) = effect.ok_or_else(|| broken("it is missing".to_owned()))?;
        let (key, row) = match effect {
            Effect::Delete { .. } => (self.keys.get(*key), EMPTY),
            Effect::Update { .. } => (self.keys.get(*key), self.rows.get(*row)),
            Effect::Insert { .. } => (EMPTY, self.rows.get(*row)),
        };
        let (key, row) = (raw(key)?, raw(row)?);
        let time = self.times.as_ref().map(|times| raw(times.get(at))).transpose()?;
        let deleted_us = match effect {
            Effect::Delete { kept_us, .. } => *kept_us,
            Effect::Update { deleted_us, .. } | Effect::Insert { deleted_us, .. } => *deleted_us,
        };
        Ok((effect, key, row, time.filter(|_| deleted_us.is_some())))
    }
}

/// An effect with its time as precise as it can be stored.
fn stored(table: &Table, effect: &Effect) -> Effect {
    let at = |us: Option<i64>| us.map(|us| table.forms.storable(us));
    match effect.clone() {
        Effect::Delete { key, kept_us } => Effect::Delete { key, kept_us: at(kept_us) },
        Effect::Update { key, row, moves, deleted_us } => {
            Effect::Update { key, row, moves, deleted_us: at(deleted_us) }
        }
        Effect::Insert { row, deleted_us } => Effect::Insert { row, deleted_us: at(deleted_us) },
    }
}

impl Applying<'_> {
    /// Stages what changes amount to.
    pub(super) async fn apply(mut self, net: NetChanges) -> Result<Applied> {
        if let Some(at_us) = net.truncated_us() {
            self.truncate(at_us).await?;
        }
        for effects in net.into_effects().chunks(TAKEN) {
            self.take(&Taken::of(self.table, effects)?).await?;
        }
        self.changing.staged.flush(self.work).await?;
        Ok(self.applied)
    }

    async fn truncate(&mut self, at_us: i64) -> Result<()> {
        let (work, staged) = (self.work, &mut self.changing.staged);
        let Some(column) = &self.table.deleted_at else {
            self.changing.empties = true;
            return staged.clear(work).await;
        };
        let array = times(column, [Some(self.table.forms.storable(at_us))])?;
        let time = one(&self.table.into, &self.table.forms, column, array)?;
        if staged.has_earlier() {
            let field = format!("doc.{DELETED_AT}");
            let is_live = doc! { "op": { "$ne": "gone" }, field.clone(): Bson::Null };
            let mark = doc! { "$set": { field: time.clone() } };
            work.update_all(&staged.collection, is_live, mark).await?;
        }
        // Documents that are there were marked by the first one.
        self.changing.marks.get_or_insert(time);
        Ok(())
    }

    async fn take(&mut self, taken: &Taken<'_>) -> Result<()> {
        for is_whole in [false, true] {
            self.change(taken, is_whole).await?;
        }
        if self.table.deleted_at.is_some() {
            self.give_way(taken).await?;
        }
        for at in 0..taken.effects.len() {
            let (Effect::Insert { .. }, _, row, time) = taken.get(at)? else { continue };
            self.insert(row, time)?;
            self.changing.staged.flush_if_full(self.work).await?;
        }
        Ok(())
    }

    /// Whether a document is written again as a whole.
    fn rebuilds(&self, effect: &Effect) -> bool {
        match effect {
            Effect::Update { moves, .. } => *moves || !self.table.unique.is_empty(),
            Effect::Delete { .. } | Effect::Insert { .. } => false,
        }
    }

    /// Changes the documents of deletions and updates: those of which all fields are needed, or the others.
    async fn change(&mut self, taken: &Taken<'_>, is_whole: bool) -> Result<()> {
        let (mut wanted, mut keys) = (HashMap::new(), Vec::new());
        for at in 0..taken.effects.len() {
            let (effect, key, ..) = taken.get(at)?;
            if !matches!(effect, Effect::Insert { .. }) && self.rebuilds(effect) == is_whole {
                wanted.insert(key_of(key, &self.table.key_names)?, at);
                keys.push(key);
            }
        }
        let (work, table) = (self.work, self.table);
        let mut sweep = Sweep::begin(work, table, self.changing, &keys, is_whole).await?;
        loop {
            let group = sweep.next(self.changing).await?;
            if group.is_empty() {
                break;
            }
            let is_live = self.is_live;
            for current in group.iter().filter(|found| !(found.is_deleted && is_live)) {
                let key = key_of(&current.document, &table.key_names)?;
                if let Some(at) = wanted.remove(&key) {
                    self.change_one(taken, at, current)?;
                    self.changing.staged.flush_if_full(work).await?;
                }
            }
        }
        let Some(at) = wanted.into_values().next() else { return Ok(()) };
        let what = match taken.effects.get(at) {
            Some(Effect::Delete { .. }) => "deleted",
            _ => "updated",
        };
        Err(changed_by_others(&table.into, 0, 1, what))
    }

    fn change_one(&mut self, taken: &Taken<'_>, at: usize, current: &Current) -> Result<()> {
        let (effect, _, row, time) = taken.get(at)?;
        let staged = &mut self.changing.staged;
        if let Some(earlier) = &current.earlier {
            staged.supersede(earlier.number)?;
        }
        if let Effect::Delete { kept_us: None, .. } = effect {
            self.applied.deleted += 1;
            return staged.gone(current.id()?);
        }
        let mut fields = row.to_owned();
        if let Some(time) = time {
            append_all(&mut fields, time)?;
        } else if current.is_deleted {
            fields.append(cstr!("_deleted_at"), RawBsonRef::Null);
        }
        match effect {
            Effect::Delete { .. } => self.applied.deleted += 1,
            Effect::Update { .. } | Effect::Insert { .. } => self.applied.updated += 1,
        }
        if self.rebuilds(effect) {
            let whole = merged(&current.document, &fields)?;
            let staged = &mut self.changing.staged;
            staged.gone(current.id()?)?;
            return staged.put(id_of(&whole)?, &whole);
        }
        match &current.earlier {
            Some(earlier) => {
                let both = merged(&earlier.fields, &fields)?;
                let staged = &mut self.changing.staged;
                match earlier.is_put {
                    true => staged.put(current.id()?, &both),
                    false => staged.set(current.id()?, &both),
                }
            }
            // It has no column but its id.
            None if without_id(fields.as_bytes())?.len() == EMPTY.len() => Ok(()),
            None => self.changing.staged.set(current.id()?, &fields),
        }
    }

    /// Removes the deleted rows whose keys are taken.
    async fn give_way(&mut self, taken: &Taken<'_>) -> Result<()> {
        let mut keys = Vec::new();
        for at in 0..taken.effects.len() {
            if let (Effect::Insert { .. } | Effect::Update { moves: true, .. }, _, row, _) =
                taken.get(at)?
            {
                keys.push(key(row.as_bytes(), &self.table.key_names)?);
            }
        }
        let keys: Vec<&RawDocument> = keys.iter().map(|key| &**key).collect();
        let mut sweep = Sweep::begin(self.work, self.table, self.changing, &keys, false).await?;
        loop {
            let group = sweep.next(self.changing).await?;
            if group.is_empty() {
                return Ok(());
            }
            for current in group.iter().filter(|current| current.is_deleted) {
                let staged = &mut self.changing.staged;
                if let Some(earlier) = &current.earlier {
                    staged.supersede(earlier.number)?;
                }
                staged.gone(current.id()?)?;
                staged.flush_if_full(self.work).await?;
            }
        }
    }

    fn insert(&mut self, row: &RawDocument, time: Option<&RawDocument>) -> Result<()> {
        let mut document = Documents::default();
        let added = document.add(|out| {
            if let Some(ids) = &self.table.ids {
                append_id(&ids.row(self.changing.inserted), out);
            }
            append_elements(row.as_bytes(), out);
            time.into_iter().for_each(|time| append_elements(time.as_bytes(), out));
            Ok(())
        });
        added.map_err(|found| ConnectorError::data(&*self.table.into, found))?;
        self.changing.inserted += 1;
        let document = raw(document.get(0))?;
        self.changing.staged.put(id_of(document)?, document)?;
        self.applied.inserted += 1;
        Ok(())
    }
}

/// Appends the fields of a document to another.
fn append_all(to: &mut RawDocumentBuf, fields: &RawDocument) -> Result<()> {
    for field in fields {
        let (name, value) = field.map_err(|error| broken(error.to_string()))?;
        to.append(name, value);
    }
    Ok(())
}
