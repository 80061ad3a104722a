//! BENCHMARKS.md: one section per subsystem, between markers, replaced as a whole.

use anyhow::bail;

use super::Subsystem;
use super::bars::{Bar, Claim};
use super::report::Report;
use super::table::{number, table};

/// The page before the first measurement.
pub(super) const EMPTY: &str = "# Benchmarks\n\n\
    Every section is written by the command it names; nothing here is typed by hand. Figures\n\
    compare with limits measured in the same run on the same machine, and count only work that was\n\
    read back and verified.\n";

fn marker(name: &str, end: &str) -> String {
    format!("<!-- bench:{name}:{end} -->")
}

/// The section of one measurement.
pub(super) fn section(subsystem: &Subsystem, report: &Report, command: &str, date: &str) -> String {
    let machine: Vec<_> =
        report.machine.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let mut out = format!("{}\n## {}\n\n", marker(subsystem.name, "begin"), subsystem.name);
    out.push_str(&format!("Measured {date} by `{command}`"));
    out.push_str(&if machine.is_empty() {
        ".\n\n".to_owned()
    } else {
        format!(" on: {}.\n\n", machine.join(", "))
    });
    out.push_str("### Bars\n\n");
    let rows: Vec<_> = subsystem.bars.iter().map(|bar| bar_row(bar, report)).collect();
    out.push_str(&table(&["promise", "figures", "bar", "aim", "measured", "kept"], &rows));
    out.push_str("\n### Figures\n\n");
    let rows: Vec<_> = report
        .figures
        .iter()
        .map(|(name, figure)| {
            let what = subsystem.what(name, figure).to_owned();
            vec![name.clone(), number(figure.value, &figure.unit), what]
        })
        .collect();
    out.push_str(&table(&["figure", "measured", "what it is"], &rows));
    if !subsystem.claims.is_empty() {
        out.push_str("\n### Beside the figures published for the system this replaces\n\n");
        let rows: Vec<_> = subsystem.claims.iter().map(|claim| claim_row(claim, report)).collect();
        out.push_str(&table(&["published", "theirs", "ours", "ours is"], &rows));
    }
    out.push_str(&marker(subsystem.name, "end"));
    out.push('\n');
    out
}

fn bar_row(bar: &Bar, report: &Report) -> Vec<String> {
    let verdict = bar.judge(report);
    let limit = |value: f64| format!("{} {}", bar.good.sign(), number(value, bar.unit));
    vec![
        bar.name.to_owned(),
        bar.formula.text(),
        limit(bar.bar),
        bar.aim.map_or_else(String::new, limit),
        verdict.found().map_or_else(|| "-".to_owned(), |found| number(found, bar.unit)),
        verdict.word().to_owned(),
    ]
}

fn claim_row(claim: &Claim, report: &Report) -> Vec<String> {
    let ours = report.value(claim.figure);
    vec![
        claim.text.to_owned(),
        number(claim.claimed, claim.unit),
        ours.map_or_else(|| "not measured".to_owned(), |ours| number(ours, claim.unit)),
        claim.factor(report).map_or_else(String::new, |factor| format!("{} x", number(factor, ""))),
    ]
}

/// Replaces the section called `name` in `page`, or adds it at the end.
///
/// # Errors
/// A section has no end marker.
pub(super) fn replace(page: &str, name: &str, section: &str) -> anyhow::Result<String> {
    let (begin, end) = (marker(name, "begin"), marker(name, "end"));
    let Some(start) = page.find(&begin) else {
        return Ok(format!("{}\n\n{section}", page.trim_end()));
    };
    let Some(length) = page[start..].find(&end) else {
        bail!("BENCHMARKS.md: {begin} without {end}");
    };
    let after = page[start + length + end.len()..].trim_start_matches('\n');
    let gap = if after.is_empty() { "" } else { "\n" };
    Ok(format!("{}{section}{gap}{after}", &page[..start]))
}

#[cfg(test)]
mod tests {
    use super::super::SUBSYSTEMS;
    use super::super::bars::Formula;
    use super::*;

    #[test]
    fn a_section_shows_bars_figures_and_claims_and_what_is_missing() {
        let json = r#"{"cpus":"2","put_4k_sync_per_s":21000,"floor_4k_per_s":30000}"#;
        let report = Report::parse(json).unwrap();
        let text = section(&SUBSYSTEMS[0], &report, "cargo xtask bench intake", "2026-01-02");
        for part in [
            "Measured 2026-01-02 by `cargo xtask bench intake` on: cpus 2.",
            "put_4k_sync_per_s / floor_4k_per_s",
            "| 0.70 ",
            "**not measured**",
            "21,000 1/s",
            "| not measured |",
            "| PUTs of 4 KiB per second, each on stable storage before its answer ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn every_figure_that_is_compared_says_what_it_is_once() {
        for subsystem in &SUBSYSTEMS {
            let of_bars = subsystem.bars.iter().flat_map(|bar| match bar.formula {
                Formula::Value(name) | Formula::Optional(name) => vec![name],
                Formula::Ratio(above, below) => vec![above, below],
            });
            let of_claims = subsystem.claims.iter().map(|claim| claim.figure);
            for name in of_bars.chain(of_claims) {
                let said = subsystem.figures.iter().filter(|(known, _)| *known == name).count();
                assert_eq!(said, 1, "{name}");
            }
        }
    }

    #[test]
    fn a_section_is_added_once_and_replaced_after() {
        let section =
            |text: &str| format!("<!-- bench:a:begin -->\n{text}\n<!-- bench:a:end -->\n");
        let once = replace(EMPTY, "a", &section("one")).unwrap();
        let other =
            replace(&once, "b", "<!-- bench:b:begin -->\nB\n<!-- bench:b:end -->\n").unwrap();
        let again = replace(&other, "a", &section("two")).unwrap();
        assert!(again.contains("two") && !again.contains("one") && again.contains("\nB\n"));
        assert_eq!(replace(&again, "a", &section("two")).unwrap(), again, "nothing drifts");
        assert!(replace("<!-- bench:a:begin -->", "a", "x").is_err());
    }
}
