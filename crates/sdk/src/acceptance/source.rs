//! The promises of every source.

use std::sync::Arc;

use forebay_pgcopy::ContentHash;

use super::{Claim, Failure};
use crate::batch::Rows;
use crate::connector::{Division, Form, Opening, Source, SourceStream};
use crate::hash::Hasher;
use crate::run::{Budget, Context, Outlet};
use crate::settings::StreamSettings;

/// Size of a unit in bytes: small, so that there are several.
const UNIT_SIZE: u64 = 4 << 10;
/// Size of a batch in bytes: smaller than a unit.
const BATCH_SIZE: usize = 2 << 10;

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
    let claim = Claim("a check reports what answered");
    let answer = claim.ok(source.check().await)?;
    claim.holds(!answer.is_empty(), || "the report is empty".into())?;
    let claim = Claim(
        "reading every unit twice gives the same rows, and together they are the whole stream",
    );
    let open = open(claim, source, stream, Division::Any).await?;
    claim.holds(!open.units().is_empty(), || "the stream has no unit".into())?;
    let mut names: Vec<&str> = open.units().iter().map(|unit| &*unit.name).collect();
    names.sort_unstable();
    names.dedup();
    claim.same(names.len(), open.units().len())?;
    let mut total = ContentHash::default();
    for unit in 0..open.units().len() {
        let content = read(claim, &open, unit).await?;
        claim.same(read(claim, &open, unit).await?, content)?;
        total.merge(content);
    }
    claim.same(total, expected)?;
    let claim = Claim("a stream is read as one unit if that is requested");
    let whole = self::open(claim, source, stream, Division::Whole).await?;
    claim.same(whole.units().len(), 1)?;
    claim.same(read(claim, &whole, 0).await?, expected)?;
    again(source, stream).await?;
    projects(source, stream).await?;
    let claim = Claim("a reader whose consumer has gone stops");
    stops(claim, &open).await
}

/// Opens a stream as the suite does, for other tests.
///
/// # Errors
/// Those of the source.
pub async fn open_source(
    source: &Arc<dyn Source>,
    stream: &StreamSettings,
) -> crate::connector::Result<Arc<dyn SourceStream>> {
    opened(source, stream, Division::Any).await
}

/// The units of an unfinished load can be read again.
async fn again(source: &Arc<dyn Source>, stream: &StreamSettings) -> Result<(), Failure> {
    let claim = Claim("stable units can be read again, with the same rows");
    let open = self::open(claim, source, stream, Division::Stable).await?;
    if !open.units_are_stable() {
        return Ok(());
    }
    let division = Division::As(open.units().to_vec());
    let again = self::open(claim, source, stream, division).await?;
    claim.same(again.units(), open.units())?;
    for unit in 0..open.units().len() {
        claim.same(read(claim, &again, unit).await?, read(claim, &open, unit).await?)?;
    }
    let claim = Claim("a unit that no longer exists is refused");
    let mut units = open.units().to_vec();
    if let Some(unit) = units.first_mut() {
        unit.name.push('!');
        unit.from = Some("nowhere".into());
    }
    let refused = opened(source, stream, Division::As(units)).await;
    claim.holds(refused.is_err(), || "the stream was opened".into())
}

/// Columns are chosen and ordered.
async fn projects(source: &Arc<dyn Source>, stream: &StreamSettings) -> Result<(), Failure> {
    let claim = Claim("the chosen columns are read, in their order");
    let open = open(claim, source, stream, Division::Any).await?;
    let mut names: Vec<String> = open.columns().iter().map(|column| column.name.clone()).collect();
    names.reverse();
    names.truncate(names.len().div_ceil(2));
    let chosen = StreamSettings { columns: names.clone(), ..stream.clone() };
    let open = self::open(claim, source, &chosen, Division::Any).await?;
    let found: Vec<String> = open.columns().iter().map(|column| column.name.clone()).collect();
    claim.same(found, names)?;
    for unit in 0..open.units().len() {
        read(claim, &open, unit).await?;
    }
    let claim = Claim("a column that does not exist is refused when the stream is opened");
    let wrong = StreamSettings { columns: vec!["no such column".into()], ..stream.clone() };
    let refused = opened(source, &wrong, Division::Any).await;
    claim.holds(refused.is_err(), || "the stream was opened".into())
}

async fn opened(
    source: &Arc<dyn Source>,
    stream: &StreamSettings,
    division: Division,
) -> crate::connector::Result<Arc<dyn SourceStream>> {
    let opening = Opening {
        form: Form::PlainRecords,
        since: None,
        division,
        unit_size: UNIT_SIZE,
        batch_size: BATCH_SIZE,
        memory: 32 << 20,
        parallelism: 2,
        snapshot: None,
    };
    let (context, _cancel) = Context::new("acceptance");
    source.open(stream, &opening, &context).await
}

async fn open(
    claim: Claim,
    source: &Arc<dyn Source>,
    stream: &StreamSettings,
    division: Division,
) -> Result<Arc<dyn SourceStream>, Failure> {
    claim.ok(opened(source, stream, division).await)
}

/// The content of a unit. Its batches have the stream's columns.
async fn read(
    claim: Claim,
    stream: &Arc<dyn SourceStream>,
    unit: usize,
) -> Result<ContentHash, Failure> {
    let (context, _cancel) = Context::new("acceptance");
    let (mut out, mut batches) = claim.ok(Outlet::new(Budget::new(1 << 20), context))?;
    let reader = Arc::clone(stream);
    let reading = async move { reader.read(unit, &mut out).await };
    let mut hasher = claim.ok(Hasher::new(stream.columns()))?;
    let taking = async {
        while let Some(batch) = claim.ok(batches.recv().await)? {
            let Rows::Records(records) = &batch.rows else {
                return claim.holds(false, || "rows arrived as tuples".into());
            };
            let fields = records.schema_ref().fields().iter();
            let types = fields.map(|field| (field.name().clone(), field.data_type().clone()));
            let columns = stream.columns().iter();
            let wanted = columns.map(|column| (column.name.clone(), column.wire.data_type()));
            claim.same(types.collect::<Vec<_>>(), wanted.collect::<Vec<_>>())?;
            claim.ok(hasher.add(records))?;
        }
        Ok(())
    };
    let (read, taken) = tokio::join!(reading, taking);
    taken?;
    claim.ok(read)?;
    Ok(hasher.content())
}

/// A reading whose rows no one consumes ends by itself.
async fn stops(claim: Claim, stream: &Arc<dyn SourceStream>) -> Result<(), Failure> {
    let (context, _cancel) = Context::new("acceptance");
    let (mut out, batches) = claim.ok(Outlet::new(Budget::new(1 << 10), context))?;
    drop(batches);
    let ended = stream.read(0, &mut out).await;
    claim.holds(ended.is_err(), || "the reading continued to its end".into())
}
