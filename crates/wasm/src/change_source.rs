//! A component as a source of changes.
//!
//! Each call has an instance of its own. The one that creates a feed stays as long as its snapshot is read, and the
//! one that reads a feed until that ends ([`Following`]).
//!
//! Invariant: names, types, positions and streams of a component are checked here, as those of its rows are.

use async_trait::async_trait;
use forebay_base::printable::printable;
use forebay_sdk::ConnectorError;
use forebay_sdk::changes::encoded::check_position;
use forebay_sdk::changes::feed::{
    Attached, ChangeSource, CreatedFeed, Feed, FeedHealth, FeedOrigin, FeedStream, HeldSnapshot,
};
use forebay_sdk::component::{Become as _, NAME_SIZE_MAX, check_feed_streams};
use forebay_sdk::connector::Result;
use forebay_sdk::run::Context;
use forebay_sdk::settings::StreamSettings;
use parking_lot::Mutex;

use crate::following::Following;
use crate::instance::{Instance, call, instantiate, instantiate_both};
use crate::source::WasmSource;
use crate::wit::change_source as wit;
use crate::wit::change_source_world::ChangeSourceConnector;
use crate::wit::source_world::SourceConnector;
use crate::wit::types;

type Own = Instance<ChangeSourceConnector>;

/// The instance that holds a snapshot.
struct Keeper {
    // Never locked: an instance is not shared between threads.
    _instance: Mutex<Own>,
}

impl WasmSource {
    async fn reporting(&self) -> Result<Own> {
        instantiate!(&self.loaded, None, ChangeSourceConnector)
    }

    /// An instance that opens its next stream as its changes are.
    ///
    /// * `snapshot`: one that another instance holds, in which the stream is read.
    pub(crate) async fn reading_at(
        &self,
        snapshot: Option<&str>,
        context: &Context,
    ) -> Result<Instance<SourceConnector>> {
        let made = instantiate_both!(
            &self.loaded,
            Some(context.clone()),
            SourceConnector,
            ChangeSourceConnector
        );
        let (mut instance, changes) = made?;
        let changes = changes.forebay_connector_change_source();
        let called = changes.call_read_at(&mut instance.store, snapshot).await;
        called.map_err(|error| self.loaded.trapped("read a snapshot", &error))?;
        Ok(instance)
    }

    fn refused(&self, found: impl Into<String>) -> ConnectorError {
        ConnectorError::data(format!("the feed of the connector {}", self.loaded.name), found)
    }

    /// A feed that an instance has created.
    fn created(
        &self,
        created: wit::CreatedFeed,
        of: &[StreamSettings],
        keeper: Own,
    ) -> Result<CreatedFeed> {
        let wit::CreatedFeed { position, snapshot, streams } = created;
        check_position(&position)?;
        check_position(&snapshot)?;
        let streams: Vec<FeedStream> =
            streams.into_iter().map(TryInto::try_into).collect::<Result<_>>()?;
        check_feed_streams(&streams)?;
        if !streams.iter().map(|stream| &stream.stream).eq(of.iter().map(|stream| &stream.name)) {
            return Err(self.refused("its streams are not those that were asked for"));
        }
        let keeper = Box::new(Keeper { _instance: Mutex::new(keeper) });
        Ok(CreatedFeed { position, snapshot: HeldSnapshot { id: snapshot, keeper }, streams })
    }
}

fn crossing(streams: &[StreamSettings]) -> Vec<types::StreamSettings> {
    streams.iter().map(Into::into).collect()
}

#[async_trait]
impl ChangeSource for WasmSource {
    async fn name(
        &self,
        pipeline: &str,
        streams: &[StreamSettings],
        known: Option<&FeedOrigin>,
    ) -> Result<FeedOrigin> {
        let instance = &mut self.reporting().await?;
        let known = known.cloned().into_other();
        let origin: FeedOrigin = call!(
            self.loaded,
            instance,
            "name a feed",
            forebay_connector_change_source.call_name(
                &self.config,
                pipeline,
                &crossing(streams),
                known.as_ref()
            )
        )?
        .into();
        let names = [&origin.server, &origin.database, &origin.slot, &origin.publication];
        if names.iter().any(|name| name.len() > NAME_SIZE_MAX || name.contains('\0')) {
            return Err(self.refused("a name of its origin is too long, or has a zero"));
        }
        Ok(origin)
    }

    async fn create(&self, origin: &FeedOrigin, streams: &[StreamSettings]) -> Result<CreatedFeed> {
        let mut keeper = self.reporting().await?;
        let created = call!(
            self.loaded,
            &mut keeper,
            "create a feed",
            forebay_connector_change_source.call_create(
                &self.config,
                &origin.clone().into(),
                &crossing(streams)
            )
        )?;
        self.created(created, streams, keeper)
    }

    async fn extend(
        &self,
        origin: &FeedOrigin,
        streams: &[StreamSettings],
        further: &[StreamSettings],
    ) -> Result<CreatedFeed> {
        let mut keeper = self.reporting().await?;
        let extended = call!(
            self.loaded,
            &mut keeper,
            "extend a feed",
            forebay_connector_change_source.call_extend(
                &self.config,
                &origin.clone().into(),
                &crossing(streams),
                &crossing(further)
            )
        )?;
        self.created(extended, further, keeper)
    }

    async fn attach(
        &self,
        feed: &Feed,
        streams: &[StreamSettings],
        unit_size: usize,
    ) -> Result<Attached> {
        let mut instance = self.reporting().await?;
        let attached = call!(
            self.loaded,
            &mut instance,
            "attach to a feed",
            forebay_connector_change_source.call_attach(
                &self.config,
                &feed.into(),
                &crossing(streams),
                unit_size as u64
            )
        )?;
        match attached {
            wit::Attached::Lost(found) => Ok(Attached::Lost(printable(&found).to_string())),
            wit::Attached::Present(present) => {
                check_position(&present)?;
                let loaded = self.loaded.clone();
                let following = Following::start(loaded, instance, feed, present).await?;
                Ok(Attached::Stream(Box::new(following)))
            }
        }
    }

    async fn health(&self, origin: &FeedOrigin) -> Result<FeedHealth> {
        let instance = &mut self.reporting().await?;
        let health: FeedHealth = call!(
            self.loaded,
            instance,
            "look up a feed",
            forebay_connector_change_source.call_health(&self.config, &origin.clone().into())
        )?
        .into();
        let shown = |text: Option<String>| text.map(|text| printable(&text).to_string());
        let (confirmed, status) = (shown(health.confirmed), shown(health.status));
        Ok(FeedHealth { confirmed, status, ..health })
    }

    async fn remove(&self, origin: &FeedOrigin) -> Result<bool> {
        let instance = &mut self.reporting().await?;
        call!(
            self.loaded,
            instance,
            "remove a feed",
            forebay_connector_change_source.call_remove(&self.config, &origin.clone().into())
        )
    }
}
