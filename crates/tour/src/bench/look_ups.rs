//! Measures how long it takes to determine whether content is known: recently used content, the filter,
//! and the catalogue.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use forebay_intake::catalogue::Catalogue;
use forebay_intake::digest::Digest;
use forebay_intake::known::Known;
use forebay_intake::recent::Recent;

use super::Figures;

/// Number of lookups measured.
const COUNT: usize = 50_000;
/// Number of blobs in the first tier.
const RECENT: usize = 8_000;

/// Measures over the catalogue of the stopped intake in `dir`.
pub(super) fn measure(dir: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let catalogue =
        Catalogue::open(&dir.join("catalogue.sqlite")).context("cannot open the catalogue")?;
    let reader = catalogue.reader().context("cannot read the catalogue")?;
    let mut stored = Vec::new();
    let mut known = Known::with_room_for(2 * COUNT);
    let mut after = None;
    while stored.len() < COUNT {
        let page = reader.blobs_after(after, 1_000).context("cannot read the catalogue")?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.digest);
        stored.extend(page.iter().map(|(blob, _)| blob.digest));
    }
    for digest in &stored {
        known.insert_digest(*digest);
    }
    let mut recent = Recent::default();
    let used: Vec<Digest> = stored.iter().take(RECENT).copied().collect();
    for digest in &used {
        let blob = reader.live_blob(*digest).context("a lookup failed")?;
        recent.insert(blob.context("a stored blob was not found")?);
    }
    let begun = Instant::now();
    let found = (0..10).flat_map(|_| &used).filter(|&&digest| recent.get(digest).is_some()).count();
    figures.add("lookup_memory_ns", per_item_ns(begun, 10 * used.len()));
    ensure!(found > 9 * used.len(), "{found} of {} recent blobs were found", 10 * used.len());
    // Not in table order: neighbours would share pages.
    stored.sort_unstable_by_key(|digest| digest.0.last().copied());
    let begun = Instant::now();
    for digest in &stored {
        let found = reader.live_blob(*digest).context("a lookup failed")?;
        ensure!(found.is_some(), "a stored blob was not found");
    }
    figures.add("lookup_disk_ns", per_item_ns(begun, stored.len()));

    let unknown: Vec<Digest> = (0..COUNT).map(|n| Digest::of(&n.to_le_bytes())).collect();
    let begun = Instant::now();
    let maybe = unknown.iter().filter(|digest| known.may_have_digest(**digest)).count();
    figures.add("lookup_filter_ns", per_item_ns(begun, unknown.len()));
    ensure!(
        maybe < COUNT / 20,
        "the filter matches {maybe} of {COUNT} blobs that were never stored"
    );
    Ok(())
}

fn per_item_ns(begun: Instant, items: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of lookups")]
    let items = items.max(1) as f64;
    begun.elapsed().as_secs_f64() * 1e9 / items
}
