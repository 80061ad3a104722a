//! The inventory index as a subsystem of the server: applies its configuration and opens it.

use std::sync::Arc;

use anyhow::Context as _;
use forebay_api::inventory::{self, Settings};
use forebay_intake::Intake;
use forebay_inventory::cost::Prices;
use forebay_objects::Addressing;

use crate::buckets::S3Options;
use crate::config::Config;
use crate::layout;
use crate::serve::Subsystem;

/// Opens the existing indexes.
pub(super) fn open(config: &Config, files: Intake) -> anyhow::Result<Arc<dyn Subsystem>> {
    let from = &config.inventory;
    let settings = Settings {
        dir: layout::inventories(&config.process.data),
        open_max: from.open_max as usize,
        indexes_max: from.indexes_max,
        queries_max: from.queries_max,
        builds_max: from.builds_max as usize,
        build_memory: from.build_memory,
        sources: from.sources.0.clone(),
        prices: prices(config)?,
        // As set by the environment of the server: `AWS_...`, and the profile that `AWS_PROFILE`
        // names. The commands use the same.
        buckets: || S3Options::default().access(Addressing::Path),
    };
    inventory::open(settings, files)
}

fn prices(config: &Config) -> anyhow::Result<Prices> {
    let Some(path) = &config.inventory.prices else {
        return Prices::aws_us_east_1().context("cannot read the built-in prices");
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read inventory.prices {}", path.display()))?;
    Prices::parse(&text).with_context(|| format!("cannot use inventory.prices {}", path.display()))
}
