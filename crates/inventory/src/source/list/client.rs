//! Requests to list a bucket, signed, and retried when the server is busy.
//!
//! Listings of `object_store` omit the storage class, so the request is made here.

use std::sync::Arc;
use std::time::Duration;

use forebay_base::backoff::Backoff;
use forebay_objects::{Class, Failure, Requests};
use futures_util::StreamExt as _;
use object_store::client::HttpResponse;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_encode};
use tokio::runtime::Runtime;

use super::page::{Page, Refusal};
use crate::source::{S3, SourceError};

/// Maximum size of an answer in bytes.
const ANSWER_SIZE_MAX: usize = 32 << 20;
/// Maximum number of attempts of a request.
const ATTEMPTS_MAX: u32 = 8;
/// Maximum delay after the first failure; it doubles after each further one.
const WAIT: Duration = Duration::from_millis(100);
/// Maximum delay.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Lists one bucket.
pub(super) struct Client {
    requests: Requests,
    pub(super) bucket: String,
    runtime: Arc<Runtime>,
}

impl Client {
    /// A client for a bucket, with the access of `s3`.
    pub(super) fn new(s3: &S3, bucket: &str) -> Result<Self, SourceError> {
        let location = format!("s3://{bucket}");
        let wrong =
            |reason: &str| SourceError::Spec { given: location.clone(), reason: reason.to_owned() };
        let access =
            s3.access().ok_or_else(|| wrong("its store does not report storage classes"))?;
        if access.is_directory_bucket(bucket) {
            return Err(wrong(
                "directory buckets (S3 Express) cannot be listed; use an S3 Inventory",
            ));
        }
        let requests = access.requests(bucket).map_err(|error| SourceError::Store {
            act: "reach",
            location: location.clone(),
            source: error.into(),
        })?;
        Ok(Self { requests, bucket: bucket.to_owned(), runtime: Arc::clone(&s3.runtime) })
    }

    /// Requests a page: objects whose keys begin with `prefix`, up to the next `/` after it if
    /// `delimited`, starting where the page that returned `token` ended.
    pub(super) fn page(
        &self,
        prefix: &[u8],
        delimited: bool,
        token: Option<&str>,
    ) -> Result<Page, SourceError> {
        let url = self.requests.url();
        let mut uri = format!("{url}/?encoding-type=url&list-type=2&prefix={}", encoded(prefix));
        if delimited {
            uri += "&delimiter=%2F";
        }
        if let Some(token) = token {
            uri += &format!("&continuation-token={}", encoded(token.as_bytes()));
        }
        self.runtime.block_on(self.ask(&uri)).map_err(|reason| SourceError::List {
            location: format!("s3://{}/{}", self.bucket, String::from_utf8_lossy(prefix)),
            reason,
        })
    }

    async fn ask(&self, uri: &str) -> Result<Page, String> {
        let mut backoff = Backoff::new(WAIT, WAIT_MAX);
        let mut attempt = 1;
        loop {
            match self.attempt(uri).await {
                Ok(page) => return Ok(page),
                Err(failure) if failure.is_retryable() && attempt < ATTEMPTS_MAX => {
                    tracing::debug!(attempt, reason = %failure, "retrying a listing");
                    tokio::time::sleep(backoff.delay()).await;
                    attempt += 1;
                }
                Err(failure) if attempt > 1 => {
                    return Err(format!("{failure} (after {attempt} attempts)"));
                }
                Err(failure) => return Err(failure.to_string()),
            }
        }
    }

    async fn attempt(&self, uri: &str) -> Result<Page, Failure> {
        let answer = self.requests.get(uri).await?;
        let status = answer.status();
        let body = body(answer).await?;
        if status.is_success() {
            return Page::decode(&body).map_err(|reason| Failure::new(Class::Refused, reason));
        }
        let Refusal { code, message } = Refusal::decode(&body);
        Err(Failure::answered(status, &code, &message))
    }
}

async fn body(answer: HttpResponse) -> Result<Vec<u8>, Failure> {
    let mut chunks = answer.into_body().bytes_stream();
    let mut body = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if body.len() + chunk.len() > ANSWER_SIZE_MAX {
            let reason = format!("the answer is larger than {ANSWER_SIZE_MAX} bytes");
            return Err(Failure::new(Class::Refused, reason));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Bytes as the value of a query, encoded as the signature requires.
fn encoded(bytes: &[u8]) -> PercentEncode<'_> {
    const UNRESERVED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    percent_encode(bytes, UNRESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_encoded_as_the_signature_requires() {
        assert_eq!(encoded("a/b ü+~".as_bytes()).to_string(), "a%2Fb%20%C3%BC%2B~");
    }
}
