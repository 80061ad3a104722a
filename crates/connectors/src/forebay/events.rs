//! Events, in the order in which the server accepted them.
//!
//! An event's position is its index in that order, without gaps; its time is whatever it declares.
//! So reading by position also finds events that arrived late, which reading by time would miss.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::connector::{Cursor, Division, Opening, Result, SourceStream, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Outlet, Phase};
use forebay_sdk::settings::{StreamSettings, SyncMode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::Server;
use super::rows::{self, Gathered, append};

/// Maximum number of units of the events.
const UNITS_MAX: u64 = 4_096;

/// Columns, and whether they are nullable.
const COLUMNS: [(&str, &str, bool); 14] = [
    ("position", "bigint", false),
    ("id", "text", false),
    ("time", "timestamptz", false),
    ("time_text", "text", false),
    ("stream", "text", true),
    ("type", "text", true),
    ("severity", "text", true),
    ("host", "text", true),
    ("ip", "text", true),
    ("collector", "text", true),
    ("format", "text", true),
    ("payload", "text", true),
    ("payload_bytes", "bytea", true),
    ("attributes", "json", true),
];
/// The column of hashes, if it is requested.
const HASH: &str = "hash";

/// An event as the server writes it.
#[derive(Debug, Deserialize)]
struct Event<'a> {
    id: String,
    seq: u64,
    timestamp: String,
    stream: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    severity: Option<String>,
    #[serde(default)]
    source: Origin,
    raw: Option<String>,
    raw_base64: Option<String>,
    #[serde(borrow)]
    attributes: Option<&'a RawValue>,
    proof: Option<Proof>,
}

#[derive(Debug, Default, Deserialize)]
struct Origin {
    host: Option<String>,
    ip: Option<String>,
    collector: Option<String>,
    format: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Proof {
    leaf_hash: String,
}

/// The server's counts.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Stats {
    /// Number of accepted events: the position of the next one.
    pub(super) events: u64,
    events_kept: u64,
    segment_bytes: u64,
    log_bytes: u64,
}

impl Stats {
    /// Queries a server.
    pub(super) async fn of(server: &Server) -> Result<Self> {
        server.json("count events", &["v1", "events", "stats"]).await
    }

    /// Approximate size of an event in bytes.
    fn event(&self) -> u64 {
        let bytes = self.segment_bytes.max(self.log_bytes);
        bytes.checked_div(self.events_kept).unwrap_or(0).max(16)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.segment_bytes.max(self.log_bytes)
    }
}

/// The columns of events.
pub(super) fn columns(has_hashes: bool) -> Vec<Column> {
    let hash = has_hashes.then_some((HASH, "text", false));
    rows::described(COLUMNS.into_iter().chain(hash)).collect()
}

/// The filter in a stream's name: after `events/` a stream's name, or parameters of the search such
/// as `type=login&severity=high`.
pub(super) fn filter(name: &str) -> Result<Vec<(String, String)>> {
    let Some(asked) = name.strip_prefix("events/") else { return Ok(Vec::new()) };
    if !asked.contains('=') {
        return Ok(vec![("stream".into(), asked.to_owned())]);
    }
    const KNOWN: [&str; 10] =
        ["stream", "type", "host", "ip", "severity", "contains", "word", "regex", "from", "to"];
    super::source::parameters(asked, "events", &KNOWN)
}

/// Open events.
pub(super) struct EventStream {
    server: Server,
    filter: Vec<(String, String)>,
    columns: Vec<Column>,
    units: Vec<Unit>,
    cursor: Option<Cursor>,
    batch_size: usize,
}

impl EventStream {
    pub(super) async fn open(
        server: &Server,
        stream: &StreamSettings,
        opening: &Opening,
    ) -> Result<Self> {
        let is_incremental = stream.sync_mode == SyncMode::Incremental;
        if is_incremental && stream.cursor_field.as_deref() != Some("position") {
            return Err(ConnectorError::unsupported(
                "events can only be read in order of their positions",
                "set `cursor_field: position`",
            ));
        }
        let since = opening.since.as_ref().filter(|_| is_incremental);
        let mut opened = Self {
            filter: filter(&stream.name)?,
            columns: choose(server, stream)?,
            units: Vec::new(),
            cursor: since.cloned(),
            batch_size: opening.batch_size,
            server: server.clone(),
        };
        if let Division::As(units) = &opening.division {
            if let Some(unit) = units.iter().find(|unit| range(unit).is_none()) {
                return Err(ConnectorError::unsupported(
                    format!("the unit {:?} does not belong to events", unit.name),
                    "run again with `--from-scratch`",
                ));
            }
            opened.units.clone_from(units);
            return Ok(opened);
        }
        let first = match since {
            None => 0,
            Some(cursor) => {
                cursor.value.parse::<u64>().map_err(|_| {
                    let found = format!("{:?} is not a position", cursor.value);
                    ConnectorError::data("the cursor of the last run", found)
                })? + 1
            }
        };
        let stats = Stats::of(server).await?;
        if stats.events <= first {
            if since.is_none() {
                opened.units = vec![unit(0, 0)];
            }
            return Ok(opened);
        }
        if is_incremental {
            let value = (stats.events - 1).to_string();
            opened.cursor = Some(Cursor::new(value, None));
        }
        opened.units = divide(first, stats, opening);
        Ok(opened)
    }

    fn append(event: &Event<'_>, rows: &mut Gathered<'_>) -> Result<()> {
        for (column, builder) in rows.builders() {
            let mut text = |text: &Option<String>| append(builder, text.as_deref());
            let appended = match column.name.as_str() {
                "position" => builder.text(&event.seq.to_string()),
                "id" => builder.text(&event.id),
                "time" => builder.text(&to_microseconds(&event.timestamp)),
                "time_text" => builder.text(&event.timestamp),
                "stream" => text(&event.stream),
                "type" => text(&event.kind),
                "severity" => text(&event.severity),
                "host" => text(&event.source.host),
                "ip" => text(&event.source.ip),
                "collector" => text(&event.source.collector),
                "format" => text(&event.source.format),
                "payload" => text(&event.raw),
                // As base64, the text form of columns of bytes.
                "payload_bytes" => text(&event.raw_base64),
                "attributes" => append(builder, event.attributes.map(RawValue::get)),
                _ => append(builder, event.proof.as_ref().map(|proof| &*proof.leaf_hash)),
            };
            appended.map_err(|found| {
                let place = format!("event {} at {}, {}", event.id, event.seq, column.name);
                ConnectorError::data(place, found)
            })?;
        }
        Ok(())
    }

    fn query(&self, from: u64, to: u64) -> Vec<(String, String)> {
        let mut query = self.filter.clone();
        query.push(("order".into(), "position".into()));
        query.push(("before".into(), to.to_string()));
        if let Some(last) = from.checked_sub(1) {
            query.push(("cursor".into(), last.to_string()));
        }
        if self.columns.iter().any(|column| column.name == HASH) {
            query.push(("proof".into(), "true".into()));
        }
        query
    }
}

/// The columns a stream chooses, in its order.
fn choose(server: &Server, stream: &StreamSettings) -> Result<Vec<Column>> {
    let all = columns(server.settings().event_hashes);
    let chosen = rows::choose(&all, stream)?;
    Ok(chosen.into_iter().filter_map(|at| all.get(at).cloned()).collect())
}

/// A unit of the positions from `from` up to, but excluding, `to`.
fn unit(from: u64, to: u64) -> Unit {
    Unit {
        name: format!("position {from}..{to}"),
        from: Some(from.to_string()),
        to: Some(to.to_string()),
        rows: Some(to - from),
        bytes: None,
    }
}

fn range(unit: &Unit) -> Option<(u64, u64)> {
    let end = |end: &Option<String>| end.as_ref()?.parse::<u64>().ok();
    Some((end(&unit.from)?, end(&unit.to)?)).filter(|(from, to)| from <= to)
}

fn divide(first: u64, stats: Stats, opening: &Opening) -> Vec<Unit> {
    let span = stats.events - first;
    let each = (opening.unit_size / stats.event()).max(span.div_ceil(UNITS_MAX)).max(1);
    if opening.division == Division::Whole || span <= each {
        return vec![unit(first, stats.events)];
    }
    let parts = (0..span.div_ceil(each)).map(|part| first + part * each);
    parts.map(|from| unit(from, from.saturating_add(each).min(stats.events))).collect()
}

/// A time truncated to microseconds: `time_text` has all of it.
fn to_microseconds(time: &str) -> std::borrow::Cow<'_, str> {
    match time.split_once('.') {
        Some((seconds, fraction)) if fraction.len() > 7 && fraction.is_ascii() => {
            let kept = fraction.get(..6).unwrap_or(fraction);
            format!("{seconds}.{kept}Z").into()
        }
        _ => time.into(),
    }
}

#[async_trait]
impl SourceStream for EventStream {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        true
    }

    fn cursor(&self) -> Option<Cursor> {
        self.cursor.clone()
    }

    fn notes(&self) -> Vec<String> {
        vec!["events by position, except pruned ones".into()]
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        let Some((from, to)) = self.units.get(unit).and_then(range) else {
            return Err(ConnectorError::data("events", "there is no such unit"));
        };
        if from == to {
            return Ok(());
        }
        let act = "read events";
        let phases = Arc::clone(&out.context().phases);
        let mut begun = Instant::now();
        let path = ["v1", "events"];
        let query = self.query(from, to);
        let answer = self.server.get(act, &path, &query, "application/x-ndjson").await?;
        let mut lines = self.server.lines(act, answer);
        let mut rows = Gathered::new(&self.columns, self.batch_size);
        while let Some(line) = lines.next().await? {
            let event: Event<'_> = serde_json::from_slice(line)
                .map_err(|error| self.server.misunderstood(act, error))?;
            Self::append(&event, &mut rows)?;
            if let Some(batch) = rows.count(line.len())? {
                phases.add(Phase::Fetch, begun);
                out.send(batch).await?;
                begun = Instant::now();
            }
        }
        phases.add(Phase::Fetch, begun);
        match rows.take()? {
            Some(batch) => out.send(batch).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_chooses_events() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(filter("events").unwrap(), []);
        assert_eq!(filter("events/auth").unwrap(), [pair("stream", "auth")]);
        let both = filter("events/type=login&severity=high").unwrap();
        assert_eq!(both, [pair("type", "login"), pair("severity", "high")]);
        assert!(filter("events/order=newest").is_err());
    }

    #[test]
    fn times_are_cut_to_what_a_column_holds() {
        assert_eq!(
            to_microseconds("2026-11-21T10:00:00.123456789Z"),
            "2026-11-21T10:00:00.123456Z"
        );
        assert_eq!(to_microseconds("2026-11-21T10:00:00.123Z"), "2026-11-21T10:00:00.123Z");
        assert_eq!(to_microseconds("2026-11-21T10:00:00Z"), "2026-11-21T10:00:00Z");
    }

    #[test]
    fn units_have_every_position_once() {
        let stats = Stats { events: 103, events_kept: 100, segment_bytes: 10_000, log_bytes: 0 };
        let opening = Opening {
            form: forebay_sdk::connector::Form::Records,
            since: None,
            division: Division::Stable,
            unit_size: 1_000,
            batch_size: 1,
            memory: 32 << 20,
            parallelism: 1,
            snapshot: None,
        };
        let units = divide(3, stats, &opening);
        let ranges: Vec<_> = units.iter().filter_map(range).collect();
        assert_eq!(
            (ranges.len(), ranges.first(), ranges.last()),
            (10, Some(&(3, 13)), Some(&(93, 103)))
        );
        assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0));
    }
}
