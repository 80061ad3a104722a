//! An intake in its own directory, and requests to its routes without a socket.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use forebay_api::intake::router;
use forebay_base::clock::ManualClock;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_intake::{Intake, IntakeOptions, StartReport};
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt as _;

pub(crate) use forebay_testing::memory_directory as directory;

/// 2026-01-02T03:04:05Z.
pub(crate) const NOW_MS: u64 = 1_767_323_045_000;

/// Opens the intake kept in `options.dir`.
pub(crate) fn open(options: IntakeOptions, fs: Arc<dyn FileSystem>) -> (Intake, StartReport) {
    Intake::open(options, fs, Arc::new(ManualClock::new(NOW_MS))).unwrap()
}

/// A running intake.
pub(crate) struct House {
    pub(crate) intake: Intake,
    pub(crate) options: IntakeOptions,
    dir: TempDir,
}

impl House {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut IntakeOptions)) -> Self {
        let dir = directory();
        let mut options = IntakeOptions::new(dir.path().join("intake"));
        options.segment_size = 4 << 20;
        // Most tests say with a document or two what they mean.
        options.decision.documents_min = 1;
        change(&mut options);
        let (intake, report) = open(options.clone(), Arc::new(RealFs));
        assert!(report.created);
        Self { intake, options, dir }
    }

    /// Closes the intake. The directory exists as long as the second value.
    pub(crate) fn close(self) -> (IntakeOptions, TempDir) {
        let Self { intake, options, dir } = self;
        intake.close().unwrap();
        (options, dir)
    }

    /// Closes the intake and opens it again.
    pub(crate) fn reopen(self) -> Self {
        let (options, dir) = self.close();
        let (intake, report) = open(options.clone(), Arc::new(RealFs));
        assert!(!report.created && report.clean && report.torn_bytes == 0, "{report:?}");
        Self { intake, options, dir }
    }

    /// Every file below a directory of the intake.
    pub(crate) fn files_below(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![self.options.dir.join(name)];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { open.push(path) } else { found.push(path.display().to_string()) }
            }
        }
        found
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        send(router(&self.intake), method, path, headers, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", path, headers, "").await
    }

    pub(crate) async fn put(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.send("PUT", &format!("/v1/files/{path}"), &[], body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", &format!("/v1/files/{path}"), &[], "").await
    }

    pub(crate) async fn documents(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.send("POST", &format!("/v1/documents/{path}"), &[], body).await
    }

    /// The names a listing shows, with its cursor.
    pub(crate) async fn list(&self, query: &str) -> (Vec<String>, Option<String>) {
        let answer = self.get(&format!("/v1/files{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let json = answer.json();
        let name = |file: &Value| format!("{}/{}", text(&file["namespace"]), text(&file["name"]));
        let names = json["files"].as_array().unwrap().iter().map(name).collect();
        (names, json["next_cursor"].as_str().map(str::to_owned))
    }
}

pub(crate) async fn send(
    router: Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = router.oneshot(request.body(body.into()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// Status and error code of a refusal.
    pub(crate) fn error(&self) -> (u16, String) {
        (self.status, text(&self.json()["error"]["code"]).to_owned())
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

/// Bytes that neither repeat nor compress.
pub(crate) fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut rng = forebay_base::fs::sim::Rng::new(seed);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// A body that arrives in pieces.
pub(crate) fn pieces(bytes: &[u8], size: usize) -> Body {
    let pieces: Vec<Result<Bytes, std::io::Error>> =
        bytes.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    Body::from_stream(futures_util::stream::iter(pieces))
}

pub(crate) const BOUNDARY: &str = "a-boundary";
pub(crate) const MULTIPART: (&str, &str) =
    ("content-type", "multipart/form-data; boundary=a-boundary");

/// Builds a multipart body.
#[derive(Default)]
pub(crate) struct Form(Vec<u8>);

impl Form {
    pub(crate) fn field(self, name: &str, value: &str) -> Self {
        self.part(&format!("name=\"{name}\""), value.as_bytes())
    }

    pub(crate) fn file(self, name: &str, bytes: &[u8]) -> Self {
        self.part(&format!("name=\"files\"; filename=\"{name}\""), bytes)
    }

    /// A part with this disposition, unchanged.
    pub(crate) fn part(mut self, disposition: &str, bytes: &[u8]) -> Self {
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n");
        self.0.extend_from_slice(head.as_bytes());
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(b"\r\n");
        self
    }

    /// The body without its end.
    pub(crate) fn unfinished(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
        self.0
    }

    pub(crate) async fn send(self, house: &House) -> Answer {
        house.send("POST", "/v1/ingest", &[MULTIPART], self.finish()).await
    }
}
