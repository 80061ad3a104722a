//! The JSON of answers that exist only over HTTP: pages, lists, and the result of a batch.
//!
//! What the log stores with a request, and therefore replays, is in `answer.rs` and
//! `documents/ingest.rs`.

use forebay_intake::IntakeError;
use forebay_intake::answer::{FileAnswer, PutAnswer, PutStatus};
use forebay_intake::documents::ingest::DocumentsAnswer;
use forebay_intake::documents::{NamespaceKind, TableSchema};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::problem;
use crate::describe::JsonObject;

/// A page of files.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FilePage<'a> {
    /// The files, in order.
    pub(super) files: Vec<FileAnswer<'a>>,
    /// Beginnings that further names share, up to and with the delimiter; absent without a delimiter.
    /// By name they are in one order with the files, in other orders before all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) prefixes: Option<Vec<String>>,
    /// `cursor` of the next page; null after the last.
    #[schema(required)]
    pub(super) next_cursor: Option<String>,
}

/// The namespaces of documents.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DocumentNamespaceList)]
pub(super) struct NamespaceList {
    /// The namespaces, by name.
    pub(super) namespaces: Vec<NamespaceAnswer>,
}

/// A namespace of documents.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DocumentNamespace)]
pub(super) struct NamespaceAnswer {
    /// Number of documents.
    pub(super) documents: u64,
    /// Its name.
    pub(super) namespace: String,
    /// `table` or `collection`.
    pub(super) target: &'static str,
    /// Whether there are too few documents to decide between table and collection.
    pub(super) undecided: bool,
    /// Its URL path.
    pub(super) url: String,
}

/// A page of documents.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DocumentPage<'a> {
    /// The namespace.
    pub(super) namespace: &'a str,
    /// `table` or `collection`.
    pub(super) target: &'static str,
    /// Number of documents in the namespace, whatever `where` and `limit` select.
    pub(super) count: u64,
    /// Columns of the table; empty for a collection.
    pub(super) columns: Vec<TableColumn<'a>>,
    /// The documents, in the order they were stored.
    pub(super) documents: Vec<PageDocument<'a>>,
    /// `cursor` of the next page; null after the last.
    #[schema(required)]
    pub(super) next_cursor: Option<String>,
}

/// A column of a namespace's table.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TableColumn<'a> {
    /// Name in the table.
    column: &'a str,
    /// Path of keys in the document.
    path: &'a str,
    /// Its type.
    r#type: &'static str,
}

impl<'a> TableColumn<'a> {
    /// The columns of a namespace.
    pub(super) fn all(kind: NamespaceKind, schema: &'a TableSchema) -> Vec<Self> {
        if kind == NamespaceKind::Collection {
            return Vec::new();
        }
        let columns = schema.columns().iter().map(|column| Self {
            column: &column.name,
            path: &column.path,
            r#type: column.ty.name(),
        });
        columns.collect()
    }
}

/// A document of a page.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Document)]
pub(super) struct PageDocument<'a> {
    /// Its id.
    pub(super) id: u64,
    /// When it was received, RFC 3339.
    pub(super) received: String,
    /// The document itself, as it was received.
    #[schema(value_type = JsonObject)]
    pub(super) document: &'a RawValue,
}

/// The results of a batch.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = IngestedParts)]
pub(super) struct BatchAnswer<'a> {
    /// Why the rest of the body was not read; absent if all of it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) error: Option<PartError>,
    /// Namespace of the files.
    pub(super) namespace: &'a str,
    /// The result of each part, in the order of the body.
    pub(super) parts: Vec<PartAnswer>,
}

/// The result of one part of a batch.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = IngestedPart)]
pub(super) struct PartAnswer {
    /// Result of the part's documents. Absent if the part has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) documents: Option<PartDocuments>,
    /// Why the part was refused; absent if it was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) error: Option<PartError>,
    /// The file; absent if the part was not stored as one.
    // As JSON, because a repeated part gets what the log remembers of the first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<PutAnswer<'static>>)]
    pub(super) file: Option<Value>,
    /// Name of the file or field; absent if the part was stored by an earlier request with the same
    /// Idempotency-Key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) name: Option<String>,
    /// What became of it.
    pub(super) status: PartStatus,
}

/// The result of the documents of a part.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = IngestedPartDocuments)]
pub(super) enum PartDocuments {
    /// Each document was examined, and stored or refused.
    Taken(TakenDocuments),
    /// They were stored by an earlier request, whose answer is no longer remembered.
    Before(DocumentsBefore),
    /// None was stored.
    Refused(DocumentsRefused),
}

/// The result of documents that were examined.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = IngestedDocuments)]
pub(super) struct TakenDocuments {
    /// The result, as for documents sent alone.
    // As JSON, because a repeated part gets what the log remembers of the first answer.
    #[serde(flatten)]
    #[schema(value_type = DocumentsAnswer)]
    pub(super) answer: Value,
    /// True if they were stored by an earlier request; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) repeated: Option<bool>,
}

/// The result of documents that an earlier request stored.
// Without other members, so that it differs from documents that were examined.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = IngestedDocumentsBefore)]
pub(super) struct DocumentsBefore {
    /// True.
    pub(super) repeated: bool,
}

/// The result of documents that were refused together.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = IngestedDocumentsRefused)]
pub(super) struct DocumentsRefused {
    /// Why they were refused.
    pub(super) error: PartError,
}

impl PartDocuments {
    fn count(&self, member: &str) -> u64 {
        match self {
            Self::Taken(taken) => taken.answer.get(member).and_then(Value::as_u64).unwrap_or(0),
            Self::Before(_) | Self::Refused(_) => 0,
        }
    }

    /// Whether some were accepted.
    pub(super) fn has_accepted(&self) -> bool {
        self.count("accepted") > 0
    }

    /// Whether some were refused.
    fn has_refused(&self) -> bool {
        matches!(self, Self::Refused(_)) || self.count("rejected") > 0
    }
}

/// What became of a part of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = IngestedPartStatus)]
pub(super) enum PartStatus {
    /// It was stored.
    Stored,
    /// Its bytes were already stored.
    Duplicate,
    /// It was refused.
    Rejected,
}

impl From<PutStatus> for PartStatus {
    fn from(status: PutStatus) -> Self {
        match status {
            PutStatus::Stored => Self::Stored,
            PutStatus::Duplicate => Self::Duplicate,
        }
    }
}

/// Why a part of a batch was refused.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = IngestedPartError)]
pub(super) struct PartError {
    /// Error code for programs.
    pub(super) code: &'static str,
    /// Message for people.
    pub(super) message: String,
}

impl PartError {
    /// The code of an error, with this message.
    pub(super) fn of(error: &IntakeError, message: String) -> Self {
        let (_, code) = problem::classify(error);
        Self { code, message }
    }
}

impl PartAnswer {
    /// Whether some of its documents were refused.
    pub(super) fn has_refused_documents(&self) -> bool {
        self.documents.as_ref().is_some_and(PartDocuments::has_refused)
    }

    /// The result of a part that was refused.
    pub(super) fn rejected(name: Option<&str>, error: PartError) -> Self {
        Self {
            documents: None,
            error: Some(error),
            file: None,
            name: name.map(|name| name.chars().take(256).collect()),
            status: PartStatus::Rejected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_sent_as_it_was_received() {
        let text = "{\"b\": 1.10,\n \"a\": 1, \"a\": 2}";
        let page = DocumentPage {
            namespace: "n",
            target: "table",
            count: 1,
            columns: Vec::new(),
            documents: vec![PageDocument {
                id: 7,
                received: "2026-11-23T00:00:00Z".to_owned(),
                document: serde_json::from_str(text).unwrap(),
            }],
            next_cursor: None,
        };
        let expected = format!(
            "{{\"namespace\":\"n\",\"target\":\"table\",\"count\":1,\"columns\":[],\"documents\":\
             [{{\"id\":7,\"received\":\"2026-11-23T00:00:00Z\",\"document\":{text}}}],\
             \"next_cursor\":null}}"
        );
        assert_eq!(serde_json::to_string(&page).unwrap(), expected);
    }

    #[test]
    fn documents_of_a_part_are_sent_in_one_of_three_forms() {
        let json = |documents: &PartDocuments| serde_json::to_string(documents).unwrap();
        let taken = |repeated| {
            let answer = serde_json::json!({ "accepted": 2, "rejected": 1 });
            PartDocuments::Taken(TakenDocuments { answer, repeated })
        };
        assert_eq!(json(&taken(None)), r#"{"accepted":2,"rejected":1}"#);
        assert_eq!(json(&taken(Some(true))), r#"{"accepted":2,"rejected":1,"repeated":true}"#);
        assert!(taken(None).has_accepted() && taken(None).has_refused());
        let before = PartDocuments::Before(DocumentsBefore { repeated: true });
        assert_eq!(json(&before), r#"{"repeated":true}"#);
        assert!(!before.has_accepted() && !before.has_refused());
        let error = PartError { code: "busy", message: "no".to_owned() };
        let refused = PartDocuments::Refused(DocumentsRefused { error });
        assert_eq!(json(&refused), r#"{"error":{"code":"busy","message":"no"}}"#);
        assert!(!refused.has_accepted() && refused.has_refused());
    }

    #[test]
    fn a_refused_part_has_a_name_an_error_and_nothing_else() {
        let error = PartError { code: "name", message: "no".to_owned() };
        let json = serde_json::to_value(PartAnswer::rejected(Some("x"), error)).unwrap();
        let expected = serde_json::json!({
            "status": "rejected", "name": "x", "error": { "code": "name", "message": "no" },
        });
        assert_eq!(json, expected);
    }
}
