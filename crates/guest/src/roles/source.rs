//! A source.
//!
//! A handle is how a stream is read, and what the source needs to attach to it.

use std::cell::RefCell;
use std::sync::Arc;

use forebay_sdk::ConnectorError;
use forebay_sdk::batch::Batch;
use forebay_sdk::component::Become as _;
use forebay_sdk::connector::{Division, Form, Opening, Source, SourceStream};
use forebay_sdk::registry::SourceSettings;
use forebay_sdk::run::Outlet;
use forebay_sdk::settings::{StreamSettings, SyncMode};
use futures_util::future::join;
use serde::de::DeserializeOwned;

use super::{Call, failed, not_open, settings};
use crate::rows::Writer;
use crate::runtime::run;
use crate::wit::{outlet, source as wit, types};

pub use super::{spec, validate};

/// A source and its open stream.
#[derive(Default)]
struct State {
    source: Option<Arc<dyn Source>>,
    stream: Option<Arc<dyn SourceStream>>,
    /// How the next stream is opened, if its changes are followed.
    followed: Option<Followed>,
}

/// A stream whose changes are followed.
struct Followed {
    /// The snapshot in which it is read.
    snapshot: Option<String>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// Bytes of a handle before those of the source: form of rows, whether changes are followed, size of a batch, memory.
const HEAD: usize = 18;

/// The handle of a stream: how it is read, and what the source needs to attach to it.
fn handle(opening: &Opening, is_followed: bool, own: &[u8]) -> Vec<u8> {
    let mut handle = Vec::with_capacity(HEAD + own.len());
    handle.push(match opening.form {
        Form::Tuples => 0,
        Form::Records => 1,
        Form::PlainRecords => 2,
    });
    handle.push(is_followed.into());
    handle.extend_from_slice(&(opening.batch_size as u64).to_le_bytes());
    handle.extend_from_slice(&(opening.memory as u64).to_le_bytes());
    handle.extend_from_slice(own);
    handle
}

/// The parts of a handle.
fn opening_of(handle: &[u8]) -> Option<(Opening, bool, &[u8])> {
    let (head, own) = handle.split_first_chunk::<HEAD>()?;
    let (&[form, is_followed], sizes) = head.split_first_chunk()?;
    let (batch_size, memory) = sizes.split_first_chunk::<8>()?;
    let size = |bytes: [u8; 8]| usize::try_from(u64::from_le_bytes(bytes)).ok();
    let opening = Opening {
        form: match form {
            0 => Form::Tuples,
            1 => Form::Records,
            2 => Form::PlainRecords,
            _ => return None,
        },
        since: None,
        division: Division::Any,
        unit_size: u64::MAX,
        batch_size: size(*batch_size)?,
        memory: size(memory.try_into().ok()?)?,
        parallelism: 1,
        snapshot: None,
    };
    Some((opening, is_followed != 0, own))
}

/// The source of these settings; the same one in every call of an instance.
pub(super) fn source<S>(config: &str) -> Result<Arc<dyn Source>, types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    STATE.with_borrow_mut(|state| {
        if let Some(source) = &state.source {
            return Ok(Arc::clone(source));
        }
        let source = settings::<S>(config).map_err(failed)?.source();
        state.source = Some(Arc::clone(&source));
        Ok(source)
    })
}

/// Has the next stream opened as its changes are, and in a snapshot if one is given.
pub(super) fn read_at(snapshot: Option<String>) {
    STATE.with_borrow_mut(|state| state.followed = Some(Followed { snapshot }));
}

/// The settings of a stream.
fn of_stream(stream: types::StreamSettings, is_followed: bool) -> StreamSettings {
    let stream = StreamSettings::from(stream);
    if is_followed { StreamSettings { sync_mode: SyncMode::Cdc, ..stream } } else { stream }
}

/// Settings of streams whose changes are followed.
pub(super) fn followed(streams: Vec<types::StreamSettings>) -> Vec<StreamSettings> {
    streams.into_iter().map(|stream| of_stream(stream, true)).collect()
}

/// Connects and reports what answered.
///
/// # Errors
/// Those of the source.
pub fn check<S>(config: &str) -> Result<String, types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    let source = source::<S>(config)?;
    run(source.check()).map_err(failed)
}

/// Lists all streams.
///
/// # Errors
/// Those of the source.
pub fn discover<S>(config: &str) -> Result<Vec<wit::Discovered>, types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    let source = source::<S>(config)?;
    run(source.discover()).map(|found| found.into_other()).map_err(failed)
}

/// What identifies the table of a stream.
///
/// # Errors
/// Those of the source.
pub fn place<S>(config: &str, stream: types::StreamSettings) -> Result<Option<String>, types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    let source = source::<S>(config)?;
    run(source.place(&stream.into())).map_err(failed)
}

/// Opens a stream.
///
/// # Errors
/// Those of the source.
pub fn open<S>(
    config: &str,
    stream: types::StreamSettings,
    opening: wit::Opening,
) -> Result<wit::Opened, types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    let source = source::<S>(config)?;
    let mut opening = Opening::from(opening);
    let followed = STATE.with_borrow_mut(|state| state.followed.take());
    let is_followed = followed.is_some();
    opening.snapshot = followed.and_then(|followed| followed.snapshot);
    let call = Call::new();
    let stream = of_stream(stream, is_followed);
    let open = run(source.open(&stream, &opening, &call.context)).map_err(failed)?;
    let opened = wit::Opened {
        handle: open.handle().map(|own| handle(&opening, is_followed, &own)).unwrap_or_default(),
        columns: open.columns().iter().map(Into::into).collect(),
        units: open.units().to_vec().into_other(),
        units_are_stable: open.units_are_stable(),
        cursor: open.cursor().into_other(),
        notes: open.notes(),
    };
    STATE.with_borrow_mut(|state| state.stream = Some(open));
    Ok(opened)
}

/// Opens a stream as another instance has opened it.
///
/// # Errors
/// Those of the source, or the handle is of another one.
pub fn attach<S>(
    config: &str,
    stream: types::StreamSettings,
    handle: &[u8],
) -> Result<(), types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    let source = source::<S>(config)?;
    let (opening, is_followed, own) = opening_of(handle).ok_or_else(|| {
        failed(ConnectorError::data("the handle of a stream", "it is not one of this connector"))
    })?;
    let call = Call::new();
    let stream = of_stream(stream, is_followed);
    let attached = run(source.attach(&stream, &opening, own, &call.context));
    let attached = attached.map_err(failed)?;
    STATE.with_borrow_mut(|state| state.stream = Some(attached));
    Ok(())
}

/// Reads a unit into the outlet of the host.
///
/// # Errors
/// Those of the source; the receiver of the rows has gone.
pub fn read(unit: u32) -> Result<(), types::Error> {
    let stream = STATE.with_borrow(|state| state.stream.clone());
    let stream = stream.ok_or_else(|| not_open("stream"))?;
    let unit = usize::try_from(unit).unwrap_or(usize::MAX);
    let call = Call::new();
    // At most one batch waits: the limit on memory is that of the host.
    let (mut out, mut batches) = Outlet::below(1, call.context.clone());
    out.checked_by_receiver();
    let reading = async {
        let read = stream.read(unit, &mut out).await;
        drop(out);
        read
    };
    let (columns, call) = (stream.columns(), &call);
    // Its end of the channel is dropped when it fails: the reader then stops.
    let sending = async move {
        let mut writer = Writer::new(columns);
        while let Some(batch) = batches.recv().await? {
            call.look();
            let Batch { rows, dead, .. } = batch;
            let (rows, dead) = (writer.rows(rows)?, dead.into_other());
            outlet::send(&rows, &dead).map_err(|error| ConnectorError::from(error.failure))?;
        }
        Ok(())
    };
    let (read, sent): (_, Result<(), ConnectorError>) = run(join(reading, sending));
    match (sent, read) {
        // The reader only stopped because its receiver had failed.
        (Err(error), _) | (Ok(()), Err(error)) => Err(failed(error)),
        (Ok(()), Ok(())) => Ok(()),
    }
}
