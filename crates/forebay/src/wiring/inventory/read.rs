//! Questions to one index, or two, that have one answer.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
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

/// Prefixes right below one that are put in order while others wait for the thread.
const SHORT_CHILDREN: u64 = 4_096;

/// An answer.
pub(super) enum Told {
    /// One object.
    One(Value),
    /// A list, and what is told beside it; each of the list a line where lines are wanted.
    List(Vec<Value>, Value),
}

/// A request about an index.
struct Request<'a> {
    shared: &'a Arc<Shared>,
    question: &'static str,
    name: &'a str,
    headers: &'a HeaderMap,
}

type Found = Result<Told, Problem>;

impl Request<'_> {
    /// Answers at once.
    fn here(&self, work: impl FnOnce(&Index) -> Found) -> Response {
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

    /// Answers from a thread that may block, in a place of its own among those.
    async fn on_thread(&self, work: impl FnOnce(&Index) -> Found + Send + 'static) -> Response {
        let begun = Instant::now();
        self.done(begun, self.walk(None, move |index, _| work(index)).await)
    }

    async fn walk(
        &self,
        old: Option<&Name>,
        work: impl FnOnce(&Index, Option<&Index>) -> Found + Send + 'static,
    ) -> Result<Response, Problem> {
        let registry = &self.shared.registry;
        let opened = registry.find(&Name::parse(self.name)?)?;
        let old = old.map(|old| registry.find(old)).transpose()?;
        let beside = old.as_ref().map(|old| old.tag()).unwrap_or_default();
        if let Some(same) = self.unchanged(&opened, &beside) {
            return Ok(same);
        }
        let permit = self.shared.place()?;
        let etag = self.etag(&opened, &beside);
        let told = on_thread(move || {
            let told = work(&opened.index, old.as_ref().map(|old| &old.index));
            drop(permit);
            told
        });
        self.respond(told.await?, &etag)
    }

    /// The tag of an answer: lines and objects are told apart, and so are prices.
    fn etag(&self, opened: &Opened, beside: &str) -> String {
        let kind = if wants_lines(self.headers) { "l" } else { "o" };
        format!("\"{}-{:08x}{kind}{beside}\"", opened.tag(), self.shared.prices_tag)
    }

    /// That the client has the answer, if it says so.
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

    fn respond(&self, told: Told, etag: &str) -> Result<Response, Problem> {
        let response = match told {
            Told::One(value) => json_answer(StatusCode::OK, &value),
            Told::List(items, _) if wants_lines(self.headers) => {
                let lines: String = items.iter().map(|item| format!("{item}\n")).collect();
                let mut response = Response::new(Body::from(lines));
                let kind = HeaderValue::from_static("application/x-ndjson");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            Told::List(items, mut beside) => {
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

/// Counts a question.
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

/// A prefix in a line.
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

/// All inventories, also those that are being built or cannot be opened.
pub(super) fn all(shared: &Shared) -> Result<Vec<Value>, Problem> {
    let names = shared.registry.names();
    let names = names.map_err(|error| super::problem::internal(&error.into()))?;
    Ok(names
        .iter()
        .map(|name| {
            let mut told = json!({ "name": name.as_str() });
            match shared.registry.peek(name) {
                Ok(opened) => {
                    let meta = opened.index.meta();
                    told["objects"] = meta.objects.into();
                    told["bytes"] = meta.bytes.into();
                    told["prefixes"] = meta.prefixes.into();
                    told["built_at_ms"] = meta.built_at_ms.into();
                    told["complete"] = (meta.bad_rows == 0).into();
                    told["histograms"] = meta.histograms.into();
                }
                Err(forebay_inventory::index::IndexError::Missing(_)) => {}
                Err(_) => told["error"] = "it cannot be opened; the server's log says why".into(),
            }
            if shared.builds.get(name).is_some_and(|job| job.is_running()) {
                told["building"] = true.into();
            }
            told
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
        Ok(Told::One(render::index(index)?))
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
        Ok(Told::One(render::node(&asked.prefix, &asked.node(index)?)?))
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
        Ok(Told::One(histograms))
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
        Ok(Told::One(render::cost(&asked.prefix, &cost, &shared.prices)))
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

fn children_page(index: &Index, asked: &Question) -> Found {
    let node = asked.node(index)?;
    let page = node.page(asked.sort, asked.offset, asked.limit)?;
    let items =
        page.nodes.iter().map(|child| Ok(render::line(&child.prefix(&asked.prefix), child)?));
    let items: Vec<Value> = items.collect::<Result<_, Problem>>()?;
    let after = asked.offset.saturating_add(items.len() as u64);
    let next = (!items.is_empty() && after < page.total).then_some(after);
    Ok(Told::List(items, json!({ "total": page.total, "next": next })))
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
        Ok(Told::List(lines(&found)?, json!({})))
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
        Ok(Told::List(items, beside))
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
                "query parameter \"old\" names the earlier inventory",
            ));
        };
        let question =
            differences::Question { rank: asked.rank, top: asked.count, depth: asked.depth };
        let work = move |new: &Index, old: Option<&Index>| {
            let old = old.ok_or_else(|| Problem::not_found("there is no earlier inventory"))?;
            if old.delimiter() != new.delimiter() {
                let text = "their keys are divided by different delimiters";
                return Err(Problem::bad("delimiter", text));
            }
            let changes = differences::diff(old, new, &question)?;
            let beside = json!({
                "old": { "objects": old.meta().objects, "bytes": old.meta().bytes },
                "new": { "objects": new.meta().objects, "bytes": new.meta().bytes },
            });
            Ok(Told::List(changes.iter().map(render::change).collect(), beside))
        };
        request.walk(Some(&old), work).await
    };
    request.done(begun, answered.await)
}
