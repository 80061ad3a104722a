//! Files in `/openapi.json`.

use forebay_intake::answer::PutAnswer;
use forebay_intake::catalogue::FileOrder;
use forebay_intake::classify::Category;
use utoipa::openapi::path::Parameter;

use super::{
    BUSY, CONDITION, CURSOR, FULL, KEY_IN_USE, KEY_REUSED, LIMIT, STORAGE, TOO_LARGE,
    idempotency_key,
};
use crate::describe::{ANY, BYTES, Kind, Operation, header, needed, path, query};
use crate::intake::answers::FilePage;
use crate::intake::changes::FileChanges;
use crate::intake::details::FilePatch;
use crate::intake::duplicates::DuplicateReport;
use crate::intake::file_namespaces::{
    FileNamespaceAnswer, FileNamespacePage, FileNamespaceSums, NamespaceSettings,
};
use crate::intake::statistics::StatisticsAnswer;
use crate::intake::transfers::{Deletions, TransferResults, Transfers};
use crate::intake::versions::{ErasedVersions, FileHistory};
use crate::jobs::accepts_jobs;

const ETAG: &str = "The file's SHA-256, in quotation marks";

fn name_parameters() -> [Parameter; 2] {
    [
        path("namespace", "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"),
        path("name", "The file's name; may contain slashes"),
    ]
}

/// Parameters that select files.
fn filters() -> [Parameter; 10] {
    let categories = Category::ALL.map(Category::as_str);
    let size = Kind::Count(0, u64::MAX);
    [
        query("namespace", Kind::Text, "Only this namespace"),
        query("prefix", Kind::Text, "Only names that begin with this text"),
        query("category", Kind::Word(&categories), "Only files of this category"),
        query("mime", Kind::Text, "Only this media type, or all of a kind as in image/*"),
        query("sha256", Kind::Text, "Only files with this SHA-256, in hexadecimal"),
        query("size_min", size, "Only files of at least this many bytes"),
        query("size_max", size, "Only files of at most this many bytes"),
        query(
            "created_from",
            Kind::Text,
            "Only files named at or after this time (RFC 3339 or milliseconds since 1970)",
        ),
        query("created_to", Kind::Text, "Only files named before this time"),
        query("tag", Kind::Texts, "Only files with this tag, NAME or NAME=VALUE; may be repeated"),
    ]
}

pub(super) fn list_files() -> Operation {
    let orders = FileOrder::ALL.map(FileOrder::as_str);
    Operation::new("files", "list_files", "List files by namespace and name, or in another order")
        .text(
            "Pages by name read only the names up to their end. In any other order each page reads \
             all names that the other parameters leave.",
        )
        .parameters(filters())
        .parameters([
            query(
                "sort",
                Kind::Word(&orders),
                "The order; the default is name. Equals are by namespace and name",
            ),
            query(
                "delimiter",
                Kind::Text,
                "List names that have this text after the prefix as one; needs namespace",
            ),
            query("limit", LIMIT, "Maximum number of results; the default is 100"),
            query("cursor", Kind::Text, "next_cursor of the previous page in the same order"),
        ])
        .json::<FilePage<'static>>(200, "A page of files and the cursor of the next")
        .problems(&[(400, "A parameter is invalid"), STORAGE, FULL])
}

pub(super) fn statistics() -> Operation {
    Operation::new("files", "get_file_statistics", "Add up files by type, size and age")
        .text("Reads the names of the namespace that begin with the prefix, or all.")
        .parameters(filters())
        .json::<StatisticsAnswer<'static>>(200, "What the selected files are")
        .problems(&[
            (400, "A parameter is invalid"),
            (429, "Statistics of other files are being computed"),
            STORAGE,
            FULL,
        ])
}

fn head_file(id: &str, summary: &str, parameters: Vec<Parameter>) -> Operation {
    Operation::new("files", id, summary)
        .parameters(parameters)
        .parameters([
            header("If-Match", "ETags: only if the file has one of them"),
            header("If-None-Match", "ETags that the client has"),
            header("If-Modified-Since", "Date of the client's copy"),
            header("If-Unmodified-Since", "A date: only if the file is not newer"),
        ])
        .empty(200, "The file exists. The headers are those of its bytes")
        .header(200, "Content-Type", "The file's media type")
        .header(200, "Content-Length", "Its size in bytes")
        .header(200, "ETag", ETAG)
        .header(200, "Last-Modified", "When the name was given to these bytes")
        .empty(304, "Unchanged")
        .header(304, "ETag", ETAG)
        .problems(&[(400, "A parameter is invalid"), (404, "There is no such file"), CONDITION])
}

pub(super) fn head_file_by_id() -> Operation {
    let id = path("id", "The file's id, 16 hexadecimal digits");
    head_file("head_file", "Get the headers of a file by its id", vec![id])
}

pub(super) fn head_file_by_name() -> Operation {
    let parameters = name_parameters().into();
    head_file("head_file_by_name", "Get the headers of a file by its name", parameters)
        .parameter(query("version", Kind::Text, "Id of an earlier version"))
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
            header("If-Match", "ETags: only if the file has one of them"),
            header("If-None-Match", "ETags that the client has"),
            header("If-Modified-Since", "Date of the client's copy"),
            header("If-Unmodified-Since", "A date: only if the file is not newer"),
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
            CONDITION,
            (416, "The requested range does not exist"),
            (422, "There is no thumbnail of the file"),
            (429, "Too many thumbnails are being made"),
            (501, "This build makes no thumbnails"),
        ])
}

pub(super) fn get_file_by_id() -> Operation {
    let id = path("id", "The file's id, 16 hexadecimal digits");
    get_file("get_file", "Get a file by its id", vec![id])
}

pub(super) fn get_file_by_name() -> Operation {
    get_file("get_file_by_name", "Get a file by its name", name_parameters().into())
        .parameters([
            query("version", Kind::Text, "Id of an earlier version, whose bytes are sent"),
            query("versions", Kind::Flag, "Send the history of the name instead of the bytes"),
            query("limit", LIMIT, "Of the history: maximum number of versions"),
            query("cursor", Kind::Text, "Of the history: next_cursor of the previous page"),
        ])
        .or_json::<FileHistory<'static>>(200)
}

pub(super) fn restore_file() -> Operation {
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

const UNMODIFIED: &str = "A date: only if the name exists since then or earlier";

pub(super) fn put_file() -> Operation {
    accepts_jobs(Operation::new("files", "put_file", "Store a file under a name"))
        .parameters(name_parameters())
        .parameters([
            query("comment", Kind::Text, "Comment stored with the file"),
            idempotency_key(),
            header("If-None-Match", "*: stores the file only if the name does not exist"),
            header("If-Match", "An ETag: stores the file only if the name refers to those bytes"),
            header("If-Unmodified-Since", UNMODIFIED),
            header(
                "Content-Digest",
                "sha-256=:BASE64:, or sha-512: only if the body has this digest",
            ),
            header("Repr-Digest", "As Content-Digest"),
            header("Content-MD5", "Only if the body has this MD5, in base64"),
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
            (403, "The limits of the namespace leave no room for it"),
            (408, "The body was too slow"),
            KEY_IN_USE,
            CONDITION,
            TOO_LARGE,
            (415, "The Content-Encoding is not supported"),
            KEY_REUSED,
            BUSY,
            STORAGE,
            FULL,
        ])
}

pub(super) fn patch_file() -> Operation {
    Operation::new("files", "patch_file", "Change the metadata, tags or comment of a file")
        .text("The body is a JSON merge patch: what is absent stays, what is null is removed.")
        .parameters(name_parameters())
        .parameters([
            idempotency_key(),
            header("If-Match", "An ETag: changes the file only if the name refers to those bytes"),
            header("If-Unmodified-Since", UNMODIFIED),
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

pub(super) fn transfers(id: &str, summary: &str) -> Operation {
    results(
        Operation::new("files", id, summary)
            .text("No bytes are copied. Each file is a separate change.")
            .takes::<Transfers>(true, "The files and their new names"),
    )
}

pub(super) fn delete_files() -> Operation {
    let operation = Operation::new("files", "delete_files", "Remove several names");
    results(operation.takes::<Deletions>(true, "The names"))
}

pub(super) fn change_files() -> Operation {
    let summary = "Change comments, metadata and tags of files";
    let operation = Operation::new("files", "change_files", summary);
    results(operation.takes::<FileChanges>(true, "The files and what changes"))
}

fn results(operation: Operation) -> Operation {
    operation
        .parameters([idempotency_key()])
        .json::<TransferResults>(200, "All of it was done")
        .json::<TransferResults>(207, "Some of it failed; each file has its result")
        .problems(&[
            (400, "The body is invalid"),
            (408, "The body was too slow"),
            KEY_IN_USE,
            TOO_LARGE,
            KEY_REUSED,
            STORAGE,
            FULL,
        ])
}

pub(super) fn file_namespaces() -> Operation {
    Operation::new("files", "list_file_namespaces", "List the namespaces of files")
        .parameters([
            query("limit", LIMIT, "Maximum number of results; the default is 100"),
            query("cursor", Kind::Text, CURSOR),
        ])
        .json::<FileNamespacePage>(200, "A page of namespaces and the cursor of the next")
        .problems(&[(400, "A parameter is invalid"), STORAGE, FULL])
}

pub(super) fn get_namespace() -> Operation {
    Operation::new("files", "get_file_namespace", "Add up the files of a namespace")
        .parameter(path("namespace", "The namespace"))
        .json::<FileNamespaceSums>(200, "What the namespace holds")
        .problems(&[
            (400, "The name is invalid"),
            (404, "It has neither files nor a record"),
            (429, "Statistics of other files are being computed"),
            STORAGE,
            FULL,
        ])
}

pub(super) fn duplicates() -> Operation {
    let summary = "List the contents with several names that save the most space";
    Operation::new("files", "list_duplicates", summary)
        .parameter(query(
            "namespace",
            Kind::Text,
            "Only this namespace: its names and versions are counted, others are not",
        ))
        .parameter(query("limit", LIMIT, "Maximum number of contents; the default is 100"))
        .parameter(query("cursor", Kind::Text, "The next_cursor of an earlier page"))
        .json::<DuplicateReport<'static>>(200, "The contents, each with some of its names")
        .problems(&[(400, "A parameter is invalid"), STORAGE, FULL])
}

pub(super) fn put_namespace() -> Operation {
    Operation::new("files", "put_file_namespace", "Make a namespace exist without files")
        .parameter(path("namespace", "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"))
        .takes::<NamespaceSettings>(false, "Settings of the namespace")
        .json::<FileNamespaceAnswer>(201, "It exists without files from now on")
        .json::<FileNamespaceAnswer>(200, "It did already")
        .problems(&[(400, "The name is invalid"), STORAGE, FULL])
}

pub(super) fn delete_namespace() -> Operation {
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

pub(super) fn delete_file() -> Operation {
    Operation::new(
        "files",
        "delete_file",
        "Remove a name. Its bytes are removed with their last name",
    )
    .parameters(name_parameters())
    .parameters([
        idempotency_key(),
        header("If-Match", "An ETag: removes the name only if it refers to those bytes"),
        header("If-Unmodified-Since", UNMODIFIED),
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
