//! The connection that receives changes, while earlier ones are applied.
//!
//! A task owns the connection. It reads, assembles units, and answers the server at least every ten seconds, or four times
//! in the time that it waits for an answer, however long a unit takes to be applied: it hands over one unit at a time, and stops reading when the next one
//! is full.
//!
//! Invariant: only a position that was confirmed is reported as durable, so the server keeps everything after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use forebay_sdk::changes::feed::{ChangeStream, Next};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::platform::{self, Instant, sleep};
use futures_util::future::{AbortHandle, abortable};
use tokio::sync::{mpsc, watch};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::super::connect::refused;
use super::assemble::Assembler;
use super::identity::Recognized;
use super::redefine::redefinition;
use crate::replication::envelope::{Envelope, ServerTime};
use crate::replication::pgoutput::{Decoder, Message};
use crate::replication::{Lsn, Replication};

/// How often the server is answered, at least.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// How long a unit waits for further commits while nothing is being applied, if they keep coming.
const UNIT_DELAY: Duration = Duration::from_millis(2);
/// How often a position without changes is recorded.
const IDLE_EVERY: Duration = Duration::from_secs(60);

const LAG: &str = "select pg_wal_lsn_diff(pg_current_wal_lsn(), $1::text::pg_lsn)::int8";
/// A lag that was not looked up yet.
const UNKNOWN: u64 = u64::MAX;
/// A time that is not known yet.
const NEVER: i64 = i64::MIN;

/// A feed that is being read.
pub(super) struct Receiving {
    units: mpsc::Receiver<Result<Next>>,
    confirmed: watch::Sender<Lsn>,
    present: String,
    /// Bytes of the log that may have changes which are not confirmed; `UNKNOWN` at first.
    lag: Arc<AtomicU64>,
    /// The server's time before which every commit is confirmed; `NEVER` at first.
    current: Arc<AtomicI64>,
    task: AbortHandle,
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiving {
    /// Reads from a connection on which replication has started.
    ///
    /// * `catalog`: another connection to the same database.
    /// * `tables`: those that are followed.
    /// * `from`: the recorded position.
    /// * `present`: the end of the server's log.
    /// * `patience`: after how long without an answer the server ends the connection; zero: never.
    pub(super) fn start(
        replication: Replication,
        catalog: Client,
        assembler: Assembler,
        tables: Recognized,
        from: Lsn,
        present: Lsn,
        patience: Duration,
    ) -> Self {
        let (to, units) = mpsc::channel(1);
        let (confirmed, follow) = watch::channel(from);
        let lag = Arc::new(AtomicU64::new(UNKNOWN));
        let current = Arc::new(AtomicI64::new(NEVER));
        let receiver = Receiver {
            replication,
            catalog,
            decoder: Decoder::default(),
            assembler,
            tables,
            confirmed: follow,
            received: from,
            idle: None,
            clock: ServerTime(0),
            handed: from,
            unit_end: from,
            present,
            report_every: report_every(patience),
            lag: Arc::clone(&lag),
            current: Arc::clone(&current),
        };
        let (receiving, task) = abortable(async move {
            if let Err(error) = receiver.run(&to).await {
                // The reader may have gone.
                to.send(Err(error)).await.ok();
            }
        });
        platform::spawn(async move {
            // It is aborted when the reader has gone.
            receiving.await.ok();
        });
        Self { units, confirmed, present: present.to_string(), lag, current, task }
    }
}

#[async_trait]
impl ChangeStream for Receiving {
    fn present(&self) -> &str {
        &self.present
    }

    fn lag_bytes(&self) -> Option<u64> {
        Some(self.lag.load(Ordering::Relaxed)).filter(|lag| *lag != UNKNOWN)
    }

    fn current_us(&self) -> Option<i64> {
        Some(self.current.load(Ordering::Relaxed)).filter(|current| *current != NEVER)
    }

    fn is_reached(&self, position: &str, wanted: &str) -> bool {
        matches!((position.parse::<Lsn>(), wanted.parse::<Lsn>()), (Ok(at), Ok(wanted)) if at >= wanted)
    }

    async fn next(&mut self) -> Result<Next> {
        match self.units.recv().await {
            Some(next) => next,
            None => Err(ConnectorError::Stopped),
        }
    }

    async fn confirm(&mut self, position: &str) -> Result<()> {
        let position = position.parse().map_err(|error: crate::replication::lsn::LsnError| {
            ConnectorError::data("the position of a feed", error.to_string())
        })?;
        self.confirmed.send_replace(position);
        Ok(())
    }
}

/// Reads the connection.
struct Receiver {
    replication: Replication,
    catalog: Client,
    decoder: Decoder,
    assembler: Assembler,
    tables: Recognized,
    confirmed: watch::Receiver<Lsn>,
    /// Everything before it was received.
    received: Lsn,
    /// End of the server's log as of which nothing is missing here.
    idle: Option<Lsn>,
    /// The server's clock at that moment.
    clock: ServerTime,
    /// The last position that was handed over.
    handed: Lsn,
    /// The end of the last unit that was handed over.
    unit_end: Lsn,
    present: Lsn,
    report_every: Duration,
    lag: Arc<AtomicU64>,
    current: Arc<AtomicI64>,
}

impl Receiver {
    async fn run(mut self, to: &mpsc::Sender<Result<Next>>) -> Result<()> {
        // At once, and then regularly.
        let mut report = Box::pin(sleep(Duration::ZERO));
        let mut idle_at = Instant::now();
        let mut unit_at = Instant::now();
        loop {
            let has_unit = self.assembler.has_unit();
            let idle = self.quiet().filter(|at| *at > self.handed);
            let idle_at_now =
                if idle.is_some_and(|at| at >= self.present) && self.handed < self.present {
                    Instant::now()
                } else {
                    idle_at
                };
            tokio::select! {
                biased;
                () = &mut report => {
                    report.set(sleep(self.report_every));
                    self.report(true).await?;
                    self.measure().await?;
                    // The log does not show it.
                    self.tables.check(&self.catalog).await?;
                }
                changed = self.confirmed.changed() => match changed {
                    Ok(()) => self.report(false).await?,
                    Err(_) => return Ok(()),
                },
                permit = async { sleep_until(unit_at).await; to.reserve().await }, if has_unit => {
                    let Ok(permit) = permit else { return Ok(()) };
                    self.hand_over(permit);
                    idle_at = Instant::now() + IDLE_EVERY;
                }
                permit = async { sleep_until(idle_at_now).await; to.reserve().await }, if idle.is_some() => {
                    let Ok(permit) = permit else { return Ok(()) };
                    if let Some(at) = idle {
                        self.handed = at;
                        let (position, at_us) = (at.to_string(), self.clock.unix_us());
                        permit.send(Ok(Next::Idle { position, at_us }));
                    }
                    idle_at = Instant::now() + IDLE_EVERY;
                }
                message = self.replication.receive(), if !self.assembler.is_full() => {
                    let Some(message) = message? else {
                        return Err(ConnectorError::Busy {
                            act: "read changes".into(),
                            source: "the server ended the replication".into(),
                        });
                    };
                    self.take(&message).await?;
                    if !has_unit && self.assembler.has_unit() {
                        unit_at = Instant::now() + UNIT_DELAY;
                    }
                }
                // Nothing more has arrived.
                permit = to.reserve(), if has_unit => {
                    let Ok(permit) = permit else { return Ok(()) };
                    self.hand_over(permit);
                    idle_at = Instant::now() + IDLE_EVERY;
                }
            }
        }
    }

    /// Hands over the unit that is complete.
    fn hand_over(&mut self, permit: mpsc::Permit<'_, Result<Next>>) {
        if let Some(unit) = self.assembler.take_unit() {
            let end = unit.position.as_ref().and_then(|end| end.parse().ok());
            self.handed = end.unwrap_or(self.handed);
            self.unit_end = self.handed;
            permit.send(Ok(Next::Unit(unit)));
        }
    }

    /// Whether everything that was received was handed over.
    fn is_quiet(&self) -> bool {
        !self.assembler.has_unit() && !self.assembler.is_in_transaction()
    }

    /// Whether everything that was received is confirmed, but for positions without changes.
    fn is_current(&self) -> bool {
        *self.confirmed.borrow() >= self.unit_end && self.is_quiet()
    }

    /// The position up to which there is nothing that was not handed over.
    fn quiet(&self) -> Option<Lsn> {
        self.idle.filter(|_| self.is_quiet()).max(self.assembler.passed())
    }

    async fn take(&mut self, message: &[u8]) -> Result<()> {
        let broken = |error: crate::replication::error::ReplicationError| {
            ConnectorError::data("the changes of PostgreSQL", error.to_string())
        };
        match Envelope::decode(message).map_err(broken)? {
            Envelope::Data { at, data } => {
                let decoded = self.decoder.decode(data).map_err(broken)?;
                self.received = self.received.max(at);
                if let Message::Relation(relation) = &decoded.message {
                    if self.assembler.is_namesake(relation) {
                        self.tables.check(&self.catalog).await?;
                    }
                    let redefined = match self.assembler.described(relation) {
                        Some(followed) => {
                            let looking = redefinition(&self.catalog, followed, relation);
                            let every = self.report_every;
                            let confirmed = &mut self.confirmed;
                            let received = self.received;
                            answering(&mut self.replication, confirmed, received, every, looking)
                                .await?
                        }
                        None => None,
                    };
                    return self.assembler.relate(relation, redefined);
                }
                self.assembler.add(&decoded.message)
            }
            Envelope::Keepalive { end, clock, wants_reply } => {
                self.received = self.received.max(end);
                self.clock = clock;
                self.idle = self.idle.max(Some(end));
                if self.is_current() {
                    self.current.store(clock.unix_us(), Ordering::Relaxed);
                }
                if wants_reply { self.report(false).await } else { Ok(()) }
            }
        }
    }

    /// Looks up how much of the log may have changes that are not confirmed.
    async fn measure(&self) -> Result<()> {
        let confirmed = *self.confirmed.borrow();
        let passed = self.idle.filter(|_| self.is_current());
        let from = passed.map_or(confirmed, |passed| passed.max(confirmed)).to_string();
        let values = [(&from as &(dyn ToSql + Sync), Type::TEXT)];
        let row = self.catalog.query_typed_one(LAG, &values).await;
        let bytes: i64 = row.map_err(|error| refused("look up the end of the log", error))?.get(0);
        self.lag.store(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }

    /// Reports what is confirmed.
    ///
    /// * `wants_reply`: whether the server is to answer with the end of its log, and its time.
    async fn report(&mut self, wants_reply: bool) -> Result<()> {
        report(&mut self.replication, &mut self.confirmed, self.received, wants_reply).await
    }
}

/// Reports what is confirmed.
async fn report(
    replication: &mut Replication,
    confirmed: &mut watch::Receiver<Lsn>,
    received: Lsn,
    wants_reply: bool,
) -> Result<()> {
    let confirmed = *confirmed.borrow_and_update();
    let now = ServerTime::from_unix_us(unix_us());
    Ok(replication.report(received.max(confirmed), confirmed, now, wants_reply).await?)
}

/// Does what may take long, and answers the server meanwhile.
async fn answering<T>(
    replication: &mut Replication,
    confirmed: &mut watch::Receiver<Lsn>,
    received: Lsn,
    every: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(every) => report(replication, confirmed, received, false).await?,
        }
    }
}

/// How often a server is answered that waits this long; zero: for ever.
fn report_every(patience: Duration) -> Duration {
    if patience.is_zero() { REPORT_EVERY } else { REPORT_EVERY.min(patience / 4) }
}

/// Waits until a point in time.
async fn sleep_until(at: Instant) {
    let now = Instant::now();
    if at > now {
        sleep(at - now).await;
    }
}

/// The time, for the server's statistics.
fn unix_us() -> i64 {
    i64::try_from(platform::now_us()).unwrap_or(i64::MAX)
}
