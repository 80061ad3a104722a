//! Requests to list a bucket, signed, and retried when the server is busy.
//!
//! Listings of `object_store` omit the storage class, so the request is made here, with that
//! crate's client, credentials and signature.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_base::backoff::Backoff;
use futures_util::StreamExt as _;
use http::{Method, Request, StatusCode};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{
    HttpClient, HttpConnector, HttpRequestBody, HttpResponse, ReqwestConnector,
};
use object_store::{ClientOptions, client::HttpError};
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
    http: HttpClient,
    /// URL of the bucket, without a slash at the end.
    url: String,
    pub(super) bucket: String,
    region: String,
    /// `None` if requests are not signed.
    credentials: Option<AwsCredentialProvider>,
    requester_pays: bool,
    runtime: Arc<Runtime>,
}

/// Why an attempt failed, and whether a retry may help.
struct Failure {
    reason: String,
    again: bool,
}

/// Connects as usual, and captures the connection.
#[derive(Debug, Default, Clone)]
struct Kept {
    client: Arc<Mutex<Option<HttpClient>>>,
}

impl HttpConnector for Kept {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }
}

impl Client {
    /// A client for a bucket, with the endpoint, region and credentials of `s3`.
    pub(super) fn new(s3: &S3, bucket: &str) -> Result<Self, SourceError> {
        let location = format!("s3://{bucket}");
        let wrong =
            |reason: &str| SourceError::Spec { given: location.clone(), reason: reason.to_owned() };
        let builder =
            s3.builder().ok_or_else(|| wrong("its store does not report storage classes"))?;
        let set = |key: AmazonS3ConfigKey| builder.get_config_value(&key);
        let is_set = |key| set(key).is_some_and(|value| value == "true");
        if is_set(AmazonS3ConfigKey::S3Express) || bucket.ends_with("--x-s3") {
            return Err(wrong(
                "directory buckets (S3 Express) cannot be listed; use an S3 Inventory",
            ));
        }
        let kept = Kept::default();
        let store =
            builder.clone().with_bucket_name(bucket).with_http_connector(kept.clone()).build();
        let store = store.map_err(|source| SourceError::Store {
            act: "reach",
            location: location.clone(),
            source,
        })?;
        let http = kept.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        let region = set(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".to_owned());
        let signed = !is_set(AmazonS3ConfigKey::SkipSignature);
        Ok(Self {
            http: http.ok_or_else(|| wrong("no connection is available"))?,
            url: bucket_url(builder, bucket, &region),
            bucket: bucket.to_owned(),
            region,
            credentials: signed.then(|| Arc::clone(store.credentials())),
            requester_pays: is_set(AmazonS3ConfigKey::RequestPayer),
            runtime: Arc::clone(&s3.runtime),
        })
    }

    /// Requests a page: objects whose keys begin with `prefix`, up to the next `/` after it if
    /// `delimited`, starting where the page that returned `token` ended.
    pub(super) fn page(
        &self,
        prefix: &[u8],
        delimited: bool,
        token: Option<&str>,
    ) -> Result<Page, SourceError> {
        let mut uri =
            format!("{}/?encoding-type=url&list-type=2&prefix={}", self.url, Encoded(prefix));
        if delimited {
            uri += "&delimiter=%2F";
        }
        if let Some(token) = token {
            uri += &format!("&continuation-token={}", Encoded(token.as_bytes()));
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
                Err(failure) if failure.again && attempt < ATTEMPTS_MAX => {
                    tracing::debug!(attempt, reason = failure.reason, "retrying a listing");
                    tokio::time::sleep(backoff.delay()).await;
                    attempt += 1;
                }
                Err(failure) if attempt > 1 => {
                    return Err(format!("{} (after {attempt} attempts)", failure.reason));
                }
                Err(failure) => return Err(failure.reason),
            }
        }
    }

    async fn attempt(&self, uri: &str) -> Result<Page, Failure> {
        let never = |reason: String| Failure { reason, again: false };
        let request =
            Request::builder().method(Method::GET).uri(uri).body(HttpRequestBody::empty());
        let mut request = request.map_err(|e| never(e.to_string()))?;
        if let Some(credentials) = &self.credentials {
            let credential = credentials.get_credential().await;
            let credential =
                credential.map_err(|e| never(format!("there are no credentials: {e}")))?;
            AwsAuthorizer::new(&credential, "s3", &self.region)
                .with_request_payer(self.requester_pays)
                .authorize(&mut request, None);
        }
        let again = |e: HttpError| Failure { reason: whole(&e), again: true };
        let answer = self.http.execute(request).await.map_err(again)?;
        let status = answer.status();
        let body = body(answer).await?;
        if status.is_success() {
            return Page::decode(&body).map_err(never);
        }
        let Refusal { code, message } = Refusal::decode(&body);
        let busy = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        let busy = busy || matches!(code.as_str(), "SlowDown" | "RequestTimeout" | "InternalError");
        let said = if code.is_empty() { String::new() } else { format!(": {code}: {message}") };
        Err(Failure { reason: format!("the server answered {status}{said}"), again: busy })
    }
}

/// An error with its causes.
fn whole(error: &dyn std::error::Error) -> String {
    forebay_base::error_chain::chain(error).to_string()
}

async fn body(answer: HttpResponse) -> Result<Vec<u8>, Failure> {
    let mut chunks = answer.into_body().bytes_stream();
    let mut body = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|e| Failure { reason: whole(&e), again: true })?;
        if body.len() + chunk.len() > ANSWER_SIZE_MAX {
            let reason = format!("the answer is larger than {ANSWER_SIZE_MAX} bytes");
            return Err(Failure { reason, again: false });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// URL of a bucket, as `object_store` computes it from these settings.
fn bucket_url(builder: &AmazonS3Builder, bucket: &str, region: &str) -> String {
    let set = |key: AmazonS3ConfigKey| builder.get_config_value(&key);
    let endpoint = set(AmazonS3ConfigKey::Endpoint).or_else(|| set(AmazonS3ConfigKey::S3Endpoint));
    let endpoint = endpoint.map(|endpoint| endpoint.trim_end_matches('/').to_owned());
    let hosted = set(AmazonS3ConfigKey::VirtualHostedStyleRequest).is_some_and(|set| set == "true");
    match (endpoint, hosted) {
        // The endpoint contains the bucket.
        (Some(endpoint), true) => endpoint,
        (Some(endpoint), false) => format!("{endpoint}/{bucket}"),
        (None, true) => format!("https://{bucket}.s3.{region}.amazonaws.com"),
        (None, false) => format!("https://s3.{region}.amazonaws.com/{bucket}"),
    }
}

/// Bytes as the value of a query, encoded as the signature requires.
struct Encoded<'a>(&'a [u8]);

impl std::fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for &byte in self.0 {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                f.write_char(char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_where_its_store_has_it() {
        let builder = || AmazonS3Builder::new().with_region("eu-west-1");
        let url = |builder: AmazonS3Builder| bucket_url(&builder, "b", "eu-west-1");
        assert_eq!(url(builder()), "https://s3.eu-west-1.amazonaws.com/b");
        let hosted = builder().with_virtual_hosted_style_request(true);
        assert_eq!(url(hosted), "https://b.s3.eu-west-1.amazonaws.com");
        assert_eq!(url(builder().with_endpoint("http://[::1]:9/")), "http://[::1]:9/b");
        assert_eq!(Encoded("a/b ü+~".as_bytes()).to_string(), "a%2Fb%20%C3%BC%2B~");
    }
}
