//! The OpenAPI description of the shell's own routes; subsystems' descriptions are merged into it.

use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi, ToSchema};

/// An error response.
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "describes JSON that is written field by field")]
struct ProblemBody {
    /// The error.
    error: ProblemDetail,
}

/// Details of an error.
#[derive(ToSchema)]
#[schema(as = ProblemDetail)]
#[expect(dead_code, reason = "describes JSON that is written field by field")]
struct ProblemDetail {
    /// Error code for programs. It does not change between versions.
    #[schema(example = "not_found")]
    code: String,
    /// Message for people.
    message: String,
    /// Request id, as in the `x-request-id` header and the server's log.
    request_id: String,
}

/// State of the server.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes JSON that is written field by field")]
struct Health {
    /// `ok`, `ready` or `not ready`.
    status: String,
    /// Why the server is not ready or degraded.
    reason: Option<String>,
}

/// Check that the process is alive
#[utoipa::path(get, path = "/healthz", tag = "server",
    responses((status = 200, description = "The process is alive.", body = Health)))]
#[expect(dead_code, reason = "carries the description of a route")]
fn healthz() {}

/// Check that the server accepts work
///
/// Responds 503 while data is being opened and during shutdown.
#[utoipa::path(get, path = "/readyz", tag = "server", responses(
    (status = 200, description = "Ready, or degraded: `reason` names what does not work.", body = Health),
    (status = 503, description = "Not ready; Retry-After says when to try again.", body = Health)))]
#[expect(dead_code, reason = "carries the description of a route")]
fn readyz() {}

/// Get metrics in the Prometheus text format
#[utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, description = "All metrics.", body = String, content_type = "text/plain")))]
#[expect(dead_code, reason = "carries the description of a route")]
fn metrics() {}

/// Get this API description
#[utoipa::path(get, path = "/openapi.json", tag = "server",
    responses((status = 200, description = "An OpenAPI 3.1 document.", body = Object)))]
#[expect(dead_code, reason = "carries the description of a route")]
fn openapi_json() {}

/// Adds the two ways to send an API key.
struct Keys;

impl Modify for Keys {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let components = api.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("fbk_...");
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer.build()));
        let header = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
        components.add_security_scheme("api_key", header);
    }
}

/// The shell's part of the API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Forebay",
        description = "Stores files, JSON documents and events, and serves them.\n\n\
            Every response has an `x-request-id` header; every error is a `Problem`. \
            Once an API key exists, `/v1` requires one.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(healthz, readyz, metrics, openapi_json),
    components(schemas(ProblemBody, ProblemDetail)),
    modifiers(&Keys),
    tags((name = "server", description = "Health, metrics and this description.")),
)]
pub(crate) struct ShellApi;
