//! The page at `/`: what this is, how it is, where to go.

use std::time::Duration;

use forebay_base::duration::HumanDuration;
use maud::html;

use super::layout::page;

/// What the landing page shows.
#[derive(Debug)]
pub(crate) struct Status {
    /// Whether work is taken, or why not.
    pub(crate) readiness: Result<(), String>,
    /// What does not work although work is taken.
    pub(crate) degraded: Vec<String>,
    /// Names of what is open.
    pub(crate) subsystems: Vec<&'static str>,
    /// Time since start.
    pub(crate) uptime_ms: u64,
    /// Connections open.
    pub(crate) connections: usize,
    /// Connections taken since start.
    pub(crate) connections_total: u64,
    /// Whether `/v1` needs a key.
    pub(crate) keys_required: bool,
}

/// The page.
pub(crate) fn landing_page(status: &Status) -> String {
    let uptime = HumanDuration(Duration::from_secs(status.uptime_ms / 1000));
    page(
        "Forebay",
        None,
        &html! {
            h1 { "Forebay" }
            p { "Takes in files, JSON documents and events, keeps them safe and gives them back." }
            table.facts {
                tr { th { "State" } td {
                    @match &status.readiness {
                        Ok(()) if status.degraded.is_empty() => span.good { "ready" },
                        Ok(()) => span.bad { "degraded: " (status.degraded.join("; ")) },
                        Err(why) => span.bad { "not ready: " (why) },
                    }
                } }
                tr { th { "Serving" } td {
                    @if status.subsystems.is_empty() { "nothing yet" }
                    @else { (status.subsystems.join(", ")) }
                } }
                tr { th { "Up for" } td { (uptime) } }
                tr { th { "Connections" } td {
                    (status.connections) " open, " (status.connections_total) " since start"
                } }
                tr { th { "API keys" } td {
                    @if status.keys_required { "needed below /v1" }
                    @else { "none made: open to this machine" }
                } }
            }
            ul {
                li { a href="/docs" { "Every route, with its parameters and a form to try it" } }
                li { a href="/openapi.json" { "The same as an OpenAPI document" } }
                @if status.subsystems.contains(&"events") {
                    li { a href="/v1/events/search" { "The newest events, and a search" } }
                }
                @if status.subsystems.contains(&"inventory") {
                    li { a href="/v1/inventories/page" { "Inventories: what takes how much room" } }
                }
                @if status.subsystems.contains(&"pipelines") {
                    li { a href="/v1/pipelines/page" { "Pipelines: what is copied when, and how it went" } }
                }
                li { a href="/metrics" { "Metrics for Prometheus" } }
            }
            h2 { "A first file" }
            pre { "echo hello | curl -T - http://127.0.0.1:8090/v1/files/notes/hello.txt\n"
                  "curl http://127.0.0.1:8090/v1/files/notes/hello.txt" }
            @if status.subsystems.contains(&"events") {
                h2 { "A first event" }
                pre { "echo '{\"hello\":\"log\"}' | curl --data-binary @- http://127.0.0.1:8090/v1/events\n"
                      "forebay events tail --server http://127.0.0.1:8090" }
            }
        },
    )
}
