//! A feed that a component reads.
//!
//! A task owns the instance. While there is room, it has the component wait for what follows; while the destination is
//! busy, it has it read ahead and answer its source (`keep-alive`). A call that waits is asked to return
//! (`host.is-wanted`) as soon as there is another one, so nothing waits for a time to pass.
//!
//! Invariants:
//! - A position is beyond the one before it, by the component's own comparison, and a unit fits the feed.
//! - A call that does not return in time ends the feed: its source would take it for lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use forebay_sdk::ConnectorError;
use forebay_sdk::changes::encoded::{check_position, decode};
use forebay_sdk::changes::feed::{ChangeStream, Feed, FeedStream, Next};
use forebay_sdk::connector::Result;
use forebay_sdk::settings::FeedForm;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::instance::{Instance, Loaded};
use crate::state::Wanted;
use crate::wit::change_source as wit;
use crate::wit::change_source_world::ChangeSourceConnector;
use crate::wit::types;

/// How long a call waits at most.
const WAIT: Duration = Duration::from_secs(1);
/// How long a call may take besides.
const GRACE: Duration = Duration::from_secs(60);
/// How long the next call waits after one that returned nothing before its time.
const PAUSE: Duration = Duration::from_millis(10);
/// How often it is looked up how far the feed is behind.
const LAG_EVERY: Duration = Duration::from_secs(1);
/// A lag that is not known.
const UNKNOWN: u64 = u64::MAX;
/// A time that is not known.
const NEVER: i64 = i64::MIN;

/// How far a feed is behind.
#[derive(Debug)]
struct Lag {
    bytes: AtomicU64,
    current_us: AtomicI64,
}

/// What follows, and whether its position is at or after the present.
type Handed = Result<(Next, bool)>;

/// A feed that is read.
pub(crate) struct Following {
    units: mpsc::Receiver<Handed>,
    confirmed: watch::Sender<Option<String>>,
    present: String,
    /// The last position that was handed over, if it is at or after the present.
    reached: Option<String>,
    lag: Arc<Lag>,
    task: JoinHandle<()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Following {
    /// Reads from an instance that is attached.
    ///
    /// * `feed`: what it is attached to.
    /// * `present`: the position up to which the source has written.
    ///
    /// # Errors
    /// The component failed.
    pub(crate) async fn start(
        loaded: Loaded,
        instance: Instance<ChangeSourceConnector>,
        feed: &Feed,
        present: String,
    ) -> Result<Self> {
        let (to, units) = mpsc::channel(1);
        let (confirmed, follow) = watch::channel(None);
        let (bytes, current_us) = (AtomicU64::new(UNKNOWN), AtomicI64::new(NEVER));
        let lag = Arc::new(Lag { bytes, current_us });
        let wanted = Arc::clone(&instance.store.data().wanted);
        let position = feed.position.clone().unwrap_or_default();
        let mut pump = Pump {
            loaded,
            instance,
            wanted,
            streams: feed.streams.clone(),
            form: feed.form,
            position: position.clone(),
            present: present.clone(),
            confirmed: follow,
            lag: Arc::clone(&lag),
            measured_at: None,
        };
        let is_reached = pump.is_reached(&position, &present).await?;
        let task = tokio::spawn(async move {
            if let Err(error) = pump.run(&to).await {
                // The reader may have gone.
                to.send(Err(error)).await.ok();
            }
        });
        Ok(Self { units, confirmed, present, reached: is_reached.then_some(position), lag, task })
    }
}

#[async_trait]
impl ChangeStream for Following {
    fn present(&self) -> &str {
        &self.present
    }

    fn lag_bytes(&self) -> Option<u64> {
        Some(self.lag.bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes != UNKNOWN)
    }

    fn current_us(&self) -> Option<i64> {
        Some(self.lag.current_us.load(Ordering::Relaxed)).filter(|at_us| *at_us != NEVER)
    }

    fn is_reached(&self, position: &str, wanted: &str) -> bool {
        // The component compares: what it said of a position came with it.
        wanted == self.present && self.reached.as_deref() == Some(position)
    }

    async fn next(&mut self) -> Result<Next> {
        let (next, is_reached) = match self.units.recv().await {
            Some(handed) => handed?,
            None => return Err(ConnectorError::Stopped),
        };
        if let Some(position) = position(&next) {
            self.reached = is_reached.then(|| position.to_owned());
        }
        Ok(next)
    }

    async fn confirm(&mut self, position: &str) -> Result<()> {
        self.confirmed.send_replace(Some(position.to_owned()));
        Ok(())
    }
}

/// The position of what follows; a part of a transaction has none.
fn position(next: &Next) -> Option<&str> {
    match next {
        Next::Unit(unit) => unit.position.as_deref(),
        Next::Idle { position, .. } => Some(position),
    }
}

/// What a call is to do.
#[derive(Debug, Clone, Copy)]
enum Wait {
    Next,
    KeepAlive,
}

/// Calls the instance.
struct Pump {
    loaded: Loaded,
    instance: Instance<ChangeSourceConnector>,
    wanted: Arc<Wanted>,
    streams: Vec<FeedStream>,
    form: FeedForm,
    /// The last position.
    position: String,
    present: String,
    confirmed: watch::Receiver<Option<String>>,
    lag: Arc<Lag>,
    measured_at: Option<Instant>,
}

impl Pump {
    async fn run(&mut self, to: &mpsc::Sender<Handed>) -> Result<()> {
        loop {
            self.confirm().await?;
            self.measure().await?;
            match to.try_reserve() {
                Ok(room) => {
                    let mut confirmed = self.confirmed.clone();
                    let another = async {
                        confirmed.changed().await.ok();
                    };
                    let following = self.wait(Wait::Next, another).await?;
                    if let Some(next) = self.received(following)? {
                        let is_reached = self.passed(&next).await?;
                        room.send(Ok((next, is_reached)));
                    }
                }
                Err(TrySendError::Closed(())) => return Ok(()),
                Err(TrySendError::Full(())) => {
                    let mut confirmed = self.confirmed.clone();
                    let another = async {
                        tokio::select! {
                            _ = confirmed.changed() => {}
                            _ = to.reserve() => {}
                        }
                    };
                    self.wait(Wait::KeepAlive, another).await?;
                }
            }
        }
    }

    /// Has the component wait, until there is something else to call.
    async fn wait(
        &mut self,
        what: Wait,
        another: impl Future<Output = ()>,
    ) -> Result<wit::Following> {
        let wait_ms = u32::try_from(WAIT.as_millis()).unwrap_or(u32::MAX);
        let begun = Instant::now();
        self.wanted.reset();
        let Instance { store, world } = &mut self.instance;
        store.data_mut().is_active();
        let source = world.forebay_connector_change_source();
        let calling = async {
            match what {
                Wait::Next => source.call_next(store, wait_ms).await,
                Wait::KeepAlive => {
                    let kept = source.call_keep_alive(store, wait_ms).await;
                    kept.map(|kept| kept.map(|()| wit::Following::Nothing))
                }
            }
        };
        let asking = async {
            another.await;
            self.wanted.set();
            std::future::pending::<()>().await;
        };
        let returned = tokio::select! {
            biased;
            returned = calling => returned,
            () = asking => return Err(ConnectorError::Stopped),
            () = tokio::time::sleep(WAIT + GRACE) => return Err(self.late()),
        };
        let following = self.answer(returned)?;
        let is_early = !self.wanted.is_set() && begun.elapsed() < WAIT;
        if is_early && matches!(following, wit::Following::Nothing) {
            // It does not wait, so it is not asked without end.
            tokio::time::sleep(PAUSE).await;
        }
        Ok(following)
    }

    fn late(&self) -> ConnectorError {
        ConnectorError::Refused {
            act: format!("follow changes with the connector {}", self.loaded.name),
            source: format!("a call that waits at most {WAIT:?} did not return for {GRACE:?}")
                .into(),
        }
    }

    fn answer<T>(
        &self,
        returned: wasmtime::Result<std::result::Result<T, types::Error>>,
    ) -> Result<T> {
        self.loaded.answer("follow changes", returned)
    }

    /// What a call returned.
    fn received(&mut self, following: wit::Following) -> Result<Option<Next>> {
        Ok(match following {
            wit::Following::Nothing => None,
            wit::Following::Idle(wit::Idle { position, at_us }) => {
                check_position(&position)?;
                Some(Next::Idle { position, at_us })
            }
            wit::Following::Unit(bytes) => {
                let unit = decode(&bytes, &self.streams, self.form)?;
                for (at, redefinition) in &unit.redefined {
                    if let Some(stream) = self.streams.get_mut(*at) {
                        stream.columns.clone_from(&redefinition.columns);
                    }
                }
                Some(Next::Unit(unit))
            }
        })
    }

    /// Checks that a position is beyond the last one; whether it is at or after the present.
    async fn passed(&mut self, next: &Next) -> Result<bool> {
        let Some(position) = position(next) else { return Ok(false) };
        let before = std::mem::replace(&mut self.position, position.to_owned());
        let is_beyond = self.is_reached(position, &before).await?
            && !self.is_reached(&before, position).await?;
        if !is_beyond {
            return Err(ConnectorError::data(
                format!("the feed of the connector {}", self.loaded.name),
                format!("after the position {before:?} came {position:?}, which is not beyond it"),
            ));
        }
        let present = self.present.clone();
        self.is_reached(position, &present).await
    }

    async fn is_reached(&mut self, position: &str, wanted: &str) -> Result<bool> {
        let Instance { store, world } = &mut self.instance;
        store.data_mut().is_active();
        let source = world.forebay_connector_change_source();
        let reached = source.call_is_reached(store, position, wanted).await;
        reached.map_err(|error| self.loaded.trapped("compare positions", &error))
    }

    /// Passes on what was confirmed meanwhile.
    async fn confirm(&mut self) -> Result<()> {
        if !self.confirmed.has_changed().unwrap_or(false) {
            return Ok(());
        }
        let Some(position) = self.confirmed.borrow_and_update().clone() else { return Ok(()) };
        let Instance { store, world } = &mut self.instance;
        store.data_mut().is_active();
        let source = world.forebay_connector_change_source();
        let confirmed = source.call_confirm(store, &position).await;
        self.answer(confirmed)
    }

    /// Looks up how far the feed is behind.
    async fn measure(&mut self) -> Result<()> {
        if self.measured_at.is_some_and(|at| at.elapsed() < LAG_EVERY) {
            return Ok(());
        }
        self.measured_at = Some(Instant::now());
        let Instance { store, world } = &mut self.instance;
        let behind = world.forebay_connector_change_source().call_behind(store).await;
        let behind = behind.map_err(|error| self.loaded.trapped("follow changes", &error))?;
        self.lag.bytes.store(behind.bytes.unwrap_or(UNKNOWN), Ordering::Relaxed);
        self.lag.current_us.store(behind.current_us.unwrap_or(NEVER), Ordering::Relaxed);
        Ok(())
    }
}
