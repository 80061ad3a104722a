//! Queries of one index, or two, with a single response.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_base::waiting::Waiting;
use forebay_inventory::cost::Pricer;
use forebay_inventory::index::{FoundPrefix, Index, Order, SortBy};
use forebay_inventory::render::{Line, TotalsAnswer};
use forebay_inventory::{diff as differences, render, small};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde::Serialize;

use super::Shared;
use super::answers::{
    ChangeList, InventoryList, ListedInventory, PrefixList, PrefixPage, SmallList,
};
use super::params::Params;
use super::problem::internal;
use super::registry::{Name, Opened};
use crate::answer::{answer, json as json_answer, line, unchanged, wants_lines};
use crate::blocking::on_thread;
use crate::problem::Problem;

/// Number of children that are sorted without a slot of their thread.
const SHORT_CHILDREN: u64 = 4_096;
/// The same by cost, which takes longer.
const SHORT_COSTS: u64 = 256;

/// The content of a response: one object, or one entry of a list per line.
pub(super) struct Reply {
    text: String,
    is_lines: bool,
}

impl Reply {
    /// One object.
    fn one(answer: &impl Serialize) -> Outcome {
        Ok(Self { text: line(answer), is_lines: false })
    }

    /// A list, or only its items if the client accepts lines.
    fn list<T: Serialize>(lines: bool, list: &impl Serialize, items: &[T]) -> Outcome {
        if !lines {
            return Self::one(list);
        }
        let mut text = String::new();
        for item in items {
            text.push_str(&line(item));
            text.push('\n');
        }
        Ok(Self { text, is_lines: true })
    }
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
            Ok(self.respond(work(&opened.index)?, &self.etag(&opened, "")))
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
        Ok(self.respond(reply, &etag))
    }

    /// Returns whether a list is sent as lines.
    fn lines(&self) -> bool {
        wants_lines(self.headers)
    }

    /// Returns the tag of a response, which distinguishes lines from objects, and prices.
    fn etag(&self, opened: &Opened, beside: &str) -> String {
        let kind = if self.lines() { "l" } else { "o" };
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
        known.then(|| tagged(unchanged(Response::default()), &etag))
    }

    fn respond(&self, reply: Reply, etag: &str) -> Response {
        let kind = if reply.is_lines { "application/x-ndjson" } else { "application/json" };
        let mut response = Response::new(Body::from(reply.text));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        tagged(response, etag)
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

/// Describes each prefix in one line.
fn lines(found: &[FoundPrefix<'_>], order: Order<'_>) -> Result<Vec<Line>, Problem> {
    let line =
        |found: &FoundPrefix<'_>| Ok(render::ordered_line(&found.prefix, &found.node, order)?);
    found.iter().map(line).collect()
}

pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let begun = Instant::now();
    let listed = async {
        Params::read(&uri, &[])?;
        let listed = on_thread(move || all(&shared)).await?;
        let mut response = json_answer(StatusCode::OK, &InventoryList { inventories: listed });
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    };
    let listed = listed.await;
    measured("list", begun);
    answer(listed, &headers)
}

/// Lists all inventories, including those that are being built or cannot be opened.
pub(super) fn all(shared: &Shared) -> Result<Vec<ListedInventory>, Problem> {
    let names = shared.registry.names();
    let names = names.map_err(|error| internal(&error.into()))?;
    Ok(names
        .iter()
        .map(|name| {
            let mut listed =
                ListedInventory { name: name.as_str().to_owned(), ..ListedInventory::default() };
            match shared.registry.peek(name) {
                Ok(opened) => {
                    let meta = opened.index.meta();
                    match opened.index.root().and_then(|root| root.totals()) {
                        Ok(totals) => listed.billed_bytes = Some(totals.billed().bytes),
                        Err(_) => listed.error = Some("it is damaged; see the server's log"),
                    }
                    listed.objects = Some(meta.objects);
                    listed.bytes = Some(meta.bytes);
                    listed.prefixes = Some(meta.prefixes);
                    listed.built_at_ms = Some(meta.built_at_ms);
                    listed.complete = Some(meta.bad_rows == 0);
                    listed.histograms = Some(meta.histograms);
                }
                Err(forebay_inventory::index::IndexError::Missing(_)) => {}
                Err(_) => listed.error = Some("it cannot be opened; see the server's log"),
            }
            if shared.builds.get(name).is_some_and(|job| job.is_running()) {
                listed.building = Some(true);
            }
            listed
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
        Params::read(&uri, &[])?;
        Reply::one(&render::index(index)?)
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
        let asked = Params::read(&uri, &["prefix"])?;
        Reply::one(&render::node(&asked.prefix, &asked.node(index)?)?)
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
        let asked = Params::read(&uri, &["prefix"])?;
        let histograms = render::histograms(&asked.node(index)?)?;
        let histograms = histograms.ok_or(small::SmallError::NoHistograms)?;
        Reply::one(&histograms)
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
        let asked = Params::read(&uri, &["prefix"])?;
        let node = asked.node(index)?;
        let cost = Pricer::new(index, &shared.prices)?.cost(&node)?;
        Reply::one(&render::cost(&asked.prefix, &cost, &shared.prices))
    })
}

pub(super) async fn children(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let request = Request { shared: &shared, question: "children", name: &name, headers: &headers };
    let known = ["prefix", "sort", "class", "offset", "limit"];
    let asked = match Params::read(&uri, &known) {
        Ok(asked) => asked,
        Err(problem) => return problem.answer(&headers),
    };
    let short = if asked.sort == SortBy::Cost { SHORT_COSTS } else { SHORT_CHILDREN };
    let count = Name::parse(&name)
        .and_then(|name| shared.registry.find(&name))
        .and_then(|opened| Ok(asked.node(&opened.index)?.child_count()));
    let lines = request.lines();
    let prices = Arc::clone(&shared);
    let page = move |index: &Index| children_page(index, &asked, &prices, lines);
    match count {
        Ok(count) if count > short => request.on_thread(page).await,
        _ => request.here(page),
    }
}

fn children_page(index: &Index, asked: &Params, shared: &Shared, lines: bool) -> Outcome {
    let node = asked.node(index)?;
    let pricer = asked.pricer(index, &shared.prices)?;
    let order = asked.order(index, pricer.as_ref())?;
    let page = node.page(order, asked.offset, asked.limit)?;
    let items = page
        .nodes
        .iter()
        .map(|child| Ok(render::ordered_line(&child.prefix(&asked.prefix), child, order)?));
    let items: Vec<Line> = items.collect::<Result<_, Problem>>()?;
    let after = asked.offset.saturating_add(items.len() as u64);
    let next = (!items.is_empty() && after < page.total).then_some(after);
    let page = PrefixPage { items, next, total: page.total };
    Reply::list(lines, &page, &page.items)
}

pub(super) async fn top(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let request = Request { shared: &shared, question: "top", name: &name, headers: &headers };
    let accepts_lines = request.lines();
    let prices = Arc::clone(&shared);
    let work = move |index: &Index| {
        let asked = Params::read(&uri, &["prefix", "sort", "class", "k", "depth"])?;
        let node = asked.node(index)?;
        let pricer = asked.pricer(index, &prices.prices)?;
        let order = asked.order(index, pricer.as_ref())?;
        let found = node.top(&asked.prefix, order, asked.count, asked.depth)?;
        let list = PrefixList { items: lines(&found, order)? };
        Reply::list(accepts_lines, &list, &list.items)
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
    let accepts_lines = request.lines();
    let work = move |index: &Index| {
        let asked = Params::read(&uri, &["prefix", "under", "k", "depth"])?;
        let node = asked.node(index)?;
        let all = small::small(&node, asked.under)?;
        let most = small::most_small(&node, &asked.prefix, asked.under, asked.count, asked.depth)?;
        let items = most.iter().map(|one| render::small(&one.found.prefix, &one.small)).collect();
        let total = render::small(&asked.prefix, &all);
        let list = SmallList { items, total, under: asked.under };
        Reply::list(accepts_lines, &list, &list.items)
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
        let asked = Params::read(&uri, &["old", "top", "rank", "by", "class", "depth"])?;
        let Some(old) = asked.old else {
            return Err(Problem::bad(
                "query",
                "query parameter \"old\", the earlier inventory, is required",
            ));
        };
        let accepts_lines = request.lines();
        let prices = Arc::clone(&shared);
        let work = move |new: &Index, old: Option<&Index>| {
            let old = old.ok_or_else(|| Problem::not_found("there is no earlier inventory"))?;
            if old.delimiter() != new.delimiter() {
                let text = "the inventories have different delimiters";
                return Err(Problem::bad("delimiter", text));
            }
            let question = differences::DiffOptions {
                rank: asked.rank,
                by: asked.by,
                top: asked.count,
                depth: asked.depth,
                class: asked.class.as_deref(),
                prices: Some(&prices.prices),
            };
            let changes = differences::diff(old, new, &question)?;
            let totals =
                |index: &Index| Ok::<_, Problem>(TotalsAnswer::from(index.root()?.totals()?));
            let items = changes.iter().map(render::change).collect();
            let list = ChangeList { items, new: totals(new)?, old: totals(old)? };
            Reply::list(accepts_lines, &list, &list.items)
        };
        request.walk(Some(&old), work).await
    };
    request.done(begun, answered.await)
}
