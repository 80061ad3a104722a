//! The uploads' part of `/openapi.json`. Answers are described by the types that are serialised.

use utoipa::openapi::OpenApi;
use utoipa::openapi::path::Parameter;

use super::answers::{UploadAnswer, UploadPage};
use crate::describe::{Kind, Operation, Routes, header, path, query};

const TAG: &str = "uploads";
const ABOUT: &str = "Uploads that arrive in several requests (tus 1.0): an interrupted one is continued. A \
    complete one becomes a file.";

const VERSION: (u16, &str) = (412, "Another version of tus, or the condition does not hold");
const GONE: (u16, &str) = (410, "The stored bytes are damaged: begin a new upload");
const MISSING: (u16, &str) = (404, "There is no such upload; it was removed or has expired");
const LOCKED: (u16, &str) = (423, "Another request for this upload does not end");
const MEDIA: (u16, &str) = (415, "The body is not application/offset+octet-stream");
const TOO_LARGE: (u16, &str) = (413, "Longer than the upload, or larger than the limit");
const STORAGE: (u16, &str) = (503, "Storage has failed or is busy; try again later");
const FULL: (u16, &str) = (507, "The disk is full, or unfinished uploads reserve all they may");
const BROKEN: (u16, &str) = (500, "The bytes could not be stored or read");
const EXPIRES: &str = "When the upload expires if nothing is appended";
const FILE: &str = "URL path of the file, once it is stored";
const OFFSET: &str = "Number of bytes that the upload has, on stable storage";
const BYTES: &str = "application/offset+octet-stream";

/// Returns the document.
pub(super) fn document() -> OpenApi {
    let one = "/v1/uploads/{id}";
    Routes::new("Forebay uploads")
        .tag(TAG, ABOUT)
        .get("/v1/uploads", list())
        .post("/v1/uploads", create())
        .options("/v1/uploads", options("get_upload_options"))
        .get(one, show())
        .head(one, head())
        .patch(one, append())
        .delete(one, remove())
        .options(one, options("get_one_upload_options").parameter(id()))
        .document()
}

fn id() -> Parameter {
    path("id", "The upload's id, 32 hexadecimal digits")
}

fn version() -> Parameter {
    header("Tus-Resumable", "1.0.0; required")
}

fn list() -> Operation {
    Operation::new(
        TAG,
        "list_uploads",
        "List unfinished uploads, and finished ones until they expire",
    )
    .parameters([
        query("limit", Kind::Count(1, 1_000), "Maximum number of results; the default is 100"),
        query("cursor", Kind::Text, "next_cursor of the previous page"),
    ])
    .json::<UploadPage<'static>>(200, "A page of uploads")
    .problems(&[(400, "A parameter is invalid"), BROKEN, STORAGE])
}

fn show() -> Operation {
    Operation::new(TAG, "get_upload", "Get an upload, and the file it became")
        .parameter(id())
        .json::<UploadAnswer<'static>>(200, "The upload")
        .problems(&[MISSING, GONE, LOCKED, BROKEN, STORAGE])
}

fn options(id: &str) -> Operation {
    Operation::new(
        TAG,
        id,
        "Get the version, extensions and limits of tus that the server supports",
    )
    .empty(204, "Tus-Version, Tus-Extension, Tus-Max-Size, Tus-Checksum-Algorithm")
}

fn create() -> Operation {
    Operation::new(TAG, "create_upload", "Begin an upload, or put partial uploads together")
        .text(
            "Upload-Metadata names the file: `name`, or else `filename`; `namespace` [default: \
             default] and `comment`. A body of the type application/offset+octet-stream is the \
             beginning of the upload.",
        )
        .parameters([
            version(),
            header("Upload-Length", "Number of bytes"),
            header("Upload-Defer-Length", "1: the number of bytes is sent later"),
            header("Upload-Metadata", "Names and values in Base64, separated by commas"),
            header("Upload-Concat", "partial, or final; and the URLs of partial uploads"),
            header("Upload-Checksum", "Algorithm and checksum in Base64 of the body"),
            header("If-None-Match", "*: stores the file only if the name does not exist"),
            header(
                "Idempotency-Key",
                "Up to 255 printable characters. A repeated request with the same key is answered \
                 with the upload that the first one began",
            ),
        ])
        .may_take(BYTES, "The first bytes")
        .empty(201, "The upload exists")
        .header(201, "Location", "Its URL path")
        .header(201, "Upload-Offset", OFFSET)
        .header(201, "Upload-Expires", EXPIRES)
        .header(201, "Upload-File", FILE)
        .problems(&[
            (400, "A header is invalid"),
            (404, "A partial upload does not exist"),
            (408, "The body was too slow"),
            (409, "A partial upload is incomplete"),
            GONE,
            VERSION,
            TOO_LARGE,
            MEDIA,
            LOCKED,
            (429, "Too many uploads are unfinished"),
            (422, "The Idempotency-Key was used for another upload"),
            (460, "The checksum does not match; nothing was stored"),
            BROKEN,
            STORAGE,
            FULL,
        ])
}

fn head() -> Operation {
    Operation::new(TAG, "get_upload_offset", "Get where an upload continues")
        .text("A request that appends to the upload stores what it has and ends.")
        .parameters([id(), version()])
        .empty(200, "The upload")
        .header(200, "Upload-Offset", OFFSET)
        .header(200, "Upload-Length", "Number of bytes in all")
        .header(200, "Upload-Defer-Length", "1 if that is not known yet")
        .header(200, "Upload-Metadata", "As it was sent")
        .header(200, "Upload-Concat", "As it was sent")
        .header(200, "Upload-Expires", EXPIRES)
        .header(200, "Upload-File", FILE)
        .problems(&[MISSING, GONE, VERSION, LOCKED, BROKEN, STORAGE, FULL])
}

fn append() -> Operation {
    Operation::new(TAG, "append_to_upload", "Append bytes to an upload")
        .text("The last bytes make it a file; the answer is sent once that is stored.")
        .parameters([
            id(),
            version(),
            header("Upload-Offset", "Number of bytes that the upload has; required"),
            header("Upload-Length", "Number of bytes in all, if it was not known before"),
            header("Upload-Checksum", "Algorithm and checksum in Base64 of the body"),
        ])
        .must_take(BYTES, "The next bytes")
        .empty(204, "The bytes are stored")
        .header(204, "Upload-Offset", OFFSET)
        .header(204, "Upload-Expires", EXPIRES)
        .header(204, "Upload-File", FILE)
        .problems(&[
            (400, "A header is invalid, or the body ended early"),
            (403, "A final upload takes no bytes"),
            MISSING,
            (408, "The body was too slow; what had arrived is stored"),
            (
                409,
                "The upload continues at another offset, is finished, or a newer request took over",
            ),
            GONE,
            VERSION,
            TOO_LARGE,
            MEDIA,
            LOCKED,
            (460, "The checksum does not match; the bytes were discarded"),
            BROKEN,
            STORAGE,
            FULL,
        ])
}

fn remove() -> Operation {
    Operation::new(TAG, "delete_upload", "Remove an upload. A file that it became stays")
        .parameters([id(), header("Tus-Resumable", "1.0.0, if it is sent")])
        .empty(204, "Removed")
        .problems(&[MISSING, VERSION, LOCKED, BROKEN, STORAGE])
}
