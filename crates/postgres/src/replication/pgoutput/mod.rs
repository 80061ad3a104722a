//! The messages of pgoutput, the output plugin that comes with PostgreSQL (10 and later), up to version 3
//! of its protocol without two-phase commits.
//!
//! A transaction arrives as `Begin`, changes and `Commit`, in the order of commits. With `streaming`, a
//! large one arrives before its commit, in blocks from `StreamStart` to `StreamStop`; blocks of several
//! transactions alternate, and each message inside has the id of its (sub)transaction first. The layout
//! of each message is in PostgreSQL's documentation, "Logical Replication Message Formats".
//!
//! Invariants:
//! * Values are not copied: a [`Tuple`] borrows the bytes of its message, which were checked once.
//! * Bytes of the server never cause a panic, and a message with bytes left over is refused.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::envelope::{ServerTime, bytes_of, text_of, u8_of, u16_of, u32_of, u64_of};
use super::error::{ReplicationError, malformed};
use super::lsn::Lsn;

/// A table's number on its server. A table that is dropped and created again has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(pub u32);

/// A transaction's number on its server, without its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(pub u32);

/// What the server sends of a row before its change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaIdentity {
    /// The primary key.
    Default,
    /// Nothing. The server refuses to update and delete.
    Nothing,
    /// All columns.
    Full,
    /// The columns of a unique index.
    Index,
}

/// A table, as of the changes that follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Its number.
    pub oid: Oid,
    /// Its schema; empty for `pg_catalog`.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// What the server sends of a row before its change.
    pub identity: ReplicaIdentity,
    /// The columns that are published, in the order of the values.
    pub columns: Vec<RelationColumn>,
}

/// A column of a [`Relation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationColumn {
    /// Its name.
    pub name: String,
    /// Whether it is a part of the replica identity. With [`ReplicaIdentity::Full`] every column is, so
    /// this does not show the primary key.
    pub is_identity: bool,
    /// Its type.
    pub type_oid: Oid,
    /// Its type modifier; -1 if there is none.
    pub type_modifier: i32,
}

/// A value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// NULL. In the key of an old row also every column that is not a part of the key.
    Null,
    /// A large value that the change left as it was, and that is not sent.
    Unchanged,
    /// Its text.
    Text(&'a [u8]),
    /// Its binary form, as in a binary COPY.
    Binary(&'a [u8]),
}

/// The values of a row, in the order of the columns of its [`Relation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple<'a> {
    count: u16,
    /// Complete values, checked by [`Tuple::take`].
    values: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The values.
    pub fn values(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let mut rest = self.values;
        // They were checked: none is cut.
        (0..self.count).map_while(move |_| value_of(&mut rest).ok())
    }

    /// Takes the values of a row from a message.
    fn take(rest: &mut &'a [u8]) -> Result<Self, ReplicationError> {
        let count = u16_of(rest)?;
        let begin = *rest;
        for _ in 0..count {
            value_of(rest)?;
        }
        let size = begin.len().saturating_sub(rest.len());
        let values = bytes_of(&mut &*begin, size)?;
        Ok(Self { count, values })
    }
}

/// What a change has of the row before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Old<'a> {
    /// The columns of the replica identity; every other one is [`Value::Null`].
    Key(Tuple<'a>),
    /// All columns: the table has [`ReplicaIdentity::Full`].
    Row(Tuple<'a>),
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// A transaction begins that has been committed.
    Begin {
        /// Position of its commit.
        commit: Lsn,
        /// Time of its commit.
        time: ServerTime,
        /// Its number.
        xid: Xid,
    },
    /// The transaction is complete.
    Commit {
        /// Position of its commit.
        commit: Lsn,
        /// End of its commit. Replication that starts here continues after this transaction.
        end: Lsn,
        /// Time of its commit.
        time: ServerTime,
    },
    /// The transaction was replicated to the server from another one.
    Origin {
        /// Position of its commit there.
        commit: Lsn,
        /// Name of the origin.
        name: &'a str,
    },
    /// A table, before the first change to it and after changes of its definition.
    Relation(Relation),
    /// A type that is not built in, before the first table that uses it.
    Type {
        /// Its number.
        oid: Oid,
        /// Its schema.
        schema: &'a str,
        /// Its name; of a domain, that of its base type.
        name: &'a str,
    },
    /// A row was inserted.
    Insert {
        /// The table.
        relation: Oid,
        /// The row.
        new: Tuple<'a>,
    },
    /// A row was updated.
    Update {
        /// The table.
        relation: Oid,
        /// What is known of the row before. `None` if the key is still the same.
        old: Option<Old<'a>>,
        /// The row.
        new: Tuple<'a>,
    },
    /// A row was deleted.
    Delete {
        /// The table.
        relation: Oid,
        /// What is known of the row.
        old: Old<'a>,
    },
    /// Tables were emptied, by one statement.
    Truncate {
        /// The tables.
        relations: Vec<Oid>,
        /// Whether tables that refer to them were emptied as well.
        cascade: bool,
        /// Whether their sequences were restarted.
        restart_identity: bool,
    },
    /// A message of an application (`pg_logical_emit_message`).
    Logical {
        /// Whether it belongs to the transaction, and is not sent if that is rolled back.
        is_transactional: bool,
        /// Its position.
        at: Lsn,
        /// Its prefix.
        prefix: &'a str,
        /// Its content.
        content: &'a [u8],
    },
    /// A block of a transaction begins that may still be rolled back.
    StreamStart {
        /// The transaction.
        xid: Xid,
        /// Whether it is the first block. After a connection was lost, the transaction is sent again
        /// from its first block.
        is_first: bool,
    },
    /// The block ends.
    StreamStop,
    /// A transaction that was sent in blocks is committed.
    StreamCommit {
        /// The transaction.
        xid: Xid,
        /// Position of its commit.
        commit: Lsn,
        /// End of its commit.
        end: Lsn,
        /// Time of its commit.
        time: ServerTime,
    },
    /// A transaction that was sent in blocks, or a part of it, is rolled back.
    StreamAbort {
        /// The transaction.
        xid: Xid,
        /// The subtransaction that is rolled back; the same as `xid` for all of the transaction.
        subxid: Xid,
    },
}

/// Decodes messages in the order in which they arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    is_in_block: bool,
}

/// A message, and the (sub)transaction that it belongs to if that is not committed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The transaction or subtransaction, inside a block.
    pub xid: Option<Xid>,
    /// The message.
    pub message: Message<'a>,
}

impl Decoder {
    /// Decodes a message.
    ///
    /// # Errors
    /// [`ReplicationError`]. The connection cannot be used after it.
    pub fn decode<'a>(&mut self, bytes: &'a [u8]) -> Result<Decoded<'a>, ReplicationError> {
        let mut rest = bytes;
        let tag = u8_of(&mut rest)?;
        let xid = match tag {
            b'R' | b'Y' | b'I' | b'U' | b'D' | b'T' | b'M' if self.is_in_block => {
                Some(Xid(u32_of(&mut rest)?))
            }
            _ => None,
        };
        let message = self.message(tag, &mut rest)?;
        if rest.is_empty() {
            Ok(Decoded { xid, message })
        } else {
            Err(malformed("a change", format!("{} bytes follow type {tag:#04x}", rest.len())))
        }
    }

    fn message<'a>(
        &mut self,
        tag: u8,
        rest: &mut &'a [u8],
    ) -> Result<Message<'a>, ReplicationError> {
        let is_of_block =
            matches!(tag, b'R' | b'Y' | b'I' | b'U' | b'D' | b'T' | b'M' | b'O' | b'E');
        if self.is_in_block && !is_of_block {
            let found = format!("of type {tag:#04x} inside a block of another transaction");
            return Err(ReplicationError::Unexpected { what: "a change", found });
        }
        Ok(match tag {
            b'B' => Message::Begin {
                commit: Lsn(u64_of(rest)?),
                time: time_of(rest)?,
                xid: Xid(u32_of(rest)?),
            },
            b'C' => {
                no_flags("a commit", rest)?;
                let (commit, end) = (Lsn(u64_of(rest)?), Lsn(u64_of(rest)?));
                Message::Commit { commit, end, time: time_of(rest)? }
            }
            b'O' => Message::Origin { commit: Lsn(u64_of(rest)?), name: text_of(rest)? },
            b'R' => Message::Relation(relation_of(rest)?),
            b'Y' => {
                let oid = Oid(u32_of(rest)?);
                Message::Type { oid, schema: text_of(rest)?, name: text_of(rest)? }
            }
            b'I' => {
                let relation = Oid(u32_of(rest)?);
                new_follows(u8_of(rest)?)?;
                Message::Insert { relation, new: Tuple::take(rest)? }
            }
            b'U' => {
                let relation = Oid(u32_of(rest)?);
                let kind = u8_of(rest)?;
                let old = old_of(kind, rest)?;
                new_follows(if old.is_some() { u8_of(rest)? } else { kind })?;
                Message::Update { relation, old, new: Tuple::take(rest)? }
            }
            b'D' => {
                let relation = Oid(u32_of(rest)?);
                let kind = u8_of(rest)?;
                let old = old_of(kind, rest)?;
                let old = old.ok_or_else(|| malformed("a deletion", "it has no old row"))?;
                Message::Delete { relation, old }
            }
            b'T' => truncate_of(rest)?,
            b'M' => {
                let flags = u8_of(rest)?;
                let (at, prefix) = (Lsn(u64_of(rest)?), text_of(rest)?);
                let size = usize::try_from(u32_of(rest)?).unwrap_or(usize::MAX);
                let content = bytes_of(rest, size)?;
                Message::Logical { is_transactional: flags & 1 != 0, at, prefix, content }
            }
            b'S' => {
                self.is_in_block = true;
                Message::StreamStart { xid: Xid(u32_of(rest)?), is_first: u8_of(rest)? != 0 }
            }
            b'E' if self.is_in_block => {
                self.is_in_block = false;
                Message::StreamStop
            }
            b'c' => {
                let xid = Xid(u32_of(rest)?);
                no_flags("a commit", rest)?;
                let (commit, end) = (Lsn(u64_of(rest)?), Lsn(u64_of(rest)?));
                Message::StreamCommit { xid, commit, end, time: time_of(rest)? }
            }
            b'A' => Message::StreamAbort { xid: Xid(u32_of(rest)?), subxid: Xid(u32_of(rest)?) },
            tag => return Err(malformed("a change", format!("unknown type {tag:#04x}"))),
        })
    }
}

/// Maximum number of columns of a table (`MaxTupleAttributeNumber`).
const COLUMNS_MAX: u16 = 1664;

fn relation_of(rest: &mut &[u8]) -> Result<Relation, ReplicationError> {
    let oid = Oid(u32_of(rest)?);
    let (schema, name) = (text_of(rest)?.to_owned(), text_of(rest)?.to_owned());
    let identity = match u8_of(rest)? {
        b'd' => ReplicaIdentity::Default,
        b'n' => ReplicaIdentity::Nothing,
        b'f' => ReplicaIdentity::Full,
        b'i' => ReplicaIdentity::Index,
        kind => return Err(malformed("a table", format!("unknown replica identity {kind:#04x}"))),
    };
    let count = u16_of(rest)?;
    if count > COLUMNS_MAX {
        return Err(malformed("a table", format!("it has {count} columns")));
    }
    let column = |_| {
        Ok(RelationColumn {
            is_identity: u8_of(rest)? & 1 != 0,
            name: text_of(rest)?.to_owned(),
            type_oid: Oid(u32_of(rest)?),
            type_modifier: u32_of(rest)?.cast_signed(),
        })
    };
    let columns = (0..count).map(column).collect::<Result<_, ReplicationError>>()?;
    Ok(Relation { oid, schema, name, identity, columns })
}

fn truncate_of<'a>(rest: &mut &'a [u8]) -> Result<Message<'a>, ReplicationError> {
    let count = usize::try_from(u32_of(rest)?).unwrap_or(usize::MAX);
    let options = u8_of(rest)?;
    let size = count.checked_mul(4).ok_or_else(|| malformed("a truncation", "too many tables"))?;
    let mut oids = bytes_of(rest, size)?;
    let relations = (0..count).map(|_| u32_of(&mut oids).map(Oid)).collect::<Result<_, _>>()?;
    Ok(Message::Truncate {
        relations,
        cascade: options & 1 != 0,
        restart_identity: options & 2 != 0,
    })
}

/// The old row of a change; `None` if the kind is that of a new one.
fn old_of<'a>(kind: u8, rest: &mut &'a [u8]) -> Result<Option<Old<'a>>, ReplicationError> {
    Ok(match kind {
        b'K' => Some(Old::Key(Tuple::take(rest)?)),
        b'O' => Some(Old::Row(Tuple::take(rest)?)),
        _ => None,
    })
}

fn new_follows(kind: u8) -> Result<(), ReplicationError> {
    match kind {
        b'N' => Ok(()),
        kind => Err(malformed("a change", format!("unknown kind of row {kind:#04x}"))),
    }
}

fn value_of<'a>(rest: &mut &'a [u8]) -> Result<Value<'a>, ReplicationError> {
    let kind = u8_of(rest)?;
    if kind == b'n' {
        return Ok(Value::Null);
    }
    if kind == b'u' {
        return Ok(Value::Unchanged);
    }
    let size = usize::try_from(u32_of(rest)?).unwrap_or(usize::MAX);
    let bytes = bytes_of(rest, size)?;
    match kind {
        b't' => Ok(Value::Text(bytes)),
        b'b' => Ok(Value::Binary(bytes)),
        kind => Err(malformed("a value", format!("unknown kind {kind:#04x}"))),
    }
}

fn time_of(rest: &mut &[u8]) -> Result<ServerTime, ReplicationError> {
    Ok(ServerTime(u64_of(rest)?.cast_signed()))
}

/// Flags that are reserved: with one of them the message means something else.
fn no_flags(what: &'static str, rest: &mut &[u8]) -> Result<(), ReplicationError> {
    match u8_of(rest)? {
        0 => Ok(()),
        flags => Err(malformed(what, format!("unknown flags {flags:#04x}"))),
    }
}

#[cfg(test)]
mod tests;
