//! The only writer of the search index.
//!
//! Invariants: a transaction stores the position that its changes lead to, so a change is applied once
//! or again, never left out; a name has one row; `files`, `words` and `pieces` have the same rows.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::{CachedStatement, Connection, params};

use super::schema::{self, COLUMNS, Checked, Indexed, State, facet, files_of};
use crate::attributes::AttributeKind;
use crate::catalogue::FileRecord;
use crate::classify::Category;
use crate::error::CatalogueFault;
use crate::names::Namespace;
use crate::pace::Pace;

/// A change to the index.
#[derive(Debug)]
pub(super) enum Change {
    /// A name was given to bytes.
    Put {
        /// The file.
        file: Box<FileRecord>,
        /// The text in it, if it is indexed.
        text: Option<String>,
    },
    /// A name was deleted.
    Delete {
        /// Namespace.
        namespace: String,
        /// Name inside it.
        name: String,
    },
}

/// The index, opened for writing.
#[derive(Debug)]
pub(super) struct Store {
    connection: Connection,
    /// As it is committed.
    state: State,
}

/// The index as it was found.
pub(super) enum Opened {
    /// It follows this log.
    Current(Store),
    /// It has to be built again, for this reason.
    Unusable(String),
}

impl Store {
    /// Opens the index at `path`, or makes an empty one.
    ///
    /// * `log`: the log it has to follow.
    ///
    /// # Errors
    /// SQLite failed for another reason than what the file holds.
    pub(super) fn open(path: &Path, log: [u8; 16]) -> Checked<Opened> {
        let unusable = |reason: &str| Ok(Opened::Unusable(reason.to_owned()));
        match schema::open_writer(path) {
            Ok((_, None)) => unusable("it is of another version"),
            Ok((_, Some(Some(state)))) if state.log != log => unusable("it is of another log"),
            Ok((connection, Some(Some(state)))) => Ok(Opened::Current(Self { connection, state })),
            Ok((connection, Some(None))) => {
                let state = State::empty(log);
                state.save(&connection)?;
                Ok(Opened::Current(Self { connection, state }))
            }
            Err(fault) if fault.is_damage() => Ok(Opened::Unusable(fault.to_string())),
            Err(fault) => Err(fault),
        }
    }

    /// Makes changes pause between their steps, as `pace` says.
    ///
    /// # Errors
    /// What SQLite said.
    pub(super) fn set_pace(
        &mut self,
        pace: &Pace,
        pause: impl Fn(Duration) -> bool + Send + 'static,
    ) -> Checked<()> {
        Ok(pace.attach(&mut self.connection, pause)?)
    }

    /// What it says of itself.
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Applies changes in log order as one transaction that ends at `position`.
    ///
    /// # Errors
    /// Nothing of the batch was applied.
    pub(super) fn apply(&mut self, changes: &[Change], position: u64) -> Checked<()> {
        let transaction = self.connection.transaction()?;
        let mut state = State { position, ..self.state };
        let mut rows = Rows::of(&transaction)?;
        for change in changes {
            match change {
                Change::Put { file, text } => rows.put(&mut state, file, text.as_deref())?,
                Change::Delete { namespace, name } => {
                    remove(&transaction, &mut state, namespace, name)?;
                }
            }
        }
        drop(rows);
        state.save(&transaction)?;
        transaction.commit()?;
        self.state = state;
        Ok(())
    }
}

/// Removes a name, if it is there.
fn remove(connection: &Connection, state: &mut State, namespace: &str, name: &str) -> Checked<()> {
    let found = {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM files WHERE namespace = ?1 AND name = ?2"
        ))?;
        let mut rows = statement.query([namespace, name])?;
        rows.next()?.map(Indexed::read).transpose()?
    };
    let Some(found) = found else { return Ok(()) };
    let id = found.id.cast_signed();
    for sql in [
        "DELETE FROM files WHERE id = ?1",
        "DELETE FROM words WHERE rowid = ?1",
        "DELETE FROM pieces WHERE rowid = ?1",
    ] {
        connection.prepare_cached(sql)?.execute([id])?;
    }
    let less = |from: u64, by: u64| {
        let found = || "the table meta has other counts than the table files".to_owned();
        from.checked_sub(by).ok_or_else(|| CatalogueFault::Damaged { found: found() })
    };
    state.files = less(state.files, 1)?;
    state.texts = less(state.texts, u64::from(found.text_size > 0))?;
    state.text_bytes = less(state.text_bytes, found.text_size)?;
    Ok(())
}

/// Adds rows in one transaction.
struct Rows<'a> {
    connection: &'a Connection,
    files: CachedStatement<'a>,
    words: CachedStatement<'a>,
    pieces: CachedStatement<'a>,
    /// What the previous file was, and the words for it: files often come many of a kind.
    kind: Option<(Kind, String)>,
}

/// The properties that every file has.
#[derive(PartialEq, Eq)]
struct Kind {
    namespace: Namespace,
    category: Category,
    mime: Cow<'static, str>,
}

impl<'a> Rows<'a> {
    fn of(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            files: connection.prepare_cached(schema::INSERT)?,
            words: connection.prepare_cached(
                "INSERT INTO words (rowid, name, text, about, facets) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            pieces: connection
                .prepare_cached("INSERT INTO pieces (rowid, name) VALUES (?1, ?2)")?,
            kind: None,
        })
    }

    /// Adds a file, in place of what its name referred to before.
    fn put(&mut self, state: &mut State, file: &FileRecord, text: Option<&str>) -> Checked<()> {
        let indexed = Indexed {
            id: file.id,
            namespace: file.namespace.as_str().to_owned(),
            name: file.name.as_str().to_owned(),
            mime: file.mime.as_ref().to_owned(),
            category: file.category,
            size: file.size,
            created_ms: file.created_ms,
            text_size: text.map_or(0, |text| text.len() as u64),
        };
        if !indexed.insert(&mut self.files)? {
            remove(self.connection, state, &indexed.namespace, &indexed.name)?;
            if !indexed.insert(&mut self.files)? {
                let found = format!("the row {} of the table files has another name", file.id);
                return Err(CatalogueFault::Damaged { found });
            }
        }
        let id = file.id.cast_signed();
        let facets = self.facets(file);
        let text = text.unwrap_or_default();
        self.words.execute(params![id, indexed.name, text, about(file), facets])?;
        self.pieces.execute(params![id, indexed.name])?;
        state.files += 1;
        state.texts += u64::from(indexed.text_size > 0);
        state.text_bytes += indexed.text_size;
        Ok(())
    }

    /// The words of a file's properties: one more property is one more word here, and one in `facets` of
    /// `find.rs`.
    fn facets(&mut self, file: &FileRecord) -> String {
        let kind = Kind {
            namespace: file.namespace.clone(),
            category: file.category,
            mime: file.mime.clone(),
        };
        let mut words = match self.kind.take() {
            Some((before, words)) if before == kind => words,
            _ => kind.facets(),
        };
        self.kind = Some((kind, words.clone()));
        let mut push = |property: &[&str], value: &str| {
            words.push(' ');
            words.push_str(&facet(property, value));
        };
        for (name, value) in file.attributes.of(AttributeKind::Metadata) {
            push(&["metadata", name], value);
        }
        for (name, value) in file.attributes.of(AttributeKind::Tag) {
            push(&["tag"], name);
            push(&["tag", name], value);
        }
        words
    }
}

impl Kind {
    fn facets(&self) -> String {
        let major = self.mime.split('/').next().unwrap_or_default();
        let words = [
            facet(&["namespace"], self.namespace.as_str()),
            facet(&["category"], self.category.as_str()),
            facet(&["type"], &self.mime),
            facet(&["major type"], major),
        ];
        words.join(" ")
    }
}

/// Comment, metadata and tags, as text.
fn about(file: &FileRecord) -> String {
    let mut about = file.comment.clone();
    for kind in [AttributeKind::Metadata, AttributeKind::Tag] {
        for (name, value) in file.attributes.of(kind) {
            about.push('\n');
            about.push_str(name);
            about.push(' ');
            about.push_str(value);
        }
    }
    about
}

/// Removes the files of the index at `path`. No connection to it may be open.
pub(super) fn remove_index(path: &Path) -> io::Result<()> {
    // The database first: SQLite drops a log whose database is empty.
    for file in files_of(path) {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
