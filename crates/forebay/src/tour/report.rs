//! What a tour tells: chapters as they happen for a person, one object at the end for a program.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

use super::tally::{Decision, Tally};
use crate::out::{self, size};

/// Problems named one by one at the end.
const PROBLEMS_TOLD: usize = 10;

/// Who is told what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tell {
    /// Chapters on standard output, a progress bar where there is a terminal.
    Chapters,
    /// The verdict alone.
    Verdict,
    /// One JSON object at the end.
    Json,
}

/// Tells, and gathers what is told for the JSON object.
#[derive(Debug)]
pub(super) struct Report {
    tell: Tell,
    bars: bool,
    figures: Vec<Figure>,
    sections: Map<String, Value>,
    pub(super) problems: Vec<String>,
}

#[derive(Debug)]
struct Figure {
    name: &'static str,
    /// What a person is told it is.
    label: &'static str,
    value: Value,
    told: String,
}

impl Report {
    pub(super) fn new(tell: Tell, bars: bool) -> Self {
        Self { tell, bars, figures: Vec::new(), sections: Map::new(), problems: Vec::new() }
    }

    /// Begins a chapter.
    pub(super) fn chapter(&self, title: &str) -> anyhow::Result<()> {
        self.line(format_args!("\n{title}\n{}", "-".repeat(title.chars().count())))
    }

    /// Tells a person something.
    pub(super) fn line(&self, text: impl std::fmt::Display) -> anyhow::Result<()> {
        if self.tell == Tell::Chapters { out::line(text) } else { Ok(()) }
    }

    /// A bar over `length` bytes on standard error, if that is a terminal.
    pub(super) fn bar(&self, what: &'static str, length: u64) -> ProgressBar {
        if !self.bars {
            return ProgressBar::hidden();
        }
        let template = "  {msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}";
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::new(length).with_style(style).with_message(what)
    }

    /// Adds a section to the JSON object.
    pub(super) fn section(&mut self, name: &str, value: impl serde::Serialize) {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.sections.insert(name.to_owned(), value);
    }

    /// Adds a measured count.
    pub(super) fn count(&mut self, name: &'static str, label: &'static str, value: u64) {
        self.figures.push(Figure { name, label, value: value.into(), told: value.to_string() });
    }

    /// Adds a measured size.
    pub(super) fn bytes(&mut self, name: &'static str, label: &'static str, value: u64) {
        self.figures.push(Figure { name, label, value: value.into(), told: size(value) });
    }

    /// Adds a measured rate or time in `unit`.
    pub(super) fn measure(
        &mut self,
        name: &'static str,
        label: &'static str,
        value: f64,
        unit: &str,
    ) {
        let told = match value {
            100.0.. => format!("{value:.0} {unit}"),
            _ => format!("{value:.2} {unit}"),
        };
        let value = json!((value * 1_000.0).round() / 1_000.0);
        self.figures.push(Figure { name, label, value, told });
    }

    /// Tells the figures.
    pub(super) fn figures(&self) -> anyhow::Result<()> {
        self.chapter("Measured")?;
        for Figure { label, told, .. } in &self.figures {
            self.line(format_args!("  {label:<40} {told:>14}"))?;
        }
        Ok(())
    }

    /// Ends the tour: the verdict, the first problems, where the data is.
    pub(super) fn verdict(mut self, end: &End) -> anyhow::Result<bool> {
        let sound = self.problems.is_empty();
        if self.tell == Tell::Json {
            let mut object = Map::new();
            object.insert("sound".into(), sound.into());
            object.insert("problem_count".into(), self.problems.len().into());
            self.problems.truncate(PROBLEMS_TOLD);
            object.insert("problems".into(), json!(self.problems));
            object.insert(
                "data".into(),
                json!(end.data.as_ref().map(|data| data.display().to_string())),
            );
            object.insert("url".into(), json!(end.running.as_ref().map(|running| &running.url)));
            object.insert(
                "cache".into(),
                json!(end.running.as_ref().map(|running| running.cache.to_string())),
            );
            object.insert("pid".into(), json!(end.running.as_ref().map(|running| running.pid)));
            object.extend(
                self.figures.into_iter().map(|figure| (figure.name.to_owned(), figure.value)),
            );
            object.append(&mut self.sections);
            out::json(&Value::Object(object))?;
            return Ok(sound);
        }
        match sound {
            true => out::line(format_args!(
                "\nSOUND: everything acknowledged is there, as it was sent ({}).",
                end.what
            ))?,
            false => out::line(format_args!(
                "\nNOT SOUND: {} of what was acknowledged is lost or altered:",
                self.problems.len()
            ))?,
        }
        for problem in self.problems.iter().take(PROBLEMS_TOLD) {
            out::line(format_args!("  {problem}"))?;
        }
        match (&end.data, &end.running) {
            (Some(data), Some(Running { url, cache, pid })) => out::line(format_args!(
                "The server is running at {url} on {}; stop it with: kill {pid}\n\
                 Look around: curl '{url}/v1/files?limit=5', {url}/docs,\n\
                 forebay cache cli --resp {cache} ZRANGE tour:files-by-size -5 -1 WITHSCORES",
                data.display()
            )),
            (Some(data), None) => out::line(format_args!(
                "The data is in {0}; serve it with: forebay serve --data {0}",
                data.display()
            )),
            (None, _) => {
                out::line("The data directory was removed; --keep keeps it and serves it.")
            }
        }?;
        Ok(sound)
    }
}

/// How things stand when a tour is over.
#[derive(Debug)]
pub(super) struct End {
    /// What was compared, in words.
    pub(super) what: String,
    /// Where the data is, if it is still there.
    pub(super) data: Option<std::path::PathBuf>,
    pub(super) running: Option<Running>,
}

/// A server that goes on.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) url: String,
    /// Where its cache speaks RESP.
    pub(super) cache: std::net::SocketAddr,
    pub(super) pid: u32,
}

/// What was classified as what, what was a duplicate, what was refused.
pub(super) fn classification(report: &mut Report, tally: &Tally) -> anyhow::Result<()> {
    report.chapter("What came in")?;
    report.line(format_args!("  {:<12} {:>8} {:>12}", "category", "files", "bytes"))?;
    let mut sums: Vec<_> = tally.categories.iter().collect();
    sums.sort_by_key(|(category, sum)| (std::cmp::Reverse(sum.files), category.as_str()));
    for (category, sum) in &sums {
        report.line(format_args!("  {category:<12} {:>8} {:>12}", sum.files, size(sum.bytes)))?;
    }
    let rows: Vec<Value> = sums
        .iter()
        .map(|(category, sum)| json!({ "category": category, "files": sum.files, "bytes": sum.bytes }))
        .collect();
    report.section("classification", rows);
    let duplicates = tally.duplicates;
    report.line(format_args!(
        "  {} of {} were duplicates of bytes already there: {} kept once instead of again",
        duplicates.files,
        tally.sent.files,
        size(duplicates.bytes)
    ))?;
    report.section("duplicates", duplicates);
    for (what, told) in [("refused", &tally.refused), ("unread", &tally.unread)] {
        if told.count > 0 {
            let clear = if what == "refused" { "refused by the server" } else { "not readable" };
            report.line(format_args!("  {} {clear}, the first:", told.count))?;
        }
        for text in &told.first {
            report.line(format_args!("    {text}"))?;
        }
        report.section(what, told);
    }
    Ok(())
}

/// Which namespace became what, and the rules that said so.
pub(super) fn decisions(report: &mut Report, tally: &Tally) -> anyhow::Result<()> {
    report.chapter("Tables and collections")?;
    for Decision { namespace, target, decided_by, rules, ddl } in tally.decisions.values() {
        let documents = tally.oracle.documents.get(namespace).map_or(0, |texts| texts.count);
        report.line(format_args!(
            "  {namespace}: {documents} documents, a {target} (decided by {decided_by:?})"
        ))?;
        for rule in rules.iter().filter(|rule| rule.says != "neutral" || rule.rule == *decided_by) {
            let against = match rule.threshold.as_object() {
                Some(limits) => format!("{} to {}", limits["min"], limits["max"]),
                None => rule.threshold.to_string(),
            };
            report.line(format_args!(
                "    {:<15} measured {:<8} against {against:<9} says {:<11} {}",
                rule.rule,
                rule.measured.to_string(),
                rule.says,
                rule.detail
            ))?;
        }
        if let Some(first) = ddl.first() {
            let first: String = first.chars().take(120).collect();
            report.line(format_args!("    {first}"))?;
        }
    }
    report.section("decisions", tally.decisions.values().collect::<Vec<_>>());
    Ok(())
}

/// A rate; nothing in no time is no rate.
pub(super) fn rate(count: f64, took: Duration) -> f64 {
    if took.is_zero() { 0.0 } else { count / took.as_secs_f64() }
}
