//! The promises of every source.
//!
//! Invariant: rows are compared by their content hash, which is computed here from what arrived.

use std::sync::Arc;

use forebay_pgcopy::{Column, ContentHash};
use futures_util::future::try_join_all;

use super::{Claim, Failure, Findings, Tested};
use crate::batch::Rows;
use crate::component::tuples_hash;
use crate::connector::{Cursor, Division, Form, Opening, Source, SourceStream};
use crate::hash::Hasher;
use crate::run::{Budget, Context, Outlet};
use crate::settings::{StreamSettings, SyncMode};

/// Size of a unit in bytes, if none is given: small, so that there are several.
pub const UNIT_SIZE: u64 = 4 << 10;
/// Size of a batch in bytes: smaller than a unit.
const BATCH_SIZE: usize = 2 << 10;
/// Number of units that are read side by side.
const PARALLELISM: usize = 4;

const CHECKS: Claim = Claim("a check reports what answered");
const LISTS: Claim = Claim("the streams are listed, with different names and with their columns");
const OPENS: Claim = Claim("a stream opens, with columns and with units of different names");
const TWICE: Claim = Claim("reading a unit twice gives the same rows, of the stream's columns");
const WHOLE: Claim = Claim("a stream is read as one unit if that is requested");
const SUM: Claim = Claim("the units together are the whole stream");
const SIDE_BY_SIDE: Claim = Claim("units that are read side by side have the same rows");
const STABLE: Claim = Claim("stable units can be read again, with the same rows");
const GONE: Claim = Claim("a unit that no longer exists is refused");
const CURSOR: Claim = Claim("after the cursor of a stream there are no rows");
const FORMS: Claim = Claim("rows as tuples are the rows as Arrow");
const CHOSEN: Claim = Claim("the chosen columns are read, in their order");
const NO_COLUMN: Claim = Claim("a column that does not exist is refused when the stream is opened");
const STOPS: Claim = Claim("a reader whose consumer has gone stops");

/// Tests everything a source promises of a stream.
///
/// * `expected`: the content hash of all its rows, in its own columns.
///
/// # Errors
/// The first promise that is not kept.
pub async fn source(
    source: &Arc<dyn Source>,
    stream: &StreamSettings,
    expected: ContentHash,
) -> Result<(), Failure> {
    let mut findings = check_source(source).await;
    findings.extend(examine_source(source, stream, UNIT_SIZE, Some(expected)).await);
    findings.kept()
}

/// Tests that a source answers.
pub async fn check_source(source: &Arc<dyn Source>) -> Findings {
    let mut findings = Findings::default();
    let answer = CHECKS.ok(source.check().await);
    findings.add(CHECKS, answer.and_then(|answer| said(CHECKS, &answer)));
    findings
}

/// Tests that a source lists streams. Returns their names, unless there are none.
pub async fn discover_source(source: &Arc<dyn Source>) -> (Findings, Vec<String>) {
    let mut findings = Findings::default();
    let found = LISTS.ok(source.discover().await).and_then(|found| {
        LISTS.holds(!found.is_empty(), || "there is no stream".into())?;
        for stream in &found {
            let has_columns = stream.columns.iter().all(|it| !it.name.is_empty())
                && stream.columns.iter().all(|it| !it.sql_type.is_empty());
            LISTS.holds(has_columns && !stream.columns.is_empty(), || {
                format!("{:?} has no columns, or one without a name or a type", stream.name)
            })?;
        }
        let names: Vec<String> = found.into_iter().map(|stream| stream.name).collect();
        different(LISTS, names.clone(), "streams")?;
        Ok(names)
    });
    let names = findings.take(LISTS, found).unwrap_or_default();
    (findings, names)
}

/// Fails if two names are the same.
fn different(claim: Claim, mut names: Vec<String>, what: &str) -> Result<(), Failure> {
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    claim.holds(names.len() == count, || format!("two {what} have the same name"))
}

/// A report that is not empty.
pub(super) fn said(claim: Claim, answer: &str) -> Result<Tested, Failure> {
    claim.holds(!answer.is_empty(), || "the report is empty".into()).map(|()| Tested::Kept)
}

/// Tests everything a source promises of a stream, each promise separately. The rows of the stream must not change
/// meanwhile; they are read about twelve times.
///
/// * `unit_size`: of a unit, in bytes, so that there are several.
/// * `expected`: the content hash of all its rows, in its own columns. Without it the stream is compared with
///   itself only.
pub async fn examine_source(
    source: &Arc<dyn Source>,
    stream: &StreamSettings,
    unit_size: u64,
    expected: Option<ContentHash>,
) -> Findings {
    let suite = Suite { source, stream, unit_size };
    let mut findings = Findings::default();
    let Some(open) = findings.take(OPENS, suite.opens().await) else { return findings };
    let contents = findings.take(TWICE, twice(&open).await);
    let whole = findings.take(WHOLE, suite.whole(expected).await);
    if let Some(contents) = &contents {
        if let Some((_, whole)) = &whole {
            findings.add(SUM, SUM.same(sum(contents), *whole).map(|()| Tested::Kept));
        }
        findings.add(SIDE_BY_SIDE, side_by_side(&open, contents).await);
    }
    if let Some(stable) = findings.take(STABLE, suite.again().await) {
        findings.add(GONE, suite.gone(stable).await);
    }
    findings.add(CURSOR, suite.after(open.cursor()).await);
    if let Some((columns, whole)) = &whole {
        findings.add(FORMS, suite.forms(columns, *whole).await);
    }
    findings.add(CHOSEN, suite.projects(&open).await);
    let refused = suite.refuses_column().await;
    findings.add(NO_COLUMN, refused);
    let first = contents.and_then(|contents| contents.first().copied()).unwrap_or_default();
    findings.add(STOPS, stops(&open, first).await);
    findings
}

/// Opens a stream as the suite does, for other tests.
///
/// # Errors
/// Those of the source.
pub async fn open_source(
    source: &Arc<dyn Source>,
    stream: &StreamSettings,
) -> crate::connector::Result<Arc<dyn SourceStream>> {
    opened(source, stream, opening(Division::Any, UNIT_SIZE)).await
}

fn opening(division: Division, unit_size: u64) -> Opening {
    Opening {
        form: Form::PlainRecords,
        since: None,
        division,
        unit_size,
        batch_size: BATCH_SIZE,
        memory: 32 << 20,
        parallelism: 2,
        snapshot: None,
    }
}

async fn opened(
    source: &Arc<dyn Source>,
    stream: &StreamSettings,
    opening: Opening,
) -> crate::connector::Result<Arc<dyn SourceStream>> {
    let (context, _cancel) = Context::new("acceptance");
    source.open(stream, &opening, &context).await
}

fn sum(contents: &[ContentHash]) -> ContentHash {
    contents.iter().fold(ContentHash::default(), |mut total, content| {
        total.merge(*content);
        total
    })
}

struct Suite<'a> {
    source: &'a Arc<dyn Source>,
    stream: &'a StreamSettings,
    unit_size: u64,
}

impl Suite<'_> {
    async fn open(
        &self,
        claim: Claim,
        division: Division,
    ) -> Result<Arc<dyn SourceStream>, Failure> {
        claim.ok(opened(self.source, self.stream, opening(division, self.unit_size)).await)
    }

    async fn opens(&self) -> Result<Arc<dyn SourceStream>, Failure> {
        let claim = OPENS;
        let open = self.open(claim, Division::Any).await?;
        let is_enough = !open.units().is_empty() || self.stream.sync_mode == SyncMode::Incremental;
        claim.holds(is_enough, || "the stream has no unit".into())?;
        let units = open.units().iter().map(|unit| unit.name.clone());
        different(claim, units.collect(), "units")?;
        let columns = open.columns().iter().map(|column| column.name.clone());
        different(claim, columns.collect(), "columns")?;
        claim.holds(!open.columns().is_empty(), || "the stream has no column".into())?;
        Ok(open)
    }

    /// The columns and the content of the stream as one unit.
    async fn whole(
        &self,
        expected: Option<ContentHash>,
    ) -> Result<(Vec<Column>, ContentHash), Failure> {
        let claim = WHOLE;
        let open = self.open(claim, Division::Whole).await?;
        claim.same(open.units().len(), 1)?;
        let content = read(claim, &open, 0).await?;
        claim.same(content, expected.unwrap_or(content))?;
        Ok((open.columns().to_vec(), content))
    }

    /// The units of an unfinished load are read again. Returns the stream if its units are stable.
    async fn again(&self) -> Result<Option<Arc<dyn SourceStream>>, Failure> {
        let claim = STABLE;
        let open = self.open(claim, Division::Stable).await?;
        if !open.units_are_stable() {
            return claim
                .holds(open.units().len() <= 1, || {
                    let units = open.units().len();
                    format!("it has {units} units that are not stable, instead of one")
                })
                .map(|()| None);
        }
        let again = self.open(claim, Division::As(open.units().to_vec())).await?;
        claim.same(again.units(), open.units())?;
        for unit in 0..open.units().len() {
            claim.same(read(claim, &again, unit).await?, read(claim, &open, unit).await?)?;
        }
        Ok(Some(open))
    }

    async fn gone(&self, stable: Option<Arc<dyn SourceStream>>) -> Result<Tested, Failure> {
        let Some(open) = stable else { return Ok(Tested::Not("the units are not stable")) };
        let mut units = open.units().to_vec();
        let Some(unit) = units.first_mut() else {
            return Ok(Tested::Not("the stream has no unit"));
        };
        unit.name.push('!');
        unit.from = Some("nowhere".into());
        let refused =
            opened(self.source, self.stream, opening(Division::As(units), self.unit_size)).await;
        GONE.holds(refused.is_err(), || "the stream was opened".into()).map(|()| Tested::Kept)
    }

    /// Rows after the cursor of all rows.
    async fn after(&self, cursor: Option<Cursor>) -> Result<Tested, Failure> {
        let claim = CURSOR;
        let Some(cursor) = cursor else { return Ok(Tested::Not("the stream has no cursor")) };
        // As the engine records it.
        let since = Cursor {
            field: self.stream.cursor_field.clone(),
            tie_breaker_field: self.stream.tie_breaker_field.clone(),
            ..cursor.clone()
        };
        let opening = Opening { since: Some(since), ..opening(Division::Stable, self.unit_size) };
        let open = claim.ok(opened(self.source, self.stream, opening).await)?;
        let mut found = ContentHash::default();
        for unit in 0..open.units().len() {
            found.merge(read(claim, &open, unit).await?);
        }
        claim.holds(found.rows == 0, || format!("it has {} rows after {cursor:?}", found.rows))?;
        let is_there = open.cursor().is_none_or(|next| next.is_at(&cursor));
        claim.holds(is_there, || {
            format!("without new rows the cursor moved from {cursor:?} to {:?}", open.cursor())
        })?;
        Ok(Tested::Kept)
    }

    async fn forms(&self, columns: &[Column], whole: ContentHash) -> Result<Tested, Failure> {
        let claim = FORMS;
        let opening = Opening { form: Form::Tuples, ..opening(Division::Whole, self.unit_size) };
        let open = claim.ok(opened(self.source, self.stream, opening).await)?;
        if open.columns() != columns {
            return Ok(Tested::Not("the types of the source have no form in Arrow"));
        }
        claim.same(open.units().len(), 1)?;
        let content = read_as(claim, &open, 0, Form::Tuples).await?;
        claim.same(content, whole).map(|()| Tested::Kept)
    }

    async fn projects(&self, open: &Arc<dyn SourceStream>) -> Result<Tested, Failure> {
        let claim = CHOSEN;
        let mut names: Vec<String> =
            open.columns().iter().map(|column| column.name.clone()).collect();
        names.reverse();
        names.truncate(names.len().div_ceil(2));
        let chosen = StreamSettings { columns: names.clone(), ..self.stream.clone() };
        let open =
            claim.ok(opened(self.source, &chosen, opening(Division::Any, self.unit_size)).await)?;
        let found: Vec<String> = open.columns().iter().map(|column| column.name.clone()).collect();
        claim.same(found, names)?;
        for unit in 0..open.units().len() {
            read(claim, &open, unit).await?;
        }
        Ok(Tested::Kept)
    }

    async fn refuses_column(&self) -> Result<Tested, Failure> {
        let columns = vec!["no such column".into()];
        let wrong = StreamSettings { columns, ..self.stream.clone() };
        let refused = opened(self.source, &wrong, opening(Division::Any, self.unit_size)).await;
        NO_COLUMN.holds(refused.is_err(), || "the stream was opened".into()).map(|()| Tested::Kept)
    }
}

/// The content of every unit.
async fn twice(open: &Arc<dyn SourceStream>) -> Result<Vec<ContentHash>, Failure> {
    let mut contents = Vec::new();
    for unit in 0..open.units().len() {
        let content = read(TWICE, open, unit).await?;
        TWICE.same(read(TWICE, open, unit).await?, content)?;
        contents.push(content);
    }
    Ok(contents)
}

async fn side_by_side(
    open: &Arc<dyn SourceStream>,
    contents: &[ContentHash],
) -> Result<Tested, Failure> {
    if contents.len() < 2 {
        return Ok(Tested::Not("the stream has one unit"));
    }
    let units: Vec<(usize, ContentHash)> = contents.iter().copied().enumerate().collect();
    for some in units.chunks(PARALLELISM) {
        let reading = some.iter().map(|(unit, content)| async move {
            SIDE_BY_SIDE.same(read(SIDE_BY_SIDE, open, *unit).await?, *content)
        });
        try_join_all(reading).await?;
    }
    Ok(Tested::Kept)
}

/// The content of a unit as Arrow.
async fn read(
    claim: Claim,
    stream: &Arc<dyn SourceStream>,
    unit: usize,
) -> Result<ContentHash, Failure> {
    read_as(claim, stream, unit, Form::PlainRecords).await
}

/// The content of a unit. Its batches have the stream's columns.
async fn read_as(
    claim: Claim,
    stream: &Arc<dyn SourceStream>,
    unit: usize,
    form: Form,
) -> Result<ContentHash, Failure> {
    let (context, _cancel) = Context::new("acceptance");
    let (mut out, mut batches) = claim.ok(Outlet::new(Budget::new(1 << 20), context))?;
    let reader = Arc::clone(stream);
    let reading = async move { reader.read(unit, &mut out).await };
    let mut hasher = claim.ok(Hasher::new(stream.columns()))?;
    // Its end of the channel is dropped when it fails: the reader then stops.
    let taking = async move {
        while let Some(batch) = claim.ok(batches.recv().await)? {
            match &batch.rows {
                Rows::Tuples(tuples, _) => {
                    claim.holds(form == Form::Tuples, || "rows arrived as tuples".to_owned())?;
                    hasher.add_hashed(claim.ok(tuples_hash(tuples, stream.columns().len()))?);
                }
                Rows::Records(records) => {
                    let fields = records.schema_ref().fields().iter();
                    let types = fields.map(|it| (it.name().clone(), it.data_type().clone()));
                    let columns = stream.columns().iter();
                    let wanted = columns.map(|it| (it.name.clone(), it.wire.data_type()));
                    claim.same(types.collect::<Vec<_>>(), wanted.collect::<Vec<_>>())?;
                    claim.ok(hasher.add(records))?;
                }
            }
        }
        Ok(hasher.content())
    };
    let (read, taken) = tokio::join!(reading, taking);
    let content = taken?;
    claim.ok(read)?;
    Ok(content)
}

/// A reading whose rows no one consumes ends by itself.
///
/// * `first`: the content of the first unit.
async fn stops(stream: &Arc<dyn SourceStream>, first: ContentHash) -> Result<Tested, Failure> {
    if first.rows == 0 {
        return Ok(Tested::Not("the first unit has no rows"));
    }
    let (context, _cancel) = Context::new("acceptance");
    let (mut out, batches) = STOPS.ok(Outlet::new(Budget::new(1 << 10), context))?;
    drop(batches);
    let ended = stream.read(0, &mut out).await;
    STOPS.holds(ended.is_err(), || "the reading continued to its end".into()).map(|()| Tested::Kept)
}
