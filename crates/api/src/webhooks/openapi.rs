//! The webhooks' part of `/openapi.json`. Answers are described by the types that are serialised.

use forebay_webhooks::DeliveryState;
use utoipa::openapi::OpenApi;

use super::answers::{DeliveryAnswer, DeliveryList, WebhookAnswer, WebhookList, WebhookSecret};
use super::body::{Changed, New, Rotation};
use crate::describe::{Kind, Operation, PAGE, Routes, path, query};

const TAG: &str = "webhooks";
const ABOUT: &str = "Events of files, documents, uploads and jobs, sent to HTTP receivers at least once, signed as the \
    Standard Webhooks specification says. All of it needs an admin key.";

const INVALID: (u16, &str) = (400, "The body, the URL or the filter is invalid");
const MISSING: (u16, &str) = (404, "There is no such webhook or delivery");
const CLOSED: (u16, &str) = (503, "The state of webhooks cannot be read or written");
const FULL: (u16, &str) = (507, "The disk is full");

/// Returns the document.
pub(super) fn document() -> OpenApi {
    Routes::new("Forebay webhooks")
        .tag(TAG, ABOUT)
        .get("/v1/webhooks", list())
        .post(
            "/v1/webhooks",
            operation("create_webhook", "Create a webhook")
                .text("It receives what happens from now on. The answer is the only one with its secret.")
                .takes::<New>(true, "The webhook")
                .json::<WebhookAnswer>(201, "It is created, on stable storage")
                .header(201, "Location", "The webhook's URL path")
                .problems(&[INVALID, (429, "There are webhooks.hooks_max webhooks"), CLOSED, FULL]),
        )
        .get(
            "/v1/webhooks/{id}",
            named("get_webhook", "Get a webhook and its progress")
                .json::<WebhookAnswer>(200, "The webhook")
                .problems(&[MISSING, CLOSED]),
        )
        .patch(
            "/v1/webhooks/{id}",
            named("change_webhook", "Change a webhook")
                .text("What it has not received yet is selected by the new filter. Deliveries that wait are due at once.")
                .takes::<Changed>(true, "The changes")
                .json::<WebhookAnswer>(200, "It is changed, on stable storage")
                .problems(&[INVALID, MISSING, CLOSED, FULL]),
        )
        .delete(
            "/v1/webhooks/{id}",
            named("delete_webhook", "Remove a webhook")
                .empty(204, "It is removed, with its deliveries")
                .problems(&[MISSING, CLOSED, FULL]),
        )
        .post(
            "/v1/webhooks/{id}/secret",
            named("rotate_webhook_secret", "Replace the secret of a webhook")
                .takes::<Rotation>(false, "How long the secret before stays valid")
                .json::<WebhookSecret>(200, "The new secret, which is not shown again")
                .problems(&[INVALID, MISSING, CLOSED, FULL]),
        )
        .post(
            "/v1/webhooks/{id}/ping",
            named("ping_webhook", "Send a test to the receiver, and wait for the answer")
                .json::<DeliveryAnswer>(200, "It was sent; its state says with what result")
                .problems(&[MISSING, (429, "Too many tests are being sent"), CLOSED, FULL]),
        )
        .get("/v1/webhooks/{id}/deliveries", deliveries())
        .get(
            "/v1/webhooks/{id}/deliveries/{delivery}",
            delivery("get_webhook_delivery", "Get a delivery, with the body of its request")
                .json::<DeliveryAnswer>(200, "The delivery")
                .problems(&[MISSING, CLOSED]),
        )
        .post(
            "/v1/webhooks/{id}/deliveries/{delivery}/redeliver",
            delivery("redeliver_webhook", "Send a delivery again")
                .json::<DeliveryAnswer>(202, "It waits, and is sent soon")
                .problems(&[
                    MISSING,
                    (409, "The webhook is disabled"),
                    (429, "Too many deliveries wait"),
                    CLOSED,
                    FULL,
                ]),
        )
        .document()
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(TAG, id, summary)
}

fn named(id: &str, summary: &str) -> Operation {
    operation(id, summary).parameter(path("id", "The webhook's id, 32 hexadecimal digits"))
}

fn delivery(id: &str, summary: &str) -> Operation {
    named(id, summary).parameter(path("delivery", "The delivery's id, a number"))
}

fn list() -> Operation {
    operation("list_webhooks", "List webhooks")
        .json::<WebhookList>(200, "The webhooks")
        .or_words(200, PAGE)
        .problems(&[CLOSED])
}

fn deliveries() -> Operation {
    let states = DeliveryState::ALL.map(DeliveryState::name);
    named("list_webhook_deliveries", "List the last deliveries of a webhook, the newest first")
        .parameters([
            query("state", Kind::Word(&states), "Only deliveries in this state"),
            query("limit", Kind::Count(1, 1_000), "Maximum number of results; the default is 100"),
            query("cursor", Kind::Text, "next_cursor of the previous page"),
        ])
        .json::<DeliveryList>(200, "A page of deliveries")
        .or_words(200, PAGE)
        .problems(&[(400, "A parameter is invalid"), MISSING, CLOSED])
}
