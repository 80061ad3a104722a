//! The OpenAPI description of the shell's own routes; subsystems' descriptions are merged into it.

use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::OpenApi;
use utoipa::openapi::info::{InfoBuilder, LicenseBuilder};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};

use crate::describe::{JsonObject, Operation, Routes, TEXT};
use crate::serve::presign::{PresignAnswer, PresignRequest};

/// State of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Health {
    /// Why the server is not ready or degraded; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// The state as one word or two.
    status: State,
}

/// State of the server in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = HealthState)]
pub(crate) enum State {
    /// The process is alive.
    #[serde(rename = "ok")]
    Ok,
    /// The server accepts work.
    #[serde(rename = "ready")]
    Ready,
    /// The server accepts work, but something does not work.
    #[serde(rename = "degraded")]
    Degraded,
    /// Data is being opened, or the server is shutting down.
    #[serde(rename = "not ready")]
    NotReady,
}

impl Health {
    /// A state without a reason.
    pub(crate) fn new(status: State) -> Self {
        Self { reason: None, status }
    }

    /// A state and why it is so.
    pub(crate) fn because(status: State, reason: String) -> Self {
        Self { reason: Some(reason), status }
    }
}

const DESCRIPTION: &str = "Stores files, JSON documents and events, and serves them.\n\n\
    Every response has an `x-request-id` header; every error is a `Problem`. \
    Once an API key exists, `/v1` requires one.";

/// Returns the shell's part of the API.
pub(crate) fn shell_api() -> OpenApi {
    let operation = |id: &str, summary: &str| Operation::new("server", id, summary);
    let mut api = Routes::new("Forebay")
        .tag("server", "Health, metrics and this description.")
        .get(
            "/healthz",
            operation("get_health", "Check that the process is alive")
                .json::<Health>(200, "The process is alive."),
        )
        .get(
            "/readyz",
            operation("get_readiness", "Check that the server accepts work")
                .text("Responds 503 while data is being opened and during shutdown.")
                .json::<Health>(200, "Ready, or degraded: `reason` names what does not work.")
                .json::<Health>(503, "Not ready; Retry-After says when to try again."),
        )
        .get(
            "/metrics",
            operation("get_metrics", "Get metrics in the Prometheus text format").words(
                200,
                TEXT,
                "All metrics.",
            ),
        )
        .get(
            "/openapi.json",
            operation("get_openapi", "Get this API description")
                .json::<JsonObject>(200, "An OpenAPI 3.1 document."),
        )
        .post(
            "/v1/presign",
            operation("presign", "Get a URL for one request that needs no API key")
                .text(
                    "The URL acts for the key that asks for it: it permits nothing that the key \
                     does not permit when it is used, and is invalid once the key is revoked.",
                )
                .takes::<PresignRequest>(true, "The request to be signed")
                .json::<PresignAnswer>(200, "The URL")
                .problems(&[
                    (400, "The request cannot be signed, or the server requires no keys"),
                    (401, "The API key is missing or unknown"),
                    (403, "The API key does not permit the request to be signed"),
                    (503, "The server has no master key"),
                ]),
        )
        .document();
    let license = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0"));
    api.info = InfoBuilder::new()
        .title("Forebay")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(license.build()))
        .build();
    let components = api.components.get_or_insert_default();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("fbk_...");
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer.build()));
    let header = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
    components.add_security_scheme("api_key", header);
    api
}
