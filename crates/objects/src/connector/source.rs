//! Files as a source, whatever their format.
//!
//! A stream's files are listed when it is opened. Each is a unit, or several if it has parts that
//! can be read separately. A unit's name includes the file's size and version, so a later run only
//! continues with the same bytes; a file that changes during a run fails its units.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::bridge::{blocking, pump};
use forebay_sdk::connector::{
    Cursor, Discovered, DiscoveredColumn, Division, Opening, Result, Source, SourceStream, Unit,
};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Context, Outlet};
use forebay_sdk::settings::{StreamSettings, SyncMode};
use sha2::Digest as _;

use super::format::{Format, Part, Reading};
use super::list;
use super::location::{At, Listed, Location};

/// The name of the cursor field of files.
const CURSOR_FIELD: &str = "last_modified";
/// Maximum number of streams that are inspected on discovery.
const DISCOVERED_MAX: usize = 1_000;

/// The source of files of one format.
#[derive(Debug, Clone)]
pub(super) struct FileSource {
    at: At,
    format: Arc<dyn Format>,
}

/// Parts of files, read in sequence.
type Parts = Vec<(Listed, Part)>;

/// The files of a stream.
struct FileStream {
    place: Location,
    format: Arc<dyn Format>,
    columns: Arc<[Column]>,
    is_projection: bool,
    units: Vec<Unit>,
    /// What each unit reads.
    parts: Vec<Parts>,
    cursor: Option<Cursor>,
    notes: Vec<String>,
    batch_size: usize,
    memory: usize,
}

impl FileSource {
    pub(super) fn new(at: At, format: Arc<dyn Format>) -> Self {
        Self { at, format }
    }

    fn place(&self) -> Result<Location> {
        self.at.place()
    }

    fn open_blocking(&self, stream: &StreamSettings, opening: &Opening) -> Result<FileStream> {
        check_mode(stream)?;
        let place = self.place()?;
        let found = list::files(&place, &stream.name, self.format.endings())?;
        let left_out = found.note(self.format.endings());
        let all = found.files;
        // The columns are those of the first of all files, so that they do not depend on which
        // files are new.
        let Some(first) = all.first() else {
            let left_out = left_out.map(|note| format!(": {note}")).unwrap_or_default();
            let place = place.display("");
            return Err(ConnectorError::unsupported(
                format!("no file matches {:?} in {}{left_out}", stream.name, place.display()),
                "specify a file, a directory or a pattern below it",
            ));
        };
        let found =
            self.format.columns(&place.open(first)?.within(opening.memory), &stream.columns)?;
        let columns = chosen(found, stream, &place.display(&first.name).display().to_string())?;
        let is_incremental = stream.sync_mode == SyncMode::Incremental;
        let cursor = match &opening.division {
            // Files that are new from now on belong to the next load.
            Division::As(_) => None,
            _ => list::cursor(&all).filter(|_| is_incremental),
        };
        let mut since = opening.since.as_ref().filter(|_| is_incremental);
        let mut notes = Vec::from_iter(left_out);
        if let Some(then) = since.filter(|_| !matches!(opening.division, Division::As(_))) {
            let late = list::late(&all, then)?;
            if late > 0 && opening.division != Division::Any {
                return Err(added_late(stream, then, late));
            }
            if late > 0 {
                notes.push(format!(
                    "{late} files with earlier modification times were added: all files are read again"
                ));
                since = None;
            }
        }
        let parts = self.parts(&place, all, opening, since)?;
        let (units, parts) = parts.into_iter().unzip();
        Ok(FileStream {
            place,
            format: Arc::clone(&self.format),
            columns: columns.into(),
            is_projection: !stream.columns.is_empty(),
            units,
            parts,
            cursor,
            notes,
            batch_size: opening.batch_size,
            memory: opening.memory,
        })
    }

    /// The files to read, as units.
    fn parts(
        &self,
        place: &Location,
        files: Vec<Listed>,
        opening: &Opening,
        since: Option<&Cursor>,
    ) -> Result<Vec<(Unit, Parts)>> {
        if let Division::As(units) = &opening.division {
            return again(&files, units);
        }
        let mut units = Vec::new();
        for file in files {
            if !since.map_or(Ok(true), |since| list::is_after(&file, since))? {
                continue;
            }
            // Opening a small file twice is not worth it.
            let is_divided =
                opening.division != Division::Whole && file.size > opening.unit_size.max(1);
            let parts = match is_divided {
                true => self
                    .format
                    .divide(&place.open(&file)?.within(opening.memory), opening.unit_size)?,
                false => vec![Part::whole(file.size)],
            };
            for part in parts {
                units.push((unit(&file, &part), vec![(file.clone(), part)]));
            }
        }
        if opening.division == Division::Whole && units.len() > 1 {
            units = vec![together(units)];
        }
        Ok(units)
    }

    /// Every single file, and every directory, as a stream.
    fn discover_blocking(&self) -> Result<Vec<Discovered>> {
        let place = self.place()?;
        let mut streams: BTreeMap<String, (Listed, u64)> = BTreeMap::new();
        for file in list::files(&place, "", self.format.endings())?.files {
            let name = file.name.split_once('/').map_or(&*file.name, |(top, _)| top).to_owned();
            let size = file.size;
            let stream = streams.entry(name).or_insert_with(|| (file, 0));
            stream.1 += size;
        }
        let discovered = streams.into_iter().take(DISCOVERED_MAX).map(|(name, (first, bytes))| {
            let columns = self.format.columns(&place.open(&first)?, &[])?;
            let columns = columns.into_iter().map(discovered_column).collect();
            Ok(Discovered {
                name,
                columns,
                primary_key: Vec::new(),
                rows: None,
                bytes: Some(bytes),
            })
        });
        discovered.collect()
    }
}

fn discovered_column(column: Column) -> DiscoveredColumn {
    let Column { name, sql_type, nullable, .. } = column;
    DiscoveredColumn { name, sql_type, nullable, note: None }
}

/// Checks that files can be read as the stream requests.
fn check_mode(stream: &StreamSettings) -> Result<()> {
    let cursor_field = stream.cursor_field.as_deref();
    if stream.sync_mode == SyncMode::Incremental && cursor_field != Some(CURSOR_FIELD) {
        return Err(ConnectorError::unsupported(
            format!("{}: files have no cursor field {:?}", stream.name, cursor_field.unwrap_or("")),
            format!(
                "set `cursor_field: {CURSOR_FIELD}` to read files that are new since the last run"
            ),
        ));
    }
    if stream.partition_key.is_some() {
        return Err(ConnectorError::unsupported(
            format!("{}: files have no partition key", stream.name),
            "remove `partition_key`; files are read in parallel anyway",
        ));
    }
    Ok(())
}

/// The error for files that would be missed, since they are not newer than the last file that was read.
fn added_late(stream: &StreamSettings, since: &Cursor, late: u64) -> ConnectorError {
    let last = since.tie_breaker.as_deref().unwrap_or_default();
    ConnectorError::unsupported(
        format!(
            "{late} files of {} were added with modification times at or before that of {last:?}, the \
             last file that was read",
            stream.name
        ),
        "give them the current time, so that they are read as new ones: `touch` them, or copy each \
         object onto itself",
    )
}

/// The columns that a stream chooses, in its order; all if it chooses none.
fn chosen(found: Vec<Column>, stream: &StreamSettings, file: &str) -> Result<Vec<Column>> {
    if found.is_empty() {
        return Err(ConnectorError::data(file, "it has no columns"));
    }
    let mut names: Vec<&str> = found.iter().map(|column| &*column.name).collect();
    names.sort_unstable();
    if let Some([twice, _]) = names.array_windows().find(|[one, next]| one == next) {
        return Err(ConnectorError::data(file, format!("it has two columns named {twice:?}")));
    }
    if stream.columns.is_empty() {
        return Ok(found);
    }
    let choose = |name: &String| {
        found.iter().find(|column| column.name == *name).cloned().ok_or_else(|| {
            let known: Vec<&str> = found.iter().map(|column| &*column.name).collect();
            let found = format!("it has no column {name:?}; its columns are {}", known.join(", "));
            ConnectorError::data(file, found)
        })
    };
    stream.columns.iter().map(choose).collect()
}

/// The name of a version of a file.
fn version(file: &Listed) -> String {
    match &file.tag {
        Some(tag) => format!("file {} ({} bytes, {})", file.name, file.size, tag.trim_matches('"')),
        None => format!("file {} ({} bytes, {})", file.name, file.size, file.modified_ns),
    }
}

fn unit(file: &Listed, part: &Part) -> Unit {
    let mut name = version(file);
    let (from, to) = match part.groups {
        (0, usize::MAX) => (None, None),
        (from, to) => {
            name = format!("{name} row groups {from}..{to}");
            (Some(from.to_string()), Some(to.to_string()))
        }
    };
    Unit { name, from, to, rows: part.rows, bytes: Some(part.bytes) }
}

/// All units as one.
fn together(units: Vec<(Unit, Parts)>) -> (Unit, Parts) {
    let mut digest = sha2::Sha256::new();
    let (mut parts, mut bytes) = (Vec::new(), 0);
    for (unit, its) in units {
        digest.update(unit.name.as_bytes());
        digest.update([0]);
        bytes += unit.bytes.unwrap_or(0);
        parts.extend(its);
    }
    let digest = u64::from_be_bytes(std::array::from_fn(|at| digest.clone().finalize()[at]));
    let name = format!("{} files ({bytes} bytes, {digest:016x})", parts.len());
    (Unit { name, from: None, to: None, rows: None, bytes: Some(bytes) }, parts)
}

/// The units of an unfinished load, if their files are unchanged.
fn again(files: &[Listed], units: &[Unit]) -> Result<Vec<(Unit, Parts)>> {
    let by_version: HashMap<String, &Listed> =
        files.iter().map(|file| (version(file), file)).collect();
    let find = |wanted: &Unit| {
        let groups = match (&wanted.from, &wanted.to) {
            (None, None) => (0, usize::MAX),
            (from, to) => (from.as_ref()?.parse().ok()?, to.as_ref()?.parse().ok()?),
        };
        let suffix = format!(" row groups {}..{}", groups.0, groups.1);
        let version = wanted.name.strip_suffix(&suffix).unwrap_or(&wanted.name);
        let file = (*by_version.get(version)?).clone();
        let part = Part { groups, rows: wanted.rows, bytes: wanted.bytes.unwrap_or(file.size) };
        (unit(&file, &part).name == wanted.name).then(|| (wanted.clone(), vec![(file, part)]))
    };
    let again = |unit| {
        find(unit).ok_or_else(|| {
            ConnectorError::unsupported(
                format!(
                    "{}, which belongs to an unfinished load, is missing or has changed",
                    unit.name
                ),
                "reset the stream to load it from the beginning",
            )
        })
    };
    units.iter().map(again).collect()
}

#[async_trait]
impl Source for FileSource {
    async fn check(&self) -> Result<String> {
        let source = self.clone();
        blocking(move || {
            let place = source.place()?;
            place.check_readable()?;
            Ok(format!("{} is accessible", place.display("").display()))
        })
        .await
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        let source = self.clone();
        blocking(move || source.discover_blocking()).await
    }

    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        _context: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        let (source, stream, opening) = (self.clone(), stream.clone(), opening.clone());
        let stream = blocking(move || source.open_blocking(&stream, &opening)).await?;
        Ok(Arc::new(stream))
    }
}

#[async_trait]
impl SourceStream for FileStream {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        true
    }

    fn cursor(&self) -> Option<Cursor> {
        self.cursor.clone()
    }

    fn notes(&self) -> Vec<String> {
        let mut files: Vec<&str> =
            self.parts.iter().flatten().map(|(file, _)| &*file.name).collect();
        files.dedup();
        let mut notes = vec![format!("{} files in {} units", files.len(), self.units.len())];
        if self.cursor.is_some() {
            notes.push("files that are new since the last run, by modification time".into());
        }
        notes.extend(self.notes.iter().cloned());
        notes
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        let parts = self.parts.get(unit).cloned().unwrap_or_default();
        let (place, format) = (self.place.clone(), Arc::clone(&self.format));
        let columns = Arc::clone(&self.columns);
        let (is_projection, batch_size) = (self.is_projection, self.batch_size);
        let memory = self.memory;
        pump(out, move |give| {
            for (file, part) in &parts {
                let file = &place.open(file)?.within(memory);
                let columns = &columns;
                format.read(&Reading { file, part, columns, is_projection, batch_size }, give)?;
                file.check_unchanged()?;
            }
            Ok(())
        })
        .await
    }
}
