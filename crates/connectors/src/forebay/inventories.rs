//! The prefixes of an inventory, each with what is below it.
//!
//! One request streams all of them, by name, from one index: an inventory that is built again meanwhile is read as it
//! was. Every run reads all of them, so `write_mode: replace` has the newest inventory, and `append` the history of
//! all that were read, each with its time in `built`.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::connector::{Cursor, Discovered, Opening, Result, SourceStream, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Outlet, Phase};
use forebay_sdk::settings::StreamSettings;
use forebay_sdk::values::time::write_timestamp;
use serde::Deserialize;

use super::client::Server;
use super::rows::{self, Gathered, append};
use super::source::{described, parameters, whole};

/// Prefix of the names of streams of inventories.
pub(super) const INVENTORIES: &str = "inventories/";
/// What is attempted, for messages.
const ACT: &str = "list the prefixes of an inventory";
/// Maximum number of prefixes of an answer, as in the server.
const PREFIXES_MAX: u64 = 10_000_000;
/// Size in bytes of a row besides its prefix, about.
const ROW_SIZE: usize = 128;
/// The parameters that a stream's name may have.
const KNOWN: [&str; 9] = [
    "prefix",
    "depth",
    "min_billed",
    "min_bytes",
    "min_objects",
    "min_noncurrent",
    "min_delete_markers",
    "min_cost",
    "class",
];

/// Columns, and whether they are nullable.
const COLUMNS: [(&str, &str, bool); 15] = [
    ("inventory", "text", false),
    ("built", "timestamptz", false),
    ("prefix", "text", false),
    ("prefix_encoded", "text", true),
    ("depth", "bigint", false),
    ("descendants", "bigint", false),
    ("objects", "bigint", false),
    ("bytes", "bigint", false),
    ("noncurrent_objects", "bigint", false),
    ("noncurrent_bytes", "bigint", false),
    ("delete_markers", "bigint", false),
    ("billed_bytes", "bigint", false),
    ("class_objects", "bigint", true),
    ("class_bytes", "bigint", true),
    ("cost", "double precision", true),
];

/// The inventories of a server.
#[derive(Debug, Deserialize)]
struct Inventories {
    inventories: Vec<Listed>,
}

/// One of them; without a number of prefixes if it cannot be read yet.
#[derive(Debug, Deserialize)]
struct Listed {
    name: String,
    prefixes: Option<u64>,
}

/// An inventory.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Described {
    built_at_ms: i64,
    prefixes: u64,
}

/// A prefix as the server describes it.
#[derive(Debug, Deserialize)]
struct Prefix {
    prefix: String,
    prefix_encoded: Option<String>,
    depth: u64,
    descendants: u64,
    objects: u64,
    bytes: u64,
    noncurrent_objects: u64,
    noncurrent_bytes: u64,
    delete_markers: u64,
    billed_bytes: u64,
    class_objects: Option<u64>,
    class_bytes: Option<u64>,
    cost: Option<f64>,
}

fn columns() -> Vec<Column> {
    rows::described(COLUMNS).collect()
}

/// The inventories that can be read.
pub(super) async fn discovered(server: &Server) -> Result<Vec<Discovered>> {
    let found: Inventories = server.json("list inventories", &["v1", "inventories"]).await?;
    let (columns, key) = (columns(), ["inventory", "prefix"]);
    let read = found.inventories.into_iter().filter_map(|of| Some((of.name, of.prefixes?)));
    let name = |name: String| format!("{INVENTORIES}{name}");
    Ok(read.map(|(of, rows)| described(name(of), &columns, &key, rows, None)).collect())
}

/// An inventory that is open.
pub(super) struct InventoryStream {
    server: Server,
    name: String,
    filter: Vec<(String, String)>,
    columns: Vec<Column>,
    units: Vec<Unit>,
    batch_size: usize,
}

impl InventoryStream {
    /// Opens what a stream's name selects: an inventory, or after `/` its prefixes that a filter finds.
    pub(super) async fn open(
        server: &Server,
        stream: &StreamSettings,
        opening: &Opening,
    ) -> Result<Self> {
        let asked = stream.name.strip_prefix(INVENTORIES).unwrap_or_default();
        let (name, filter) = asked.split_once('/').unwrap_or((asked, ""));
        let filter = parameters(filter, "prefixes", &KNOWN)?;
        let all = columns();
        let chosen = rows::choose(&all, stream)?;
        let columns = chosen.into_iter().filter_map(|at| all.get(at).cloned()).collect();
        let opened = Self {
            server: server.clone(),
            name: name.to_owned(),
            columns,
            units: Vec::new(),
            batch_size: opening.batch_size,
            filter,
        };
        let found = opened.describe().await?;
        let rows = opened.filter.is_empty().then_some(found.prefixes);
        if rows.is_some_and(|rows| rows >= PREFIXES_MAX) {
            return Err(opened.too_many());
        }
        let units = whole(stream, opening, rows, "an inventory is")?;
        Ok(Self { units, ..opened })
    }

    async fn describe(&self) -> Result<Described> {
        self.server.json("look up an inventory", &["v1", "inventories", &self.name]).await
    }

    fn too_many(&self) -> ConnectorError {
        ConnectorError::unsupported(
            format!("the inventory {:?} has {PREFIXES_MAX} prefixes or more", self.name),
            format!(
                "read a part of them, such as {INVENTORIES}{}/depth=4 or {INVENTORIES}{}/prefix=a%2F",
                self.name, self.name
            ),
        )
    }

    fn append(&self, found: &Prefix, built: &str, rows: &mut Gathered<'_>) -> Result<()> {
        let number = |number: u64| Some(number.to_string());
        for (column, builder) in rows.builders() {
            let value = match column.name.as_str() {
                "inventory" => Some(self.name.clone()),
                "built" => Some(built.to_owned()),
                "prefix" => Some(found.prefix.clone()),
                "prefix_encoded" => found.prefix_encoded.clone(),
                "depth" => number(found.depth),
                "descendants" => number(found.descendants),
                "objects" => number(found.objects),
                "bytes" => number(found.bytes),
                "noncurrent_objects" => number(found.noncurrent_objects),
                "noncurrent_bytes" => number(found.noncurrent_bytes),
                "delete_markers" => number(found.delete_markers),
                "billed_bytes" => number(found.billed_bytes),
                "class_objects" => found.class_objects.and_then(number),
                "class_bytes" => found.class_bytes.and_then(number),
                _ => found.cost.map(|cost| cost.to_string()),
            };
            append(builder, value.as_deref()).map_err(|expected| {
                let place = format!("prefix {:?} of {}, {}", found.prefix, self.name, column.name);
                ConnectorError::data(place, expected)
            })?;
        }
        Ok(())
    }
}

#[async_trait]
impl SourceStream for InventoryStream {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        false
    }

    fn cursor(&self) -> Option<Cursor> {
        None
    }

    fn notes(&self) -> Vec<String> {
        vec!["the prefixes of one index, by name, in one request".into()]
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        if unit >= self.units.len() {
            return Err(ConnectorError::data("prefixes", "there is no such unit"));
        }
        let phases = Arc::clone(&out.context().phases);
        let before = self.describe().await?;
        let mut built = Vec::new();
        write_timestamp(before.built_at_ms.saturating_mul(1_000), true, &mut built);
        let built = String::from_utf8_lossy(&built).into_owned();
        let mut query = self.filter.clone();
        query.push(("limit".into(), PREFIXES_MAX.to_string()));
        let path = ["v1", "inventories", &self.name, "descendants"];
        let answer = self.server.get(ACT, &path, &query, "application/x-ndjson").await?;
        // The answer is of one index; which one it is shows when nothing has changed since before it.
        if self.describe().await? != before {
            return Err(ConnectorError::Busy {
                act: format!("{ACT}, {:?}", self.name),
                source: "it was built again at this moment".into(),
            });
        }
        let (mut lines, mut count) = (self.server.lines(ACT, answer), 0_u64);
        let mut rows = Gathered::new(&self.columns, self.batch_size);
        loop {
            let begun = Instant::now();
            let line = lines.next().await?;
            phases.add(Phase::Fetch, begun);
            let Some(line) = line else { break };
            let found: Prefix = serde_json::from_slice(line)
                .map_err(|error| self.server.misunderstood(ACT, error))?;
            count += 1;
            self.append(&found, &built, &mut rows)?;
            if let Some(batch) = rows.count(found.prefix.len() + ROW_SIZE)? {
                out.send(batch).await?;
            }
        }
        if count >= PREFIXES_MAX {
            return Err(self.too_many());
        }
        if self.filter.is_empty() && count != before.prefixes {
            let found = format!("{count} of {} prefixes", before.prefixes);
            return Err(self.server.misunderstood(ACT, found));
        }
        match rows.take()? {
            Some(batch) => out.send(batch).await,
            None => Ok(()),
        }
    }
}
