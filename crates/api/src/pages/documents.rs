//! The pages of documents: the namespaces, and the columns of one with how they changed.

use forebay_intake::documents::history::{SchemaChange, SchemaHistoryAnswer};
use forebay_intake::documents::ingest::ColumnAnswer;
use maud::{Markup, html};

use super::layout::page;

/// A namespace of documents in the list.
#[derive(Debug)]
pub(crate) struct DocumentsRow {
    /// Its name: of a-z, 0-9, `.`, `_` and `-`.
    pub(crate) namespace: String,
    /// `table` or `collection`.
    pub(crate) target: &'static str,
    /// Whether that is still to be decided.
    pub(crate) undecided: bool,
    /// Number of documents.
    pub(crate) documents: u64,
}

/// The page of all namespaces.
pub(crate) fn namespaces_page(rows: &[DocumentsRow]) -> String {
    page(
        "Documents - Forebay",
        None,
        &html! {
            h1 { "Documents" }
            @if rows.is_empty() {
                p { "There are no documents. To store one:" }
                pre { "curl -d '{\"name\":\"pump\",\"power_kw\":7.5}' SERVER/v1/documents/machines" }
            } @else {
                table {
                    thead { tr { th { "Namespace" } th { "Stored as" } th { "Documents" } } }
                    tbody {
                        @for row in rows {
                            tr {
                                td { a href={ "/v1/documents/" (row.namespace) "/schema" } { code { (row.namespace) } } }
                                td { (stored_as(row.target, row.undecided)) }
                                td { (row.documents) }
                            }
                        }
                    }
                }
            }
        },
    )
}

fn stored_as(target: &str, undecided: bool) -> Markup {
    html! {
        (target)
        @if undecided { " (too few documents to decide for good)" }
    }
}

/// The page of a namespace's columns.
pub(crate) fn schema_page(found: &SchemaHistoryAnswer) -> String {
    page(
        &format!("{} - Documents - Forebay", found.namespace),
        None,
        &html! {
            h1 { a href="/v1/documents" { "Documents" } " / " (found.namespace) }
            p {
                (found.documents) " documents, stored as a "
                (stored_as(found.target, found.undecided)) ". "
                a href={ "/v1/documents/" (found.namespace) } { "Read them" }
            }
            h2 { "Columns" }
            @if found.columns.is_empty() {
                p { "There are none: the documents are stored as they are." }
            } @else {
                table {
                    thead { tr { th { "Column" } th { "Type" } th { "Path in the document" } } }
                    tbody {
                        @for column in &found.columns {
                            tr {
                                td { code { (column.column) } }
                                td { (column.r#type) }
                                td { code { (column.path) } }
                            }
                        }
                    }
                }
            }
            h2 { "Changes" }
            @if found.changes_dropped > 0 {
                p { (found.changes_dropped) " older changes are no longer kept." }
            }
            @if found.changes.is_empty() {
                p { "None are recorded." }
            } @else {
                table {
                    thead { tr { th { "Time" } th { "After document" } th { "Columns" } } }
                    tbody {
                        @for change in found.changes.iter().rev() {
                            tr {
                                td { (change.changed) }
                                td { @if let Some(id) = change.after_id { (id) } @else { "none" } }
                                td { (columns(change)) }
                            }
                        }
                    }
                }
            }
        },
    )
}

/// What changed, a line for each column.
fn columns(change: &SchemaChange) -> Markup {
    let with_sign = |sign: &str, column: &ColumnAnswer| {
        html! { (sign) " " code { (column.column) } " " (column.r#type) br; }
    };
    html! {
        @for column in &change.columns_added { (with_sign("added", column)) }
        @for column in &change.columns_changed {
            "changed " code { (column.column) } " from " (column.from) " to " (column.to) br;
        }
        @for column in &change.columns_removed { (with_sign("removed", column)) }
    }
}
