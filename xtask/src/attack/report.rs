//! The results of all claims: lines for people, one JSON object for programs.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::json;

use crate::command::say;

/// How a check ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// With details.
    Held(String),
    Failed(String),
    Skipped(String),
}

/// A check, and how it ended.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) area: &'static str,
    pub(super) claim: &'static str,
    pub(super) ended: Ended,
    pub(super) took: Duration,
}

impl Line {
    pub(super) fn text(&self) -> String {
        let (word, more) = match &self.ended {
            Ended::Held(note) if note.is_empty() => ("held", String::new()),
            Ended::Held(note) => ("held", format!(" ({note})")),
            Ended::Failed(why) => ("FAILED", format!("\n    {why}")),
            Ended::Skipped(why) => ("SKIPPED", format!(": {why}")),
        };
        format!("  {word:<7} {}: {}{more}", self.area, self.claim)
    }
}

/// Number of held, failed and skipped claims of each area.
fn sums(lines: &[Line]) -> BTreeMap<&'static str, [usize; 3]> {
    let mut sums: BTreeMap<&'static str, [usize; 3]> = BTreeMap::new();
    for line in lines {
        let [held, failed, skipped] = sums.entry(line.area).or_default();
        *match line.ended {
            Ended::Held(_) => held,
            Ended::Failed(_) => failed,
            Ended::Skipped(_) => skipped,
        } += 1;
    }
    sums
}

/// Prints the table, or the object.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn print(lines: &[Line], is_json: bool) -> anyhow::Result<()> {
    if is_json {
        let checks: Vec<_> = lines.iter().map(object).collect();
        return writeln!(std::io::stdout().lock(), "{}", json!({ "checks": checks }))
            .context("cannot write to standard output");
    }
    say(format_args!("{:<14} {:>5} {:>7} {:>8}", "area", "held", "failed", "skipped"));
    for (area, [held, failed, skipped]) in sums(lines) {
        say(format_args!("{area:<14} {held:>5} {failed:>7} {skipped:>8}"));
    }
    Ok(())
}

fn object(line: &Line) -> serde_json::Value {
    let (ended, note) = match &line.ended {
        Ended::Held(note) => ("held", note),
        Ended::Failed(why) => ("failed", why),
        Ended::Skipped(why) => ("skipped", why),
    };
    json!({
        "area": line.area,
        "claim": line.claim,
        "ended": ended,
        "note": note,
        "took_ms": u64::try_from(line.took.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Fails if a claim did not hold.
///
/// # Errors
/// The claims that failed, or that were skipped although all are required.
pub(super) fn judge(lines: &[Line]) -> anyhow::Result<()> {
    let required = std::env::var_os("FOREBAY_REQUIRE_SERVICES").is_some_and(|word| word == "1");
    let wrong = wrong(lines, required);
    if wrong.is_empty() { Ok(()) } else { bail!("attack: {}", wrong.join("; ")) }
}

fn wrong(lines: &[Line], required: bool) -> Vec<String> {
    let each = lines.iter().filter_map(|line| match &line.ended {
        Ended::Held(_) => None,
        Ended::Failed(_) => Some(format!("{}: failed: {}", line.area, line.claim)),
        Ended::Skipped(why) => {
            required.then(|| format!("{}: skipped: {} ({why})", line.area, line.claim))
        }
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ended: Ended) -> Line {
        Line { area: "keys", claim: "it holds", ended, took: Duration::from_secs(1) }
    }

    #[test]
    fn a_failure_is_wrong_and_a_skipped_check_where_all_are_required() {
        let lines = [
            line(Ended::Held(String::new())),
            line(Ended::Failed("no".into())),
            line(Ended::Skipped("no root".into())),
        ];
        assert_eq!(wrong(&lines, false), ["keys: failed: it holds"]);
        assert_eq!(wrong(&lines, true).len(), 2);
        assert_eq!(sums(&lines)["keys"], [1, 1, 1]);
        assert_eq!(object(&lines[1])["ended"], "failed");
    }
}
