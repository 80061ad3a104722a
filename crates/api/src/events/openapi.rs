//! The event store's part of `/openapi.json`.
//!
//! Parameters are written beside the routes rather than derived from handlers, because handlers
//! take whole requests, so that bodies stream. Answers are described by the types that are
//! serialised.

use forebay_events::input::Format;
use forebay_events::merkle::{ConsistencyProof, InclusionProof};
use forebay_events::render::EventAnswer;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::Parameter;

use super::answers::{EventPage, EventStats, Report, Verification};
use crate::describe::{
    BYTES, JsonObject, Kind, LINES, Operation, PAGE, Routes, TEXT, header, needed, path, query,
};

const TAG: &str = "events";
const ABOUT: &str = "Events, stored unchanged, found by id, time and field, and provable to any \
    holder of a signed checkpoint.";
const SEVERITIES: [&str; 6] = ["informational", "low", "medium", "high", "critical", "fatal"];

const MISSING: (u16, &str) = (404, "There is no such event");
const BUSY: (u16, &str) = (429, "The limit events.reads_max is reached");
const DAMAGED: (u16, &str) = (500, "What is stored is damaged; the server's log has the details");
const CLOSED: (u16, &str) = (503, "The store accepts nothing; the message says why");

/// Returns the document.
///
/// * `witness`: whether this server is a witness for the logs of others.
pub(super) fn document(witness: bool) -> OpenApi {
    let routes = Routes::new("Forebay events")
        .tag(TAG, ABOUT)
        .post("/v1/events", append(false))
        .get("/v1/events", list())
        .post("/v1/events/{name}", append(true))
        .get("/v1/events/{name}", one())
        .get(
            "/v1/events/stats",
            operation("get_event_stats", "Get counts and sizes")
                .json::<EventStats>(200, "Counts and sizes")
                .problems(&[CLOSED]),
        )
        .get(
            "/v1/events/verify",
            operation("verify_events", "Read and hash all stored data, while events are served")
                .text("Compares it with the tree and with every signed checkpoint. One at a time.")
                .json::<Verification>(200, "What was read, and what differs")
                .problems(&[(429, "Another verification is in progress"), CLOSED]),
        )
        .get(
            "/v1/events/search",
            operation("search_events_page", "Get the newest events as a page with a search form")
                .parameters(conditions())
                .parameter(query("cursor", Kind::Text, "Cursor of an earlier page"))
                .words(200, PAGE, "The page")
                .error_pages(&[(400, "A parameter is unknown or invalid"), BUSY, DAMAGED, CLOSED]),
        );
    let routes = proofs(routes);
    if witness { witnessing(routes).document() } else { routes.document() }
}

/// The routes of a witness.
fn witnessing(routes: Routes) -> Routes {
    routes
        .post(
            "/witness/add-checkpoint",
            operation("add_checkpoint_to_witness", "Cosign a checkpoint of another log")
                .text(
                    "C2SP tlog-witness. The body is `old` and a size, a consistency proof in base64 \
                     lines, an empty line and a signed checkpoint of a log in events.witness_logs. \
                     No API key is needed.",
                )
                .takes_bytes("The request of tlog-witness")
                .words(200, TEXT, "The line of the cosignature (cosignature/v1)")
                .problems(&[
                    (400, "The request is not valid"),
                    (403, "The checkpoint is not signed by the log's key"),
                    (404, "The log is not known"),
                    (409, "Another checkpoint was cosigned last; the body is its size"),
                    (413, "The body is too large"),
                    (422, "The proof does not show that the log only grew"),
                    (429, "Too many concurrent requests"),
                    (500, "The checkpoint could not be stored"),
                    CLOSED,
                ]),
        )
        .get(
            "/witness/key",
            operation("get_witness_key", "Get the key that verifies cosignatures of this witness")
                .words(200, TEXT, "A verifier key of type 4 (C2SP tlog-cosignature)"),
        )
}

/// The routes of the tree.
fn proofs(routes: Routes) -> Routes {
    routes
        .get(
            "/v1/events/{name}/proof",
            operation("get_event_proof", "Prove that an event is stored")
                .text("`forebay events verify-proof` checks a proof offline.")
                .parameter(path("name", "The event's id"))
                .json::<InclusionProof>(200, "The path to the root, and the signed checkpoint")
                .problems(&[
                    (400, "The id is not valid"),
                    (404, "There is no such event, or the store has no proofs"),
                    CLOSED,
                ]),
        )
        .get("/v1/events/proof/consistency", consistency())
        .get(
            "/v1/events/checkpoint",
            operation("sign_event_checkpoint", "Sign a checkpoint of all stored events")
                .words(200, TEXT, "A signed note (C2SP tlog-checkpoint)")
                .problems(&[(404, "The store has no proofs"), CLOSED]),
        )
        .get(
            "/v1/events/key",
            operation("get_event_key", "Get the key that verifies checkpoints")
                .words(200, TEXT, "A verifier key (C2SP signed-note)")
                .problems(&[(404, "The store has no proofs"), CLOSED]),
        )
        .get(
            "/v1/events/tlog/checkpoint",
            operation("get_event_checkpoint", "Get the newest signed checkpoint")
                .text("With witnesses, the newest one that enough of them cosigned.")
                .words(200, TEXT, "A signed note")
                .problems(&[(404, "The store has no proofs"), CLOSED]),
        )
        .get("/v1/events/tlog/tile/{path}", tile())
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(TAG, id, summary)
}

fn one() -> Operation {
    operation("get_event", "Get one event")
        .text("With `raw` the response is the event as its source wrote it, as text.")
        .parameters([
            path("name", "The event's id: a ULID or a UUID"),
            query("raw", Kind::Flag, "Return only the raw bytes, as the source wrote them"),
        ])
        .json::<EventAnswer<'static>>(200, "The event")
        .or_words(200, TEXT)
        .problems(&[(400, "The id is not valid"), MISSING, CLOSED])
}

fn consistency() -> Operation {
    operation("get_event_consistency_proof", "Prove that the first events are unchanged")
        .parameters([
            needed("first", Kind::Count(0, u64::MAX), "The earlier size"),
            query("second", Kind::Count(0, u64::MAX), "The later size [default: all events]"),
        ])
        .json::<ConsistencyProof>(
            200,
            "The proof, and the checkpoint if the second size is the newest signed one",
        )
        .problems(&[(400, "There are fewer events"), (404, "The store has no proofs"), CLOSED])
}

fn tile() -> Operation {
    let text = "<L>/<N>[.p/<W>] or entries/<N>[.p/<W>]; N in groups as x001/234";
    operation("get_event_tile", "Get a tile of the tree, or a bundle of events (C2SP tlog-tiles)")
        .parameter(path("path", text))
        .bytes(
            200,
            BYTES,
            "Hashes of 32 bytes, or events, each preceded by its length in two bytes",
        )
        .problems(&[(404, "It does not exist or was pruned, or an event is too large"), CLOSED])
}

fn append(named: bool) -> Operation {
    let stream = query("stream", Kind::Text, "Stream of events that name no stream");
    let operation = if named {
        let text = format!("Format: {}", Format::ALL.map(Format::name).join(", "));
        operation("append_events_of_format", "Append events of a named format")
            .parameter(path("name", &text))
    } else {
        let text = "Format, which overrides the content type";
        operation("append_events", "Append events").parameter(query(
            "format",
            Kind::Word(&Format::ALL.map(Format::name)),
            text,
        ))
    };
    operation
        .parameter(stream)
        .parameters([
            query("time_field", Kind::Text, "Field that has the time, such as meta.seen"),
            query(
                "time_zone",
                Kind::Text,
                "Zone of times without an offset: UTC, +02:00 or Europe/Paris",
            ),
            query("host_field", Kind::Text, "Field that has the host"),
            query("type_field", Kind::Text, "Field that has the type"),
        ])
        .parameter(header(
            "Idempotency-Key",
            "Names the request, so that it is stored once: a later one with the same key and body gets \
             the first answer, with the header `idempotent-replay: true`",
        ))
        .text(
            "The body is one JSON object, an array of them, NDJSON, or lines of any log format. \
             It may be compressed (gzip, zstd). An envelope of several events (Records of \
             CloudTrail, items of Kubernetes, an Elasticsearch _bulk body, a Loki push, OTLP logs) \
             becomes one event each. The body is processed as it arrives, so it may be large. A \
             response with an error also has the members of the report.",
        )
        .takes_also::<JsonObject>(true, "One event, or several", &[LINES, BYTES])
        .json::<Report>(200, "Everything is stored")
        .json::<Report>(
            207,
            "Some records were rejected; rejects lists the first with line and reason",
        )
        .problems(&[
            (400, "Nothing was accepted, or the body ended early; reported events are stored"),
            (408, "The body was too slow"),
            (409, "A request with this Idempotency-Key is in progress"),
            (413, "The body is larger than events.body_size_max"),
            (415, "No format has this content type, or the encoding is not gzip or zstd"),
            (422, "The Idempotency-Key belongs to another request"),
            (429, "The limit events.appends_max or events.body_memory_max is reached"),
            (507, "The disk is full; events are accepted again when there is space"),
            CLOSED,
        ])
}

fn list() -> Operation {
    let number = Kind::Count(0, u64::MAX);
    operation("list_events", "Search events, in order of time or acceptance")
        .text(
            "With `Accept: application/x-ndjson`, or `follow`, the response is a stream of one \
             event per line.",
        )
        .parameters(conditions())
        .parameters([
            query(
                "order",
                Kind::Word(&["oldest", "newest", "position"]),
                "oldest (default), newest, or position: in order of acceptance, by seq",
            ),
            query(
                "limit",
                Kind::Count(0, u64::MAX),
                "Maximum number of events, 1 to 1000 [default: 100]; unlimited for NDJSON",
            ),
            query(
                "cursor",
                Kind::Text,
                "next of the previous page; with order=position, the seq of the last known event",
            ),
            query("before", number, "With order=position: only events with a lower seq"),
            query("proof", Kind::Flag, "Add to each event the proof that it is stored"),
            query(
                "follow",
                Kind::Flag,
                "Stream the newest limit events, then new ones as they arrive",
            ),
        ])
        .json::<EventPage<'static>>(200, "A page of events and the cursor of the next")
        .or_bytes(200, LINES)
        .problems(&[
            (400, "A parameter is not valid"),
            (429, "The limit events.reads_max or events.followers_max is reached"),
            CLOSED,
        ])
}

/// What a search selects by.
fn conditions() -> [Parameter; 10] {
    [
        query("from", Kind::Text, "Only events at or after (RFC 3339, a date, or Unix seconds)"),
        query("to", Kind::Text, "Only events before"),
        query("stream", Kind::Text, "Only events in this stream"),
        query("type", Kind::Text, "Only events of this type"),
        query("host", Kind::Text, "Only events from this host"),
        query(
            "ip",
            Kind::Texts,
            "Only events that name this address, or one with this prefix; may be repeated",
        ),
        query("severity", Kind::Word(&SEVERITIES), "Only events of at least this severity"),
        query("contains", Kind::Texts, "Only events whose raw bytes contain this; may be repeated"),
        query(
            "word",
            Kind::Texts,
            "Only events whose raw bytes contain this as whole words; may be repeated",
        ),
        query("regex", Kind::Text, "Only events whose raw bytes match this regular expression"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described_with_the_types_of_its_answers() {
        let witness = serde_json::to_value(document(true)).unwrap();
        assert_eq!(witness["paths"].as_object().unwrap().len(), 13);
        let document = serde_json::to_value(document(false)).unwrap();
        assert_eq!(document["paths"].as_object().unwrap().len(), 11);
        let limit = &document["paths"]["/v1/events"]["get"]["parameters"][11]["name"];
        assert_eq!(limit, "limit");
        let schemas = &document["components"]["schemas"];
        let proof = &schemas["Event"]["properties"]["proof"]["$ref"];
        assert_eq!(proof, "#/components/schemas/EventProof");
        assert_eq!(schemas["EventProof"]["properties"]["leaf_hash"]["type"], "string");
        assert!(schemas["EventSource"].is_object() && schemas["RejectedRecord"].is_object());
    }
}
