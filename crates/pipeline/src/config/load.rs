//! Reading the pipeline file, and reporting its errors with their position.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use forebay_sdk::registry::{ConnectorSettings as _, Registry};
use forebay_sdk::run::QUEUED_MAX;
use forebay_sdk::settings::text::resolving;
use forebay_sdk::settings::{DeletedRows, OnLost, Resolve, StreamSettings, SyncMode, WriteMode};
use serde::Deserialize;

use super::in_use::{self, Uses};
use super::position;
use super::{AlertSettings, PipelineFile};

/// Maximum size of a pipeline file, in bytes.
const FILE_SIZE_MAX: u64 = 1 << 20;

/// Why a pipeline file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It is larger than a pipeline file can be.
    #[error("{path} is larger than {FILE_SIZE_MAX} bytes: not a pipeline file")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It has an invalid value or field.
    #[error("{path}:{line}:{column}: {field}{found}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: u64,
        /// The field and `: `; empty at the top level.
        field: String,
        /// The fault.
        found: String,
    },
    /// Two settings contradict each other.
    #[error("{path}: {field}: {found}")]
    Conflict {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The fault.
        found: String,
    },
}

/// Reads a pipeline file.
///
/// * `registry`: the connectors that it can name.
/// * `resolve`: returns the values of names in texts.
///
/// # Errors
/// [`LoadError`], with the position.
pub fn load(
    path: &Path,
    registry: &Registry,
    resolve: &'static Resolve<'static>,
) -> Result<PipelineFile, LoadError> {
    let read = |source| LoadError::Read { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(read)?.len();
    if size > FILE_SIZE_MAX {
        return Err(LoadError::TooLarge { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(read)?;
    parse(&text, path, registry, resolve)
}

/// Reads the text of a pipeline file.
pub(crate) fn parse(
    text: &str,
    path: &Path,
    registry: &Registry,
    resolve: &'static Resolve<'static>,
) -> Result<PipelineFile, LoadError> {
    let mut field = String::new();
    let read = || {
        serde_saphyr::with_deserializer_from_str(text, |deserializer| {
            let mut track = serde_path_to_error::Track::new();
            let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
            PipelineFile::deserialize(tracked).inspect_err(|_| field = track.path().to_string())
        })
    };
    let read = || resolving(std::rc::Rc::new(resolve), read);
    let file = in_use::with(registry, Uses::of(text), read).map_err(|error| {
        let error = error.without_snippet();
        let location = error.location();
        let location = location.map(|location| (location.line(), location.column()));
        let found = error.to_string();
        let (found, within) = without_positions(&found);
        // The advice of the parser is for programs.
        let found = found.split(", set DuplicateKeyPolicy").next().unwrap_or(found);
        let field = field.trim_end_matches('?').trim_end_matches('.');
        let setting = setting_within(text, field, found);
        let (field, found, within) = match &setting {
            Some((path, found, position)) => (&**path, *found, Some(*position)),
            None => (field, found, within),
        };
        let field =
            if field == "." || field.is_empty() { String::new() } else { format!("{field}: ") };
        let (line, column) = within.or(location).unwrap_or_default();
        let found = with_way_out(found);
        LoadError::Invalid { path: path.to_owned(), line, column, field, found }
    })?;
    check(&file).map_err(|(field, found)| LoadError::Conflict {
        path: path.to_owned(),
        field: field.into(),
        found,
    })?;
    Ok(file)
}

/// What is wrong with a value. A name such as `n` or `12` is another type in YAML.
fn with_way_out(found: &str) -> String {
    let is_other = ["boolean", "integer", "floating point"].iter().any(|kind| {
        found.strip_prefix("invalid type: ").is_some_and(|rest| rest.starts_with(kind))
    });
    if is_other && found.ends_with("expected a string") {
        return format!("{found}; put it in double quotes");
    }
    found.to_owned()
}

/// The path of the setting that a component or a section refused, why, and its position. The message begins with its path
/// there.
fn setting_within<'a>(
    text: &str,
    field: &str,
    found: &'a str,
) -> Option<(String, &'a str, (u64, u64))> {
    let is_section = matches!(field, "source" | "destination");
    let (within, found) = found.split_once(": ")?;
    let path = format!("{field}.{within}");
    let position = match (is_section, field.ends_with(".config")) {
        (true, _) if found.starts_with("unknown field") => position::of_name(text, &path)?,
        (true, _) | (_, true) => position::of(text, &path)?,
        (false, false) => return None,
    };
    Some((path, found, position))
}

/// Splits the positions off the end of a message.
///
/// Each deserializer that an error passes appends the position it knows, so the first one is the
/// most precise.
fn without_positions(mut message: &str) -> (&str, Option<(u64, u64)>) {
    let mut first = None;
    while let Some((before, position)) = message.rsplit_once(" at line ") {
        let numbers = position
            .split_once(", column ")
            .and_then(|(line, column)| Some((line.parse().ok()?, column.parse().ok()?)));
        let Some(numbers) = numbers else { break };
        (message, first) = (before, Some(numbers));
    }
    (message, first)
}

/// Checks what a schema cannot express.
fn check(file: &PipelineFile) -> Result<(), (&'static str, String)> {
    use super::StateBackend;
    let streams = &file.source.streams;
    if streams.is_empty() {
        return Err(("source.streams", "lists no stream, so nothing would be read".into()));
    }
    for stream in streams {
        let name = &stream.name;
        match stream.sync_mode {
            SyncMode::Cdc => check_feed(file, stream)
                .map_err(|(field, found)| (field, format!("{name} is read with `cdc`: {found}")))?,
            SyncMode::Incremental if stream.cursor_field.is_none() => {
                return Err((
                    "source.streams.cursor_field",
                    format!(
                        "{name}: `incremental` needs a column that increases with every change"
                    ),
                ));
            }
            SyncMode::Incremental if file.destination.write_mode == WriteMode::Replace => {
                return Err((
                    "destination.write_mode",
                    format!("{name} is read incrementally; `replace` would discard earlier rows"),
                ));
            }
            _ => {}
        }
    }
    let mut targets: Vec<&str> = streams.iter().map(StreamSettings::target).collect();
    targets.sort_unstable();
    if let Some(twice) = targets.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(("source.streams.into", format!("two streams are written to {:?}", twice[0])));
    }
    match (file.state.backend, &file.state.config) {
        (StateBackend::Postgres, None) => {
            return Err((
                "state.config",
                "`backend: postgres` needs the settings of its server".into(),
            ));
        }
        (StateBackend::Postgres, Some(server)) => {
            server.check().map_err(|error| ("state.config", error.to_string()))?;
        }
        (StateBackend::Sqlite, Some(_)) => {
            return Err(("state.config", "only `backend: postgres` has these settings".into()));
        }
        _ => {}
    }
    check_destination(file)
}

/// Checks what a pipeline that follows changes cannot have.
fn check_feed(
    file: &PipelineFile,
    stream: &StreamSettings,
) -> Result<(), (&'static str, &'static str)> {
    let all = file.source.streams.iter().all(|stream| stream.sync_mode == SyncMode::Cdc);
    if !all {
        return Err(("source.streams.sync_mode", "then every stream of the pipeline has to be"));
    }
    if file.destination.write_mode == WriteMode::Replace {
        let found = "changes are applied with `upsert`, and appended as a log with `append`";
        return Err(("destination.write_mode", found));
    }
    if !file.transforms.is_empty() {
        return Err(("transforms", "changes cannot be transformed"));
    }
    if !stream.columns.is_empty() {
        return Err(("source.streams.columns", "all columns are read"));
    }
    Ok(())
}

/// Checks how rows are moved and written.
fn check_destination(file: &PipelineFile) -> Result<(), (&'static str, String)> {
    let destination = &file.destination;
    let evolves = destination.connector.evolves();
    evolves
        .check(&destination.uses, &destination.schema_evolution, destination.write_mode)
        .map_err(|refused| (refused.field, refused.found))?;
    let inflight = file.resources.max_inflight_batches.map_or(1, NonZeroU32::get);
    if usize::try_from(inflight).is_ok_and(|inflight| inflight > QUEUED_MAX) {
        return Err((
            "resources.max_inflight_batches",
            format!("{inflight} is too many; at most {QUEUED_MAX} batches wait between two stages"),
        ));
    }
    let is_feed = file.source.streams.iter().any(|stream| stream.sync_mode == SyncMode::Cdc);
    if destination.deleted_rows == DeletedRows::Mark
        && (!is_feed || destination.write_mode != WriteMode::Upsert)
    {
        return Err((
            "destination.deleted_rows",
            "`mark` needs streams with `sync_mode: cdc`, and `write_mode: upsert`".into(),
        ));
    }
    let has_limits =
        |alerts: &AlertSettings| alerts.max_lag.is_some() || alerts.max_lag_bytes.is_some();
    if !is_feed && file.alerts.as_ref().is_some_and(has_limits) {
        let found = "`max_lag` and `max_lag_bytes` need streams with `sync_mode: cdc`".into();
        return Err(("alerts", found));
    }
    match (file.source.on_lost, is_feed, destination.write_mode) {
        (OnLost::CopyAgain, false, _) => {
            let found = "`copy_again` needs streams with `sync_mode: cdc`".into();
            return Err(("source.on_lost", found));
        }
        (OnLost::CopyAgain, true, WriteMode::Append) => {
            let found = "`copy_again` would replace the log, and needs `write_mode: upsert`".into();
            return Err(("source.on_lost", found));
        }
        _ => {}
    }
    if is_feed && !destination.primary_key.is_empty() {
        return Err((
            "destination.primary_key",
            "with `cdc` the key of each table is that of the source".into(),
        ));
    }
    if !is_feed && destination.write_mode == WriteMode::Upsert && destination.primary_key.is_empty()
    {
        return Err(("destination.primary_key", "`upsert` needs the columns of the key".into()));
    }
    Ok(())
}

/// JSON Schema of the pipeline file, with the connectors of a registry.
#[must_use]
pub fn json_schema(registry: &Registry) -> serde_json::Value {
    in_use::with(registry, Uses::default(), || schemars::schema_for!(PipelineFile).to_value())
}
