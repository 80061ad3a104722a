//! Documents, and the database that they are forwarded to, in `/openapi.json`.

use forebay_intake::DatabaseStatus;
use forebay_intake::documents::ingest::DocumentsAnswer;

use super::{BUSY, CURSOR, FULL, KEY_IN_USE, LIMIT, STORAGE, TARGETS, TOO_LARGE, idempotency_key};
use crate::describe::{JsonObject, Kind, LINES, Operation, PAGE, TEXT, path, query};
use crate::intake::answers::{DocumentPage, NamespaceList};
use crate::jobs::accepts_jobs;

pub(super) fn database() -> Operation {
    Operation::new(
        "documents",
        "get_database",
        "Report the state of the database that documents are forwarded to",
    )
    .json::<DatabaseStatus>(200, "Its state, the documents that wait for it, and the reason")
    .or_words(200, TEXT)
    .problems(&[(404, "No database is configured")])
}

pub(super) fn replay() -> Operation {
    Operation::new(
        "documents",
        "replay_database",
        "Try at once to write the documents that the database refused",
    )
    .parameters([query("namespace", Kind::Text, "Only this namespace; by default all")])
    .json::<DatabaseStatus>(202, "They are being tried; this is the state before")
    .problems(&[
        (400, "A parameter is invalid"),
        (404, "No database is configured, or it does not refuse this namespace"),
    ])
}

pub(super) fn namespaces() -> Operation {
    Operation::new("documents", "list_document_namespaces", "List the namespaces of documents")
        .json::<NamespaceList>(200, "Namespaces with their target and count")
        .or_words(200, PAGE)
        .problems(&[STORAGE])
}

pub(super) fn post_documents() -> Operation {
    accepts_jobs(Operation::new(
        "documents",
        "post_documents",
        "Store one document, an array of documents, or one document per line",
    ))
    .text(
        "A body of JSON is one document or an array of documents. A body of lines has one \
         document per line.",
    )
    .parameters([
        path("namespace", "1 to 64 of a-z 0-9 . _ -"),
        query("dry_run", Kind::Flag, "Only report the decision, its reasons and the DDL"),
        query(
            "on_error",
            Kind::Word(&["skip", "reject"]),
            "skip (the default): store the valid documents; reject: store all or none",
        ),
        query(
            "target",
            Kind::Word(&TARGETS),
            "Where the documents are stored; the default is auto",
        ),
        query(
            "comment",
            Kind::Text,
            "Whole words such as \"sql\" or \"nosql\" express a preferred target",
        ),
        idempotency_key(),
    ])
    .takes_also::<JsonObject>(true, "One document, or several", &[LINES])
    .json::<DocumentsAnswer>(201, "All documents were stored")
    .json::<DocumentsAnswer>(200, "A dry run, or there was nothing to store")
    .json::<DocumentsAnswer>(
        207,
        "Some documents were refused; each is listed with its line and reason",
    )
    .json_or_problem::<DocumentsAnswer>(
        422,
        "All documents were refused, or the Idempotency-Key belongs to another request",
    )
    .problems(&[
        (400, "The body is not JSON"),
        (408, "The body was too slow"),
        KEY_IN_USE,
        TOO_LARGE,
        (415, "The Content-Encoding is not supported"),
        BUSY,
        STORAGE,
        FULL,
    ])
}

pub(super) fn list_documents() -> Operation {
    Operation::new(
        "documents",
        "list_documents",
        "List a namespace's documents in the order they were stored",
    )
    .text(
        "With `Accept: application/x-ndjson` the response is one document per line. With `follow` it is a \
         line for each document that is stored from then on, or after the cursor.",
    )
    .parameters([
        path("namespace", "The namespace"),
        query("where", Kind::Text, "Only documents that pass this expression, such as `price >= 10`"),
        query("follow", Kind::Flag, "Stay connected and receive documents as they are stored"),
        query("limit", LIMIT, "Maximum number of documents; the default is 100"),
        query("cursor", Kind::Text, CURSOR),
    ])
    .json::<DocumentPage<'static>>(200, "A page of documents")
    .or_bytes(200, LINES)
    .header(
        200,
        "X-Next-Cursor",
        "For lines: cursor of the next page; absent after the last. With `follow`: cursor until the \
         first line arrives",
    )
    .problems(&[(400, "A parameter is invalid"), (404, "There is no such namespace"), STORAGE])
}
