//! Large files, sent over the protocol for resumable uploads (tus 1.0).
//!
//! The upload of a file is begun with an `Idempotency-Key` made of what identifies the file. So the same command,
//! repeated after an interruption, is answered with the upload that it began, and continues it.
//!
//! Invariant: bytes that the server already has are read and hashed, so that the hash is that of the whole file.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest as _, Sha256};
use ureq::SendBody;
use ureq::http::Method;
use ureq::http::header::EXPECT;
use ureq::http::request::Builder;

use super::file_client::{Client, Failure, Target};
use super::files_copy::{Hashed, sha256_of};

/// Files of at least this many bytes are worth it.
pub(super) const SIZE_MIN: u64 = 64 << 20;
const UPLOADS: &str = "/v1/uploads";

/// A file to be sent.
pub(super) struct Large<'a> {
    pub(super) client: &'a Client,
    pub(super) target: &'a Target,
    pub(super) path: &'a Path,
    pub(super) comment: &'a str,
}

/// What was sent.
pub(super) struct Sent {
    /// SHA-256 of the whole file, in hexadecimal.
    pub(super) sha256: String,
    /// Number of bytes that the server did not have before.
    pub(super) size: u64,
}

/// Why a file was not sent.
pub(super) enum Unsent {
    /// It could not be read, or became shorter.
    Local(io::Error),
    /// The request failed.
    Request(Failure),
}

impl From<io::Error> for Unsent {
    fn from(error: io::Error) -> Self {
        Self::Local(error)
    }
}

impl From<Failure> for Unsent {
    fn from(failure: Failure) -> Self {
        Self::Request(failure)
    }
}

/// An upload as the server has it.
struct Upload {
    path: String,
    offset: u64,
    is_finished: bool,
}

impl Large<'_> {
    /// Sends the file, or what the server lacks of it.
    pub(super) fn send(&self, file: File) -> Result<Sent, Unsent> {
        let metadata = file.metadata()?;
        let size = metadata.len();
        let mut upload = self.begin(&metadata)?;
        if upload.is_finished || upload.offset > size {
            if let Some(sha256) = self.stored(size)? {
                return Ok(Sent { sha256, size: 0 });
            }
            // It became a file, which was replaced or deleted since.
            self.remove(&upload)?;
            upload = self.begin(&metadata)?;
        }
        let Some(rest) = size.checked_sub(upload.offset) else {
            let text = "the server has more bytes of the upload than the file has";
            return Err(Unsent::Local(io::Error::other(text)));
        };
        let mut from = Hashed::new(file.take(size));
        io::copy(&mut from.by_ref().take(upload.offset), &mut io::sink())?;
        let request = self
            .request(Method::PATCH, &upload.path)
            .header("content-type", "application/offset+octet-stream")
            .header("content-length", rest.to_string())
            .header("upload-offset", upload.offset.to_string());
        let sent = self.client.send(request, SendBody::from_reader(&mut from));
        if from.size < size && sent.is_err() && std::fs::metadata(self.path)?.len() < size {
            return Err(Unsent::Local(io::Error::other("it became shorter while it was read")));
        }
        if let Err(failure) = sent {
            if failure.passes().is_none() {
                // It cannot be continued, and would only take space.
                self.remove(&upload)?;
            }
            return Err(failure.into());
        }
        Ok(Sent { sha256: from.sha256(), size: rest })
    }

    /// The SHA-256 of the file, if the server has stored it under its name.
    fn stored(&self, size: u64) -> Result<Option<String>, Unsent> {
        match self.client.head(self.target)? {
            Some(known) if known.size == size && sha256_of(self.path)? == known.sha256 => {
                Ok(Some(known.sha256))
            }
            _ => Ok(None),
        }
    }

    /// Begins the upload, or finds the one that an earlier run began.
    fn begin(&self, metadata: &Metadata) -> Result<Upload, Failure> {
        let Target { namespace, name } = self.target;
        let pairs =
            [("namespace", namespace.as_str()), ("name", name.as_str()), ("comment", self.comment)];
        let pairs = pairs.map(|(name, value)| format!("{name} {}", BASE64.encode(value)));
        let mut request = self.request(Method::POST, UPLOADS);
        // It has no body to be waited for.
        request.headers_mut().and_then(|headers| headers.remove(EXPECT));
        let request = request
            .header("content-length", "0")
            .header("upload-length", metadata.len().to_string())
            .header("upload-metadata", pairs.join(","))
            .header("idempotency-key", self.identity(metadata));
        let answer = self.client.send(request, SendBody::from_reader(&mut io::empty()))?;
        let header = |name: &str| answer.headers().get(name)?.to_str().ok();
        let upload = header("location").filter(|path| is_upload(path)).and_then(|path| {
            let offset = header("upload-offset")?.parse().ok()?;
            let is_finished = header("upload-file").is_some();
            Some(Upload { path: path.to_owned(), offset, is_finished })
        });
        upload.ok_or_else(|| self.client.misunderstood(&answer, "it names no upload"))
    }

    /// What distinguishes this file, as it is now, from others.
    fn identity(&self, metadata: &Metadata) -> String {
        let modified = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let path = std::path::absolute(self.path).unwrap_or_else(|_| self.path.to_owned());
        let text = format!(
            "{}\n{}\n{}\n{:?}\n{path:?}",
            self.target,
            self.comment,
            metadata.len(),
            modified.map(|at| at.as_nanos())
        );
        format!("ingest-{}", hex::encode(Sha256::digest(text)))
    }

    fn remove(&self, upload: &Upload) -> Result<(), Failure> {
        match self.client.send(self.request(Method::DELETE, &upload.path), SendBody::none()) {
            Ok(_) | Err(Failure::Refused { status: 404 | 410, .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn request(&self, method: Method, path: &str) -> Builder {
        self.client.request(method, path).header("tus-resumable", "1.0.0")
    }
}

/// Whether a path is that of one upload: the server chooses it, and a request is sent there.
fn is_upload(path: &str) -> bool {
    let id = path.strip_prefix(UPLOADS).and_then(|rest| rest.strip_prefix('/'));
    id.is_some_and(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
