//! The page at `/v1/events/search`: the newest events, and a search form.

use maud::{Markup, html};

use super::layout::page;

/// A field of the form, and its value.
#[derive(Debug)]
pub(crate) struct Field {
    /// The parameter of `GET /v1/events`.
    pub(crate) name: &'static str,
    /// The label of the field.
    pub(crate) label: &'static str,
    /// The value that was searched for.
    pub(crate) value: String,
}

/// An event, as texts.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its id.
    pub(crate) id: String,
    /// Its time.
    pub(crate) time: String,
    /// Its stream, and its type if it has one.
    pub(crate) stream: String,
    /// The host or the address it concerns.
    pub(crate) host: String,
    /// Its severity.
    pub(crate) severity: &'static str,
    /// Its raw bytes, possibly truncated.
    pub(crate) raw: String,
}

/// The search result, or why there was no search.
pub(crate) type SearchResult = Result<(Vec<Row>, Option<String>), String>;

/// The page.
///
/// * `found`: events, and the address of the next page.
pub(crate) fn events_page(fields: &[Field], found: &SearchResult) -> String {
    page(
        "Events - Forebay",
        None,
        &html! {
            h1 { "Events" }
            form method="get" action="/v1/events/search" {
                @for field in fields {
                    label { (field.label) " " input name=(field.name) value=(field.value); } " "
                }
                button type="submit" { "Search" }
            }
            @match found {
                Err(why) => p { span.bad { (why) } },
                Ok((rows, _)) if rows.is_empty() => p { "No event matches." },
                Ok((rows, next)) => {
                    (table(rows))
                    @if let Some(next) = next { p { a href=(next) { "Next page" } } }
                }
            }
        },
    )
}

fn table(rows: &[Row]) -> Markup {
    html! {
        table {
            tr { th { "Time" } th { "Stream" } th { "Host" } th { "Severity" } th { "Event" } }
            @for row in rows {
                tr {
                    td { a href={ "/v1/events/" (row.id) } { (row.time) } }
                    td { (row.stream) }
                    td { (row.host) }
                    td { (row.severity) }
                    td { code { (row.raw) } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_event_says_cannot_become_markup() {
        let evil = "<script>alert(1)</script>\"><b>".to_owned();
        let field = Field { name: "host", label: "Host", value: evil.clone() };
        let row = Row {
            id: "01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned(),
            time: evil.clone(),
            stream: evil.clone(),
            host: evil.clone(),
            severity: "high",
            raw: evil.clone(),
        };
        let shown = events_page(&[field], &Ok((vec![row], Some(evil.clone()))));
        assert!(!shown.contains("<script>") && !shown.contains("<b>"), "{shown}");
        assert!(!events_page(&[], &Err(evil)).contains("<b>"));
        assert!(events_page(&[], &Ok((Vec::new(), None))).contains("No event"));
    }
}
