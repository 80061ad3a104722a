//! The intake's part of `/openapi.json`.
//!
//! Parameters are written beside the routes rather than derived from handlers: handlers take whole
//! requests, so that bodies stream, and their signatures say nothing about parameters. Answers are
//! described by the types that are serialised.

mod documents;
mod files;

use std::borrow::Cow;

use utoipa::openapi::path::Parameter;
use utoipa::openapi::schema::{Array, KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{OpenApi, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::answers::BatchAnswer;
use super::{blobs, document, schema, search};
use crate::describe::{Kind, Operation, Routes, header, query};
use crate::jobs::accepts_jobs;

const FILES: &str =
    "Bytes under a name. Identical bytes are stored once, whatever the number of names.";
const DOCUMENTS: &str = "JSON documents, as rows of a table or members of a collection.";
pub(super) const TARGETS: [&str; 3] = ["auto", "table", "collection"];
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
        .get("/v1/files", files::list_files())
        .get("/v1/files/search", search::described())
        .get("/v1/files/{id}", files::get_file_by_id())
        .head("/v1/files/{id}", files::head_file_by_id())
        .put("/v1/files/{namespace}/{name}", files::put_file())
        .get("/v1/files/{namespace}/{name}", files::get_file_by_name())
        .head("/v1/files/{namespace}/{name}", files::head_file_by_name())
        .post("/v1/files/{namespace}/{name}", files::restore_file())
        .patch("/v1/files/{namespace}/{name}", files::patch_file())
        .delete("/v1/files/{namespace}/{name}", files::delete_file())
        .post("/v1/files/copy", files::transfers("copy_files", "Give further names to files"))
        .post("/v1/files/move", files::transfers("move_files", "Rename files"))
        .post("/v1/files/delete", files::delete_files())
        .post("/v1/files/change", files::change_files())
        .get("/v1/namespaces", files::file_namespaces())
        .get("/v1/files/duplicates", files::duplicates())
        .get("/v1/files/statistics", files::statistics())
        .get("/v1/namespaces/{namespace}", files::get_namespace())
        .put("/v1/namespaces/{namespace}", files::put_namespace())
        .delete("/v1/namespaces/{namespace}", files::delete_namespace())
        .post("/v1/ingest", ingest())
        .get("/v1/blobs", blobs::described())
        .post("/v1/blobs/move", blobs::described_move())
        .get("/v1/database", documents::database())
        .post("/v1/database/replay", documents::replay())
        .get("/v1/documents", documents::namespaces())
        .post("/v1/documents/{namespace}", documents::post_documents())
        .get("/v1/documents/{namespace}", documents::list_documents())
        .get("/v1/documents/{namespace}/schema", schema::described_get())
        .post("/v1/documents/{namespace}/schema", schema::described_decide())
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
    let namespace =
        "The namespace of the parts, which may also be a field; required of a limited key";
    operation
        .parameter(idempotency_key())
        .parameter(query("namespace", Kind::Text, namespace))
        .takes_form::<Form>("Parts are stored as they arrive")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described_with_the_types_of_its_answers() {
        let document = serde_json::to_value(document()).unwrap();
        assert_eq!(document["paths"].as_object().unwrap().len(), 21);
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
