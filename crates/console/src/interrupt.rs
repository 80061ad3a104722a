//! Handles Ctrl-C between two steps, so that running work is ended and removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Coded, Exit};

/// Whether the user interrupted the command.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts to handle SIGINT and SIGTERM, which then no longer end the process.
    ///
    /// # Errors
    /// The system refuses the handlers or a thread.
    pub fn listen() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        let asked = interrupt.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot handle SIGINT and SIGTERM")?;
        let mut signals = {
            let _entered = runtime.enter();
            let listen = |kind| signal(kind).context("cannot handle SIGINT and SIGTERM");
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = signals.0.recv() => {}
                        _ = signals.1.recv() => {}
                    }
                });
                asked.0.store(true, Ordering::Relaxed);
            })
            .context("cannot handle SIGINT and SIGTERM")?;
        Ok(interrupt)
    }

    /// Returns whether the user interrupted the command.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once the user interrupted the command.
    ///
    /// # Errors
    /// Interrupted (exit code 130).
    pub fn check(&self) -> anyhow::Result<()> {
        if self.asked() {
            let message = "interrupted; the tour's server was stopped and there is no result";
            return Err(Coded::error(Exit::Interrupted, message));
        }
        Ok(())
    }
}
