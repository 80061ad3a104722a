//! The page at `/v1/pipelines/page`: the pipelines, their schedules and their last runs.

use std::time::Duration;

use maud::html;
use serde_json::Value;

use super::layout::page;

/// A pipeline in the list.
#[derive(Debug)]
pub(crate) struct PipelineRow {
    name: String,
    /// Source and destination, or what is wrong with the file.
    copies: Result<String, String>,
    streams: usize,
    every: Option<u64>,
    is_running: bool,
    /// Outcome of the last run, its start and the rows it committed.
    last: Option<(String, String, u64)>,
    /// Why it failed.
    error: Option<String>,
}

impl PipelineRow {
    /// Creates the row from the server's description of a pipeline.
    pub(crate) fn of(known: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let last = &known["last_run"];
        let began = last["began_at_ms"].as_i64();
        let began = began.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        Self {
            name: text(&known["name"]),
            copies: match known["error"].as_str() {
                Some(error) => Err(error.to_owned()),
                None => {
                    Ok(format!("{} to {}", text(&known["source"]), text(&known["destination"])))
                }
            },
            streams: known["streams"].as_array().map_or(0, Vec::len),
            every: known["every_seconds"].as_u64(),
            is_running: known["running"].is_string(),
            last: began.map(|began| {
                let rows = last["rows_committed"].as_u64().unwrap_or_default();
                (text(&last["outcome"]), format!("{began:.0}"), rows)
            }),
            error: last["error"].as_str().map(str::to_owned),
        }
    }
}

/// The page of all pipelines, and of the directory of their files.
pub(crate) fn pipelines_page(found: &Result<(Vec<PipelineRow>, String), String>) -> String {
    page(
        "Pipelines - Forebay",
        None,
        &html! {
            h1 { "Pipelines" }
            @match found {
                Err(why) => p { span.bad { (why) } },
                Ok((rows, dir)) if rows.is_empty() => {
                    p { "There are no pipelines. To define one, create NAME.yaml in " code { (dir) } ":" }
                    pre { "forebay pipeline init --from postgres --to parquet > NAME.yaml\n"
                          "curl -X POST SERVER/v1/pipelines/NAME/runs" }
                }
                Ok((rows, _)) => (table(rows)),
            }
        },
    )
}

fn table(rows: &[PipelineRow]) -> maud::Markup {
    html! {
        table {
            tr { th { "Name" } th { "Copies" } th { "Streams" } th { "Every" } th { "Last run" }
                 th { "Began" } th { "Rows" } }
            @for row in rows { tr {
                td { a href={ "/v1/pipelines/" (row.name) } { (row.name) } }
                @match &row.copies {
                    Ok(copies) => td { (copies) },
                    Err(why) => td { span.bad { (why) } },
                }
                td { (row.streams) }
                td { @if let Some(every) = row.every {
                    (forebay_base::duration::HumanDuration(Duration::from_secs(every)))
                } }
                @match &row.last {
                    Some((outcome, began, committed)) => {
                        td {
                            @if row.is_running { "running" }
                            @else if outcome == "done" { (outcome) }
                            @else { span.bad { (outcome) } }
                            @if let Some(error) = &row.error { ": " (error) }
                        }
                        td { (began) } td { (committed) }
                    }
                    None => { td { "none" } td {} td {} }
                }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pipeline_says_cannot_become_markup() {
        let evil = "<b>\"'&</b>";
        let known = serde_json::json!({
            "name": "p", "source": evil, "destination": evil, "streams": [1, 2], "running": null,
            "every_seconds": 900,
            "last_run": { "began_at_ms": 0, "outcome": evil, "rows_committed": 7, "error": evil },
        });
        let shown = pipelines_page(&Ok((vec![PipelineRow::of(&known)], evil.to_owned())));
        assert!(!shown.contains("<b>") && shown.contains("&lt;b&gt;"));
        assert!(shown.contains("<td>15m</td>") && shown.contains("<td>7</td>"), "{shown}");
        assert!(!pipelines_page(&Ok((Vec::new(), evil.to_owned()))).contains("<b>"));
        assert!(!pipelines_page(&Err(evil.to_owned())).contains("<b>"));
    }
}
