//! A source of changes.
//!
//! What receives changes is a task of the instance. It goes on in every call, and only there: the host calls
//! `keep-alive` while it can take nothing.
//!
//! Invariant: a unit that was received is handed over by a later call if this one ends first.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use forebay_sdk::ConnectorError;
use forebay_sdk::changes::encoded::encode;
use forebay_sdk::changes::feed::{
    Attached, ChangeSource, ChangeStream, CreatedFeed, Feed, FeedOrigin, HeldSnapshot, Next,
};
use forebay_sdk::component::Become as _;
use forebay_sdk::connector::Source;
use forebay_sdk::registry::SourceSettings;
use serde::de::DeserializeOwned;

use super::source::{followed, source};
use super::{failed, not_open};
use crate::runtime::{run, until_wanted};
use crate::wit::{change_source as wit, changes, types};

/// The feed that is read, and a snapshot that is held.
#[derive(Default)]
struct State {
    stream: Option<Box<dyn ChangeStream>>,
    snapshot: Option<HeldSnapshot>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// What a source reports changes with.
fn reporting(source: &Arc<dyn Source>) -> Result<&dyn ChangeSource, types::Error> {
    source.changes().ok_or_else(|| {
        let what = "the connector does not report changes";
        failed(ConnectorError::unsupported(what, "use another `sync_mode`"))
    })
}

/// What a feed would be read from.
///
/// # Errors
/// Those of the source.
pub fn name<S>(
    config: &str,
    pipeline: &str,
    streams: Vec<types::StreamSettings>,
    known: Option<changes::FeedOrigin>,
) -> Result<changes::FeedOrigin, types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    let source = source::<S>(config)?;
    let streams = followed(streams);
    let known: Option<FeedOrigin> = known.into_other();
    let named = run(reporting(&source)?.name(pipeline, &streams, known.as_ref()));
    named.map(Into::into).map_err(failed)
}

/// Holds the snapshot of a feed that was created.
fn hold(created: CreatedFeed) -> wit::CreatedFeed {
    let CreatedFeed { position, snapshot, streams } = created;
    let made = wit::CreatedFeed {
        position,
        snapshot: snapshot.id.clone(),
        streams: streams.iter().map(Into::into).collect(),
    };
    STATE.with_borrow_mut(|state| state.snapshot = Some(snapshot));
    made
}

/// Makes the source keep changes from now on.
///
/// # Errors
/// Those of the source.
pub fn create<S>(
    config: &str,
    origin: changes::FeedOrigin,
    streams: Vec<types::StreamSettings>,
) -> Result<wit::CreatedFeed, types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    let source = source::<S>(config)?;
    let streams = followed(streams);
    let created = run(reporting(&source)?.create(&origin.into(), &streams));
    created.map(hold).map_err(failed)
}

/// Makes the source keep the changes of further streams, too.
///
/// # Errors
/// Those of the source.
pub fn extend<S>(
    config: &str,
    origin: changes::FeedOrigin,
    streams: Vec<types::StreamSettings>,
    further: Vec<types::StreamSettings>,
) -> Result<wit::CreatedFeed, types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    let source = source::<S>(config)?;
    let (streams, further) = (followed(streams), followed(further));
    let extended = run(reporting(&source)?.extend(&origin.into(), &streams, &further));
    extended.map(hold).map_err(failed)
}

/// Has the next stream opened as its changes are, and in a snapshot if one is given.
pub fn read_at(snapshot: Option<String>) {
    super::source::read_at(snapshot);
}

/// Begins to read the changes after the recorded position.
///
/// # Errors
/// Those of the source.
pub fn attach<S>(
    config: &str,
    feed: changes::Feed,
    streams: Vec<types::StreamSettings>,
    unit_size: u64,
) -> Result<wit::Attached, types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    let source = source::<S>(config)?;
    let feed = Feed::try_from(feed).map_err(failed)?;
    let streams = followed(streams);
    let unit_size = usize::try_from(unit_size).unwrap_or(usize::MAX);
    let attached = run(reporting(&source)?.attach(&feed, &streams, unit_size));
    match attached.map_err(failed)? {
        Attached::Lost(found) => Ok(wit::Attached::Lost(found)),
        Attached::Stream(stream) => {
            let present = stream.present().to_owned();
            STATE.with_borrow_mut(|state| state.stream = Some(stream));
            Ok(wit::Attached::Present(present))
        }
    }
}

/// Does something with the feed that is read. It is read no more after an error.
fn reading<T>(
    what: impl AsyncFnOnce(&mut dyn ChangeStream) -> Result<T, ConnectorError>,
) -> Result<T, types::Error> {
    let stream = STATE.with_borrow_mut(|state| state.stream.take());
    let mut stream = stream.ok_or_else(|| not_open("feed"))?;
    let done = run(what(&mut *stream)).map_err(failed)?;
    STATE.with_borrow_mut(|state| state.stream = Some(stream));
    Ok(done)
}

/// Waits for what follows.
///
/// # Errors
/// Those of the source.
pub fn next(wait_ms: u32) -> Result<wit::Following, types::Error> {
    let limit = Duration::from_millis(wait_ms.into());
    reading(async |stream| {
        Ok(match until_wanted(stream.next(), limit).await.transpose()? {
            None => wit::Following::Nothing,
            Some(Next::Unit(unit)) => wit::Following::Unit(encode(&unit)?),
            Some(Next::Idle { position, at_us }) => {
                wit::Following::Idle(wit::Idle { position, at_us })
            }
        })
    })
}

/// Reads ahead and answers the source.
///
/// # Errors
/// No feed is read.
pub fn keep_alive(wait_ms: u32) -> Result<(), types::Error> {
    let limit = Duration::from_millis(wait_ms.into());
    reading(async |_| {
        // What the task of the stream finds is reported by the call that takes it.
        until_wanted(std::future::pending::<()>(), limit).await;
        Ok(())
    })
}

/// Confirms what is recorded at the destination.
///
/// # Errors
/// Those of the source.
pub fn confirm(position: &str) -> Result<(), types::Error> {
    reading(async |stream| stream.confirm(position).await)
}

/// How far it is behind.
#[must_use]
pub fn behind() -> wit::Lag {
    STATE.with_borrow(|state| {
        let stream = state.stream.as_ref();
        wit::Lag {
            bytes: stream.and_then(|stream| stream.lag_bytes()),
            current_us: stream.and_then(|stream| stream.current_us()),
        }
    })
}

/// Whether a position is at or after another; not if no feed is read.
#[must_use]
pub fn is_reached(position: &str, wanted: &str) -> bool {
    STATE.with_borrow(|state| {
        state.stream.as_ref().is_some_and(|stream| stream.is_reached(position, wanted))
    })
}

/// How a feed is.
///
/// # Errors
/// Those of the source.
pub fn health<S>(config: &str, origin: changes::FeedOrigin) -> Result<wit::FeedHealth, types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    let source = source::<S>(config)?;
    run(reporting(&source)?.health(&origin.into())).map(Into::into).map_err(failed)
}

/// Lets the source forget a feed.
///
/// # Errors
/// Those of the source.
pub fn remove<S>(config: &str, origin: changes::FeedOrigin) -> Result<bool, types::Error>
where
    S: SourceSettings + DeserializeOwned,
{
    let source = source::<S>(config)?;
    run(reporting(&source)?.remove(&origin.into())).map_err(failed)
}
