//! Signed requests to a bucket that `object_store` does not make, with its client and credentials.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request};
use object_store::ClientOptions;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{
    HttpClient, HttpConnector, HttpRequestBody, HttpResponse, ReqwestConnector,
};

use crate::access::is_true;
use crate::error::{Class, Failure};

/// Signed requests to a bucket. They are not retried.
pub struct Requests {
    http: HttpClient,
    url: String,
    region: String,
    /// `None` if requests are not signed.
    credentials: Option<AwsCredentialProvider>,
    requester_pays: bool,
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

impl Requests {
    pub(crate) fn open(
        builder: AmazonS3Builder,
        url: String,
        region: &str,
    ) -> object_store::Result<Self> {
        let kept = Kept::default();
        let store = builder.clone().with_http_connector(kept.clone()).build()?;
        let http = kept.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        let http = http.ok_or_else(|| object_store::Error::Generic {
            store: "S3",
            source: "no connection is available".into(),
        })?;
        let signed = !is_true(&builder, AmazonS3ConfigKey::SkipSignature);
        Ok(Self {
            http,
            url,
            region: region.to_owned(),
            credentials: signed.then(|| Arc::clone(store.credentials())),
            requester_pays: is_true(&builder, AmazonS3ConfigKey::RequestPayer),
        })
    }

    /// URL of the bucket, without a slash at its end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Requests a URL, which [`url`](Self::url) begins, and returns the answer, whatever its status.
    ///
    /// # Errors
    /// [`Failure`]: no answer came, or there are no keys.
    pub async fn get(&self, url: &str) -> Result<HttpResponse, Failure> {
        let refused = |reason: String| Failure::new(Class::Refused, reason);
        let request =
            Request::builder().method(Method::GET).uri(url).body(HttpRequestBody::empty());
        let mut request = request.map_err(|error| refused(error.to_string()))?;
        if let Some(credentials) = &self.credentials {
            let credential = credentials.get_credential().await.map_err(|error| {
                refused(format!("there are no credentials: {}", Failure::from(error)))
            })?;
            AwsAuthorizer::new(&credential, "s3", &self.region)
                .with_request_payer(self.requester_pays)
                .authorize(&mut request, None);
        }
        Ok(self.http.execute(request).await?)
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").field("url", &self.url).finish_non_exhaustive()
    }
}
