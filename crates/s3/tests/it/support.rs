//! A port with an intake, and a client that signs.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use forebay_api::keys::{Auth, KeyFile, KeyRing, Limit, MasterKey, Scope};
use forebay_api::serve::Protocol as _;
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_intake::{Intake, IntakeOptions};
use forebay_s3::{Port, Settings};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use ring::{digest, hmac};

/// The payload of a request whose body is not signed.
pub(crate) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

pub(crate) struct Server {
    pub(crate) port: Arc<Port>,
    pub(crate) intake: Intake,
    pub(crate) file: KeyFile,
    pub(crate) ring: Arc<KeyRing>,
    master: MasterKey,
    _dir: tempfile::TempDir,
}

/// Credentials.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) secret: String,
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The text of the first element with this name.
    pub(crate) fn element(&self, name: &str) -> Option<String> {
        let text = self.text();
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = KeyFile::in_data_dir(dir.path());
        let ring = Arc::new(KeyRing::open(file.clone(), Auth::Auto).unwrap());
        let master = MasterKey::open(dir.path()).unwrap();
        let options = IntakeOptions::new(dir.path().join("intake"));
        let clock = Arc::new(SystemClock::new());
        let (intake, _) = Intake::open(options, Arc::new(RealFs), clock).unwrap();
        let port = Arc::new(Port::new(Settings::default(), Arc::clone(&ring), master.clone()));
        port.open(&intake);
        Self { port, intake, file, ring, master, _dir: dir }
    }

    pub(crate) fn key(&self, scopes: &[Scope], only: &[&str]) -> Key {
        let only: Vec<Limit> = only.iter().map(|limit| limit.parse().unwrap()).collect();
        let (_, record) = self.file.add("k", scopes, &only).unwrap();
        self.ring.reload().unwrap();
        let secret = forebay_s3::secret(&self.master, &record.id);
        Key { id: record.id, secret }
    }

    pub(crate) fn all(&self) -> Key {
        self.key(&[Scope::Read, Scope::Write], &[])
    }

    /// Sends a request as it is.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let mut request = request;
        request.headers_mut().insert("x-request-id", HeaderValue::from_static("r-1"));
        let response: Response<Body> = Arc::clone(&self.port).answer(request).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Signs and sends a request.
    pub(crate) async fn call(
        &self,
        key: &Key,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let body: Bytes = body.into();
        let request = sign(key, method, target, headers, UNSIGNED).body(with_length(body)).unwrap();
        self.send(request).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.intake.close().unwrap();
    }
}

/// A body that knows its length.
pub(crate) fn with_length(bytes: Bytes) -> Body {
    Body::from(bytes)
}

/// The time now as S3 writes it.
pub(crate) fn now() -> String {
    let time = httpdate::fmt_http_date(std::time::SystemTime::now());
    // Sun, 06 Nov 1994 08:49:37 GMT
    let words: Vec<&str> = time.split([' ', ':']).collect();
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = months.find(words[2]).unwrap() / 3 + 1;
    format!("{}{month:02}{}T{}{}{}Z", words[3], words[1], words[4], words[5], words[6])
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn sha256(text: &str) -> String {
    hex::encode(digest::digest(&digest::SHA256, text.as_bytes()))
}

/// Returns the signature of a canonical request.
fn signature(key: &Key, canonical: &str, time: &str) -> String {
    let date = &time[..8];
    let scope = format!("{date}/forebay/s3/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(canonical));
    let mut derived = format!("AWS4{}", key.secret).into_bytes();
    for part in [date, "forebay", "s3", "aws4_request"] {
        derived = mac(&derived, part);
    }
    hex::encode(mac(&derived, &text))
}

fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") })
        .collect();
    // By name: `-` is less than `=`.
    pairs.sort_by(|a, b| a.split('=').cmp(b.split('=')));
    pairs.join("&")
}

/// A signed request without its body. Every header that is given is signed.
pub(crate) fn sign(
    key: &Key,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    payload: &str,
) -> http::request::Builder {
    let time = now();
    let mut all: Vec<(String, String)> = [("host", "localhost:9000"), ("x-amz-date", &time)]
        .into_iter()
        .chain([("x-amz-content-sha256", payload)])
        .chain(headers.iter().copied())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    all.sort();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let lines: String = all.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let canonical =
        format!("{method}\n{path}\n{}\n{lines}\n{names}\n{payload}", canonical_query(query));
    let signature = signature(key, &canonical, &time);
    let date = &time[..8];
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{date}/forebay/s3/aws4_request, SignedHeaders={names}, \
         Signature={signature}",
        key.id
    );
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in all {
        request = request.header(name, value);
    }
    request.header("authorization", authorization)
}

/// A presigned URL.
pub(crate) fn presign(key: &Key, method: &str, path: &str, expires: u64) -> String {
    presign_with(key, method, path, expires, "")
}

/// A presigned URL with more parameters, as they are written in a URL.
pub(crate) fn presign_with(
    key: &Key,
    method: &str,
    path: &str,
    expires: u64,
    more: &str,
) -> String {
    let time = now();
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}%2F{}%2Fforebay%2Fs3%2Faws4_request&\
         X-Amz-Date={time}&X-Amz-Expires={expires}&X-Amz-SignedHeaders=host&{more}",
        key.id,
        &time[..8],
    );
    let query = canonical_query(&query);
    let canonical = format!("{method}\n{path}\n{query}\nhost:localhost:9000\n\nhost\n{UNSIGNED}");
    let signature = signature(key, &canonical, &time);
    format!("{path}?{query}&X-Amz-Signature={signature}")
}

/// A server with the bucket `data`, and a key for everything.
pub(crate) async fn with_bucket() -> (Server, Key) {
    let server = Server::start();
    let key = server.all();
    assert_eq!(server.call(&key, "PUT", "/data", &[], "").await.status, 200);
    (server, key)
}

/// The list of parts that completes an upload: their numbers and ETags.
pub(crate) fn completion(parts: &[(u32, &str)]) -> String {
    let part = |(number, etag): &(u32, &str)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
    };
    let parts: String = parts.iter().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}
