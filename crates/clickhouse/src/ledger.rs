//! Loads and their units, in a table beside those that they describe.
//!
//! ```text
//! _forebay_ledger        { stream_id, kind: "load" | "unit", load, unit, seq, attempt, state, record: JSON, at }
//! _forebay_dead_letters  { pipeline, stream, load, unit, attempt, position, reason, row, at }
//! ```
//!
//! Rows are only ever added: of those of one load or unit, the newest one counts, by `seq`. Queries ask for it by
//! `argMax`, so it does not matter what the server has merged. The row of the kind `load` has the last load of the
//! stream, with its id in `attempt`.
//!
//! Invariants:
//! * A unit is `begun`, with its complete entry, before its rows are sent, and `committed` after they are there. So of a unit
//!   that is `begun` only the table can say whether its rows are there, and the entry is known either way.
//! * `attempt` of a unit differs whenever it is written. The INSERT of its rows has the condition that it is still the newest.

use std::sync::Arc;

use forebay_sdk::batch::DeadRow;
use forebay_sdk::connector::{LedgerEntry, Load, Result};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::TargetSettings;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::claim::{Held, insert_if};
use crate::client::{Body, Server};
use crate::columns::DURABLE;
use crate::error::{LOST, OUTDATED, UNKNOWN_TABLE};
use crate::sql;

const LEDGER: &str = "_forebay_ledger";
const DEAD: &str = "_forebay_dead_letters";
/// The version of this format.
const VERSION: u32 = 1;

/// The record of a stream's last load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    version: u32,
    pub(crate) pipeline: String,
    pub(crate) stream: String,
    /// The table.
    pub(crate) into: String,
    /// `None` if the record was deleted on request.
    pub(crate) load: Option<Load>,
    /// The table that takes the place of the target when a load with `replace` ends, by its UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// The number of an `upsert`: rows of a load with a greater one replace others.
    #[serde(default)]
    pub(crate) number: u64,
    /// The number of the row that it was read from; 0 if there is none.
    #[serde(skip)]
    pub(crate) seq: u64,
}

/// The record of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) is_committed: bool,
    pub(crate) entry: LedgerEntry,
}

/// The ledger of one stream and its table.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    server: Server,
    stream_id: String,
    held: Option<Arc<Held>>,
}

impl Head {
    /// The record of a load that begins.
    ///
    /// * `seq`: the number of the row with the previous one.
    pub(crate) fn new(settings: &TargetSettings, load: Option<&Load>, seq: u64) -> Self {
        Self {
            version: VERSION,
            pipeline: settings.pipeline.clone(),
            stream: settings.stream.clone(),
            into: settings.into.clone(),
            load: load.cloned(),
            next: None,
            number: 0,
            seq,
        }
    }

    /// The record that remains when that of the load is deleted.
    pub(crate) fn forgotten(self) -> Self {
        Self { load: None, next: None, ..self }
    }

    /// Whether it is of this load, into the same table.
    pub(crate) fn is_of(&self, load: &Load, settings: &TargetSettings) -> bool {
        self.into == settings.into && self.load.as_ref().is_some_and(|it| it.id == load.id)
    }
}

impl Ledger {
    pub(crate) fn new(server: &Server, settings: &TargetSettings, held: Option<Arc<Held>>) -> Self {
        let stream_id = digits_of(&[&settings.pipeline, &settings.stream, &settings.into]);
        Self { server: server.clone(), stream_id, held }
    }

    /// The conditions under which records may be added: the claim is held.
    fn held(&self) -> Vec<String> {
        self.held.iter().map(|held| held.holds()).collect()
    }

    /// The conditions under which rows of an attempt may be added: the claim is held, and no other load or attempt has
    /// begun.
    pub(crate) fn current(&self, load: &str, unit: &str, attempt: &str) -> Vec<String> {
        let mut all = self.held();
        let newest = |kind, load, unit| {
            let of = self.condition(kind, load, unit);
            format!("(SELECT argMax(attempt, seq) FROM {LEDGER} WHERE {of})")
        };
        let (of_load, of_unit) = (newest("load", "", ""), newest("unit", load, unit));
        all.push(format!("throwIf({of_load} != {}, '{LOST}') = 0", sql::text(load)));
        all.push(format!("throwIf({of_unit} != {}, '{OUTDATED}') = 0", sql::text(attempt)));
        all
    }

    fn condition(&self, kind: &str, load: &str, unit: &str) -> String {
        let (stream, load, unit) = (sql::text(&self.stream_id), sql::text(load), sql::text(unit));
        format!("stream_id = {stream} AND kind = '{kind}' AND load = {load} AND unit = {unit}")
    }

    /// Creates the tables, unless they exist.
    pub(crate) async fn create(&self) -> Result<()> {
        let sql = format!(
            "CREATE TABLE IF NOT EXISTS {LEDGER} (stream_id String, kind LowCardinality(String), load String, \
             unit String, seq UInt64, attempt String, state LowCardinality(String), record String, \
             at DateTime64(3, 'UTC') DEFAULT now64(3)) ENGINE = ReplacingMergeTree(seq) \
             ORDER BY (stream_id, kind, load, unit) SETTINGS {DURABLE}"
        );
        self.server.ensure(&format!("create the table {LEDGER}"), &sql).await
    }

    async fn create_dead(&self) -> Result<()> {
        let sql = format!(
            "CREATE TABLE IF NOT EXISTS {DEAD} (pipeline String, stream String, load String, unit String, \
             attempt String, position String, reason String, row String, at DateTime64(3, 'UTC') DEFAULT now64(3)) \
             ENGINE = MergeTree ORDER BY (pipeline, stream, load, unit) SETTINGS {DURABLE}"
        );
        self.server.ensure(&format!("create the table {DEAD}"), &sql).await
    }

    /// The last load; `None` if there is none.
    pub(crate) async fn head(&self) -> Result<Option<Head>> {
        let of = self.condition("load", "", "");
        let sql = format!(
            "SELECT argMax(record, seq), toString(max(seq)) FROM {LEDGER} WHERE {of} HAVING count() > 0"
        );
        let rows = match self.server.try_rows(&sql).await {
            Err(failed) if failed.code() == Some(UNKNOWN_TABLE) => return Ok(None),
            rows => rows.map_err(|failed| self.server.failed("read the ledger", failed))?,
        };
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let unexpected = || crate::catalog::unexpected("read the ledger");
        let [record, seq] = <[String; 2]>::try_from(row).map_err(|_| unexpected())?;
        let head: Head = serde_json::from_str(&record).map_err(broken)?;
        let seq = seq.parse().map_err(|_| unexpected())?;
        match head.version {
            VERSION => Ok(Some(Head { seq, ..head })),
            version => Err(ConnectorError::data(
                format!("the table {LEDGER}"),
                format!("a record has version {version}; this Forebay supports version {VERSION}"),
            )),
        }
    }

    /// The records of the units of a load, in the order of their names.
    pub(crate) async fn units(&self, load: &str) -> Result<Vec<Recorded>> {
        let (stream, load) = (sql::text(&self.stream_id), sql::text(load));
        let sql = format!(
            "SELECT argMax(state, seq), argMax(record, seq) FROM {LEDGER} \
             WHERE stream_id = {stream} AND kind = 'unit' AND load = {load} GROUP BY unit ORDER BY unit"
        );
        let rows = self.server.rows("read the ledger", &sql).await?;
        rows.into_iter().map(recorded).collect()
    }

    /// The record of a unit.
    pub(crate) async fn unit(&self, load: &str, unit: &str) -> Result<Option<Recorded>> {
        let of = self.condition("unit", load, unit);
        let sql = format!(
            "SELECT argMax(state, seq), argMax(record, seq) FROM {LEDGER} WHERE {of} HAVING count() > 0"
        );
        let rows = self.server.rows("read the ledger", &sql).await?;
        rows.into_iter().next().map(recorded).transpose()
    }

    /// Stores the current state of the load, unless another one was stored since it was read.
    pub(crate) async fn put_head(&self, head: &Head) -> Result<()> {
        let record = serde_json::to_string(head).map_err(broken)?;
        let load = head.load.as_ref().map_or("", |load| &load.id);
        let of = self.condition("load", "", "");
        let mut conditions = self.held();
        conditions.push(format!(
            "throwIf((SELECT max(seq) FROM {LEDGER} WHERE {of}) != {}, '{OUTDATED}') = 0",
            head.seq
        ));
        self.put(("load", "", ""), load, "", &record, conditions).await
    }

    /// Records that an attempt to write a unit begins, unless the unit is committed.
    pub(crate) async fn begin(&self, entry: &LedgerEntry, attempt: &str) -> Result<()> {
        let of = self.condition("unit", &entry.load, &entry.unit);
        let mut conditions = self.held();
        conditions.push(format!(
            "throwIf((SELECT argMax(state, seq) FROM {LEDGER} WHERE {of}) = 'committed', '{OUTDATED}') = 0"
        ));
        self.put_unit(entry, attempt, "begun", conditions).await
    }

    /// Records that a unit is committed.
    pub(crate) async fn commit(&self, entry: &LedgerEntry) -> Result<()> {
        self.put_unit(entry, "", "committed", self.held()).await
    }

    async fn put_unit(
        &self,
        entry: &LedgerEntry,
        attempt: &str,
        state: &str,
        conditions: Vec<String>,
    ) -> Result<()> {
        let record = serde_json::to_string(entry).map_err(broken)?;
        self.put(("unit", &entry.load, &entry.unit), attempt, state, &record, conditions).await
    }

    /// Adds a row with the next number. The record is in the body: it can be larger than a statement may be.
    async fn put(
        &self,
        (kind, load, unit): (&str, &str, &str),
        attempt: &str,
        state: &str,
        record: &str,
        conditions: Vec<String>,
    ) -> Result<()> {
        let head = format!(
            "INSERT INTO {LEDGER} (stream_id, kind, load, unit, seq, attempt, state, record)"
        );
        let of = self.condition(kind, load, unit);
        let texts = [&*self.stream_id, kind, load, unit].map(sql::text).join(", ");
        let select = format!(
            "SELECT {texts}, (SELECT max(seq) FROM {LEDGER} WHERE {of}) + 1, {}, '{state}', record \
             FROM input('record String')",
            sql::text(attempt)
        );
        let body = serde_json::json!({ "record": record }).to_string();
        let body = (Body::plain(body.into_bytes()), "JSONEachRow");
        let comment = self.comment(unit);
        let put = insert_if(&self.server, &head, &select, &conditions, body, &comment).await;
        put.map_err(|failed| self.server.failed("write the ledger", failed))
    }

    /// The comment of statements that write a unit.
    pub(crate) fn comment(&self, unit: &str) -> String {
        let unit = digits_of(&[&self.stream_id, unit]);
        match &self.held {
            Some(held) => held.comment(&unit),
            None => format!("forebay-write {unit}"),
        }
    }

    /// Waits until no statement for a unit is in progress.
    pub(crate) async fn drain(&self, unit: &str) -> Result<()> {
        Held::drain_unit(&self.server, &self.comment(unit)).await
    }

    /// Stores dead letters of a unit, in place of those of an earlier attempt.
    pub(crate) async fn bury(
        &self,
        entry: &LedgerEntry,
        attempt: &str,
        dead: &[DeadRow],
        was_begun: bool,
    ) -> Result<()> {
        let LedgerEntry { pipeline, stream, load, unit, .. } = entry;
        let texts = [pipeline, stream, load, unit].map(|text| sql::text(text));
        if dead.is_empty() && !was_begun {
            return Ok(());
        }
        self.create_dead().await?;
        if was_begun {
            self.unbury(&texts).await?;
        }
        if dead.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for row in dead {
            serde_json::to_writer(&mut lines, row).map_err(broken)?;
            lines.push(b'\n');
        }
        let head = format!(
            "INSERT INTO {DEAD} (pipeline, stream, load, unit, attempt, position, reason, row)"
        );
        let select = format!(
            "SELECT {}, {}, position, reason, row \
             FROM input('position String, reason String, row String')",
            texts.join(", "),
            sql::text(attempt)
        );
        let conditions = self.current(load, unit, attempt);
        let body = (Body::plain(lines), "JSONEachRow");
        let comment = self.comment(unit);
        let put = insert_if(&self.server, &head, &select, &conditions, body, &comment).await;
        put.map_err(|failed| self.server.failed("store dead letters", failed))
    }

    /// Removes the dead letters of attempts that were interrupted. They are named one by one: a request that arrives
    /// late removes none of a later attempt.
    async fn unbury(&self, [pipeline, stream, load, unit]: &[String; 4]) -> Result<()> {
        let act = "remove dead letters of an interrupted unit";
        let of = format!(
            "pipeline = {pipeline} AND stream = {stream} AND load = {load} AND unit = {unit}"
        );
        let sql = format!("SELECT DISTINCT attempt FROM {DEAD} WHERE {of}");
        let attempts: Vec<String> = self
            .server
            .rows(act, &sql)
            .await?
            .iter()
            .flatten()
            .map(|name| sql::text(name))
            .collect();
        if attempts.is_empty() {
            return Ok(());
        }
        let attempts = attempts.join(", ");
        let sql = format!("DELETE FROM {DEAD} WHERE {of} AND attempt IN ({attempts})");
        self.server.ensure(act, &sql).await
    }
}

fn recorded(row: Vec<String>) -> Result<Recorded> {
    let [state, record] =
        <[String; 2]>::try_from(row).map_err(|_| crate::catalog::unexpected("read the ledger"))?;
    let entry = serde_json::from_str(&record).map_err(broken)?;
    Ok(Recorded { is_committed: state == "committed", entry })
}

fn broken(error: serde_json::Error) -> ConnectorError {
    ConnectorError::Refused { act: "use the ledger".into(), source: error.into() }
}

/// A hash in hexadecimal that represents names where these are not allowed.
pub(crate) fn digits_of(names: &[&str]) -> String {
    let mut hash = Sha256::new();
    for name in names {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
    }
    hex::encode(hash.finalize().get(..12).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_say_where_one_name_ends() {
        assert_ne!(digits_of(&["ab", "c"]), digits_of(&["a", "bc"]));
        assert_eq!(digits_of(&["a"]).len(), 24);
    }
}
