//! The event store as a subsystem of the server: applies its configuration and opens it.

use std::sync::Arc;

use anyhow::Context as _;
use forebay_api::events::{self, Settings};
use forebay_base::clock::{Clock, SystemClock};
use forebay_base::fs::RealFs;
use forebay_events::witness::WitnessService;
use forebay_events::{Options, Store};

use crate::config::{Config, Preset, mappings};
use crate::layout;
use crate::serve::Subsystem;
use crate::wiring::anchors;

/// Returns the configured options of the store: the preset's, except where a setting overrides
/// them.
pub(crate) fn options(config: &Config) -> Options {
    let from = &config.events;
    let mut options = match from.preset {
        Preset::Balanced => Options::balanced(),
        Preset::MaxThroughput => Options::max_throughput(),
        Preset::MaxDurability => Options::max_durability(),
    };
    let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    options.merkle = from.merkle;
    options.verified_reads = from.verified_reads;
    options.retention.clone_from(&from.retention.0);
    options.anchors = anchors::places(&from.anchor);
    options.anchor_interval = from.anchor_interval.get();
    options.witnesses = anchors::witnesses(&from.witnesses);
    options.witness_quorum = size(from.witness_quorum.into());
    options.request_window = from.idempotency_window.get();
    options.retention_size = from.retention_size.map(|bytes| bytes.0);
    if let Some(origin) = &from.origin {
        options.origin.clone_from(origin);
    }
    fn set<T>(field: &mut T, given: Option<T>) {
        if let Some(given) = given {
            *field = given;
        }
    }
    set(&mut options.durability, from.durability);
    set(&mut options.group_commit_delay, from.group_commit_delay.map(|time| time.get()));
    set(&mut options.batch_events, from.batch_events.map(|count| size(count.into())));
    set(&mut options.log_segment_size, from.log_segment_size.map(|bytes| bytes.0));
    set(&mut options.memory_table_events, from.memory_table_events.map(|n| size(n.into())));
    set(&mut options.memory_table_size, from.memory_table_size.map(|bytes| size(bytes.0)));
    set(&mut options.segment.compression, from.compression);
    set(&mut options.segment.block_size, from.block_size.map(|bytes| size(bytes.0)));
    set(&mut options.segment.filter_bits_per_key, from.filter_bits_per_key);
    set(&mut options.segment.text_filter, from.text_filter);
    set(&mut options.flush_interval, from.flush_interval.map(|time| time.get()));
    set(&mut options.compaction_interval, from.compaction_interval.map(|time| time.get()));
    set(&mut options.checkpoint_interval, from.checkpoint_interval.map(|time| time.get()));
    set(&mut options.block_cache_size, from.block_cache_size.map(|bytes| size(bytes.0)));
    options
}

/// Opens the event store in the data directory.
pub(super) fn open(config: &Config) -> anyhow::Result<Arc<dyn Subsystem>> {
    let dir = layout::events(&config.process.data);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let opened = Store::open(Arc::new(RealFs), Arc::clone(&clock), &dir, options(config));
    let (store, recovered) =
        opened.with_context(|| format!("cannot open the event store in {}", dir.display()))?;
    tracing::info!(
        created = recovered.created,
        events_in_segments = recovered.events_in_segments,
        events_from_log = recovered.events_from_log,
        torn_bytes = recovered.cut_bytes,
        leftovers_removed = recovered.leftovers,
        verifier_key = store.verifier_key().map(|key| key.to_string()).unwrap_or_default(),
        took_ms = recovered.took.as_secs_f64() * 1_000.0,
        "event store open"
    );
    let from = &config.events;
    if from.merkle && from.anchor.0.is_empty() && from.witnesses.0.is_empty() {
        tracing::info!(
            "checkpoints of events are kept in the data directory only: set events.anchor or \
             events.witnesses, so that an earlier state of the directory does not pass for the current one"
        );
    }
    let settings = Settings {
        witness: open_witness(config, clock)?.map(Arc::new),
        mappings: mappings(from),
        appends_max: from.appends_max,
        reads_max: from.reads_max,
        followers_max: from.followers_max,
        body_size_max: from.body_size_max.0,
        body_memory_max: from.body_memory_max.0,
        body_idle: from.body_idle_timeout.get(),
    };
    Ok(events::subsystem(store, &settings))
}

/// Opens the witness for the logs of others, if there are any. The store's lock covers it.
fn open_witness(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<Option<WitnessService>> {
    let logs = &config.events.witness_logs.0;
    if logs.is_empty() {
        return Ok(None);
    }
    let dir = layout::witness(&config.process.data);
    let name = &config.events.witness_name;
    let witness = WitnessService::open(Arc::new(RealFs), clock, &dir, name, logs.clone());
    let witness =
        witness.with_context(|| format!("cannot open the witness in {}", dir.display()))?;
    tracing::info!(logs = logs.len(), key = %witness.key(), "witness open");
    Ok(Some(witness))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, Resolved, find};

    const BALANCED: [(&str, &str); 16] = [
        ("durability", "sync"),
        ("origin", "forebay.local/events"),
        ("group_commit_delay", "0s"),
        ("batch_events", "2000"),
        ("log_segment_size", "64MiB"),
        ("memory_table_events", "500000"),
        ("memory_table_size", "64MiB"),
        ("compression", "zstd:3"),
        ("block_size", "32KiB"),
        ("filter_bits_per_key", "10"),
        ("text_filter", "true"),
        ("flush_interval", "1m"),
        ("compaction_interval", "30s"),
        ("checkpoint_interval", "10s"),
        ("block_cache_size", "32MiB"),
        ("retention", ""),
    ];
    const MAX_THROUGHPUT: [(&str, &str); 8] = [
        ("durability", "os"),
        ("group_commit_delay", "500us"),
        ("memory_table_events", "2000000"),
        ("memory_table_size", "512MiB"),
        ("compression", "none"),
        ("text_filter", "false"),
        ("flush_interval", "2m"),
        ("compaction_interval", "10m"),
    ];
    const MAX_DURABILITY: [(&str, &str); 5] = [
        ("batch_events", "1"),
        ("memory_table_events", "100000"),
        ("memory_table_size", "16MiB"),
        ("flush_interval", "10s"),
        ("checkpoint_interval", "1s"),
    ];

    fn options_with(settings: &[String]) -> String {
        let mut flags = Flags::with_file(None);
        settings.iter().for_each(|setting| flags.set(setting).unwrap());
        let config = Resolved::load(&flags, &[]).unwrap().config().unwrap();
        format!("{:?}", options(&config))
    }

    #[test]
    fn what_the_settings_say_of_the_presets_is_so() {
        for (preset, own) in [
            ("balanced", &[][..]),
            ("max-throughput", &MAX_THROUGHPUT),
            ("max-durability", &MAX_DURABILITY),
        ] {
            let mut settings = vec![format!("events.preset={preset}")];
            let alone = options_with(&settings);
            // The values of every other preset are overridden by those this one is documented to
            // have.
            for (key, value) in BALANCED.iter().chain(own) {
                settings.push(format!("events.{key}={value}"));
                let doc = find(&format!("events.{key}")).unwrap().doc.concat();
                assert!(doc.contains(value), "{key}: {doc}");
            }
            assert_eq!(options_with(&settings), alone, "{preset}");
            for other in ["balanced", "max-throughput", "max-durability"] {
                settings[0] = format!("events.preset={other}");
                assert_eq!(options_with(&settings), alone, "{preset} over {other}");
            }
        }
    }
}
