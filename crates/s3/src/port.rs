//! The port: from a request of the server to an operation, and back.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::response::Response;
use forebay_api::keys::{KeyRing, MasterKey};
use forebay_api::serve::{Protocol, Refusal};
use forebay_intake::Intake;
use http::header::{CONTENT_SECURITY_POLICY, HOST, RETRY_AFTER};
use http::{HeaderValue, Request, StatusCode};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::validation::NameValidation;
use s3s::{S3Error, S3ErrorCode, s3_error};

use crate::Settings;
use crate::access::Access;
use crate::amended::{Amend, AmendingRoute, XML_SIZE_MAX};
use crate::chunks::{ChunkMemory, Chunked, Fault};
use crate::credentials::Credentials;
use crate::error::{self, Subject};
use crate::head::{self, Framing};
use crate::host::Hosts;
use crate::service::Service;
use crate::verified::verified;

/// The header that holds the id of a request.
const REQUEST_ID: &str = "x-request-id";

/// The S3-compatible port. Until an intake is open it answers 503.
pub struct Port {
    settings: Settings,
    credentials: Credentials,
    hosts: Hosts,
    memory: ChunkMemory,
    service: OnceLock<S3Service>,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Port {
    /// Creates the port of a server.
    ///
    /// * `keys`: the API keys that it accepts. `master`: what their secrets are derived from.
    #[must_use]
    pub fn new(settings: Settings, keys: Arc<KeyRing>, master: MasterKey) -> Self {
        let credentials = Credentials::new(keys, master);
        let hosts = Hosts::new(&settings.domains);
        let (memory, service) = (ChunkMemory::default(), OnceLock::new());
        Self { settings, credentials, hosts, memory, service }
    }

    /// Serves the files of `intake` from now on. Only the first call counts.
    pub fn open(&self, intake: &Intake) {
        self.service.get_or_init(|| {
            let region = self.settings.region.clone();
            let service = Service::new(intake.clone(), region);
            let amended = self.builder(service.clone()).build();
            let mut builder = self.builder(service);
            builder.set_route(AmendingRoute(amended));
            builder.build()
        });
    }

    fn builder(&self, service: Service) -> S3ServiceBuilder {
        let mut builder = S3ServiceBuilder::new(service);
        let mut config = S3Config::default();
        config.xml_max_body_size = XML_SIZE_MAX;
        // Forms are refused before; nothing may gather one in memory all the same.
        config.post_object_max_file_size = 0;
        config.form_max_parts = 0;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        builder.set_auth(self.credentials.clone());
        builder.set_access(Access(self.credentials.clone()));
        builder.set_host(self.hosts.clone());
        builder.set_validation(Names);
        builder
    }

    async fn call(&self, request: Request<Body>, subject: &Subject) -> Result<Response, S3Error> {
        let Some(service) = self.service.get() else {
            return Err(s3_error!(ServiceUnavailable, "The server is still opening its data"));
        };
        let (mut parts, body) = request.into_parts();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let framing = head::check(&mut parts, &self.settings, now_s)?;
        let fault = Fault::default();
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        let has_bucket = host.is_some_and(|host| self.hosts.bucket(host).is_some());
        let body = match framing {
            Framing::Chunked { signed, declared } => {
                let memory = self.memory.clone();
                let chunked = Chunked::new(body, signed, declared, memory, fault.clone());
                s3s::Body::http_body_unsync(chunked)
            }
            Framing::Plain => verified(body, &parts, has_bucket, fault.clone())?,
        };
        if let Some(amend) = Amend::of(&parts, has_bucket) {
            parts.extensions.insert(amend);
        }
        parts.extensions.insert(fault.clone());
        let answered = service.call(Request::from_parts(parts, body)).await;
        // Whatever was made of a broken body, this is the reason.
        if let Some(error) = fault.take() {
            return Err(error);
        }
        let response = answered.map_err(|error| {
            let error: Box<dyn std::error::Error + Send + Sync> = error.into();
            tracing::error!(request_id = ?subject.id, %error, "an S3 request failed");
            s3_error!(InternalError, "The server failed on this request; its log has the details")
        })?;
        Ok(error::finish(response, subject))
    }
}

impl Protocol for Port {
    fn answer(
        self: Arc<Self>,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(async move {
            let none = HeaderValue::from_static("");
            let id = request.headers().get(REQUEST_ID).cloned().unwrap_or(none);
            let subject = Subject { resource: request.uri().path().to_owned(), id };
            let mut response = match self.call(request, &subject).await {
                Ok(response) => response,
                Err(error) => error::response(error, &subject),
            };
            // A browser that shows an object runs nothing in it.
            let policy = HeaderValue::from_static("sandbox; default-src 'none'");
            response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
            response
        })
    }

    fn refuse(&self, refusal: &Refusal, id: &HeaderValue) -> Response {
        let code = match refusal.status() {
            StatusCode::TOO_MANY_REQUESTS => S3ErrorCode::SlowDown,
            StatusCode::SERVICE_UNAVAILABLE => S3ErrorCode::ServiceUnavailable,
            StatusCode::REQUEST_TIMEOUT => S3ErrorCode::RequestTimeout,
            _ => S3ErrorCode::InternalError,
        };
        let error = S3Error::with_message(code, refusal.message().to_owned());
        let subject = Subject { resource: String::new(), id: id.clone() };
        let mut response = error::response(error, &subject);
        if let Some(seconds) = refusal.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}

/// Names of buckets that may exist: those of namespaces. A new one has to keep the rules of S3 as well.
struct Names;

impl NameValidation for Names {
    fn validate_bucket_name(&self, name: &str) -> bool {
        forebay_intake::names::Namespace::parse(name).is_ok()
    }
}
