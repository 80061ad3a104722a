//! `GET /v1/inventories/{name}/descendants`: streams the prefixes below a prefix as lines.
//!
//! A thread walks the index and writes into a short channel. It stops if the client disconnects or
//! the server stops. An error aborts the body, so that a client detects that something is missing.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use forebay_base::waiting::Waiting;
use forebay_inventory::index::{Index, Order, SortBy};
use forebay_inventory::render;
use http::{HeaderMap, Uri};
use tokio::sync::mpsc::{Sender, channel};

use super::Shared;
use super::params::Params;
use super::read::measured;
use super::registry::Name;
use crate::answer::{answer, line, streamed_lines};
use crate::problem::Problem;

/// Maximum number of queued pieces, and size of one.
const PIECES: usize = 4;
const PIECE_SIZE: usize = 64 << 10;

pub(super) async fn descendants(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    answer(stream(&shared, &name, &uri), &headers)
}

fn stream(shared: &Arc<Shared>, name: &str, uri: &Uri) -> Result<Response, Problem> {
    let begun = Instant::now();
    shared.check_running()?;
    let known = [
        "prefix",
        "depth",
        "min_billed",
        "min_bytes",
        "min_objects",
        "min_noncurrent",
        "min_delete_markers",
        "min_cost",
        "class",
        "limit",
    ];
    let asked = Params::read(uri, &known)?;
    let opened = shared.registry.find(&Name::parse(name)?)?;
    asked.node(&opened.index)?;
    // What cannot be computed is refused before the response begins.
    let pricer = asked.pricer(&opened.index, &shared.prices)?;
    asked.filter(&opened.index, pricer.as_ref())?;
    drop(pricer);
    let permit = shared.permit()?;
    let (to, from) = channel::<Result<Bytes, io::Error>>(PIECES);
    let shared = Arc::clone(shared);
    let waiting = Waiting::default();
    let gone = waiting.gone();
    // The thread is not joined: it ends with the body of its response, at the next prefix it reads.
    drop(forebay_base::blocking::spawn(move || {
        let mut lines = Lines { shared: &shared, to, held: String::new() };
        if let Err(Stopped::Failed(problem)) = lines.walk(&opened.index.until(gone), &asked) {
            let error = io::Error::other(problem.into_message());
            // If the client has disconnected too, the error is dropped.
            lines.to.blocking_send(Err(error)).unwrap_or_default();
        }
        drop(opened);
        drop(permit);
        measured("descendants", begun);
    }));
    Ok(streamed_lines(from, waiting))
}

/// Why a stream ended early.
enum Stopped {
    /// The client has disconnected.
    Disconnected,
    Failed(Problem),
}

impl<E: Into<Problem>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

struct Lines<'a> {
    shared: &'a Shared,
    to: Sender<Result<Bytes, io::Error>>,
    held: String,
}

impl Lines<'_> {
    fn walk(&mut self, index: &Index, asked: &Params) -> Result<(), Stopped> {
        let node = asked.node(index)?;
        let pricer = asked.pricer(index, &self.shared.prices)?;
        let filter = asked.filter(index, pricer.as_ref())?;
        // A line has what the filter compares: the cost, and the totals of a class.
        let by = if pricer.is_some() { SortBy::Cost } else { SortBy::default() };
        let order = Order::from(by).priced(pricer.as_ref());
        let order = filter.class.map_or(order, |class| order.in_class(class));
        let below = node.below_where(&asked.prefix, filter);
        let mut left = asked.lines;
        for found in below {
            let found = found?;
            let found = render::ordered_line(&found.prefix, &found.node, order)?;
            self.held.push_str(&line(&found));
            self.held.push('\n');
            left -= 1;
            if self.held.len() >= PIECE_SIZE {
                self.shared.check_running()?;
                self.send()?;
            }
            if left == 0 {
                break;
            }
        }
        self.send()
    }

    fn send(&mut self) -> Result<(), Stopped> {
        if self.held.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.held);
        self.to.blocking_send(Ok(piece.into())).map_err(|_| Stopped::Disconnected)
    }
}
