//! The intake's part of `/openapi.json`.
//!
//! Parameters are written beside the routes rather than derived from handlers: handlers take whole
//! requests, so that bodies stream, and their signatures say nothing about parameters. Answers are
//! described by the types that are serialised.

use std::borrow::Cow;

use forebay_intake::DatabaseStatus;
use forebay_intake::answer::PutAnswer;
use forebay_intake::classify::Category;
use forebay_intake::documents::ingest::DocumentsAnswer;
use forebay_intake::documents::redecide::SchemaAnswer;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::schema::{Array, KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{OpenApi, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::answers::{BatchAnswer, DocumentPage, FilePage, NamespaceList};
use super::details::FilePatch;
use super::document;
use super::duplicates::DuplicateReport;
use super::file_namespaces::{
    FileNamespaceAnswer, FileNamespacePage, FileNamespaceSums, NamespaceSettings,
};
use super::transfers::{Deletions, TransferResults, Transfers};
use super::versions::{ErasedVersions, FileHistory};
use crate::describe::{
    ANY, BYTES, JsonObject, Kind, LINES, Operation, Routes, TEXT, header, needed, path, query,
};
use crate::jobs::accepts_jobs;

const FILES: &str =
    "Bytes under a name. Identical bytes are stored once, whatever the number of names.";
const DOCUMENTS: &str = "JSON documents, as rows of a table or members of a collection.";
const TARGETS: [&str; 3] = ["auto", "table", "collection"];
const JSON_PARTS: [&str; 3] = ["both", "file", "documents"];
pub(super) const LIMIT: Kind<'_> = Kind::Count(1, 1_000);
pub(super) const CURSOR: &str = "next_cursor of the previous page";

pub(super) const KEY_IN_USE: (u16, &str) =
    (409, "A request with this Idempotency-Key is in progress");
pub(super) const KEY_REUSED: (u16, &str) = (422, "The Idempotency-Key belongs to another request");
pub(super) const CONDITION: (u16, &str) = (412, "The condition does not hold");
pub(super) const TOO_LARGE: (u16, &str) = (413, "Larger than the limit");
pub(super) const BUSY: (u16, &str) = (429, "Too many operations are in progress");
pub(super) const STORAGE: (u16, &str) =
    (503, "Storage has failed or is busy; nothing is acknowledged meanwhile");
pub(super) const FULL: (u16, &str) = (507, "The disk is full");
const ETAG: &str = "The file's SHA-256, in quotation marks";

/// The form of a batch. Its parts are read one by one as they arrive, never as a whole.
struct Form;

impl PartialSchema for Form {
    fn schema() -> RefOr<Schema> {
        let text = |text: &str| {
            ObjectBuilder::new().schema_type(Type::String).description(Some(text)).build()
        };
        let word = |words: &[&str], text: &str| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words));
            word.description(Some(text)).build()
        };
        let binary = SchemaFormat::KnownFormat(KnownFormat::Binary);
        let file = ObjectBuilder::new().schema_type(Type::String).format(Some(binary));
        ObjectBuilder::new()
            .description(Some("Files and documents, and fields that apply to all of them."))
            .property("files", Array::new(file))
            .property(
                "namespace",
                text("Namespace of the files, best sent first [default: default]"),
            )
            .property("comment", text("Comment stored with the files"))
            .property("target", word(&TARGETS, "Where documents are stored [default: auto]"))
            .property("json", word(&JSON_PARTS, "What is done with files of JSON [default: both]"))
            .property("documents", text("JSON documents as text"))
            .into()
    }
}

impl ToSchema for Form {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("IngestForm")
    }
}

/// Returns the document.
pub(super) fn document() -> OpenApi {
    Routes::new("Forebay intake")
        .tag("files", FILES)
        .tag("documents", DOCUMENTS)
        .get("/v1/files", list_files())
        .get("/v1/files/search", super::search::described())
        .get(
            "/v1/files/{id}",
            get_file(
                "get_file",
                "Get a file by its id",
                vec![path("id", "The file's id, 16 hexadecimal digits")],
            ),
        )
        .put("/v1/files/{namespace}/{name}", put_file())
        .get("/v1/files/{namespace}/{name}", get_file_by_name())
        .post("/v1/files/{namespace}/{name}", restore_file())
        .patch("/v1/files/{namespace}/{name}", patch_file())
        .delete("/v1/files/{namespace}/{name}", delete_file())
        .post("/v1/files/copy", transfers("copy_files", "Give further names to files"))
        .post("/v1/files/move", transfers("move_files", "Rename files"))
        .post("/v1/files/delete", delete_files())
        .get("/v1/namespaces", file_namespaces())
        .get("/v1/files/duplicates", duplicates())
        .get("/v1/namespaces/{namespace}", get_namespace())
        .put("/v1/namespaces/{namespace}", put_namespace())
        .delete("/v1/namespaces/{namespace}", delete_namespace())
        .post("/v1/ingest", ingest())
        .get("/v1/database", database())
        .post("/v1/database/replay", replay())
        .get("/v1/documents", namespaces())
        .post("/v1/documents/{namespace}", post_documents())
        .get("/v1/documents/{namespace}", list_documents())
        .post("/v1/documents/{namespace}/schema", decide_again())
        .delete("/v1/documents/{namespace}", document::described_drop())
        .get("/v1/documents/{namespace}/{id}", document::described_get())
        .put("/v1/documents/{namespace}/{id}", document::described_put())
        .patch("/v1/documents/{namespace}/{id}", document::described_patch())
        .delete("/v1/documents/{namespace}/{id}", document::described_delete())
        .document()
}

pub(super) fn idempotency_key() -> Parameter {
    header(
        "Idempotency-Key",
        "Up to 255 printable characters. A repeated request with the same key gets the same answer",
    )
}

fn name_parameters() -> [Parameter; 2] {
    [
        path("namespace", "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"),
        path("name", "The file's name; may contain slashes"),
    ]
}

fn list_files() -> Operation {
    let categories = Category::ALL.map(Category::as_str);
    let size = Kind::Count(0, u64::MAX);
    Operation::new("files", "list_files", "List files by namespace and name")
        .parameters([
            query("namespace", Kind::Text, "Only this namespace"),
            query("prefix", Kind::Text, "Only names that begin with this text"),
            query("category", Kind::Word(&categories), "Only files of this category"),
            query("mime", Kind::Text, "Only this media type"),
            query("sha256", Kind::Text, "Only files with this SHA-256, in hexadecimal"),
            query("size_min", size, "Only files of at least this many bytes"),
            query("size_max", size, "Only files of at most this many bytes"),
            query(
                "created_from",
                Kind::Text,
                "Only files named at or after this time (RFC 3339 or milliseconds since 1970)",
            ),
            query("created_to", Kind::Text, "Only files named before this time"),
            query(
                "tag",
                Kind::Texts,
                "Only files with this tag, NAME or NAME=VALUE; may be repeated",
            ),
            query(
                "delimiter",
                Kind::Text,
                "List names that have this text after the prefix as one; needs namespace",
            ),
            query("limit", LIMIT, "Maximum number of results; the default is 100"),
            query("cursor", Kind::Text, CURSOR),
        ])
        .json::<FilePage<'static>>(200, "A page of files and the cursor of the next")
        .problems(&[(400, "A parameter is invalid"), STORAGE, FULL])
}

fn get_file(id: &str, summary: &str, parameters: Vec<Parameter>) -> Operation {
    let changed = "When the name was given to these bytes";
    Operation::new("files", id, summary)
        .parameters(parameters)
        .parameters([
            query("download", Kind::Flag, "Send as an attachment even if the type is harmless"),
            query(
                "thumbnail",
                Kind::Count(16, 1_024),
                "Send a picture made small, of at most this width and height in pixels",
            ),
            header("Range", "bytes=first-last; several ranges are allowed"),
            header("If-None-Match", "ETags that the client has"),
            header("If-Modified-Since", "Date of the client's copy"),
            header("If-Range", "ETag or date that the range refers to"),
        ])
        .bytes(200, BYTES, "The bytes. Content-Type is the file's media type")
        .or_bytes(200, ANY)
        .header(200, "ETag", ETAG)
        .header(200, "Last-Modified", changed)
        .bytes(206, BYTES, "The requested ranges")
        .or_bytes(206, ANY)
        .header(206, "ETag", ETAG)
        .header(206, "Content-Range", "The range, if there is one; several are parts of the body")
        .empty(304, "Unchanged")
        .header(304, "ETag", ETAG)
        .problems(&[
            (400, "A parameter is invalid"),
            (404, "There is no such file"),
            (416, "The requested range does not exist"),
            (422, "There is no thumbnail of the file"),
            (429, "Too many thumbnails are being made"),
            (501, "This build makes no thumbnails"),
        ])
}

fn get_file_by_name() -> Operation {
    get_file("get_file_by_name", "Get a file by its name", name_parameters().into())
        .parameters([
            query("version", Kind::Text, "Id of an earlier version, whose bytes are sent"),
            query("versions", Kind::Flag, "Send the history of the name instead of the bytes"),
            query("limit", LIMIT, "Of the history: maximum number of versions"),
            query("cursor", Kind::Text, "Of the history: next_cursor of the previous page"),
        ])
        .or_json::<FileHistory<'static>>(200)
}

fn restore_file() -> Operation {
    Operation::new("files", "restore_file", "Make an earlier version the current file again")
        .parameters(name_parameters())
        .parameter(needed("restore", Kind::Text, "Id of the version"))
        .parameters([
            idempotency_key(),
            header("If-Match", "An ETag: only if the name refers to those bytes"),
            header("If-None-Match", "*: only if the name does not exist"),
        ])
        .json::<PutAnswer<'static>>(201, "The name did not exist")
        .json::<PutAnswer<'static>>(200, "The name existed")
        .header(200, "ETag", ETAG)
        .header(201, "ETag", ETAG)
        .problems(&[
            (400, "The name or the id is invalid"),
            (404, "There is no such version"),
            KEY_IN_USE,
            CONDITION,
            KEY_REUSED,
            BUSY,
            STORAGE,
            FULL,
        ])
}

fn put_file() -> Operation {
    accepts_jobs(Operation::new("files", "put_file", "Store a file under a name"))
        .parameters(name_parameters())
        .parameters([
            query("comment", Kind::Text, "Comment stored with the file"),
            idempotency_key(),
            header("If-None-Match", "*: stores the file only if the name does not exist"),
            header("If-Match", "An ETag: stores the file only if the name refers to those bytes"),
            header("Forebay-Tags", "Tags of the file, encoded as a form: name=value&name=value"),
        ])
        .text("Headers named Forebay-Meta-NAME are stored with the file as its metadata.")
        .takes_bytes("The file's bytes")
        .json::<PutAnswer<'static>>(201, "The name is new")
        .header(201, "ETag", ETAG)
        .header(201, "Location", "The file's URL path")
        .json::<PutAnswer<'static>>(
            200,
            "The name existed: its bytes were replaced, or are the same",
        )
        .header(200, "ETag", ETAG)
        .problems(&[
            (400, "The name or body is invalid"),
            (408, "The body was too slow"),
            KEY_IN_USE,
            CONDITION,
            TOO_LARGE,
            KEY_REUSED,
            BUSY,
            STORAGE,
            FULL,
        ])
}

fn patch_file() -> Operation {
    Operation::new("files", "patch_file", "Change the metadata, tags or comment of a file")
        .text("The body is a JSON merge patch: what is absent stays, what is null is removed.")
        .parameters(name_parameters())
        .parameters([
            idempotency_key(),
            header("If-Match", "An ETag: changes the file only if the name refers to those bytes"),
        ])
        .takes::<FilePatch>(true, "What is to be changed")
        .json::<PutAnswer<'static>>(200, "The file as it is now")
        .header(200, "ETag", ETAG)
        .problems(&[
            (400, "The name or body is invalid"),
            (404, "There is no such file"),
            (408, "The body was too slow"),
            KEY_IN_USE,
            CONDITION,
            TOO_LARGE,
            KEY_REUSED,
            BUSY,
            STORAGE,
            FULL,
        ])
}

fn transfers(id: &str, summary: &str) -> Operation {
    results(
        Operation::new("files", id, summary)
            .text("No bytes are copied. Each file is a separate change.")
            .takes::<Transfers>(true, "The files and their new names"),
    )
}

fn delete_files() -> Operation {
    let operation = Operation::new("files", "delete_files", "Remove several names");
    results(operation.takes::<Deletions>(true, "The names"))
}

fn results(operation: Operation) -> Operation {
    operation
        .json::<TransferResults>(200, "All of it was done")
        .json::<TransferResults>(207, "Some of it failed; each file has its result")
        .problems(&[
            (400, "The body is invalid"),
            (408, "The body was too slow"),
            TOO_LARGE,
            STORAGE,
            FULL,
        ])
}

fn file_namespaces() -> Operation {
    Operation::new("files", "list_file_namespaces", "List the namespaces of files")
        .parameters([
            query("limit", LIMIT, "Maximum number of results; the default is 100"),
            query("cursor", Kind::Text, CURSOR),
        ])
        .json::<FileNamespacePage>(200, "A page of namespaces and the cursor of the next")
        .problems(&[(400, "A parameter is invalid"), STORAGE, FULL])
}

fn get_namespace() -> Operation {
    Operation::new("files", "get_file_namespace", "Add up the files of a namespace")
        .parameter(path("namespace", "The namespace"))
        .json::<FileNamespaceSums>(200, "What the namespace holds")
        .problems(&[
            (400, "The name is invalid"),
            (404, "It has neither files nor a record"),
            STORAGE,
            FULL,
        ])
}

fn duplicates() -> Operation {
    let summary = "List the contents with several names that save the most space";
    Operation::new("files", "list_duplicates", summary)
        .parameter(query("limit", LIMIT, "Maximum number of contents; the default is 100"))
        .json::<DuplicateReport<'static>>(200, "The contents, each with some of its names")
        .problems(&[(400, "A parameter is invalid"), STORAGE, FULL])
}

fn put_namespace() -> Operation {
    Operation::new("files", "put_file_namespace", "Make a namespace exist without files")
        .parameter(path("namespace", "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"))
        .takes::<NamespaceSettings>(false, "Settings of the namespace")
        .json::<FileNamespaceAnswer>(201, "It exists without files from now on")
        .json::<FileNamespaceAnswer>(200, "It did already")
        .problems(&[(400, "The name is invalid"), STORAGE, FULL])
}

fn delete_namespace() -> Operation {
    Operation::new("files", "delete_file_namespace", "Remove a namespace that has no files")
        .parameter(path("namespace", "The namespace"))
        .empty(204, "It is removed")
        .problems(&[
            (400, "The name is invalid"),
            (404, "It does not exist without files"),
            (409, "It has files"),
            BUSY,
            STORAGE,
            FULL,
        ])
}

fn delete_file() -> Operation {
    Operation::new(
        "files",
        "delete_file",
        "Remove a name. Its bytes are removed with their last name",
    )
    .parameters(name_parameters())
    .parameters([
        idempotency_key(),
        header("If-Match", "An ETag: removes the name only if it refers to those bytes"),
        query("version", Kind::Text, "Erase this earlier version instead, for good"),
        query(
            "prune",
            Kind::Count(0, u64::MAX),
            "Erase all earlier versions but the newest instead",
        ),
    ])
    .empty(204, "Removed")
    .json::<ErasedVersions>(200, "The number of erased versions")
    .problems(&[
        (400, "The name is invalid"),
        (404, "There is no such file"),
        KEY_IN_USE,
        CONDITION,
        STORAGE,
        FULL,
    ])
}

fn ingest() -> Operation {
    let summary = "Store files and JSON documents in one request";
    accepts_jobs(with_form(Operation::new("files", "ingest", summary)))
        .json::<BatchAnswer<'static>>(201, "Everything was stored, and something of it is new")
        .json::<BatchAnswer<'static>>(200, "Everything was stored before")
        .json::<BatchAnswer<'static>>(
            207,
            "Some parts were stored and some refused; each has its own result",
        )
        .json_or_problem::<BatchAnswer<'static>>(
            422,
            "Every part was refused, or the Idempotency-Key belongs to another request",
        )
        .problems(&[(400, "Not a multipart body"), KEY_IN_USE, BUSY, STORAGE, FULL])
}

/// Describes that an operation takes a batch.
pub(crate) fn with_form(operation: Operation) -> Operation {
    operation.parameter(idempotency_key()).takes_form::<Form>("Parts are stored as they arrive")
}

fn database() -> Operation {
    Operation::new(
        "documents",
        "get_database",
        "Report the state of the database that documents are forwarded to",
    )
    .json::<DatabaseStatus>(200, "Its state, the documents that wait for it, and the reason")
    .or_words(200, TEXT)
    .problems(&[(404, "No database is configured")])
}

fn replay() -> Operation {
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

fn namespaces() -> Operation {
    Operation::new("documents", "list_document_namespaces", "List the namespaces of documents")
        .json::<NamespaceList>(200, "Namespaces with their target and count")
        .problems(&[STORAGE])
}

fn post_documents() -> Operation {
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
        BUSY,
        STORAGE,
        FULL,
    ])
}

fn list_documents() -> Operation {
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

fn decide_again() -> Operation {
    Operation::new(
        "documents",
        "decide_document_schema",
        "Decide again between table and collection, and on the columns",
    )
    .text(
        "The decision is made from all documents of the namespace. Their values are then derived \
         for the columns again, which takes time in proportion to their number.",
    )
    .parameters([
        path("namespace", "The namespace"),
        query("dry_run", Kind::Flag, "Only report the decision and its reasons"),
        query(
            "target",
            Kind::Word(&TARGETS),
            "Where the documents are to be stored; the default is auto",
        ),
    ])
    .json::<SchemaAnswer>(200, "The decision, its reasons, and the columns")
    .problems(&[
        (400, "A parameter is invalid"),
        (404, "There is no such namespace"),
        (409, "The documents cannot be stored in the target"),
        BUSY,
        STORAGE,
        FULL,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described_with_the_types_of_its_answers() {
        let document = serde_json::to_value(document()).unwrap();
        assert_eq!(document["paths"].as_object().unwrap().len(), 17);
        let put = &document["paths"]["/v1/files/{namespace}/{name}"]["put"];
        assert_eq!(put["operationId"], "put_file");
        let schema = &put["responses"]["201"]["content"]["application/json"]["schema"];
        assert_eq!(schema["$ref"], "#/components/schemas/StoredFile");
        let schemas = &document["components"]["schemas"];
        for name in ["FileInfo", "FilePage", "StoredFileStatus", "DocumentColumn", "Problem"] {
            assert!(schemas[name].is_object(), "{name}");
        }
        let page = &schemas["FilePage"];
        assert_eq!(page["properties"]["next_cursor"]["type"][1], "null");
        assert_eq!(page["required"], serde_json::json!(["files", "next_cursor"]));
        let comment = &schemas["FileInfo"]["properties"]["comment"]["type"];
        assert_eq!(comment, "string");
        assert!(!schemas["FileInfo"]["required"].to_string().contains("comment"));
    }
}
