//! The promises of every transform.

use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_pgcopy::{Column, ContentHash};

use super::{Claim, Failure, Findings, Tested, try_rows};
use crate::connector::Result as Made;
use crate::hash::Hasher;
use crate::transform::{Position, Transform};

/// Number of rows of a batch.
const ROWS: usize = 40;

const OPENS: Claim = Claim("a stream with these columns can be transformed");
const COLUMNS: Claim = Claim("the rows have the resulting columns");
const COMPLETE: Claim = Claim("every row is passed on, set aside or left out");
const STABLE: Claim = Claim("the same rows become the same rows, if the transform is stable");
const EMPTY: Claim = Claim("a batch without rows is transformed");

/// Tests what a transform promises of a stream with these columns, each promise separately.
///
/// * `open`: prepares it for the columns; called twice, as in two runs.
/// * `columns`: of types that the generated rows have ([`try_rows`]).
pub async fn examine_transform(
    open: impl AsyncFn(&[Column]) -> Made<Arc<dyn Transform>>,
    columns: &[Column],
) -> Findings {
    let mut findings = Findings::default();
    let opened = OPENS.ok(open(columns).await);
    let Some(transform) = findings.take(OPENS, opened) else { return findings };
    let Some(content) =
        findings.take(COLUMNS, applied(COLUMNS, &transform, columns, 0..ROWS).await)
    else {
        return findings;
    };
    let (made, others) = content;
    let all = made.rows.checked_add(others);
    let found = || format!("of {ROWS} rows {} were passed on, {others} were not", made.rows);
    let is_complete = all == u64::try_from(ROWS).ok();
    findings.add(COMPLETE, COMPLETE.holds(is_complete, found).map(|()| Tested::Kept));
    let again = again(&open, &transform, columns, made).await;
    findings.add(STABLE, again);
    let empty = applied(EMPTY, &transform, columns, 0..0).await;
    let empty = empty.and_then(|(made, _)| EMPTY.same(made.rows, 0));
    findings.add(EMPTY, empty.map(|()| Tested::Kept));
    findings
}

async fn again(
    open: &impl AsyncFn(&[Column]) -> Made<Arc<dyn Transform>>,
    first: &Arc<dyn Transform>,
    columns: &[Column],
    made: ContentHash,
) -> Result<Tested, Failure> {
    if !first.is_stable() {
        return Ok(Tested::Not("the transform is not stable"));
    }
    let second = STABLE.ok(open(columns).await)?;
    STABLE.same(second.columns(), first.columns())?;
    for transform in [first, &second] {
        let (found, _) = applied(STABLE, transform, columns, 0..ROWS).await?;
        STABLE.same(found, made)?;
    }
    Ok(Tested::Kept)
}

/// Transforms generated rows. Returns the content of those that are passed on, and the number of others.
async fn applied(
    claim: Claim,
    transform: &Arc<dyn Transform>,
    columns: &[Column],
    ids: std::ops::Range<usize>,
) -> Result<(ContentHash, u64), Failure> {
    let rows: RecordBatch = claim.ok(try_rows(columns, ids))?;
    let applied =
        claim.ok(transform.apply(Position { unit: "all", rows_before: 0 }, rows).await)?;
    let schema = applied.records.schema();
    let types = schema.fields().iter().map(|it| (it.name().clone(), it.data_type().clone()));
    let wanted = transform.columns().iter().map(|it| (it.name.clone(), it.wire.data_type()));
    claim.same(types.collect::<Vec<_>>(), wanted.collect::<Vec<_>>())?;
    let mut hasher = claim.ok(Hasher::new(transform.columns()))?;
    claim.ok(hasher.add(&applied.records))?;
    let others = applied.skipped.saturating_add(applied.dead.len() as u64);
    Ok((hasher.content(), others))
}
