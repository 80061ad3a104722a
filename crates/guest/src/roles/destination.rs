//! A destination.
//!
//! Invariant: a commit whose outcome is unknown is reported as that, whatever the reason.

use std::cell::RefCell;
use std::sync::Arc;

use forebay_sdk::ConnectorError;
use forebay_sdk::batch::Batch;
use forebay_sdk::component::{Become as _, Column};
use forebay_sdk::connector::{Claim, Destination, Load, Target, UnitWriter};
use forebay_sdk::registry::DestinationSettings;
use forebay_sdk::settings::{FeedForm, TargetSettings};
use serde::de::DeserializeOwned;

use super::{Call, columns, failed, not_open, settings};
use crate::rows::{self, Reader};
use crate::runtime::run;
use crate::wit::{destination as wit, types};

pub use super::{spec, validate};

/// A destination, its open target, and the unit that is written.
#[derive(Default)]
struct State {
    destination: Option<Arc<dyn Destination>>,
    claim: Option<Box<dyn Claim>>,
    target: Option<(Arc<dyn Target>, Vec<Column>)>,
    writer: Option<(Box<dyn UnitWriter>, Reader)>,
    /// What the changes of the next target become.
    form: Option<FeedForm>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// Settings from an empty configuration, for what does not depend on them.
pub(super) fn without_config<S: DeserializeOwned>() -> Option<S> {
    serde_json::from_str("{}").ok()
}

/// The destination of these settings; the same one in every call of an instance.
pub(super) fn destination<S>(config: &str) -> Result<Arc<dyn Destination>, types::Error>
where
    S: DestinationSettings + DeserializeOwned,
{
    STATE.with_borrow_mut(|state| {
        if let Some(destination) = &state.destination {
            return Ok(Arc::clone(destination));
        }
        let destination = settings::<S>(config).map_err(failed)?.destination();
        state.destination = Some(Arc::clone(&destination));
        Ok(destination)
    })
}

/// The form of rows it prefers.
#[must_use]
pub fn form<S>() -> types::Form
where
    S: DestinationSettings + DeserializeOwned,
{
    without_config::<S>()
        .map_or(types::Form::PlainRecords, |settings| settings.destination().form().into())
}

/// The settings that it honours.
#[must_use]
pub fn evolves<S>() -> wit::Evolution
where
    S: DestinationSettings + DeserializeOwned,
{
    let evolves = without_config::<S>().map(|settings| settings.evolves()).unwrap_or_default();
    wit::Evolution {
        new_column: evolves.new_column.iter().map(|&choice| choice.into()).collect(),
        removed_column: evolves.removed_column.iter().map(|&choice| choice.into()).collect(),
        type_change: evolves.type_change.iter().map(|&choice| choice.into()).collect(),
        nullability_change: evolves
            .nullability_change
            .iter()
            .map(|&choice| choice.into())
            .collect(),
        on_replace: evolves.on_replace,
    }
}

/// Says what the changes of the next target become.
pub(super) fn copy_for(form: FeedForm) {
    STATE.with_borrow_mut(|state| state.form = Some(form));
}

/// Connects and reports what answered.
///
/// # Errors
/// Those of the destination.
pub fn check<S>(config: &str) -> Result<String, types::Error>
where
    S: DestinationSettings + DeserializeOwned,
{
    run(destination::<S>(config)?.check()).map_err(failed)
}

/// The last load of a stream.
///
/// # Errors
/// Those of the destination.
pub fn last_load<S>(
    config: &str,
    target: wit::TargetSettings,
) -> Result<Option<wit::Recorded>, types::Error>
where
    S: DestinationSettings + DeserializeOwned,
{
    let destination = destination::<S>(config)?;
    let found = run(destination.last_load(&target.into())).map_err(failed)?;
    Ok(found
        .map(|(load, entries)| wit::Recorded { load: load.into(), entries: entries.into_other() }))
}

/// Deletes the records of all loads of a stream.
///
/// # Errors
/// Those of the destination.
pub fn forget<S>(config: &str, target: wit::TargetSettings) -> Result<u64, types::Error>
where
    S: DestinationSettings + DeserializeOwned,
{
    run(destination::<S>(config)?.forget(&target.into())).map_err(failed)
}

/// What identifies the table that a stream is written to.
///
/// # Errors
/// Those of the destination.
pub fn place<S>(config: &str, target: wit::TargetSettings) -> Result<Option<String>, types::Error>
where
    S: DestinationSettings + DeserializeOwned,
{
    run(destination::<S>(config)?.place(&target.into())).map_err(failed)
}

/// Claims a stream until the instance ends.
///
/// # Errors
/// Those of the destination.
pub fn claim<S>(config: &str, target: wit::TargetSettings) -> Result<(), types::Error>
where
    S: DestinationSettings + DeserializeOwned,
{
    let destination = destination::<S>(config)?;
    let claim = run(destination.claim(&target.into())).map_err(failed)?;
    STATE.with_borrow_mut(|state| state.claim = Some(claim));
    Ok(())
}

/// Opens the target of a stream.
///
/// # Errors
/// Those of the destination.
pub fn open<S>(
    config: &str,
    target: wit::TargetSettings,
    of: Vec<types::Column>,
) -> Result<wit::OpenedTarget, types::Error>
where
    S: DestinationSettings + DeserializeOwned,
{
    let destination = destination::<S>(config)?;
    let form = STATE.with_borrow_mut(|state| state.form.take()).unwrap_or_default();
    let settings = TargetSettings { feed: form, ..TargetSettings::from(target) };
    let columns = columns(of).map_err(failed)?;
    let call = Call::new();
    let target = run(destination.open(&settings, &columns, &call.context)).map_err(failed)?;
    let opened = wit::OpenedTarget {
        handle: Vec::new(),
        plan: target.plan(),
        takes_tuples: target.takes_tuples(),
        stored: target.stored().map(|stored| stored.iter().map(Into::into).collect()),
    };
    STATE.with_borrow_mut(|state| state.target = Some((target, columns)));
    Ok(opened)
}

/// The open target.
fn target() -> Result<(Arc<dyn Target>, Vec<Column>), types::Error> {
    STATE.with_borrow(|state| state.target.clone()).ok_or_else(|| not_open("target"))
}

/// Prepares for a load.
///
/// # Errors
/// Those of the destination.
pub fn prepare(load: wit::Load) -> Result<(), types::Error> {
    let (target, _) = target()?;
    run(target.prepare(&load.into())).map_err(failed)
}

/// Begins to write a unit.
///
/// # Errors
/// Those of the destination.
pub fn begin(load: wit::Load, unit: types::Unit) -> Result<(), types::Error> {
    let (target, columns) = target()?;
    // What is left of a unit that was not committed.
    drop(STATE.with_borrow_mut(|state| state.writer.take()));
    let writer = run(target.writer(&Load::from(load), &unit.into())).map_err(failed)?;
    STATE.with_borrow_mut(|state| state.writer = Some((writer, Reader::new(&columns))));
    Ok(())
}

/// Writes rows.
///
/// # Errors
/// Those of the destination.
pub fn write(
    rows: types::Rows,
    content: wit::ContentHash,
    dead: Vec<types::DeadRow>,
) -> Result<(), types::Error> {
    let writer = STATE.with_borrow_mut(|state| state.writer.take());
    let (mut writer, mut reader) = writer.ok_or_else(|| not_open("unit"))?;
    let content = rows::content(&content).map_err(failed)?;
    let Some(rows) = reader.rows(rows, content).map_err(failed)? else {
        return Err(failed(ConnectorError::data("rows of the host", "the batch is empty")));
    };
    let mut batch = Batch::unbounded(rows);
    batch.hash = Some(content);
    batch.dead = dead.into_other();
    run(writer.write(batch)).map_err(failed)?;
    STATE.with_borrow_mut(|state| state.writer = Some((writer, reader)));
    Ok(())
}

/// Commits the unit.
///
/// # Errors
/// Those of the destination. Whether the unit is stored is not known then.
pub fn commit(entry: wit::LedgerEntry) -> Result<wit::LedgerEntry, types::Error> {
    let writer = STATE.with_borrow_mut(|state| state.writer.take());
    let (writer, _) = writer.ok_or_else(|| not_open("unit"))?;
    match run(writer.commit(entry.into())) {
        Ok(entry) => Ok(entry.into()),
        Err(error) => {
            Err(types::Error { failure: error.into(), committed: types::Committed::Unknown })
        }
    }
}

/// Ends the load.
///
/// # Errors
/// Those of the destination. Whether the load has ended is not known then.
pub fn finish(load: wit::Load) -> Result<(), types::Error> {
    let (target, _) = target()?;
    run(target.finish(&load.into())).map_err(|error| types::Error {
        failure: error.into(),
        committed: types::Committed::Unknown,
    })
}

/// The content hash of all stored rows.
///
/// # Errors
/// Those of the destination.
pub fn content() -> Result<wit::ContentHash, types::Error> {
    let (target, _) = target()?;
    let content = run(target.content()).map_err(failed)?;
    Ok(wit::ContentHash { rows: content.rows, sum: content.to_string() })
}
