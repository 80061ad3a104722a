//! Opens the subsystems and combines them: the only place that knows all of them.
//!
//! To add one: a file here with a type that implements [`Subsystem`], a line in [`open`], and the
//! first segment of its routes in `ROUTE_CLASSES` of `forebay-api`.

pub(crate) mod anchors;
pub(crate) mod blobs;
pub(crate) mod cache;
pub(crate) mod events;
pub(crate) mod floor;
pub(crate) mod intake;
mod intake_database;
#[cfg(feature = "mongodb")]
mod intake_mongo;
pub(crate) mod inventory;
mod jobs;
mod pipelines;
pub(crate) mod s3;
mod webhooks;

use std::sync::Arc;

use crate::config::Config;
use crate::serve::{Ports, Subsystem};

/// Opens every subsystem in the data directory of `config`.
///
/// Blocks while logs are recovered. Called on a thread that may block, inside the runtime. The
/// server already answers `/healthz` meanwhile.
///
/// # Errors
/// The first subsystem that cannot be opened; those opened before it are dropped.
pub(crate) fn open(config: &Config, ports: &Ports) -> anyhow::Result<Vec<Arc<dyn Subsystem>>> {
    let (intake, files) = intake::open(config)?;
    if let Some(port) = &ports.s3 {
        port.open(&files);
    }
    let (jobs, queue) = jobs::open(config, &files)?;
    let webhooks = webhooks::open(config, &files, &queue);
    let mut subsystems = vec![intake];
    if config.events.enabled {
        subsystems.push(events::open(config)?);
    }
    if config.inventory.enabled {
        subsystems.push(inventory::open(config, files)?);
    }
    if config.pipelines.enabled {
        subsystems.push(pipelines::open(config)?);
    }
    if config.cache.enabled {
        subsystems.push(cache::open(config)?);
    }
    // So that it stops before what its jobs use.
    subsystems.push(jobs);
    // The last one: it follows the logs of others, and is in an image before them.
    subsystems.push(webhooks);
    Ok(subsystems)
}

/// Returns the beginning of an error about the certificate and key of a section: the settings that
/// name them, with their sources.
pub(crate) fn tls_settings(config: &Config, section: &str) -> String {
    let named = |key: &str| config.sources.named(&format!("{section}.{key}"));
    format!("cannot set up TLS with {} and {}", named("tls_cert"), named("tls_key"))
}
