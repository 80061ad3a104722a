//! Ctrl-C, noticed between two steps, so that what was begun is ended or removed on the way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Coded, Exit};

/// Whether the user asked for the end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to listen for SIGINT and SIGTERM; they no longer end the process by themselves.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        let asked = interrupt.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot listen for Ctrl-C")?;
        let mut signals = {
            let _entered = runtime.enter();
            let listen = |kind| signal(kind).context("cannot listen for Ctrl-C");
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
            .context("cannot listen for Ctrl-C")?;
        Ok(interrupt)
    }

    /// Whether the user asked for the end.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once the user asked for the end.
    ///
    /// # Errors
    /// Interrupted (exit code 130).
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.asked() {
            let message = "interrupted; the tour's server was stopped and nothing was decided";
            return Err(Coded::error(Exit::Interrupted, message));
        }
        Ok(())
    }
}
