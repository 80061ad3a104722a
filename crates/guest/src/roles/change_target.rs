//! A destination of changes.
//!
//! Invariant: a unit whose outcome is unknown is reported as that, and nothing else is applied then.

use std::cell::RefCell;
use std::sync::Arc;

use forebay_sdk::ConnectorError;
use forebay_sdk::changes::encoded::decode;
use forebay_sdk::changes::feed::{Feed, FeedStream, FeedTarget, FeedWriter};
use forebay_sdk::component::Become as _;
use forebay_sdk::connector::Destination;
use forebay_sdk::registry::DestinationSettings;
use forebay_sdk::settings::{FeedForm, TargetSettings};
use serde::de::DeserializeOwned;

use super::destination::{destination, without_config};
use super::{failed, not_open};
use crate::runtime::run;
use crate::wit::{change_target as wit, changes, types};

/// What applies changes, and what it is known to follow.
struct Open {
    writer: Box<dyn FeedWriter>,
    streams: Vec<FeedStream>,
    form: FeedForm,
}

thread_local! {
    static OPEN: RefCell<Option<Open>> = RefCell::default();
}

/// What a destination applies changes with.
fn applying(destination: &Arc<dyn Destination>) -> Result<&dyn FeedTarget, types::Error> {
    destination.feeds().ok_or_else(|| {
        let what = "the connector does not apply changes";
        failed(ConnectorError::unsupported(what, "use another `sync_mode`"))
    })
}

/// What it can make of changes.
#[must_use]
pub fn forms<S>() -> Vec<changes::FeedForm>
where
    S: DestinationSettings + DeserializeOwned,
{
    let Some(settings) = without_config::<S>() else { return Vec::new() };
    let destination = settings.destination();
    let forms = destination.feeds().map(FeedTarget::forms).unwrap_or_default();
    forms.iter().map(|&form| form.into()).collect()
}

/// Checks that it can store changes of these streams.
///
/// # Errors
/// Those of the destination.
pub fn check<S>(
    config: &str,
    streams: Vec<changes::FeedStream>,
    form: changes::FeedForm,
) -> Result<(), types::Error>
where
    S: DestinationSettings + DeserializeOwned,
{
    let destination = destination::<S>(config)?;
    let streams = streams.into_iter().map(TryInto::try_into).collect::<Result<Vec<_>, _>>();
    applying(&destination)?.check(&streams.map_err(failed)?, form.into()).map_err(failed)
}

/// The feed of a pipeline.
///
/// # Errors
/// Those of the destination.
pub fn recorded<S>(config: &str, pipeline: &str) -> Result<Option<changes::Feed>, types::Error>
where
    S: DestinationSettings + DeserializeOwned,
{
    let destination = destination::<S>(config)?;
    let feed = run(applying(&destination)?.feed(pipeline)).map_err(failed)?;
    Ok(feed.as_ref().map(Into::into))
}

/// Records a feed in the place of another.
///
/// # Errors
/// Those of the destination.
pub fn replace<S>(
    config: &str,
    pipeline: &str,
    before: Option<changes::Feed>,
    feed: Option<changes::Feed>,
) -> Result<(), types::Error>
where
    S: DestinationSettings + DeserializeOwned,
{
    let destination = destination::<S>(config)?;
    let of = |feed: Option<changes::Feed>| feed.map(Feed::try_from).transpose().map_err(failed);
    let (before, feed) = (of(before)?, of(feed)?);
    run(applying(&destination)?.record(pipeline, before.as_ref(), feed.as_ref())).map_err(failed)
}

/// Says what the changes of the next target become.
pub fn copy_for(form: changes::FeedForm) {
    super::destination::copy_for(form.into());
}

/// Prepares to apply changes.
///
/// # Errors
/// Those of the destination.
pub fn open<S>(
    config: &str,
    pipeline: &str,
    feed: changes::Feed,
    targets: Vec<types::TargetSettings>,
) -> Result<(), types::Error>
where
    S: DestinationSettings + DeserializeOwned,
{
    let destination = destination::<S>(config)?;
    let feed = Feed::try_from(feed).map_err(failed)?;
    let targets: Vec<TargetSettings> = targets.into_other();
    let targets = targets.into_iter().map(|of| TargetSettings { feed: feed.form, ..of });
    let targets: Vec<_> = targets.collect();
    let writer = run(applying(&destination)?.open(pipeline, &feed, &targets)).map_err(failed)?;
    let Feed { streams, form, .. } = feed;
    OPEN.set(Some(Open { writer, streams, form }));
    Ok(())
}

/// The error of what may have been applied.
fn unknown(error: ConnectorError) -> types::Error {
    types::Error { failure: error.into(), committed: types::Committed::Unknown }
}

/// Applies a unit.
///
/// # Errors
/// Those of the destination. Whether the unit is applied is not known then.
pub fn apply(unit: &[u8]) -> Result<Vec<wit::Applied>, types::Error> {
    let mut open = OPEN.take().ok_or_else(|| not_open("feed"))?;
    let unit = decode(unit, &open.streams, open.form).map_err(failed)?;
    for (at, redefinition) in &unit.redefined {
        if let Some(stream) = open.streams.get_mut(*at) {
            stream.columns.clone_from(&redefinition.columns);
        }
    }
    let applied = run(open.writer.apply(unit)).map_err(unknown)?;
    OPEN.set(Some(open));
    Ok(applied.into_other())
}

/// Records a position up to which there was no change.
///
/// # Errors
/// Those of the destination. Whether the position is recorded is not known then.
pub fn advance(position: &str) -> Result<(), types::Error> {
    let mut open = OPEN.take().ok_or_else(|| not_open("feed"))?;
    run(open.writer.advance(position)).map_err(unknown)?;
    OPEN.set(Some(open));
    Ok(())
}
