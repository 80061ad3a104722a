//! The report of a tour: chapters as they happen for people, one object at the end for programs.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

use super::tally::{Decision, Tally};
use forebay_console::out::{self, size};

/// Maximum number of problems named at the end.
const PROBLEMS_PRINTED: usize = 10;

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Chapters on standard output, and a progress bar on a terminal.
    Chapters,
    /// Only the result.
    Verdict,
    /// One JSON object at the end.
    Json,
}

/// Prints the report, and collects it for the JSON object.
#[derive(Debug)]
pub(super) struct Report {
    output: Output,
    bars: bool,
    figures: Vec<Figure>,
    sections: Map<String, Value>,
    pub(super) problems: Vec<String>,
}

#[derive(Debug)]
struct Figure {
    name: &'static str,
    /// Its label for people.
    label: &'static str,
    value: Value,
    text: String,
}

impl Report {
    pub(super) fn new(output: Output, bars: bool) -> Self {
        Self { output, bars, figures: Vec::new(), sections: Map::new(), problems: Vec::new() }
    }

    /// Begins a chapter.
    pub(super) fn chapter(&self, title: &str) -> anyhow::Result<()> {
        self.line(format_args!("\n{title}\n{}", "-".repeat(title.chars().count())))
    }

    /// Prints a line for people.
    pub(super) fn line(&self, text: impl std::fmt::Display) -> anyhow::Result<()> {
        if self.output == Output::Chapters { out::line(text) } else { Ok(()) }
    }

    /// Returns a bar over `length` bytes on standard error, if that is a terminal.
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
        self.figures.push(Figure { name, label, value: value.into(), text: value.to_string() });
    }

    /// Adds a measured size.
    pub(super) fn bytes(&mut self, name: &'static str, label: &'static str, value: u64) {
        self.figures.push(Figure { name, label, value: value.into(), text: size(value) });
    }

    /// Adds a measured rate or time in `unit`.
    pub(super) fn measure(
        &mut self,
        name: &'static str,
        label: &'static str,
        value: f64,
        unit: &str,
    ) {
        let text = match value {
            100.0.. => format!("{value:.0} {unit}"),
            _ => format!("{value:.2} {unit}"),
        };
        let value = json!((value * 1_000.0).round() / 1_000.0);
        self.figures.push(Figure { name, label, value, text });
    }

    /// Prints the figures.
    pub(super) fn figures(&self) -> anyhow::Result<()> {
        self.chapter("Measured")?;
        for Figure { label, text, .. } in &self.figures {
            self.line(format_args!("  {label:<40} {text:>14}"))?;
        }
        Ok(())
    }

    /// Ends the tour: prints the result, the first problems, and the path of the data.
    pub(super) fn verdict(&mut self, end: &End) -> anyhow::Result<bool> {
        let sound = self.problems.is_empty();
        if self.output == Output::Json {
            let mut object = Map::new();
            object.insert("sound".into(), sound.into());
            object.insert("problem_count".into(), self.problems.len().into());
            self.problems.truncate(PROBLEMS_PRINTED);
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
            let figures = std::mem::take(&mut self.figures);
            object.extend(figures.into_iter().map(|figure| (figure.name.to_owned(), figure.value)));
            object.append(&mut self.sections);
            out::json(&Value::Object(object))?;
            return Ok(sound);
        }
        match sound {
            true => out::line(format_args!(
                "\nSOUND: everything acknowledged was read back unchanged ({}).",
                end.what
            ))?,
            false => out::line(format_args!(
                "\nNOT SOUND: {} acknowledged items are lost or altered:",
                self.problems.len()
            ))?,
        }
        for problem in self.problems.iter().take(PROBLEMS_PRINTED) {
            out::line(format_args!("  {problem}"))?;
        }
        match (&end.data, &end.running) {
            (Some(data), Some(Running { url, cache, pid })) => out::line(format_args!(
                "The server is running at {url} on {}; stop it with: kill {pid}\n\
                 Try: curl '{url}/v1/files?limit=5', {url}/docs,\n\
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

/// The result of a tour.
#[derive(Debug)]
pub(super) struct End {
    /// A description of what was compared.
    pub(super) what: String,
    /// Path of the data, if it still exists.
    pub(super) data: Option<std::path::PathBuf>,
    pub(super) running: Option<Running>,
}

/// A server that keeps running.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) url: String,
    /// Address of its cache, for RESP.
    pub(super) cache: std::net::SocketAddr,
    pub(super) pid: u32,
}

/// Reports how files were classified, which were duplicates, and which were refused.
pub(super) fn classification(report: &mut Report, tally: &Tally) -> anyhow::Result<()> {
    report.chapter("Stored")?;
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
        "  {} of {} were duplicates of stored content: {} were not stored again",
        duplicates.files,
        tally.sent.files,
        size(duplicates.bytes)
    ))?;
    report.section("duplicates", duplicates);
    for (what, sample) in [("refused", &tally.refused), ("unread", &tally.unread)] {
        if sample.count > 0 {
            let clear = if what == "refused" { "refused by the server" } else { "unreadable" };
            report.line(format_args!("  {} {clear}, the first:", sample.count))?;
        }
        for text in &sample.first {
            report.line(format_args!("    {text}"))?;
        }
        report.section(what, sample);
    }
    Ok(())
}

/// Reports the target of each namespace, and the rules that chose it.
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

/// Returns a rate; zero if no time has passed.
pub(super) fn rate(count: f64, took: Duration) -> f64 {
    if took.is_zero() { 0.0 } else { count / took.as_secs_f64() }
}
