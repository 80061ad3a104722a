//! The verifier: one thread that reads the whole catalogue again and again while it is used.
//!
//! Queries verify the rows they read, and those beside the place where something is not found. What no
//! query can see is a row that is missing altogether, or bytes that decay where nothing reads: a pass
//! compares every row, count and digest, as a start does, in one read transaction beside the writer.
//! The first pass begins [`verify_every`](crate::IntakeOptions::verify_every) after the start, which
//! has verified everything itself.
//!
//! Invariants: damage is found at most one interval and one pass after it arose, unless a query meets it
//! earlier; passes take at most a twentieth of one processor in the long run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_base::error_chain::chain;
use parking_lot::{Condvar, Mutex};

use crate::error::IntakeError;
use crate::shared::Shared;

/// The pause after a pass, in multiples of what it took.
const PAUSE_FACTOR: u32 = 20;

/// The newest complete pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verified {
    /// When it began.
    pub(crate) at: Instant,
}

impl Verified {
    pub(crate) fn now() -> Self {
        Self { at: Instant::now() }
    }
}

/// The running verifier.
#[derive(Debug)]
pub(crate) struct Verifier {
    order: Arc<Order>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Order {
    stop: AtomicBool,
    /// Held while the order to stop is given, so that it is not missed.
    given: Mutex<()>,
    changed: Condvar,
}

impl Verifier {
    pub(crate) fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let order = Arc::new(Order::default());
        let ordered = order.clone();
        let thread = std::thread::Builder::new()
            .name("intake-verify".into())
            .spawn(move || run(&shared, &ordered))?;
        Ok(Self { order, thread: Some(thread) })
    }

    /// Ends the thread, and a pass that is under way.
    pub(crate) fn stop(&mut self) {
        {
            let _given = self.order.given.lock();
            self.order.stop.store(true, Ordering::Relaxed);
        }
        self.order.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the verifier panicked");
        }
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(shared: &Shared, order: &Order) {
    let mut pause = shared.options.verify_every;
    while order.waited(pause) {
        let started = Instant::now();
        match verify(shared, &order.stop) {
            Ok(()) => {}
            // It was reported when it was met. Only a start makes the catalogue whole again.
            Err(IntakeError::ViewDamaged { .. }) => return,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "could not verify the catalogue");
            }
        }
        pause = shared.options.verify_every.max(started.elapsed() * PAUSE_FACTOR);
    }
}

impl Order {
    /// Waits; returns `false` as soon as the thread has to end.
    fn waited(&self, pause: Duration) -> bool {
        let mut given = self.given.lock();
        // Only the order to stop notifies.
        !self.stop.load(Ordering::Relaxed)
            && self.changed.wait_for(&mut given, pause).timed_out()
            && !self.stop.load(Ordering::Relaxed)
    }
}

/// Verifies the whole catalogue.
///
/// * `stop`: makes it return soon, without a result.
pub(crate) fn verify(shared: &Shared, stop: &AtomicBool) -> Result<(), IntakeError> {
    let verified = Verified::now();
    shared.reader.verify(stop)?;
    if !stop.load(Ordering::Relaxed) {
        *shared.verified.lock() = verified;
        crate::meters::verified(verified.at.elapsed());
    }
    Ok(())
}
