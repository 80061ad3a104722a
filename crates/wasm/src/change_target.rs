//! A component as a destination of changes.
//!
//! The instance that opens a feed applies its units; every other call has an instance of its own.
//!
//! Invariant: a component cannot say that it did more than it was given.

use async_trait::async_trait;
use forebay_sdk::ConnectorError;
use forebay_sdk::changes::encoded::encode;
use forebay_sdk::changes::feed::{Applied, ChangeUnit, Feed, FeedStream, FeedTarget, FeedWriter};
use forebay_sdk::component::Become as _;
use forebay_sdk::connector::Result;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{FeedForm, TargetSettings};

use crate::destination::WasmDestination;
use crate::instance::{Instance, Loaded, call, instantiate, instantiate_both};
use crate::settings::block_on;
use crate::wit::change_target_world::ChangeTargetConnector;
use crate::wit::destination_world::DestinationConnector;
use crate::wit::types;

type Own = Instance<ChangeTargetConnector>;

impl WasmDestination {
    async fn applying(&self) -> Result<Own> {
        instantiate!(&self.loaded, None, ChangeTargetConnector)
    }

    /// An instance whose next target is copied for a feed of this form.
    pub(crate) async fn copying_for(
        &self,
        form: FeedForm,
        context: &Context,
    ) -> Result<Instance<DestinationConnector>> {
        let made = instantiate_both!(
            &self.loaded,
            Some(context.clone()),
            DestinationConnector,
            ChangeTargetConnector
        );
        let (mut instance, changes) = made?;
        let changes = changes.forebay_connector_change_target();
        let called = changes.call_copy_for(&mut instance.store, form.into()).await;
        called.map_err(|error| self.loaded.trapped("open a target", &error))?;
        Ok(instance)
    }

    async fn ask_forms(&self) -> Result<Vec<FeedForm>> {
        let mut instance = self.applying().await?;
        let target = instance.world.forebay_connector_change_target();
        let forms = target.call_forms(&mut instance.store).await;
        let forms = forms.map_err(|error| self.loaded.trapped("describe itself", &error))?;
        Ok(forms.into_other())
    }
}

/// The same forms, each once.
fn known(forms: &[FeedForm]) -> &'static [FeedForm] {
    use FeedForm::{Apply, Log, Mark};
    let has = |form| forms.contains(&form);
    match (has(Apply), has(Mark), has(Log)) {
        (true, true, true) => &[Apply, Mark, Log],
        (true, true, false) => &[Apply, Mark],
        (true, false, true) => &[Apply, Log],
        (true, false, false) => &[Apply],
        (false, true, true) => &[Mark, Log],
        (false, true, false) => &[Mark],
        (false, false, true) => &[Log],
        (false, false, false) => &[],
    }
}

#[async_trait]
impl FeedTarget for WasmDestination {
    fn forms(&self) -> &'static [FeedForm] {
        self.forms.get_or_init(|| {
            let asked = block_on(self.ask_forms()).unwrap_or_else(|error| {
                let error = forebay_base::error_chain::chain(&error).to_string();
                tracing::warn!(connector = &*self.loaded.name, error, "it is asked for no changes");
                Vec::new()
            });
            known(&asked)
        })
    }

    fn check(&self, streams: &[FeedStream], form: FeedForm) -> Result<()> {
        let streams: Vec<_> = streams.iter().map(Into::into).collect();
        block_on(async {
            let instance = &mut self.applying().await?;
            call!(
                self.loaded,
                instance,
                "check the streams of a feed",
                forebay_connector_change_target.call_check(&self.config, &streams, form.into())
            )
        })
    }

    async fn feed(&self, pipeline: &str) -> Result<Option<Feed>> {
        let instance = &mut self.applying().await?;
        let feed = call!(
            self.loaded,
            instance,
            "read the feed",
            forebay_connector_change_target.call_recorded(&self.config, pipeline)
        )?;
        feed.map(TryInto::try_into).transpose()
    }

    async fn record(
        &self,
        pipeline: &str,
        before: Option<&Feed>,
        feed: Option<&Feed>,
    ) -> Result<()> {
        let instance = &mut self.applying().await?;
        let (before, feed) = (before.map(Into::into), feed.map(Into::into));
        call!(
            self.loaded,
            instance,
            "record the feed",
            forebay_connector_change_target.call_replace(
                &self.config,
                pipeline,
                before.as_ref(),
                feed.as_ref()
            )
        )
    }

    async fn open(
        &self,
        pipeline: &str,
        feed: &Feed,
        targets: &[TargetSettings],
    ) -> Result<Box<dyn FeedWriter>> {
        let mut instance = self.applying().await?;
        let targets: Vec<types::TargetSettings> = targets.iter().map(Into::into).collect();
        call!(
            self.loaded,
            &mut instance,
            "prepare to apply changes",
            forebay_connector_change_target.call_open(
                &self.config,
                pipeline,
                &feed.into(),
                &targets
            )
        )?;
        let (loaded, streams) = (self.loaded.clone(), feed.streams.len());
        Ok(Box::new(Writer { loaded, instance, streams }))
    }
}

/// Applies units.
struct Writer {
    loaded: Loaded,
    instance: Own,
    /// Number of streams of the feed.
    streams: usize,
}

impl Writer {
    /// Compares what the component says it did with what it was given.
    fn compare(&self, applied: &[Applied], given: &[u64]) -> Result<()> {
        let fits = |(of, &given): (&Applied, &u64)| {
            let rows = [of.inserted, of.updated, of.deleted];
            let all = rows.iter().try_fold(0_u64, |all, rows| all.checked_add(*rows));
            all.is_some_and(|all| all <= given)
        };
        if applied.len() == given.len() && applied.iter().zip(given).all(fits) {
            return Ok(());
        }
        Err(ConnectorError::data(
            format!("the changes that the connector {} applied", self.loaded.name),
            format!(
                "it reports {applied:?}, and was given {given:?} changes: what it wrote has to be compared with the \
                 source"
            ),
        ))
    }
}

#[async_trait]
impl FeedWriter for Writer {
    async fn apply(&mut self, unit: ChangeUnit) -> Result<Vec<Applied>> {
        let mut given = vec![0; self.streams];
        for of in &unit.streams {
            if let Some(given) = given.get_mut(of.stream) {
                *given = of.changes.count();
            }
        }
        let bytes = encode(&unit)?;
        // Once is enough.
        drop(unit);
        let applied = call!(
            self.loaded,
            &mut self.instance,
            "apply changes",
            forebay_connector_change_target.call_apply(&bytes)
        )?;
        let applied: Vec<Applied> = applied.into_other();
        self.compare(&applied, &given)?;
        Ok(applied)
    }

    async fn advance(&mut self, position: &str) -> Result<()> {
        call!(
            self.loaded,
            &mut self.instance,
            "record a position",
            forebay_connector_change_target.call_advance(position)
        )
    }
}
