//! The pages of webhooks: all of them, and the newest deliveries of one.

use maud::{Markup, html};
use serde_json::Value;

use super::layout::page;

/// The page of all webhooks.
///
/// * `hooks`: as the API describes them.
pub(crate) fn webhooks_page(hooks: &[Value]) -> String {
    page(
        "Webhooks - Forebay",
        None,
        &html! {
            h1 { "Webhooks" }
            @if hooks.is_empty() {
                p { "There are no webhooks. To create one:" }
                pre { "forebay webhooks add https://hooks.example.com/in --event 'file.*'" }
            } @else {
                table {
                    thead { tr {
                        th { "Receiver" } th { "Events" } th { "State" } th { "Waiting" } th { "Last delivery" }
                    } }
                    tbody {
                        @for hook in hooks {
                            tr {
                                td {
                                    a href={ "/v1/webhooks/" (text(hook, "webhook_id")) "/deliveries" } {
                                        code { (text(hook, "url")) }
                                    }
                                    @if !text(hook, "description").is_empty() { br; (text(hook, "description")) }
                                }
                                td { (events(hook)) }
                                td { (state(hook)) }
                                td { (number(hook, "waiting")) }
                                td { (time(hook, "delivered_at_ms")) }
                            }
                        }
                    }
                }
            }
        },
    )
}

/// The page of the newest deliveries of a webhook.
///
/// * `hook`, `deliveries`: as the API describes them. `next`: cursor of the next page.
pub(crate) fn deliveries_page(hook: &Value, deliveries: &[Value], next: Option<&str>) -> String {
    let path = format!("/v1/webhooks/{}/deliveries", text(hook, "webhook_id"));
    page(
        "Deliveries - Webhooks - Forebay",
        None,
        &html! {
            h1 { a href="/v1/webhooks" { "Webhooks" } " / " (text(hook, "url")) }
            p { (state(hook)) ". Events: " (events(hook)) "." }
            @if deliveries.is_empty() {
                p { "Nothing was sent yet." }
            } @else {
                table {
                    thead { tr {
                        th { "Event" } th { "Happened" } th { "State" } th { "Attempts" } th { "Answer" }
                    } }
                    tbody {
                        @for delivery in deliveries {
                            tr {
                                td {
                                    a href={ (path) "/" (number(delivery, "delivery_id")) } {
                                        (text(delivery, "event"))
                                    }
                                }
                                td { (time(delivery, "event_at_ms")) }
                                td { (delivered(delivery)) }
                                td { (number(delivery, "attempts")) }
                                td { (answered(delivery)) }
                            }
                        }
                    }
                }
                @if let Some(next) = next {
                    p { a href={ (path) "?cursor=" (next) } { "Older deliveries" } }
                }
            }
        },
    )
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_default()
}

fn time(of: &Value, name: &str) -> String {
    let at = of[name].as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "never".to_owned(), |at| format!("{at:.0}"))
}

/// Which events a webhook receives.
fn events(hook: &Value) -> Markup {
    let kinds: Vec<&str> =
        hook["events"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    html! {
        @if kinds.is_empty() { "all" } @else { (kinds.join(", ")) }
        @if let Some(namespace) = hook["namespace"].as_str() { " of " code { (namespace) } }
        @if let Some(prefix) = hook["prefix"].as_str() { " with names that begin with " code { (prefix) } }
    }
}

/// Whether a webhook is sent to, and why not.
fn state(hook: &Value) -> Markup {
    html! {
        @if hook["enabled"] != true {
            span.bad { "disabled" @if let Some(why) = hook["reason"].as_str() { ": " (why) } }
        } @else if let Some(why) = hook["stalled"].as_str() {
            span.bad { "stalled: " (why) }
        } @else if number(hook, "failures") > 0 {
            span.bad { (number(hook, "failures")) " failures since " (time(hook, "failing_since_ms")) }
        } @else {
            span.good { "enabled" }
        }
    }
}

fn delivered(delivery: &Value) -> Markup {
    html! {
        @match text(delivery, "state") {
            "delivered" => span.good { "delivered" },
            "waiting" => { "waiting, next attempt " (time(delivery, "next_attempt_at_ms")) },
            state => span.bad { (state) },
        }
    }
}

fn answered(delivery: &Value) -> Markup {
    html! {
        @if let Some(status) = delivery["status"].as_u64() { (status) " " }
        @if let Some(ms) = delivery["latency_ms"].as_u64() { "after " (ms) " ms" }
        @if let Some(error) = delivery["error"].as_str() { br; span.bad { (error) } }
    }
}
