//! A unit of changes as bytes, between a component and its host: one crossing for a unit, not for a change.
//!
//! ```text
//! unit      1: u8, position: option text, commits: u64, committed_us: option i64,
//!           redefined: list of redefinition, streams: list of stream
//! redefinition  stream: u32, columns: list of column, steps: list of step
//! column    name: text, sql_type: text, is_key: bool, number: i16, wire: option text
//! step      0: u8, from: text, to: text                              a column has another name
//!           1: u8, name: text, sql_type: text, existing: option text it was added
//!           2: u8, name: text, sql_type: text                        it has another type
//!           3: u8, name: text                                        it is not there any more
//! stream    stream: u32, form: u8, changes: u64, then by the form
//!           0 net   1 net where deleted rows are kept    truncated_us: option i64, effects: list of effect
//!           2 bag   truncated: bool, effects: list of bag effect
//!           3 log   commits: list of (position: text, at_us: i64), changes: list of change
//! effect    0: u8, row: bytes, deleted_us: option i64                a row is inserted
//!           1: u8, key: bytes, row: bytes, deleted_us: option i64    it is updated
//!           2: u8, key: bytes, kept_us: option i64                   it is deleted
//! bag effect  0: u8, row: bytes | 1: u8, row: bytes | 2: u8, before: bytes, after: bytes
//!           inserted, deleted, updated
//! change    operation: u8, commit: u32, number: u64, key_before: option bytes, row: option bytes
//! ```
//!
//! Numbers are little-endian. `bytes` and `text` (UTF-8) have their size before them, lists their count (u32). An
//! option begins with 0 or 1 (u8). Rows and keys have the fields of a binary COPY ([`super::row`]).
//!
//! Invariants:
//! - Bytes that are not a unit are an error: never a panic, and never more memory than a small multiple of their
//!   size.
//! - What was decoded fits the feed: streams, each once; rows with a field for each column; keys with a value for
//!   each column of the key; changes in the form of the feed.

use std::sync::Arc;

use super::bag::{BagChanges, BagEffect};
use super::feed::{
    ChangeUnit, Changes, ColumnStep, FeedColumn, FeedStream, Redefinition, StreamChanges,
};
use super::log::{ChangeLog, Commit, LoggedChange, Operation};
use super::net::{Effect, Left, NetChanges};
use super::row::{ChangedRow, RowKey};
use crate::component::{COLUMNS_MAX, NAME_SIZE_MAX, feed_column};
use crate::connector::Result;
use crate::error::ConnectorError;
use crate::settings::FeedForm;

/// The version of the encoding.
const VERSION: u8 = 1;
/// Maximum size of a position in bytes.
pub const POSITION_SIZE_MAX: usize = 256;

const NET: u8 = 0;
const NET_KEEPING: u8 = 1;
const BAG: u8 = 2;
const LOG: u8 = 3;

fn broken(found: impl Into<String>) -> ConnectorError {
    ConnectorError::data("a unit of changes between a component and its host", found.into())
}

/// Encodes a unit.
///
/// # Errors
/// A part has 4 GiB or more.
pub fn encode(unit: &ChangeUnit) -> Result<Vec<u8>> {
    let size = unit.streams.iter().map(|of| of.changes.size()).sum::<usize>();
    let mut to = Writer(Vec::with_capacity(size.saturating_add(256)));
    to.byte(VERSION);
    to.option(unit.position.as_deref(), |to, position| to.text(position))?;
    to.number(unit.commits);
    to.time(unit.committed_us);
    to.count(unit.redefined.len())?;
    for (stream, redefinition) in &unit.redefined {
        to.count(*stream)?;
        to.redefinition(redefinition)?;
    }
    to.count(unit.streams.len())?;
    for of in &unit.streams {
        to.count(of.stream)?;
        to.changes(&of.changes)?;
    }
    Ok(to.0)
}

/// Decodes a unit.
///
/// * `streams`: those of the feed, as they are before the unit.
/// * `form`: that of the feed.
///
/// # Errors
/// The bytes are not a unit of this feed.
pub fn decode(bytes: &[u8], streams: &[FeedStream], form: FeedForm) -> Result<ChangeUnit> {
    let mut from = Reader(bytes);
    if from.byte()? != VERSION {
        return Err(broken("it has another version"));
    }
    let position = from.option(Reader::position)?;
    let commits = from.number()?;
    let committed_us = from.time()?;
    let mut now: Vec<&[FeedColumn]> = streams.iter().map(|of| of.columns.as_slice()).collect();
    let redefined = from.list(9, |from| {
        let stream = from.stream(streams.len())?;
        Ok((stream, from.redefinition()?))
    })?;
    for (stream, redefinition) in &redefined {
        if let Some(columns) = now.get_mut(*stream) {
            *columns = &redefinition.columns;
        }
    }
    let mut seen = vec![false; streams.len()];
    let changed = from.list(14, |from| {
        let stream = from.stream(streams.len())?;
        if seen.get_mut(stream).is_none_or(|seen| std::mem::replace(seen, true)) {
            return Err(broken(format!("it has the stream {stream} twice")));
        }
        let columns = now.get(stream).copied().unwrap_or_default();
        Ok(StreamChanges { stream, changes: from.changes(columns, form)? })
    })?;
    if !from.0.is_empty() {
        return Err(broken(format!("{} bytes are left", from.0.len())));
    }
    Ok(ChangeUnit { position, commits, committed_us, redefined, streams: changed })
}

/// Writes the parts of a unit.
struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn count(&mut self, count: usize) -> Result<()> {
        let count = u32::try_from(count).map_err(|_| broken("a part has 4 GiB or more"))?;
        self.0.extend_from_slice(&count.to_le_bytes());
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.count(bytes.len())?;
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())
    }

    fn option<T>(
        &mut self,
        value: Option<T>,
        write: impl FnOnce(&mut Self, T) -> Result<()>,
    ) -> Result<()> {
        self.byte(value.is_some().into());
        value.map_or(Ok(()), |value| write(self, value))
    }

    fn time(&mut self, at_us: Option<i64>) {
        self.byte(at_us.is_some().into());
        if let Some(at_us) = at_us {
            self.0.extend_from_slice(&at_us.to_le_bytes());
        }
    }

    fn redefinition(&mut self, redefinition: &Redefinition) -> Result<()> {
        self.count(redefinition.columns.len())?;
        for column in &redefinition.columns {
            self.text(&column.name)?;
            self.text(&column.sql_type)?;
            self.byte(column.is_key.into());
            self.0.extend_from_slice(&column.number.to_le_bytes());
            self.option(column.wire.as_ref(), |to, wire| to.text(&wire.name()))?;
        }
        self.count(redefinition.steps.len())?;
        for step in &redefinition.steps {
            match step {
                ColumnStep::Rename { from, to } => {
                    self.byte(0);
                    self.text(from)?;
                    self.text(to)?;
                }
                ColumnStep::Add { name, sql_type, existing } => {
                    self.byte(1);
                    self.text(name)?;
                    self.text(sql_type)?;
                    self.option(existing.as_deref(), |to, existing| to.text(existing))?;
                }
                ColumnStep::Retype { name, sql_type } => {
                    self.byte(2);
                    self.text(name)?;
                    self.text(sql_type)?;
                }
                ColumnStep::Drop { name } => {
                    self.byte(3);
                    self.text(name)?;
                }
            }
        }
        Ok(())
    }

    fn changes(&mut self, changes: &Changes) -> Result<()> {
        match changes {
            Changes::Net(net) => self.net(net),
            Changes::Bag(bag) => self.bag(bag),
            Changes::Log(log) => self.log(log),
        }
    }

    fn net(&mut self, net: &NetChanges) -> Result<()> {
        self.byte(if net.keeps_deleted() { NET_KEEPING } else { NET });
        self.number(net.changes());
        self.time(net.truncated_us());
        self.count(net.left().count())?;
        for left in net.left() {
            let at_us = match left {
                Left::Inserted(row, deleted_us) => {
                    self.byte(0);
                    self.bytes(row.as_bytes())?;
                    deleted_us
                }
                Left::Updated(key, row, deleted_us) => {
                    self.byte(1);
                    self.bytes(key.as_bytes())?;
                    self.bytes(row.as_bytes())?;
                    deleted_us
                }
                Left::Deleted(key, kept_us) => {
                    self.byte(2);
                    self.bytes(key.as_bytes())?;
                    kept_us
                }
            };
            self.time(at_us);
        }
        Ok(())
    }

    fn bag(&mut self, bag: &BagChanges) -> Result<()> {
        self.byte(BAG);
        self.number(bag.changes());
        self.byte(bag.is_truncated().into());
        self.count(bag.left().count())?;
        for effect in bag.left() {
            match effect {
                BagEffect::Insert(row) => {
                    self.byte(0);
                    self.bytes(row.as_bytes())?;
                }
                BagEffect::Delete(row) => {
                    self.byte(1);
                    self.bytes(row.as_bytes())?;
                }
                BagEffect::Update { before, after } => {
                    self.byte(2);
                    self.bytes(before.as_bytes())?;
                    self.bytes(after.as_bytes())?;
                }
            }
        }
        Ok(())
    }

    fn log(&mut self, log: &ChangeLog) -> Result<()> {
        self.byte(LOG);
        self.number(log.changes().len() as u64);
        // Changes of a transaction follow each other, and share it.
        let mut commits: Vec<&Arc<Commit>> = log.changes().iter().map(|of| &of.commit).collect();
        commits.dedup_by(|one, other| Arc::ptr_eq(one, other));
        self.count(commits.len())?;
        for commit in &commits {
            self.text(&commit.position)?;
            self.0.extend_from_slice(&commit.at_us.to_le_bytes());
        }
        self.count(log.changes().len())?;
        let mut at = 0;
        for change in log.changes() {
            while commits.get(at).is_some_and(|commit| !Arc::ptr_eq(commit, &change.commit)) {
                at += 1;
            }
            self.byte(match change.operation {
                Operation::Insert => 0,
                Operation::Update => 1,
                Operation::Delete => 2,
                Operation::Truncate => 3,
            });
            self.count(at)?;
            self.number(change.number);
            self.option(change.key_before.as_ref(), |to, key| to.bytes(key.as_bytes()))?;
            self.option(change.row.as_ref(), |to, row| to.bytes(row.as_bytes()))?;
        }
        Ok(())
    }
}

/// Reads the parts of a unit.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(|| broken("it is cut off"))?;
        self.0 = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn bool(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(broken(format!("{other} is neither 0 nor 1"))),
        }
    }

    fn number(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn signed(&mut self) -> Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn count(&mut self) -> Result<usize> {
        let count = self.array().map(u32::from_le_bytes)?;
        usize::try_from(count).map_err(|_| broken("a part is too large"))
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let size = self.count()?;
        let split = self.0.split_at_checked(size);
        let (bytes, rest) = split.ok_or_else(|| broken("it is cut off"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<String> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(str::to_owned).map_err(|_| broken("a text is not UTF-8"))
    }

    /// A text of at most this size.
    fn short(&mut self, max: usize) -> Result<String> {
        let text = self.text()?;
        if text.len() > max {
            return Err(broken(format!("a name has more than {max} bytes")));
        }
        Ok(text)
    }

    fn position(&mut self) -> Result<String> {
        let position = self.short(POSITION_SIZE_MAX)?;
        check_position(&position)?;
        Ok(position)
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    fn time(&mut self) -> Result<Option<i64>> {
        self.option(Self::signed)
    }

    /// The number of parts of a list, which are there.
    ///
    /// * `size_min`: bytes of the smallest part.
    fn parts(&mut self, size_min: usize) -> Result<usize> {
        let count = self.count()?;
        if count.checked_mul(size_min).is_none_or(|size| size > self.0.len()) {
            return Err(broken("a list is cut off"));
        }
        Ok(count)
    }

    fn list<T>(
        &mut self,
        size_min: usize,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        (0..self.parts(size_min)?).map(|_| read(self)).collect()
    }

    fn stream(&mut self, streams: usize) -> Result<usize> {
        let stream = self.count()?;
        if stream >= streams {
            return Err(broken(format!("stream {stream} is not one of the feed")));
        }
        Ok(stream)
    }

    fn redefinition(&mut self) -> Result<Redefinition> {
        let columns = self.list(12, |from| {
            let (name, sql_type) = (from.text()?, from.text()?);
            let (is_key, number) = (from.bool()?, from.array().map(i16::from_le_bytes)?);
            let wire = from.option(Self::text)?;
            feed_column(name, sql_type, is_key, number, wire.as_deref())
        })?;
        if columns.is_empty() || columns.len() > COLUMNS_MAX {
            return Err(broken("a stream has too many columns, or none"));
        }
        let steps = self.list(5, |from| {
            let kind = from.byte()?;
            let name = from.short(NAME_SIZE_MAX)?;
            Ok(match kind {
                0 => ColumnStep::Rename { from: name, to: from.short(NAME_SIZE_MAX)? },
                1 => ColumnStep::Add {
                    name,
                    sql_type: from.sql_type()?,
                    existing: from.option(Self::text)?,
                },
                2 => ColumnStep::Retype { name, sql_type: from.sql_type()? },
                3 => ColumnStep::Drop { name },
                other => return Err(broken(format!("{other} is not a change of a column"))),
            })
        })?;
        Ok(Redefinition { columns, steps })
    }

    fn sql_type(&mut self) -> Result<String> {
        let sql_type = self.short(NAME_SIZE_MAX)?;
        match forebay_pgcopy::TypeName::parse(&sql_type) {
            Some(_) => Ok(sql_type),
            None => Err(broken(format!("{sql_type:?} is not the name of a type"))),
        }
    }

    fn changes(&mut self, columns: &[FeedColumn], form: FeedForm) -> Result<Changes> {
        let keys = columns.iter().enumerate().filter(|(_, column)| column.is_key);
        let key: Vec<usize> = keys.map(|(at, _)| at).collect();
        let of = Shape { columns: columns.len(), key: &key };
        let kind = self.byte()?;
        let changes = self.number()?;
        match (kind, form) {
            (NET, FeedForm::Apply) if !key.is_empty() => {
                self.net(NetChanges::new(key.as_slice()), changes, of).map(Changes::Net)
            }
            (NET_KEEPING, FeedForm::Mark) if !key.is_empty() => {
                self.net(NetChanges::keeping(key.as_slice()), changes, of).map(Changes::Net)
            }
            (BAG, FeedForm::Apply | FeedForm::Mark) if key.is_empty() => {
                self.bag(changes, of).map(Changes::Bag)
            }
            (LOG, FeedForm::Log) => self.log(changes, of).map(Changes::Log),
            _ => Err(broken("its changes have another form than the feed")),
        }
    }

    fn net(&mut self, empty: NetChanges, changes: u64, of: Shape<'_>) -> Result<NetChanges> {
        let truncated_us = self.time()?;
        let count = self.parts(6)?;
        check_count(changes, count, truncated_us.is_some())?;
        let effects = (0..count).map(|_| {
            Ok(match self.byte()? {
                0 => {
                    let (row, deleted_us) = (self.whole_row(of)?, self.time()?);
                    Effect::Insert { row, deleted_us }
                }
                1 => {
                    let (key, row) = (self.key(of)?, self.row(of)?);
                    Effect::Update { key, row, moves: false, deleted_us: self.time()? }
                }
                2 => Effect::Delete { key: self.key(of)?, kept_us: self.time()? },
                other => return Err(broken(format!("{other} is not an effect"))),
            })
        });
        NetChanges::received(empty, truncated_us, changes, effects)
    }

    fn bag(&mut self, changes: u64, of: Shape<'_>) -> Result<BagChanges> {
        let is_truncated = self.bool()?;
        let count = self.parts(5)?;
        check_count(changes, count, is_truncated)?;
        let effects = (0..count).map(|_| {
            Ok(match self.byte()? {
                0 => BagEffect::Insert(self.whole_row(of)?),
                1 => BagEffect::Delete(self.whole_row(of)?),
                2 => {
                    let (before, after) = (self.whole_row(of)?, self.whole_row(of)?);
                    BagEffect::Update { before, after }
                }
                other => return Err(broken(format!("{other} is not an effect"))),
            })
        });
        BagChanges::received(is_truncated, changes, effects)
    }

    fn log(&mut self, changes: u64, of: Shape<'_>) -> Result<ChangeLog> {
        let commits = self.list(12, |from| {
            let (position, at_us) = (from.position()?, from.signed()?);
            Ok(Arc::new(Commit { position, at_us }))
        })?;
        let count = self.parts(15)?;
        if changes != count as u64 {
            return Err(broken(format!("{count} changes instead of {changes}")));
        }
        let mut log = ChangeLog::default();
        for _ in 0..count {
            let operation = match self.byte()? {
                0 => Operation::Insert,
                1 => Operation::Update,
                2 => Operation::Delete,
                3 => Operation::Truncate,
                other => return Err(broken(format!("{other} is not an operation"))),
            };
            let commit = commits.get(self.count()?).map(Arc::clone);
            let commit = commit.ok_or_else(|| broken("a change of no transaction"))?;
            let number = self.number()?;
            let key_before = self.option(|from| from.key(of))?;
            let row = self.option(|from| from.row(of))?;
            let fits = match operation {
                Operation::Insert | Operation::Delete => row.is_some() && key_before.is_none(),
                Operation::Update => row.is_some(),
                Operation::Truncate => row.is_none() && key_before.is_none(),
            };
            if !fits {
                let operation = operation.as_str();
                return Err(broken(format!(
                    "a row or key that does not belong to its {operation}"
                )));
            }
            log.push(LoggedChange { operation, commit, number, key_before, row });
        }
        Ok(log)
    }

    fn row(&mut self, of: Shape<'_>) -> Result<ChangedRow> {
        ChangedRow::received(self.bytes()?, of.columns)
    }

    /// A row of which no value is missing.
    fn whole_row(&mut self, of: Shape<'_>) -> Result<ChangedRow> {
        let row = self.row(of)?;
        if row.has_unchanged() { Err(broken("a row misses a value")) } else { Ok(row) }
    }

    fn key(&mut self, of: Shape<'_>) -> Result<RowKey> {
        match of.key.len() {
            0 => RowKey::received(self.bytes()?, of.columns, true),
            count => RowKey::received(self.bytes()?, count, false),
        }
    }
}

/// What rows and keys have.
#[derive(Clone, Copy)]
struct Shape<'a> {
    columns: usize,
    key: &'a [usize],
}

/// Checks that the number of changes can have had these effects.
fn check_count(changes: u64, effects: usize, is_truncated: bool) -> Result<()> {
    if changes < (effects as u64).saturating_add(is_truncated.into()) {
        return Err(broken(format!("{changes} changes have {effects} effects")));
    }
    Ok(())
}

/// Checks that a text can be a position: one that a component reports becomes a part of names and messages.
///
/// # Errors
/// It is empty, too long, or has control characters.
pub fn check_position(position: &str) -> Result<()> {
    let is_sound = (1..=POSITION_SIZE_MAX).contains(&position.len())
        && !position.chars().any(char::is_control);
    if is_sound {
        return Ok(());
    }
    Err(broken(format!(
        "a position is not a line of 1 to {POSITION_SIZE_MAX} bytes: {:?}",
        position.chars().take(40).collect::<String>()
    )))
}

#[cfg(test)]
mod tests;
