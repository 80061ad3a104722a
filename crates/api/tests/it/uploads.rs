//! Resumable uploads as tus clients send them.

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_api::uploads::{Completions, resume};
use forebay_intake::Intake;
use forebay_intake::digest::Digest;
use forebay_intake::uploads::{NewUpload, UploadKind};
use sha2::Digest as _;

use super::intake::support::{Answer, House, noise, pieces, send, text};

const TUS: (&str, &str) = ("tus-resumable", "1.0.0");
const BYTES: (&str, &str) = ("content-type", "application/offset+octet-stream");

fn router(intake: &Intake) -> axum::Router {
    forebay_api::uploads::router(intake, &Completions::default())
}

async fn ask(house: &House, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask_with(house, method, path, headers, Body::empty()).await
}

async fn ask_with(
    house: &House,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Answer {
    let headers: Vec<_> = headers.iter().copied().chain([TUS]).collect();
    let answer = send(router(&house.intake), method, path, &headers, body).await;
    assert_eq!(answer.header("tus-resumable"), "1.0.0");
    answer
}

fn metadata(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{name} {}", BASE64.encode(value)));
    pairs.collect::<Vec<_>>().join(",")
}

/// Begins an upload and returns its URL path.
async fn begin(house: &House, headers: &[(&str, &str)]) -> String {
    let answer = ask(house, "POST", "/v1/uploads", headers).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.header("location").to_owned()
}

async fn patch(house: &House, url: &str, at: usize, bytes: &[u8]) -> Answer {
    patch_with(house, url, at, bytes, &[]).await
}

async fn patch_with(
    house: &House,
    url: &str,
    at: usize,
    bytes: &[u8],
    more: &[(&str, &str)],
) -> Answer {
    let at = at.to_string();
    let mut headers = vec![BYTES, ("upload-offset", &*at)];
    headers.extend_from_slice(more);
    ask_with(house, "PATCH", url, &headers, pieces(bytes, 7_777)).await
}

#[tokio::test]
async fn an_upload_in_pieces_becomes_a_file_and_continues_after_a_restart() {
    let house = House::new();
    let bytes = noise(1, 300_000);
    let named = metadata(&[("filename", "a b.bin"), ("namespace", "in"), ("comment", "a note")]);
    let begun = [("upload-length", "300000"), ("upload-metadata", &*named)];
    let url = begin(&house, &begun).await;
    let first = patch(&house, &url, 0, &bytes[..100_000]).await;
    assert_eq!((first.status, first.header("upload-offset")), (204, "100000"), "{first:?}");
    assert!(first.header("upload-expires").ends_with("GMT"), "{first:?}");
    let house = house.reopen();
    let head = ask(&house, "HEAD", &url, &[]).await;
    assert_eq!((head.status, head.header("upload-offset")), (200, "100000"), "{head:?}");
    assert_eq!((head.header("upload-length"), head.header("upload-metadata")), ("300000", &*named));
    assert_eq!(head.header("cache-control"), "no-store");
    let last = patch(&house, &url, 100_000, &bytes[100_000..]).await;
    assert_eq!((last.status, last.header("upload-offset")), (204, "300000"), "{last:?}");
    assert_eq!(last.header("upload-file"), "/v1/files/in/a%20b.bin");
    let file = house.get("/v1/files/in/a%20b.bin").await;
    assert!(file.body == bytes);
    let house = house.reopen();
    let shown = send(router(&house.intake), "GET", &url, &[], "").await.json();
    assert_eq!(text(&shown["file"]["sha256"]), Digest::of(&bytes).to_hex());
    assert_eq!((text(&shown["kind"]), text(&shown["file"]["comment"])), ("resumable", "a note"));
    let head = ask(&house, "HEAD", &url, &[]).await;
    assert_eq!(head.header("upload-file"), "/v1/files/in/a%20b.bin");
    // The answer to the last request was lost: the client repeats it without bytes.
    let again = patch_with(&house, &url, 300_000, b"", &[("content-length", "0")]).await;
    assert_eq!((again.status, again.header("upload-file")), (204, "/v1/files/in/a%20b.bin"));
    assert_eq!(patch(&house, &url, 300_000, b"x").await.error(), (409, "upload_finished".into()));
    assert_eq!(ask(&house, "DELETE", &url, &[]).await.status, 204);
    assert_eq!(ask(&house, "HEAD", &url, &[]).await.status, 404);
    assert_eq!(house.get("/v1/files/in/a%20b.bin").await.status, 200, "the file stays");
}

#[tokio::test]
async fn a_repeated_beginning_with_a_key_is_answered_with_the_same_upload() {
    let house = House::new();
    let bytes = noise(2, 50_000);
    let named = metadata(&[("filename", "a.bin")]);
    let begun =
        [("upload-length", "50000"), ("upload-metadata", &*named), ("idempotency-key", "k")];
    let url = begin(&house, &begun).await;
    assert_eq!(patch(&house, &url, 0, &bytes[..20_000]).await.status, 204);
    let house = house.reopen();
    let again = ask(&house, "POST", "/v1/uploads", &begun).await;
    assert_eq!((again.status, again.header("location")), (201, &*url), "{again:?}");
    assert_eq!(again.header("upload-offset"), "20000");
    // A body is only taken as the beginning.
    let longer: Vec<_> = begun.into_iter().chain([BYTES]).collect();
    let again = ask_with(&house, "POST", "/v1/uploads", &longer, pieces(&bytes, 7_777)).await;
    assert_eq!((again.status, again.header("upload-offset")), (201, "20000"), "{again:?}");
    let other =
        [("upload-length", "50001"), ("upload-metadata", &*named), ("idempotency-key", "k")];
    assert_eq!(ask(&house, "POST", "/v1/uploads", &other).await.status, 422);
    assert_ne!(begin(&house, &begun[..2]).await, url);
    assert_eq!(patch(&house, &url, 20_000, &bytes[20_000..]).await.status, 204);
    let finished = ask(&house, "POST", "/v1/uploads", &begun).await;
    assert_eq!(finished.header("upload-file"), "/v1/files/default/a.bin", "{finished:?}");
    assert_eq!(ask(&house, "DELETE", &url, &[]).await.status, 204);
    assert_ne!(begin(&house, &begun).await, url, "a removed upload is begun again");
    for (key, on) in
        [("\u{e9}", "/v1/uploads"), ("k", "/v1/uploads/00000000000000000000000000000000")]
    {
        let headers = [("upload-length", "1"), ("idempotency-key", key)];
        let refused = ask(&house, "POST", on, &headers).await;
        assert_eq!(refused.error(), (400, "idempotency_key".into()), "{on}");
    }
}

#[tokio::test]
async fn options_lists_what_the_server_supports_to_any_version() {
    let house = House::new();
    let answer = send(router(&house.intake), "OPTIONS", "/v1/uploads", &[], "").await;
    assert_eq!((answer.status, answer.header("tus-version")), (204, "1.0.0"));
    assert_eq!(answer.header("tus-checksum-algorithm"), "sha1,sha256,md5,crc32");
    assert_eq!(answer.header("tus-max-size"), (16_u64 << 30).to_string());
    for extension in ["creation-with-upload", "creation-defer-length", "concatenation", "checksum"]
    {
        assert!(answer.header("tus-extension").split(',').any(|found| found == extension));
    }
    for version in [None, Some(("tus-resumable", "0.2.2"))] {
        for (method, path) in
            [("POST", "/v1/uploads"), ("HEAD", "/v1/uploads/x"), ("PATCH", "/v1/uploads/x")]
        {
            let headers: Vec<_> = version.into_iter().collect();
            let refused = send(router(&house.intake), method, path, &headers, "").await;
            assert_eq!((refused.status, refused.header("tus-version")), (412, "1.0.0"));
        }
    }
}

#[tokio::test]
async fn what_does_not_fit_the_upload_is_refused_and_changes_nothing() {
    let house = House::new();
    let url = begin(&house, &[("upload-length", "10")]).await;
    patch(&house, &url, 0, b"abcd").await;
    let stale = patch(&house, &url, 0, b"abcd").await;
    assert_eq!(stale.error(), (409, "upload_offset".into()));
    assert_eq!(stale.header("upload-offset"), "4");
    let long = [BYTES, ("upload-offset", "4"), ("content-length", "7")];
    let long = ask_with(&house, "PATCH", &url, &long, "1234567").await;
    assert_eq!(long.error(), (413, "too_large".into()));
    // Without Content-Length the excess is noticed while it arrives.
    assert_eq!(patch(&house, &url, 4, b"1234567").await.error(), (413, "too_large".into()));
    let typed = [("content-type", "text/plain"), ("upload-offset", "4")];
    let typed = ask_with(&house, "PATCH", &url, &typed, "efgh").await;
    assert_eq!(typed.error(), (415, "content_type".into()));
    let encoded = patch_with(&house, &url, 4, b"e", &[("content-encoding", "gzip")]).await;
    assert_eq!(encoded.error(), (415, "encoding".into()));
    let head = ask(&house, "HEAD", &url, &[]).await;
    assert_eq!(head.header("upload-offset"), "4");
    let unknown = format!("/v1/uploads/{}", "0".repeat(32));
    assert_eq!(patch(&house, &unknown, 0, b"a").await.error(), (404, "not_found".into()));
    assert_eq!(patch(&house, "/v1/uploads/x", 0, b"a").await.error(), (404, "not_found".into()));
    let last = patch(&house, &url, 4, b"efghij").await;
    let id = url.rsplit('/').next().unwrap();
    assert_eq!(last.header("upload-file"), format!("/v1/files/default/{id}"));
    assert_eq!(house.get(last.header("upload-file")).await.body, "abcdefghij");
}

#[tokio::test]
async fn headers_that_begin_an_upload_are_checked() {
    let house = House::with(|options| options.limits.file_size_max = 1_000);
    let name = metadata(&[("filename", "../x")]);
    let space = metadata(&[("namespace", "No")]);
    for (headers, status) in [
        (&[][..], 400),
        (&[("upload-length", "x")], 400),
        (&[("upload-length", "-1")], 400),
        (&[("upload-length", "1"), ("upload-length", "1")], 400),
        (&[("upload-length", "1"), ("upload-defer-length", "1")], 400),
        (&[("upload-defer-length", "2")], 400),
        (&[("upload-length", "1001")], 413),
        (&[("upload-length", "1"), ("upload-metadata", "a !")], 400),
        (&[("upload-length", "1"), ("upload-metadata", &*name)], 400),
        (&[("upload-length", "1"), ("upload-metadata", &*space)], 400),
        (&[("upload-length", "1"), ("upload-concat", "half")], 400),
        (&[("upload-length", "1"), ("upload-concat", "final;/v1/uploads/x")], 400),
        (&[("upload-length", "1"), ("if-none-match", "\"a\"")], 400),
    ] {
        let refused = ask(&house, "POST", "/v1/uploads", headers).await;
        assert_eq!(refused.status, status, "{headers:?}: {refused:?}");
    }
    assert!(house.files_below("uploads").is_empty());
}

#[tokio::test]
async fn the_first_bytes_may_come_with_the_creation_and_an_empty_upload_is_complete() {
    let house = House::new();
    let named = metadata(&[("name", "a/b.txt")]);
    let headers = [BYTES, ("upload-length", "5"), ("upload-metadata", &*named)];
    let partly = ask_with(&house, "POST", "/v1/uploads", &headers, "he").await;
    assert_eq!((partly.status, partly.header("upload-offset")), (201, "2"), "{partly:?}");
    patch(&house, partly.header("location"), 2, b"llo").await;
    assert_eq!(house.get("/v1/files/default/a/b.txt").await.body, "hello");
    let whole = ask_with(&house, "POST", "/v1/uploads", &headers, "world").await;
    assert_eq!(whole.header("upload-file"), "/v1/files/default/a/b.txt");
    assert_eq!(house.get("/v1/files/default/a/b.txt").await.body, "world");
    let empty = ask(&house, "POST", "/v1/uploads", &[("upload-length", "0")]).await;
    assert_eq!(house.get(empty.header("upload-file")).await.body, "");
    let before = house.files_below("uploads").len();
    let typed = [("content-type", "text/plain"), ("upload-length", "5"), ("content-length", "5")];
    assert_eq!(ask_with(&house, "POST", "/v1/uploads", &typed, "hello").await.status, 415);
    let long = ask_with(&house, "POST", "/v1/uploads", &headers, "123456").await;
    assert_eq!(long.error(), (413, "too_large".into()));
    assert_eq!(house.files_below("uploads").len(), before, "nothing is left of those refused");
}

#[tokio::test]
async fn a_length_can_be_declared_with_the_last_bytes_but_not_changed() {
    let house = House::new();
    let url = begin(&house, &[("upload-defer-length", "1")]).await;
    patch(&house, &url, 0, b"abc").await;
    let head = ask(&house, "HEAD", &url, &[]).await;
    assert_eq!((head.header("upload-defer-length"), head.header("upload-length")), ("1", ""));
    let short = patch_with(&house, &url, 3, b"de", &[("upload-length", "2")]).await;
    assert_eq!(short.error(), (409, "upload_length".into()));
    let last = patch_with(&house, &url, 3, b"de", &[("upload-length", "6")]).await;
    assert_eq!((last.status, last.header("upload-file")), (204, ""));
    let other = patch_with(&house, &url, 5, b"f", &[("upload-length", "7")]).await;
    assert_eq!(other.error(), (409, "upload_length".into()));
    let last = patch(&house, &url, 5, b"f").await;
    assert_eq!(house.get(last.header("upload-file")).await.body, "abcdef");
}

#[tokio::test]
async fn bytes_with_the_wrong_checksum_are_answered_460_and_discarded() {
    let house = House::new();
    let url = begin(&house, &[("upload-length", "6")]).await;
    let sha1 = "sha1 qZk+NkcGgWq6PiVxeFDCbJzQ2J0=";
    let wrong = patch_with(&house, &url, 0, b"abd", &[("upload-checksum", sha1)]).await;
    assert_eq!(wrong.error(), (460, "upload_checksum".into()));
    let right = patch_with(&house, &url, 0, b"abc", &[("upload-checksum", sha1)]).await;
    assert_eq!((right.status, right.header("upload-offset")), (204, "3"), "{right:?}");
    let unknown = patch_with(&house, &url, 3, b"def", &[("upload-checksum", "sha512 AAAA")]).await;
    assert_eq!(unknown.error(), (400, "header".into()));
    let sha256 = format!("sha256 {}", BASE64.encode(sha2::Sha256::digest(b"def")));
    let last = patch_with(&house, &url, 3, b"def", &[("upload-checksum", &*sha256)]).await;
    assert_eq!(house.get(last.header("upload-file")).await.body, "abcdef");
}

#[tokio::test]
async fn partial_uploads_are_put_together_once_however_often_that_is_asked() {
    let house = House::new();
    let mut urls = Vec::new();
    for (bytes, length) in [("hello ", "6"), ("world", "5")] {
        let partial = [("upload-length", length), ("upload-concat", "partial")];
        let url = begin(&house, &partial).await;
        let answer = patch(&house, &url, 0, bytes.as_bytes()).await;
        assert_eq!((answer.status, answer.header("upload-file")), (204, ""), "{answer:?}");
        urls.push(url);
    }
    let unfinished = begin(&house, &[("upload-length", "1"), ("upload-concat", "partial")]).await;
    let plain = begin(&house, &[("upload-length", "1")]).await;
    for (url, error) in
        [(&unfinished, (409, "upload_incomplete")), (&plain, (400, "upload_concat"))]
    {
        let both = format!("final;{} {url}", urls[0]);
        let refused = ask(&house, "POST", "/v1/uploads", &[("upload-concat", &*both)]).await;
        assert_eq!(refused.error(), (error.0, error.1.to_owned()));
    }
    let named = metadata(&[("filename", "whole.txt")]);
    let absolute = format!("final;{} http://localhost:8090{}", urls[0], urls[1]);
    let relative = format!("final;{} {}", urls[0], urls[1]);
    let mut locations = Vec::new();
    for concat in [&absolute, &relative] {
        let headers = [("upload-concat", &**concat), ("upload-metadata", &*named)];
        let whole = ask(&house, "POST", "/v1/uploads", &headers).await;
        assert_eq!(whole.status, 201, "{whole:?}");
        assert_eq!(whole.header("upload-file"), "/v1/files/default/whole.txt");
        locations.push(whole.header("location").to_owned());
    }
    assert_eq!(locations[0], locations[1]);
    assert_eq!(house.get("/v1/files/default/whole.txt").await.body, "hello world");
    let head = ask(&house, "HEAD", &locations[0], &[]).await;
    assert_eq!((head.header("upload-length"), head.header("upload-offset")), ("11", "11"));
    assert_eq!(head.header("upload-concat"), absolute);
    let refused = patch(&house, &locations[0], 11, b"x").await;
    assert_eq!(refused.error(), (403, "upload_final".into()));
    assert_eq!(ask(&house, "HEAD", &urls[0], &[]).await.status, 404, "its bytes are in the file");
}

#[tokio::test]
async fn a_client_that_can_only_post_names_the_method_in_a_header() {
    let house = House::new();
    let url = begin(&house, &[("upload-length", "3")]).await;
    let as_patch = [("x-http-method-override", "PATCH"), BYTES, ("upload-offset", "0")];
    let answer = ask_with(&house, "POST", &url, &as_patch, "ab").await;
    assert_eq!((answer.status, answer.header("upload-offset")), (204, "2"), "{answer:?}");
    assert_eq!(ask(&house, "POST", &url, &[]).await.error(), (405, "method_not_allowed".into()));
    let as_delete = [("x-http-method-override", "delete")];
    assert_eq!(ask(&house, "POST", &url, &as_delete).await.status, 204);
    assert_eq!(ask(&house, "HEAD", &url, &[]).await.status, 404);
}

#[tokio::test]
async fn an_upload_of_a_new_name_alone_does_not_replace_a_file() {
    let house = House::new();
    let named = metadata(&[("filename", "a")]);
    let new = [("upload-length", "3"), ("upload-metadata", &*named), ("if-none-match", "*")];
    let url = begin(&house, &new).await;
    house.put("default/a", "first").await;
    assert_eq!(patch(&house, &url, 0, b"abc").await.error(), (412, "precondition".into()));
    let refused = ask(&house, "POST", "/v1/uploads", &new).await;
    assert_eq!(refused.error(), (412, "precondition".into()));
    assert_eq!(house.get("/v1/files/default/a").await.body, "first");
    house.delete("default/a").await;
    // The bytes are there, so the next question completes it.
    let head = ask(&house, "HEAD", &url, &[]).await;
    assert_eq!((head.status, head.header("upload-file")), (200, "/v1/files/default/a"));
    assert_eq!(house.get("/v1/files/default/a").await.body, "abc");
}

#[tokio::test]
async fn uploads_are_listed_by_pages_and_limited_in_number() {
    let house = House::with(|options| options.uploads.open_max = 3);
    let mut urls = Vec::new();
    for _ in 0..3 {
        urls.push(begin(&house, &[("upload-length", "3")]).await);
    }
    let refused = ask(&house, "POST", "/v1/uploads", &[("upload-length", "3")]).await;
    assert_eq!(refused.error(), (429, "uploads_full".into()));
    urls.sort();
    let (mut found, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page =
            send(router(&house.intake), "GET", &format!("/v1/uploads{query}"), &[], "").await;
        let page = page.json();
        let uploads = page["uploads"].as_array().unwrap();
        found.extend(uploads.iter().map(|upload| text(&upload["url"]).to_owned()));
        assert!(uploads.iter().all(|upload| upload["file"].is_null()), "{page}");
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        query = format!("?limit=2&cursor={cursor}");
    }
    assert_eq!(found, urls);
    for query in ["?limit=0", "?cursor=x", "?other=1"] {
        let path = format!("/v1/uploads{query}");
        assert_eq!(send(router(&house.intake), "GET", &path, &[], "").await.status, 400);
    }
}

#[tokio::test]
async fn an_upload_that_a_start_is_storing_is_waited_for() {
    let house = House::new();
    let bytes = noise(3, 300_000);
    // All of its bytes arrived, and then the server was killed.
    let kind = UploadKind::Resumable;
    let (length, attributes) = (Some(300_000), std::collections::BTreeMap::new());
    let new = NewUpload { kind, length, kept_ms: 60_000, attributes };
    let uploads = house.intake.uploads();
    let id = uploads.create(new).await.unwrap();
    let mut source = Once(Some(bytes.clone().into()));
    uploads.append(id, 0, &mut source, None).await.unwrap();
    let completions = Completions::default();
    let router = forebay_api::uploads::router(&house.intake, &completions);
    resume(&house.intake, &completions);
    let head = send(router, "HEAD", &format!("/v1/uploads/{id}"), &[TUS], "").await;
    assert_eq!((head.status, head.header("upload-offset")), (200, "300000"), "{head:?}");
    let file = house.get(head.header("upload-file")).await;
    assert!(file.body == bytes);
}

/// Bytes that arrive at once.
struct Once(Option<bytes::Bytes>);

impl forebay_intake::upload::Source for Once {
    async fn next(&mut self) -> Result<Option<bytes::Bytes>, forebay_intake::IntakeError> {
        Ok(self.0.take())
    }
}
