//! Checkpoints, proofs, and the tree as tiles (C2SP tlog-tiles).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_events::Store;
use forebay_events::store::BundleError;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::Shared;
use super::problem::{self, Problem};
use super::read::id;
use crate::answer::pairs;

/// Number of hashes in a full tile, and of events in a full bundle.
const WIDTH: usize = 256;
const HASH_SIZE: usize = 32;

const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// For content that never changes.
const FOR_EVER: HeaderValue = HeaderValue::from_static("max-age=31536000, immutable");
/// Partial tiles do not change either, but are superseded by the full one.
const A_MINUTE: HeaderValue = HeaderValue::from_static("max-age=60");
const NOT_AT_ALL: HeaderValue = HeaderValue::from_static("no-store");

fn plain(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response.headers_mut().insert(CACHE_CONTROL, NOT_AT_ALL);
    response
}

/// Signs a checkpoint of all stored events.
pub(super) async fn checkpoint(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let note = shared.ask(|store| Ok(store.newest_checkpoint()?)).await;
    problem::answer(note.map(plain), &headers)
}

/// Returns the newest signed checkpoint; with witnesses, the newest that enough of them cosigned.
pub(super) async fn latest(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let note = shared.ask(|store| Ok(store.served_checkpoint()?)).await;
    problem::answer(note.map(plain), &headers)
}

pub(super) async fn key(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let key = shared.ask(|store| Ok(format!("{}\n", store.verifier_key()?))).await;
    problem::answer(key.map(plain), &headers)
}

fn document(proof: impl serde::Serialize) -> Result<Response, Problem> {
    let json = serde_json::to_value(proof).map_err(|error| problem::internal(&error.into()))?;
    let mut response = problem::json(StatusCode::OK, &json);
    response.headers_mut().insert(CACHE_CONTROL, NOT_AT_ALL);
    Ok(response)
}

pub(super) async fn of_event(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let answer = async {
        let id = id(&name)?;
        document(shared.ask(move |store| Ok(store.prove(id)?)).await?)
    };
    problem::answer(answer.await, &headers)
}

pub(super) async fn consistency(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let answer = async {
        let (first, second) = sizes(&uri)?;
        let prove = move |store: &Store| {
            let size = store.len();
            let last = second.unwrap_or(size);
            if first > last || last > size {
                let text = format!("must be first <= second <= {size}, the number of events");
                return Err(Problem::bad("query", text));
            }
            Ok(store.prove_consistency(first, second)?)
        };
        document(shared.ask(prove).await?)
    };
    problem::answer(answer.await, &headers)
}

fn sizes(uri: &Uri) -> Result<(u64, Option<u64>), Problem> {
    let (mut first, mut second) = (None, None);
    for (name, value) in pairs(uri) {
        let value = std::str::from_utf8(&value).ok().and_then(|text| text.parse::<u64>().ok());
        let value =
            value.ok_or_else(|| Problem::bad("query", "first and second must be numbers"))?;
        match &*name {
            "first" => first = Some(value),
            "second" => second = Some(value),
            _ => {
                let text = "unknown query parameter; known are first and second";
                return Err(Problem::bad("query", text));
            }
        }
    }
    let text = "first, the earlier size, is required; second is the later size";
    Ok((first.ok_or_else(|| Problem::bad("query", text))?, second))
}

/// The resource that a path below `/v1/events/tlog/tile/` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// `None`: the events themselves.
    level: Option<u32>,
    index: u64,
    width: usize,
}

impl Tile {
    /// Parses `<L>/<N>[.p/<W>]` or `entries/<N>[.p/<W>]`; `None` if the path is not valid.
    fn read(path: &str) -> Option<Self> {
        let (level, rest) = path.split_once('/')?;
        let level = match level {
            "entries" => None,
            level => Some(decimal(level).filter(|level| *level < 64)?),
        };
        let (rest, width) = match rest.split_once(".p/") {
            Some((rest, width)) => {
                let width = usize::try_from(decimal(width)?).ok()?;
                (1..WIDTH).contains(&width).then_some((rest, width))?
            }
            None => (rest, WIDTH),
        };
        let mut groups = rest.split('/').peekable();
        let mut index = 0u64;
        let mut first = true;
        while let Some(group) = groups.next() {
            let last = groups.peek().is_none();
            let digits = if last { group } else { group.strip_prefix('x')? };
            if digits.len() != 3 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            // There is one path for one index.
            if first && !last && digits == "000" {
                return None;
            }
            first = false;
            index = index.checked_mul(1_000)?.checked_add(digits.parse().ok()?)?;
        }
        Some(Self { level, index, width })
    }

    /// Returns the number of events the tree must have for this tile to exist.
    fn events(self) -> Option<u64> {
        let nodes = self.index.checked_mul(WIDTH as u64)?.checked_add(self.width as u64)?;
        let shift = 8 * self.level.unwrap_or(0);
        let events = nodes.checked_shl(shift)?;
        (events >> shift == nodes).then_some(events)
    }
}

/// Parses a decimal number without sign and leading zeros.
fn decimal(text: &str) -> Option<u32> {
    let plain = text == "0" || !text.starts_with(['0', '+']);
    plain.then(|| text.parse().ok()).flatten()
}

pub(super) async fn tile(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Response {
    let answer = async {
        let asked = Tile::read(&path)
            .ok_or_else(|| Problem::not_found("not a tile path; see C2SP tlog-tiles"))?;
        let bytes = shared.ask(move |store| tile_bytes(store, asked)).await?;
        let mut response = Response::new(Body::from(bytes));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, OCTETS);
        let whole = asked.width == WIDTH;
        headers.insert(CACHE_CONTROL, if whole { FOR_EVER } else { A_MINUTE });
        headers.insert(VARY, HeaderValue::from_static("authorization, x-api-key"));
        Ok(response)
    };
    problem::answer(answer.await, &headers)
}

fn tile_bytes(store: &Store, asked: Tile) -> Result<Vec<u8>, Problem> {
    let (signed, _) = store.latest_checkpoint()?;
    if asked.events().is_none_or(|events| events > signed.size) {
        let text = format!("the newest checkpoint covers {} events", signed.size);
        return Err(Problem::not_found(text));
    }
    let Some(level) = asked.level else { return bundle(store, asked) };
    let hashes = store.tile(level, asked.index, asked.width).map_err(|error| {
        tracing::debug!(error = %forebay_base::error_chain::chain(&error), "no tile");
        Problem::not_found("the events below this tile were removed, with their hashes")
    })?;
    let mut bytes = Vec::with_capacity(hashes.len() * HASH_SIZE);
    hashes.iter().for_each(|hash| bytes.extend_from_slice(&hash.0));
    Ok(bytes)
}

/// Returns the entries of the events, each preceded by its length.
fn bundle(store: &Store, asked: Tile) -> Result<Vec<u8>, Problem> {
    store.bundle(asked.index * WIDTH as u64, asked.width).map_err(|error| match error {
        BundleError::Read(error) => error.into(),
        BundleError::TooLarge { .. } => {
            Problem::new(StatusCode::NOT_FOUND, "entry_too_large", error.to_string())
        }
        _ => Problem::not_found(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_tiles_are_read_as_the_specification_writes_them() {
        let tile = |level, index, width| Some(Tile { level, index, width });
        for (path, found) in [
            ("0/000", tile(Some(0), 0, 256)),
            ("0/x001/x234/067", tile(Some(0), 1_234_067, 256)),
            ("63/005.p/1", tile(Some(63), 5, 1)),
            ("entries/x001/000.p/255", tile(None, 1_000, 255)),
            ("1/x018/x446/x744/x073/x709/x551/615", tile(Some(1), u64::MAX, 256)),
        ] {
            assert_eq!(Tile::read(path), found, "{path}");
        }
        for path in [
            "",
            "0",
            "0/",
            "0/0",
            "0/00",
            "0/0000",
            "0/x000/001",
            "00/000",
            "64/000",
            "-1/000",
            "+1/000",
            "0/001/002",
            "0/x001",
            "0/000.p/0",
            "0/000.p/256",
            "0/000.p/01",
            "0/000.p/",
            "0/000.p/1/2",
            "entries",
            "data/000",
            "0/x001/x234/06a",
            "0/x018/x446/x744/x073/x709/x551/616",
        ] {
            assert_eq!(Tile::read(path), None, "{path}");
        }
    }

    #[test]
    fn a_tile_says_how_many_events_it_needs() {
        let of = |path| Tile::read(path).unwrap().events();
        assert_eq!(of("0/000"), Some(256));
        assert_eq!(of("entries/001.p/4"), Some(260));
        assert_eq!(of("1/000.p/1"), Some(256));
        assert_eq!(of("2/000"), Some(1 << 24));
        assert_eq!(of("63/000"), None);
        assert_eq!(of("7/255"), None);
        assert_eq!(of("0/x018/x446/x744/x073/x709/x551/615"), None);
    }
}
