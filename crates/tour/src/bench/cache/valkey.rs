//! Valkey beside the cache, by its own generator, where both are installed.

use std::path::Path;

use super::peer::Kind;
use super::{Figures, Plan, redis, report, rounds_of};

/// Its generator.
const GENERATOR: &str = "valkey-benchmark";

/// Whether a program is on the path.
fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Measures one command at a time, from a generator with two threads and with one, if Valkey is
/// installed.
pub(super) fn measure(
    plan: &Plan,
    scratch: &Path,
    figures: &mut Figures,
    note: &dyn Fn(&str),
) -> anyhow::Result<()> {
    if !is_there("valkey-server") || !is_there(GENERATOR) {
        note("nothing beside Valkey: valkey-server or valkey-benchmark is not installed");
        return Ok(());
    }
    for (what, threads) in [("p1", 2), ("p1_single", 1)] {
        note(&format!("100-byte values beside Valkey, 1 command at a time, threads: {threads}"));
        let kinds = [Kind::Valkey, Kind::Forebay];
        let directory = format!("beside-valkey-{what}");
        let run = |peer: &_, test| redis::run_with(GENERATOR, peer, plan, (1, threads), test);
        let [theirs, ours] = rounds_of(kinds, plan, scratch, (&directory, false), &run)?;
        report(&format!("valkey_{what}"), &theirs, figures);
        report(&format!("cache_valkey_{what}"), &ours, figures);
        let name = format!("cache_valkey_{what}");
        redis::shares_of((&ours, &theirs), (&name, "ratio"), figures);
    }
    Ok(())
}
