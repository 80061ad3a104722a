//! The promises of a destination, with one target: what an author of a connector tests with a table of theirs.
//!
//! Invariants: only this target is written; the rows stay in it, and no record of a load does.

use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_pgcopy::{Column, ContentHash};

use super::destination::{Suite, hash, load, settings, unit};
use super::source::said;
use super::{Claim, Failure, Findings, Lacks, Tested, try_rows};
use crate::batch::{Batch, Rows};
use crate::connector::{Cursor, Destination, Load, Target};
use crate::error::ConnectorError;
use crate::settings::{TargetSettings, WriteMode};

const CHECKS: Claim = Claim("a check reports what answered");
const UNUSED: Claim = Claim("no load of the target is recorded before the first one");
const PREPARES: Claim = Claim("a target is inspected and prepared, and is empty");
const CLAIMED: Claim = Claim("a stream is claimed by one run at a time");
const DROPPED: Claim = Claim("a writer that is dropped leaves nothing");
const COMMITS: Claim = Claim("a committed unit is visible, and its entry has its rows and hash");
const CONTINUES: Claim =
    Claim("an interrupted load is found with its committed units, and continues");
const FINISHES: Claim = Claim("a finished load is recorded with its cursor and all its units");
const FORGETS: Claim = Claim("the records of loads are deleted, and the rows stay");

/// Tests that a destination answers.
pub async fn check_destination(destination: &Arc<dyn Destination>) -> Findings {
    let mut findings = Findings::default();
    let answer = CHECKS.ok(destination.check().await);
    findings.add(CHECKS, answer.and_then(|answer| said(CHECKS, &answer)));
    findings
}

/// Tests what a destination promises of one target, each promise separately. The target must be new; 80 rows are in
/// it afterwards.
///
/// * `into`: its name.
/// * `columns`: its columns, of types that the generated rows have ([`try_rows`]).
pub async fn examine_target(
    destination: &Arc<dyn Destination>,
    into: &str,
    columns: &[Column],
) -> Findings {
    let suite = Suite {
        destination: Arc::clone(destination),
        columns: columns.to_vec(),
        lacks: Lacks::default(),
    };
    let run = Run { suite, settings: settings(into, WriteMode::Append) };
    let mut findings = Findings::default();
    if !findings.add(UNUSED, run.unused().await) {
        return findings;
    }
    let first = load("load-1", &["a", "b"]);
    let Some(target) = findings.take(PREPARES, run.prepared(PREPARES, &first).await) else {
        return findings;
    };
    findings.add(CLAIMED, run.claimed().await);
    let is_written = findings.add(DROPPED, run.drops(&target, &first).await)
        && findings.add(COMMITS, run.commits(&target, &first).await);
    drop(target);
    if !is_written {
        return findings;
    }
    if let Some(content) = findings.take(CONTINUES, run.continues(&first).await) {
        findings.add(FINISHES, run.finished().await);
        findings.add(FORGETS, run.forgets(content).await);
    }
    findings
}

/// The cursor of the load.
fn cursor() -> Cursor {
    Cursor::new("80".into(), Some("x'y".into()))
}

struct Run {
    suite: Suite,
    settings: TargetSettings,
}

impl Run {
    fn rows(&self, claim: Claim, ids: std::ops::Range<usize>) -> Result<RecordBatch, Failure> {
        claim.ok(try_rows(&self.suite.columns, ids))
    }

    /// The content of these rows as the target stores them.
    fn expected(
        claim: Claim,
        target: &Arc<dyn Target>,
        columns: &[Column],
        batches: &[&RecordBatch],
    ) -> Result<ContentHash, Failure> {
        let stored = target.stored().unwrap_or_else(|| columns.to_vec());
        let batches = batches.iter().map(|batch| claim.ok(target.as_stored(batch)));
        let batches = batches.collect::<Result<Vec<_>, _>>()?;
        hash(claim, &stored, &batches.iter().collect::<Vec<_>>())
    }

    async fn unused(&self) -> Result<Tested, Failure> {
        let last = UNUSED.ok(self.suite.destination.last_load(&self.settings).await)?;
        let found = || "a load is recorded; name a target that does not exist".to_owned();
        UNUSED.holds(last.is_none(), found).map(|()| Tested::Kept)
    }

    async fn prepared(&self, claim: Claim, load: &Load) -> Result<Arc<dyn Target>, Failure> {
        let target = self.suite.open(claim, &self.settings).await?;
        claim.holds(!target.plan().is_empty(), || "the plan is empty".into())?;
        claim.ok(target.prepare(load).await)?;
        let found = claim.ok(target.content().await)?;
        let has_rows = || format!("it has {} rows; name a target that does not exist", found.rows);
        claim.holds(found.rows == 0, has_rows)?;
        Ok(target)
    }

    async fn claimed(&self) -> Result<Tested, Failure> {
        let held = CLAIMED.ok(self.suite.destination.claim(&self.settings).await)?;
        let second = self.suite.destination.claim(&self.settings).await;
        CLAIMED.holds(second.is_err(), || "a second run has claimed it, too".into())?;
        drop(second);
        drop(held);
        let again = CLAIMED.ok(self.suite.destination.claim(&self.settings).await);
        again.map(|_claim| Tested::Kept)
    }

    async fn drops(&self, target: &Arc<dyn Target>, load: &Load) -> Result<Tested, Failure> {
        let mut writer = DROPPED.ok(target.writer(load, &unit("a")).await)?;
        let rows = Rows::Records(self.rows(DROPPED, 0..30)?);
        DROPPED.ok(writer.write(Batch::unbounded(rows)).await)?;
        drop(writer);
        let found = DROPPED.ok(target.content().await)?;
        let visible = || format!("{} rows are visible, which were not committed", found.rows);
        DROPPED.holds(found.rows == 0, visible).map(|()| Tested::Kept)
    }

    async fn commits(&self, target: &Arc<dyn Target>, load: &Load) -> Result<Tested, Failure> {
        let rows = self.rows(COMMITS, 0..50)?;
        let suite = &self.suite;
        let entry = suite.write(COMMITS, target, &self.settings, load, "a", &[&rows]).await?;
        let expected = Self::expected(COMMITS, target, &suite.columns, &[&rows])?;
        COMMITS.same((entry.rows, entry.dead, entry.hash), (50, 0, expected.to_string()))?;
        COMMITS.same(COMMITS.ok(target.content().await)?, expected).map(|()| Tested::Kept)
    }

    /// Another run continues the load. Returns the content of both units.
    async fn continues(&self, load: &Load) -> Result<ContentHash, Failure> {
        let claim = CONTINUES;
        let last = claim.ok(self.suite.destination.last_load(&self.settings).await)?;
        let Some((found, entries)) = last else {
            return Err(Failure::Broken { claim: claim.0, found: "no load is recorded".into() });
        };
        claim.same(&found, load)?;
        claim.same(entries.iter().map(|entry| &*entry.unit).collect::<Vec<_>>(), vec!["a"])?;
        let target = self.suite.open(claim, &self.settings).await?;
        claim.ok(target.prepare(load).await)?;
        let (first, second) = (self.rows(claim, 0..50)?, self.rows(claim, 50..80)?);
        self.suite.write(claim, &target, &self.settings, load, "b", &[&second]).await?;
        claim.ok(target.finish(&Load { cursor: Some(cursor()), ..load.clone() }).await)?;
        let both = Self::expected(claim, &target, &self.suite.columns, &[&first, &second])?;
        claim.same(claim.ok(target.content().await)?, both)?;
        Ok(both)
    }

    async fn finished(&self) -> Result<Tested, Failure> {
        let last = FINISHES.ok(self.suite.destination.last_load(&self.settings).await)?;
        let found = last.map(|(load, entries)| (load.is_finished, load.cursor, entries.len()));
        FINISHES.same(found, Some((true, Some(cursor()), 2))).map(|()| Tested::Kept)
    }

    async fn forgets(&self, content: ContentHash) -> Result<Tested, Failure> {
        let destination = &self.suite.destination;
        let held = FORGETS.ok(destination.claim(&self.settings).await)?;
        let forgotten = match destination.forget(&self.settings).await {
            Err(ConnectorError::Unsupported { .. }) => {
                return Ok(Tested::Not("the destination cannot delete the records of loads"));
            }
            forgotten => FORGETS.ok(forgotten)?,
        };
        drop(held);
        FORGETS.same(forgotten, 1)?;
        let last = FORGETS.ok(destination.last_load(&self.settings).await)?;
        FORGETS.holds(last.is_none(), || "a load is still recorded".into())?;
        let target = self.suite.open(FORGETS, &self.settings).await?;
        FORGETS.same(FORGETS.ok(target.content().await)?, content).map(|()| Tested::Kept)
    }
}
