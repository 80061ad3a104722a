//! The page at `/`: what this server is, its state, and links.

use std::time::Duration;

use forebay_base::duration::HumanDuration;
use maud::{Markup, html};

use super::layout::page;

/// The content of the landing page.
#[derive(Debug)]
pub(crate) struct Status {
    /// The server's URL, as the client knows it, without a slash at the end.
    pub(crate) address: String,
    /// Whether the server accepts work, or why not.
    pub(crate) readiness: Result<(), String>,
    /// What does not work although the server accepts work.
    pub(crate) degraded: Vec<String>,
    /// Whether the user is logged in; `None` if no key is needed.
    pub(crate) logged_in: Option<bool>,
    /// Names of the open subsystems.
    pub(crate) subsystems: Vec<&'static str>,
    /// Time since start.
    pub(crate) uptime_ms: u64,
    /// Number of open connections.
    pub(crate) connections: usize,
    /// Number of connections accepted since start.
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
            p { "Stores files, JSON documents and events, and serves them." }
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
                tr { th { "Uptime" } td { (uptime) } }
                tr { th { "Connections" } td {
                    (status.connections) " open, " (status.connections_total) " since start"
                } }
                tr { th { "API keys" } td {
                    @if status.keys_required {
                        "required for /v1 "
                        @match status.logged_in {
                            Some(true) => form method="post" action="/logout" {
                                button type="submit" { "Log out" }
                            },
                            _ => a href="/login" { "Log in" },
                        }
                    }
                    @else { "none: accessible from this machine" }
                } }
            }
            ul {
                li { a href="/docs" { "API reference, with a form to try each route" } }
                li { a href="/openapi.json" { "API description (OpenAPI)" } }
                @if status.subsystems.contains(&"intake") {
                    li { a href="/v1/documents" { "Documents: namespaces and their columns" } }
                }
                @if status.subsystems.contains(&"jobs") {
                    li { a href="/v1/jobs/page" { "Jobs: requests that are carried out in the background" } }
                }
                @if status.subsystems.contains(&"events") {
                    li { a href="/v1/events/search" { "Newest events, and search" } }
                }
                @if status.subsystems.contains(&"webhooks") {
                    li { a href="/v1/webhooks" { "Webhooks: receivers and their deliveries" } }
                }
                @if status.subsystems.contains(&"inventory") {
                    li { a href="/v1/inventories/page" { "Inventories: sizes and costs by prefix" } }
                }
                @if status.subsystems.contains(&"pipelines") {
                    li { a href="/v1/pipelines/page" { "Pipelines and their runs" } }
                }
                li { a href="/metrics" { "Metrics for Prometheus" } }
            }
            (first_steps(status))
        },
    )
}

/// Commands to begin with.
fn first_steps(status: &Status) -> Markup {
    let (header, key) = match status.keys_required {
        true => (" -H \"Authorization: Bearer $KEY\"", " --key \"$KEY\""),
        false => ("", ""),
    };
    html! {
        h2 { "Store a file" }
        pre { "echo hello | curl" (header) " -T - " (status.address) "/v1/files/notes/hello.txt\n"
              "curl" (header) " " (status.address) "/v1/files/notes/hello.txt" }
        @if status.subsystems.contains(&"events") {
            h2 { "Store an event" }
            pre { "echo '{\"hello\":\"log\"}' | curl" (header) " --data-binary @- " (status.address) "/v1/events\n"
                  "forebay events tail --server " (status.address) (key) }
        }
    }
}
