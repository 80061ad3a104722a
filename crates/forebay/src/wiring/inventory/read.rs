//! Queries of one index, or two, with a single response.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_base::waiting::Waiting;
use forebay_inventory::cost::Pricer;
use forebay_inventory::index::Index;
use forebay_inventory::{diff as differences, render, small};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde_json::{Value, json};

use super::super::answer::{Problem, answer, json as json_answer, wants_lines};
use super::question::Question;
use super::registry::{Name, Opened};
use super::{Shared, on_thread};

/// Number of children that are sorted without a slot of their thread.
const SHORT_CHILDREN: u64 = 4_096;

/// The content of a response.
pub(super) enum Reply {
    /// One object.
    One(Value),
    /// A list, and further members beside it; one entry per line if the client accepts lines.
    List(Vec<Value>, Value),
}

/// A request about an index.
struct Request<'a> {
    shared: &'a Arc<Shared>,
    question: &'static str,
    name: &'a str,
    headers: &'a HeaderMap,
}

type Outcome = Result<Reply, Problem>;

impl Request<'_> {
    /// Responds at once.
    fn here(&self, work: impl FnOnce(&Index) -> Outcome) -> Response {
        let begun = Instant::now();
        let answered = Name::parse(self.name).and_then(|name| {
            let opened = self.shared.registry.find(&name)?;
            if let Some(same) = self.unchanged(&opened, "") {
                return Ok(same);
            }
            self.respond(work(&opened.index)?, &self.etag(&opened, ""))
        });
        self.done(begun, answered)
    }

    /// Responds from a thread that may block, with a slot among those.
    async fn on_thread(&self, work: impl FnOnce(&Index) -> Outcome + Send + 'static) -> Response {
        let begun = Instant::now();
        self.done(begun, self.walk(None, move |index, _| work(index)).await)
    }

    async fn walk(
        &self,
        old: Option<&Name>,
        work: impl FnOnce(&Index, Option<&Index>) -> Outcome + Send + 'static,
    ) -> Result<Response, Problem> {
        let registry = &self.shared.registry;
        let opened = registry.find(&Name::parse(self.name)?)?;
        let old = old.map(|old| registry.find(old)).transpose()?;
        let beside = old.as_ref().map(|old| old.tag()).unwrap_or_default();
        if let Some(same) = self.unchanged(&opened, &beside) {
            return Ok(same);
        }
        let permit = self.shared.permit()?;
        let etag = self.etag(&opened, &beside);
        // Dropped with the request: a client that has disconnected does not keep the slot.
        let waiting = Waiting::default();
        let gone = waiting.gone();
        let reply = on_thread(move || {
            let old = old.as_ref().map(|old| old.index.until(gone.clone()));
            let reply = work(&opened.index.until(gone), old.as_ref());
            drop(permit);
            reply
        });
        let reply = reply.await?;
        drop(waiting);
        self.respond(reply, &etag)
    }

    /// Returns the tag of a response, which distinguishes lines from objects, and prices.
    fn etag(&self, opened: &Opened, beside: &str) -> String {
        let kind = if wants_lines(self.headers) { "l" } else { "o" };
        format!("\"{}-{:08x}{kind}{beside}\"", opened.tag(), self.shared.prices_tag)
    }

    /// Returns 304 if the client has the response already.
    fn unchanged(&self, opened: &Opened, beside: &str) -> Option<Response> {
        let etag = self.etag(opened, beside);
        let known = self.headers.get_all(IF_NONE_MATCH).iter().any(|value| {
            let tags = value.to_str().unwrap_or_default().split(',').map(str::trim);
            tags.map(|tag| tag.strip_prefix("W/").unwrap_or(tag))
                .any(|tag| tag == etag || tag == "*")
        });
        known.then(|| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            tagged(response, &etag)
        })
    }

    fn respond(&self, reply: Reply, etag: &str) -> Result<Response, Problem> {
        let response = match reply {
            Reply::One(value) => json_answer(StatusCode::OK, &value),
            Reply::List(items, _) if wants_lines(self.headers) => {
                let lines: String = items.iter().map(|item| format!("{item}\n")).collect();
                let mut response = Response::new(Body::from(lines));
                let kind = HeaderValue::from_static("application/x-ndjson");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            Reply::List(items, mut beside) => {
                beside["items"] = items.into();
                json_answer(StatusCode::OK, &beside)
            }
        };
        Ok(tagged(response, etag))
    }

    fn done(&self, begun: Instant, answered: Result<Response, Problem>) -> Response {
        measured(self.question, begun);
        answer(answered, self.headers)
    }
}

/// Counts a query.
pub(super) fn measured(question: &'static str, begun: Instant) {
    metrics::counter!("forebay_inventory_queries_total", "question" => question).increment(1);
    metrics::histogram!("forebay_inventory_query_seconds", "question" => question)
        .record(begun.elapsed());
}

fn tagged(mut response: Response, etag: &str) -> Response {
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::try_from(etag) {
        headers.insert(ETAG, etag);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

/// Describes a prefix in one line.
fn lines(found: &[forebay_inventory::index::Found<'_>]) -> Result<Vec<Value>, Problem> {
    found.iter().map(|found| Ok(render::line(&found.prefix, &found.node)?)).collect()
}

pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let begun = Instant::now();
    let listed = async {
        Question::read(&uri, &[])?;
        let listed = on_thread(move || all(&shared)).await?;
        let mut response = json_answer(StatusCode::OK, &json!({ "inventories": listed }));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    };
    let listed = listed.await;
    measured("list", begun);
    answer(listed, &headers)
}

/// Lists all inventories, including those that are being built or cannot be opened.
pub(super) fn all(shared: &Shared) -> Result<Vec<Value>, Problem> {
    let names = shared.registry.names();
    let names = names.map_err(|error| super::problem::internal(&error.into()))?;
    Ok(names
        .iter()
        .map(|name| {
            let mut reply = json!({ "name": name.as_str() });
            match shared.registry.peek(name) {
                Ok(opened) => {
                    let meta = opened.index.meta();
                    reply["objects"] = meta.objects.into();
                    reply["bytes"] = meta.bytes.into();
                    reply["prefixes"] = meta.prefixes.into();
                    reply["built_at_ms"] = meta.built_at_ms.into();
                    reply["complete"] = (meta.bad_rows == 0).into();
                    reply["histograms"] = meta.histograms.into();
                }
                Err(forebay_inventory::index::IndexError::Missing(_)) => {}
                Err(_) => reply["error"] = "it cannot be opened; see the server's log".into(),
            }
            if shared.builds.get(name).is_some_and(|job| job.is_running()) {
                reply["building"] = true.into();
            }
            reply
        })
        .collect())
}

pub(super) async fn index(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let request = Request { shared: &shared, question: "index", name: &name, headers: &headers };
    request.here(|index| {
        Question::read(&uri, &[])?;
        Ok(Reply::One(render::index(index)?))
    })
}

pub(super) async fn prefix(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let request = Request { shared: &shared, question: "prefix", name: &name, headers: &headers };
    request.here(|index| {
        let asked = Question::read(&uri, &["prefix"])?;
        Ok(Reply::One(render::node(&asked.prefix, &asked.node(index)?)?))
    })
}

pub(super) async fn histogram(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let request =
        Request { shared: &shared, question: "histogram", name: &name, headers: &headers };
    request.here(|index| {
        let asked = Question::read(&uri, &["prefix"])?;
        let histograms = render::histograms(&asked.node(index)?)?;
        let histograms = histograms.ok_or(small::SmallError::NoHistograms)?;
        Ok(Reply::One(histograms))
    })
}

pub(super) async fn cost(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let request = Request { shared: &shared, question: "cost", name: &name, headers: &headers };
    request.here(|index| {
        let asked = Question::read(&uri, &["prefix"])?;
        let node = asked.node(index)?;
        let cost = Pricer::new(index, &shared.prices)?.cost(&node)?;
        Ok(Reply::One(render::cost(&asked.prefix, &cost, &shared.prices)))
    })
}

pub(super) async fn children(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let request = Request { shared: &shared, question: "children", name: &name, headers: &headers };
    let asked = match Question::read(&uri, &["prefix", "sort", "offset", "limit"]) {
        Ok(asked) => asked,
        Err(problem) => return problem.answer(&headers),
    };
    let count = Name::parse(&name)
        .and_then(|name| shared.registry.find(&name))
        .and_then(|opened| Ok(asked.node(&opened.index)?.child_count()));
    match count {
        Ok(count) if count > SHORT_CHILDREN => {
            request.on_thread(move |index| children_page(index, &asked)).await
        }
        _ => request.here(|index| children_page(index, &asked)),
    }
}

fn children_page(index: &Index, asked: &Question) -> Outcome {
    let node = asked.node(index)?;
    let page = node.page(asked.sort, asked.offset, asked.limit)?;
    let items =
        page.nodes.iter().map(|child| Ok(render::line(&child.prefix(&asked.prefix), child)?));
    let items: Vec<Value> = items.collect::<Result<_, Problem>>()?;
    let after = asked.offset.saturating_add(items.len() as u64);
    let next = (!items.is_empty() && after < page.total).then_some(after);
    Ok(Reply::List(items, json!({ "total": page.total, "next": next })))
}

pub(super) async fn top(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let request = Request { shared: &shared, question: "top", name: &name, headers: &headers };
    let work = move |index: &Index| {
        let asked = Question::read(&uri, &["prefix", "sort", "k", "depth"])?;
        let node = asked.node(index)?;
        let found = node.top(&asked.prefix, asked.sort, asked.count, asked.depth)?;
        Ok(Reply::List(lines(&found)?, json!({})))
    };
    request.on_thread(work).await
}

pub(super) async fn small_files(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let request =
        Request { shared: &shared, question: "small-files", name: &name, headers: &headers };
    let work = move |index: &Index| {
        let asked = Question::read(&uri, &["prefix", "under", "k", "depth"])?;
        let node = asked.node(index)?;
        let all = small::small(&node, asked.under)?;
        let most = small::most_small(&node, &asked.prefix, asked.under, asked.count, asked.depth)?;
        let items = most.iter().map(|one| render::small(&one.found.prefix, &one.small)).collect();
        let beside = json!({ "under": asked.under, "total": render::small(&asked.prefix, &all) });
        Ok(Reply::List(items, beside))
    };
    request.on_thread(work).await
}

pub(super) async fn diff(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let begun = Instant::now();
    let request = Request { shared: &shared, question: "diff", name: &name, headers: &headers };
    let answered = async {
        let asked = Question::read(&uri, &["old", "top", "rank", "depth"])?;
        let Some(old) = asked.old else {
            return Err(Problem::bad(
                "query",
                "query parameter \"old\", the earlier inventory, is required",
            ));
        };
        let question =
            differences::Question { rank: asked.rank, top: asked.count, depth: asked.depth };
        let work = move |new: &Index, old: Option<&Index>| {
            let old = old.ok_or_else(|| Problem::not_found("there is no earlier inventory"))?;
            if old.delimiter() != new.delimiter() {
                let text = "the inventories have different delimiters";
                return Err(Problem::bad("delimiter", text));
            }
            let changes = differences::diff(old, new, &question)?;
            let beside = json!({
                "old": { "objects": old.meta().objects, "bytes": old.meta().bytes },
                "new": { "objects": new.meta().objects, "bytes": new.meta().bytes },
            });
            Ok(Reply::List(changes.iter().map(render::change).collect(), beside))
        };
        request.walk(Some(&old), work).await
    };
    request.done(begun, answered.await)
}
