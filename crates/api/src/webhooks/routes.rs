//! `/v1/webhooks`: create, list, change and remove webhooks, look at their deliveries, test them.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_base::error_chain::chain;
use forebay_webhooks::{DeliveryFilter, DeliveryState, HookId, WebhookError};
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Shared;
use super::answers::{DeliveryAnswer, DeliveryList, WebhookAnswer, WebhookList, WebhookSecret};
use super::body::{Changed, New, Rotation, read, read_optional};
use crate::answer::{PAGE as PAGE_POLICY, answer, html, json, no_content, varied, wants_page};
use crate::problem::Problem;
use crate::{pages, query};

/// Deliveries on a page by default.
const PAGE: usize = 100;

/// `GET /v1/webhooks`.
pub(super) async fn list(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let listed = shared.hooks().map(|hooks| {
        let webhooks: Vec<WebhookAnswer> =
            hooks.hooks().into_iter().map(WebhookAnswer::from).collect();
        if wants_page(&headers) {
            let rows: Vec<Value> = webhooks.iter().map(|hook| serde_json::json!(hook)).collect();
            return html(pages::webhooks_page(&rows), PAGE_POLICY);
        }
        json(StatusCode::OK, &WebhookList { webhooks })
    });
    varied(answer(listed, &headers))
}

/// `POST /v1/webhooks`.
pub(super) async fn create(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let created = async {
        let new: New = read(body).await?;
        let (view, secret) = shared.hooks()?.create(new.try_into()?).await.map_err(problem)?;
        let webhook = WebhookAnswer { secret: Some(secret), ..view.into() };
        let location = format!("/v1/webhooks/{}", webhook.webhook_id);
        let mut response = json(StatusCode::CREATED, &webhook);
        if let Ok(location) = HeaderValue::try_from(location) {
            response.headers_mut().insert(LOCATION, location);
        }
        Ok(response)
    };
    answer(created.await, &headers)
}

/// `GET /v1/webhooks/{id}`.
pub(super) async fn one(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let found = || {
        let view = shared.hooks()?.hook(parse(&id)?).map_err(problem)?;
        Ok(json(StatusCode::OK, &WebhookAnswer::from(view)))
    };
    answer(found(), &headers)
}

/// `PATCH /v1/webhooks/{id}`.
pub(super) async fn change(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let changed = async {
        let id = parse(&id)?;
        let change: Changed = read(body).await?;
        let view = shared.hooks()?.change(id, change.try_into()?).await.map_err(problem)?;
        Ok(json(StatusCode::OK, &WebhookAnswer::from(view)))
    };
    answer(changed.await, &headers)
}

/// `DELETE /v1/webhooks/{id}`.
pub(super) async fn remove(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let removed = async {
        shared.hooks()?.remove(parse(&id)?).await.map_err(problem)?;
        Ok(no_content())
    };
    answer(removed.await, &headers)
}

/// `POST /v1/webhooks/{id}/secret`.
pub(super) async fn rotate(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let rotated = async {
        let id = parse(&id)?;
        let rotation: Rotation = read_optional(body).await?;
        let hooks = shared.hooks()?;
        let secret = hooks.rotate(id, rotation.overlap()?).await.map_err(problem)?;
        let webhook = hooks.hook(id).map_err(problem)?.into();
        Ok(json(StatusCode::OK, &WebhookSecret { secret, webhook }))
    };
    answer(rotated.await, &headers)
}

/// `POST /v1/webhooks/{id}/ping`.
pub(super) async fn ping(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let sent = async {
        let delivery = shared.hooks()?.ping(parse(&id)?).await.map_err(problem)?;
        Ok(json(StatusCode::OK, &DeliveryAnswer::from(&delivery)))
    };
    answer(sent.await, &headers)
}

/// `GET /v1/webhooks/{id}/deliveries`.
pub(super) async fn deliveries(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    varied(answer(listed(&shared, &id, &parts.uri, &parts.headers).await, &parts.headers))
}

async fn listed(
    shared: &Shared,
    id: &str,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let id = parse(id)?;
    let (mut filter, mut limit) = (DeliveryFilter::default(), PAGE);
    for (name, value) in query::pairs(uri.query().unwrap_or_default()) {
        let text = String::from_utf8(value).unwrap_or_default();
        let bad = |expected: &str| {
            Problem::bad("query", format!("query parameter {name:?} must be {expected}"))
        };
        match name.as_str() {
            "state" => {
                let state = DeliveryState::parse(&text);
                filter.state = Some(state.ok_or_else(|| bad("waiting, delivered or failed"))?);
            }
            "cursor" => {
                filter.before = Some(text.parse().map_err(|_| bad("a next_cursor"))?);
            }
            _ => {
                let number = text.parse().ok().filter(|number| (1..=1_000).contains(number));
                limit = number.ok_or_else(|| bad("a number from 1 to 1000"))?;
            }
        }
    }
    let (found, more) = shared.hooks()?.deliveries(id, filter, limit).await.map_err(problem)?;
    let last = found.last().filter(|_| more);
    let next_cursor = last.map(|delivery| delivery.number.to_string());
    let deliveries: Vec<DeliveryAnswer> = found.iter().map(DeliveryAnswer::from).collect();
    if wants_page(headers) {
        let hook =
            serde_json::json!(WebhookAnswer::from(shared.hooks()?.hook(id).map_err(problem)?));
        let rows: Vec<Value> =
            deliveries.iter().map(|delivery| serde_json::json!(delivery)).collect();
        let page = pages::deliveries_page(&hook, &rows, next_cursor.as_deref());
        return Ok(html(page, PAGE_POLICY));
    }
    Ok(json(StatusCode::OK, &DeliveryList { deliveries, next_cursor }))
}

/// `GET /v1/webhooks/{id}/deliveries/{delivery}`.
pub(super) async fn delivery(
    State(shared): State<Shared>,
    Path((id, number)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let (id, number) = (parse(&id)?, numbered(&number)?);
        let delivery = shared.hooks()?.delivery(id, number).await.map_err(problem)?;
        // Made as JSON by the engine.
        let payload = RawValue::from_string(delivery.body().to_owned()).ok();
        Ok(json(StatusCode::OK, &DeliveryAnswer { payload, ..(&delivery).into() }))
    };
    answer(found.await, &headers)
}

/// `POST /v1/webhooks/{id}/deliveries/{delivery}/redeliver`.
pub(super) async fn redeliver(
    State(shared): State<Shared>,
    Path((id, number)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let queued = async {
        let (id, number) = (parse(&id)?, numbered(&number)?);
        let delivery = shared.hooks()?.redeliver(id, number).await.map_err(problem)?;
        Ok(json(StatusCode::ACCEPTED, &DeliveryAnswer::from(&delivery)))
    };
    answer(queued.await, &headers)
}

fn parse(id: &str) -> Result<HookId, Problem> {
    HookId::parse(id).ok_or_else(|| Problem::not_found("no webhook has this id"))
}

fn numbered(number: &str) -> Result<u64, Problem> {
    number.parse().map_err(|_| Problem::not_found("no delivery has this id"))
}

fn problem(error: WebhookError) -> Problem {
    let text = error.to_string();
    match error {
        WebhookError::Unknown(_) | WebhookError::UnknownDelivery(_) => Problem::not_found(text),
        WebhookError::Address(_) => Problem::bad("webhook_url", text),
        WebhookError::Rejected(_) => Problem::bad("webhook_invalid", text),
        WebhookError::TooMany { .. } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "webhooks_full", text)
        }
        WebhookError::Busy { .. } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "webhook_busy", text)
        }
        WebhookError::Disabled => Problem::new(StatusCode::CONFLICT, "webhook_disabled", text),
        WebhookError::Store(error) if error.is_full() => Problem::full(text),
        error => {
            tracing::error!(error = %chain(&error), "the state of webhooks cannot be used");
            Problem::closed("cannot read or write the state of webhooks; see the server's log")
        }
    }
}
