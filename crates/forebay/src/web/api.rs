//! The OpenAPI description of the shell's own routes; subsystems' descriptions are merged into it.

use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi, ToSchema};

/// An error, whatever caused it.
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "describes JSON that is written field by field")]
struct ProblemBody {
    /// The error.
    error: ProblemDetail,
}

/// What went wrong.
#[derive(ToSchema)]
#[schema(as = ProblemDetail)]
#[expect(dead_code, reason = "describes JSON that is written field by field")]
struct ProblemDetail {
    /// A word for programs; it does not change between versions.
    #[schema(example = "not_found")]
    code: String,
    /// A sentence for people.
    message: String,
    /// The request, as in the `x-request-id` header and the server's log.
    request_id: String,
}

/// Whether the server is well.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes JSON that is written field by field")]
struct Health {
    /// `ok`, `ready` or `not ready`.
    status: String,
    /// Why it is not ready.
    reason: Option<String>,
}

/// Is the process alive?
#[utoipa::path(get, path = "/healthz", tag = "server",
    responses((status = 200, description = "It answers.", body = Health)))]
#[expect(dead_code, reason = "carries the description of a route")]
fn healthz() {}

/// Can it take work?
///
/// 503 while data is being opened and during shutdown.
#[utoipa::path(get, path = "/readyz", tag = "server", responses(
    (status = 200, description = "Ready, or degraded: work is taken, and `reason` says what does not work.", body = Health),
    (status = 503, description = "Not now; Retry-After says when to ask again.", body = Health)))]
#[expect(dead_code, reason = "carries the description of a route")]
fn readyz() {}

/// Metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, description = "All metrics.", body = String, content_type = "text/plain")))]
#[expect(dead_code, reason = "carries the description of a route")]
fn metrics() {}

/// This description.
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
        description = "Takes in files and JSON documents, keeps them safe and gives them back.\n\n\
            Every answer carries `x-request-id`; every error is a `Problem`. Once a key exists, \
            `/v1` needs one.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(healthz, readyz, metrics, openapi_json),
    components(schemas(ProblemBody, ProblemDetail)),
    modifiers(&Keys),
    tags((name = "server", description = "Health, metrics and this description.")),
)]
pub(crate) struct ShellApi;
