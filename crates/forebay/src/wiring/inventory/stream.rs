//! `GET /v1/inventories/{name}/descendants`: the prefixes below one as a stream of lines.
//!
//! A thread walks and writes into a short channel; it stops where the client has left or the server
//! stops. An error ends the body without its end, so that a client sees that something is missing.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use forebay_inventory::render;
use http::{HeaderMap, Uri};
use tokio::sync::mpsc::{Sender, channel};

use super::super::answer::{Problem, answer, streamed_lines};
use super::Shared;
use super::question::Question;
use super::read::measured;
use super::registry::{Name, Opened};

/// Pieces on their way to the client, and bytes of one.
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
    let known = ["prefix", "depth", "min_bytes", "min_objects", "limit"];
    let asked = Question::read(uri, &known)?;
    let opened = shared.registry.find(&Name::parse(name)?)?;
    asked.node(&opened.index)?;
    let permit = shared.place()?;
    let (to, from) = channel::<Result<Bytes, io::Error>>(PIECES);
    let shared = Arc::clone(shared);
    // Nobody waits for the thread: it ends with its channel.
    drop(tokio::task::spawn_blocking(move || {
        let mut lines = Lines { shared: &shared, to, held: String::new() };
        if let Err(Ended::Failed(problem)) = lines.walk(&opened, &asked) {
            let error = io::Error::other(problem.into_message());
            // Where the client has left too, nobody is there to be told.
            lines.to.blocking_send(Err(error)).unwrap_or_default();
        }
        drop(opened);
        drop(permit);
        measured("descendants", begun);
    }));
    Ok(streamed_lines(from))
}

/// Why a stream ended before its end.
enum Ended {
    /// The client has left.
    Left,
    Failed(Problem),
}

impl<E: Into<Problem>> From<E> for Ended {
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
    fn walk(&mut self, opened: &Opened, asked: &Question) -> Result<(), Ended> {
        let node = asked.node(&opened.index)?;
        let below = node.below(&asked.prefix, asked.depth, asked.min_objects, asked.min_bytes);
        let mut left = asked.lines;
        for found in below {
            let found = found?;
            self.held.push_str(&render::line(&found.prefix, &found.node)?.to_string());
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

    fn send(&mut self) -> Result<(), Ended> {
        if self.held.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.held);
        self.to.blocking_send(Ok(piece.into())).map_err(|_| Ended::Left)
    }
}
