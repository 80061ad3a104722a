//! Uploads in several requests, which go on after the server was killed: by tus, and in parts over S3.

use std::io::Write as _;
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest as _, Sha256};

use crate::mixed_client::{Client, Link, Repeatable, acknowledged};
use crate::mixed_oracle::{Change, Content, File, sha256};
use crate::s3_client::Reply;

/// S3 refuses smaller parts, except as the last.
const PART_SIZE_MIN: usize = 5 << 20;
const TUS: (&str, &str) = ("tus-resumable", "1.0.0");
const BYTES: (&str, &str) = ("content-type", "application/offset+octet-stream");

/// An upload by tus that is not complete.
#[derive(Debug, Clone)]
pub(crate) struct Resumable {
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) content: Content,
    /// What the server acknowledged.
    pub(crate) offset: usize,
    /// What was sent, acknowledged or not.
    pub(crate) sent: usize,
}

/// An upload in parts that is not complete.
#[derive(Debug, Clone)]
pub(crate) struct Multipart {
    pub(crate) name: String,
    pub(crate) id: String,
    /// The parts that were acknowledged, with their tags.
    pub(crate) parts: Vec<(Content, String)>,
    pub(crate) count: usize,
}

impl Multipart {
    fn bytes(&self) -> Vec<u8> {
        self.parts.iter().flat_map(|(content, _)| content.bytes()).collect()
    }

    fn file(&self) -> File {
        let bytes = self.bytes();
        File { sha256: sha256(&bytes), size: bytes.len(), comment: String::new() }
    }
}

/// A number of bytes in a header.
pub(crate) fn number(reply: &Reply, name: &str) -> usize {
    reply.header(name).unwrap_or_else(|| panic!("no {name}: {reply:?}")).parse().unwrap()
}

impl Client {
    fn metadata(&self, name: &str) -> String {
        let (space, name) = (BASE64.encode(self.space()), BASE64.encode(name));
        format!("namespace {space},filename {name}")
    }

    /// One step of an upload by tus.
    pub(crate) fn resume(&mut self, link: &Link) -> bool {
        let Some(upload) = self.resumable.clone() else {
            let (name, content) = (format!("tus/{}", self.rng.below(5)), self.content());
            let content = Content { size: 1 + content.size, ..content };
            let (size, metadata) = (content.size.to_string(), self.metadata(&name));
            let headers = [TUS, ("upload-length", &*size), ("upload-metadata", &*metadata)];
            let reply = link.http("POST", "/v1/uploads", &headers, &[]);
            if !acknowledged(reply.as_ref(), &[201]) {
                return false;
            }
            let path = reply.unwrap().header("location").unwrap().to_owned();
            self.resumable = Some(Resumable { path, name, content, offset: 0, sent: 0 });
            return true;
        };
        if self.rng.one_in(12) {
            self.resumable = None;
            let reply = link.http("DELETE", &upload.path, &[TUS], &[]);
            return acknowledged(reply.as_ref(), &[204]);
        }
        if self.rng.one_in(4) {
            return self.lose_connection(link, upload);
        }
        self.append(link, upload)
    }

    /// Appends some of the bytes, or the last of them.
    fn append(&mut self, link: &Link, mut upload: Resumable) -> bool {
        let left = upload.content.size - upload.offset;
        let size = if self.rng.one_in(2) { left } else { 1 + self.rng.below(left) };
        let end = upload.offset + size;
        let bytes = &upload.content.bytes()[upload.offset..end];
        let at = upload.offset.to_string();
        let checksum = format!("sha256 {}", BASE64.encode(Sha256::digest(bytes)));
        let mut headers = vec![TUS, BYTES, ("upload-offset", &*at)];
        if self.rng.one_in(3) {
            headers.push(("upload-checksum", &checksum));
        }
        // Of a lost connection more may be stored later, up to where it was sent.
        let lost = upload.sent;
        upload.sent = end.max(lost);
        self.resumable = Some(upload.clone());
        let is_last = end == upload.content.size;
        let file = Some(File::new(upload.content, ""));
        let change: Vec<Change> =
            if is_last { vec![vec![(upload.name.clone(), file)]] } else { Vec::new() };
        let ask = || link.http("PATCH", &upload.path, &headers, bytes);
        let Some(reply) = self.change_unless(409, change, &[204], ask) else { return false };
        if reply.status == 409 {
            // What arrived of a lost connection was read only after the client had asked.
            let reply = link.http("HEAD", &upload.path, &[TUS], &[]);
            if !acknowledged(reply.as_ref(), &[200]) {
                return false;
            }
            let offset = number(&reply.unwrap(), "upload-offset");
            assert!(upload.offset < offset && offset <= lost, "{offset}: {upload:?}");
            self.resumable = Some(Resumable { offset, sent: lost, ..upload });
            return true;
        }
        assert_eq!(number(&reply, "upload-offset"), end, "{reply:?}");
        assert_eq!(reply.header("upload-file").is_some(), is_last, "{reply:?}");
        self.resumable = (!is_last).then_some(Resumable { offset: end, ..upload });
        true
    }

    /// Sends a part of what it declared, leaves, and asks where to continue.
    fn lose_connection(&mut self, link: &Link, mut upload: Resumable) -> bool {
        let left = upload.content.size - upload.offset;
        if left < 2 {
            return true;
        }
        let end = upload.offset + 1 + self.rng.below(left - 1);
        let address = link.url.split("//").nth(1).unwrap();
        let head = format!(
            "PATCH {} HTTP/1.1\r\nhost: localhost\r\ntus-resumable: 1.0.0\r\nupload-offset: {}\r\n\
             content-type: application/offset+octet-stream\r\ncontent-length: {left}\r\n\r\n",
            upload.path, upload.offset
        );
        let Ok(mut stream) = TcpStream::connect(address) else { return false };
        let bytes = &upload.content.bytes()[upload.offset..end];
        upload.sent = upload.sent.max(end);
        self.resumable = Some(upload.clone());
        if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(bytes)).is_err() {
            return false;
        }
        drop(stream);
        let reply = link.http("HEAD", &upload.path, &[TUS], &[]);
        if !acknowledged(reply.as_ref(), &[200]) {
            return false;
        }
        let offset = number(&reply.unwrap(), "upload-offset");
        assert!((upload.offset..=upload.sent).contains(&offset), "{offset}: {upload:?}");
        self.resumable = Some(Resumable { offset, ..upload });
        true
    }

    /// Two partial uploads and the file that is made of them.
    pub(crate) fn concatenate(&mut self, link: &Link) -> bool {
        let name = format!("final/{}", self.rng.below(3));
        let mut paths = Vec::new();
        let mut bytes = Vec::new();
        for _ in 0..2 {
            let part = self.content().bytes();
            let size = part.len().to_string();
            let mut headers = vec![TUS, ("upload-length", &*size), ("upload-concat", "partial")];
            if !part.is_empty() {
                headers.push(BYTES);
            }
            let reply = link.http("POST", "/v1/uploads", &headers, &part);
            if !acknowledged(reply.as_ref(), &[201]) {
                return false;
            }
            paths.push(reply.unwrap().header("location").unwrap().to_owned());
            bytes.extend(part);
        }
        let (concat, metadata) = (format!("final;{}", paths.join(" ")), self.metadata(&name));
        let file = File { sha256: sha256(&bytes), size: bytes.len(), comment: String::new() };
        let change = vec![vec![(name, Some(file))]];
        let repeatable = Repeatable::Final { concat: concat.clone(), metadata: metadata.clone() };
        self.repeatable = Some((repeatable, change.clone()));
        self.change(change, &[201], || put_together(link, &concat, &metadata)).is_some()
    }

    /// One step of an upload in parts.
    pub(crate) fn parts(&mut self, link: &Link) -> bool {
        let Some(upload) = self.multipart.clone() else {
            let name = format!("parts/{}", self.rng.below(4));
            let count = if self.rng.one_in(6) { 2 } else { 1 };
            let target = format!("/{}/{name}", self.space());
            let reply = link.s3.send("POST", &target, &[("uploads", "")], &[], &[]);
            if !acknowledged(reply.as_ref(), &[200]) {
                return false;
            }
            let Some(id) = reply.unwrap().elements("UploadId").pop() else { return false };
            self.multipart = Some(Multipart { name, id, parts: Vec::new(), count });
            return true;
        };
        let target = format!("/{}/{}", self.space(), upload.name);
        if self.rng.one_in(12) {
            self.multipart = None;
            let reply = link.s3.send("DELETE", &target, &[("uploadId", &upload.id)], &[], &[]);
            return acknowledged(reply.as_ref(), &[204]);
        }
        let number = upload.parts.len() + 1;
        if number > upload.count {
            let change = vec![vec![(upload.name.clone(), Some(upload.file()))]];
            let repeatable = Repeatable::Complete { upload: upload.clone() };
            self.repeatable = Some((repeatable, change.clone()));
            self.multipart = None;
            return self.change(change, &[200], || complete(link, &target, &upload)).is_some();
        }
        let mut content = self.content();
        content.size = if number < upload.count { PART_SIZE_MIN } else { content.size + 1 };
        let query = [("partNumber", &*number.to_string()), ("uploadId", &*upload.id)];
        let reply = link.s3.send("PUT", &target, &query, &[], &content.bytes());
        if !acknowledged(reply.as_ref(), &[200]) {
            return false;
        }
        let tag = reply.unwrap().header("etag").unwrap().to_owned();
        if let Some(upload) = &mut self.multipart {
            upload.parts.push((content, tag));
        }
        true
    }

    /// Sends the request that the server was killed in again; then it has happened, once.
    pub(crate) fn repeat(&mut self, link: &Link) {
        let Some((repeatable, change)) = self.repeatable.take() else { return };
        let space = self.space();
        let ask = || match &repeatable {
            Repeatable::Put { target, key, content } => {
                link.http("PUT", target, &[("idempotency-key", key)], &content.bytes())
            }
            Repeatable::Complete { upload } => {
                complete(link, &format!("/{space}/{}", upload.name), upload)
            }
            Repeatable::Final { concat, metadata } => put_together(link, concat, metadata),
        };
        let done = self.change(change, &[200, 201], ask);
        assert!(done.is_some(), "{repeatable:?} was not answered");
    }

    /// Where the unfinished uploads are after the server was killed: nothing acknowledged is missing.
    pub(crate) fn check_uploads(&mut self, link: &Link) {
        if let Some(mut upload) = self.resumable.take() {
            let reply = link.http("HEAD", &upload.path, &[TUS], &[]).unwrap();
            assert_eq!(reply.status, 200, "{upload:?}: {}", reply.text());
            let offset = number(&reply, "upload-offset");
            assert!((upload.offset..=upload.sent).contains(&offset), "{offset}: {upload:?}");
            assert_eq!(number(&reply, "upload-length"), upload.content.size);
            let is_file = reply.header("upload-file").is_some();
            assert_eq!(is_file, offset == upload.content.size, "{upload:?}: {reply:?}");
            upload.offset = offset;
            self.resumable = (!is_file).then_some(upload);
        }
        if let Some(upload) = &self.multipart {
            let target = format!("/{}/{}", self.space(), upload.name);
            let reply =
                link.s3.send("GET", &target, &[("uploadId", &upload.id)], &[], &[]).unwrap();
            assert_eq!(reply.status, 200, "{upload:?}: {}", reply.text());
            let tags = reply.elements("ETag");
            let known: Vec<&String> = upload.parts.iter().map(|(_, tag)| tag).collect();
            assert!(
                tags.iter().take(known.len()).eq(known.iter().copied()),
                "{tags:?}, not {known:?}"
            );
            assert!(tags.len() <= known.len() + 1, "{tags:?}, not {known:?}");
        }
    }
}

/// Stores every upload that was complete when the server was killed: its bytes are the file's.
pub(crate) fn finish_complete(link: &Link) {
    let mut cursor = String::new();
    loop {
        let page = link.json(&format!("/v1/uploads?limit=100{cursor}"));
        for upload in page["uploads"].as_array().unwrap() {
            let kind = upload["kind"].as_str().unwrap();
            if upload["file"].is_null() && matches!(kind, "resumable" | "final") {
                let path = upload["url"].as_str().unwrap();
                let reply = link.http("HEAD", path, &[TUS], &[]).unwrap();
                assert_eq!(reply.status, 200, "{upload}: {:?}", reply);
            }
        }
        let Some(next) = page["next_cursor"].as_str() else { return };
        cursor = format!("&cursor={next}");
    }
}

fn put_together(link: &Link, concat: &str, metadata: &str) -> Option<Reply> {
    let headers = [TUS, ("upload-concat", concat), ("upload-metadata", metadata)];
    link.http("POST", "/v1/uploads", &headers, &[])
}

/// Completes an upload in parts. The head of the answer is no acknowledgement.
fn complete(link: &Link, target: &str, upload: &Multipart) -> Option<Reply> {
    let parts: String = (1..)
        .zip(&upload.parts)
        .map(|(number, (_, tag))| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
        })
        .collect();
    let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let reply = link.s3.send("POST", target, &[("uploadId", &upload.id)], &[], body.as_bytes())?;
    let is_whole = reply.text().contains("</CompleteMultipartUploadResult>")
        || reply.text().contains("</Error>");
    assert!(!is_whole || !reply.text().contains("<Error>"), "{}", reply.text());
    (reply.status != 200 || is_whole).then_some(reply)
}
