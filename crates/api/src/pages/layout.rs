//! The frame of all pages.

use maud::{DOCTYPE, Markup, html};

/// A complete page.
///
/// * `script`: path of the page's script, if it has one.
pub(super) fn page(title: &str, script: Option<&str>, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                link rel="stylesheet" href="/docs/style.css";
                link rel="icon" href="data:,";
                @if let Some(script) = script { script src=(script) defer {} }
            }
            body {
                header {
                    a.brand href="/" { "Forebay" }
                    nav {
                        a href="/docs" { "API" }
                        a href="/metrics" { "Metrics" }
                        a href="/readyz" { "Readiness" }
                    }
                }
                main { (body) }
                footer { "forebay " (env!("CARGO_PKG_VERSION")) }
            }
        }
    }
    .into_string()
}
