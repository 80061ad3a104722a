//! The units of a collection: ranges of ids that are read and committed separately.
//!
//! Ranges are half open; the first has no lower end. The last one is everything that is *not below*
//! its lower end: a server's comparison only matches values of the given type, so ids of any other
//! type are in the last range and in no other. Together the ranges cover every document exactly
//! once.

use forebay_sdk::connector::{Division, Opening, Result, Unit};
use forebay_sdk::error::ConnectorError;
use futures_util::TryStreamExt as _;
use mongodb::bson::raw::RawBsonRef;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::{Collection, Database};

use super::connect::{is_not_found, refused};
use super::extjson::{self, Layout};
use super::infer::id_class;
use crate::settings::Style;

/// Maximum number of ranges.
const RANGES_MAX: u64 = 4_096;
/// Number of sampled ids per boundary.
const DRAWN_EACH: u64 = 20;

/// The server's estimate of a collection's size.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) documents: u64,
    pub(super) bytes: u64,
}

impl Size {
    /// Queries the size of a collection; unknown for anything but a plain collection.
    pub(super) async fn of(database: &Database, collection: &str) -> Result<Self> {
        let stats = match database.run_command(doc! { "collStats": collection }).await {
            Ok(stats) => stats,
            Err(error) if super::connect::code(&error).is_some() => return Ok(Self::default()),
            Err(error) => {
                return Err(refused(format!("determine the size of {collection}"), error));
            }
        };
        let number = |name: &str| match stats.get(name) {
            Some(Bson::Int32(value)) => u64::try_from(*value).unwrap_or(0),
            Some(Bson::Int64(value)) => u64::try_from(*value).unwrap_or(0),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an estimate; the cast saturates"
            )]
            Some(Bson::Double(value)) => *value as u64,
            _ => 0,
        };
        Ok(Self { documents: number("count"), bytes: number("size") })
    }

    /// Approximate size of a document in bytes.
    pub(super) fn document(&self) -> u64 {
        self.bytes.checked_div(self.documents).unwrap_or(0).max(16)
    }
}

/// Divides a collection that is read completely.
pub(super) async fn plan(
    collection: &Collection<RawDocumentBuf>,
    size: Size,
    opening: &Opening,
) -> Result<Vec<Unit>> {
    if let Division::As(units) = &opening.division {
        for unit in units {
            filter(unit)?;
        }
        return Ok(units.clone());
    }
    let parts = size.bytes / opening.unit_size.max(1);
    let parts = parts.min(size.documents).min(RANGES_MAX);
    if opening.division == Division::Whole || parts < 2 || !is_ordered(collection).await? {
        return Ok(vec![unit(None, None, Some(size.documents), Some(size.bytes))]);
    }
    let bounds = bounds(collection, parts, size.documents).await?;
    let share = bounds.len() as u64 + 1;
    let ends = (0..=bounds.len()).map(|at| {
        (at.checked_sub(1).and_then(|before| bounds.get(before)).cloned(), bounds.get(at).cloned())
    });
    let sized = ends
        .map(|(from, to)| unit(from, to, Some(size.documents / share), Some(size.bytes / share)));
    Ok(sized.collect())
}

pub(super) fn unit(
    from: Option<String>,
    to: Option<String>,
    rows: Option<u64>,
    bytes: Option<u64>,
) -> Unit {
    let name = match (&from, &to) {
        (None, None) => "all".to_owned(),
        (from, to) => format!(
            "_id {}..{}",
            from.as_deref().unwrap_or_default(),
            to.as_deref().unwrap_or_default()
        ),
    };
    Unit { name, from, to, rows, bytes }
}

/// The documents of a unit.
///
/// # Errors
/// The unit does not belong to a collection.
pub(super) fn filter(unit: &Unit) -> Result<Document> {
    let id = |text: &String| {
        extjson::read(text).map_err(|found| {
            ConnectorError::unsupported(
                format!("the unit {:?} does not belong to a collection: {found}", unit.name),
                "run again with `--from-scratch`",
            )
        })
    };
    Ok(match (unit.from.as_ref().map(id).transpose()?, unit.to.as_ref().map(id).transpose()?) {
        (None, None) => Document::new(),
        (None, Some(to)) => doc! { "_id": { "$lt": to } },
        (Some(from), Some(to)) => doc! { "_id": { "$gte": from, "$lt": to } },
        (Some(from), None) => doc! { "_id": { "$not": { "$lt": from } } },
    })
}

/// Whether all ids are of one ordered type: those at both ends are.
async fn is_ordered(collection: &Collection<RawDocumentBuf>) -> Result<bool> {
    let mut ends = Vec::new();
    for direction in [1, -1] {
        let found = collection.find_one(doc! {}).projection(doc! { "_id": 1 });
        let found = found.sort(doc! { "_id": direction }).await;
        let found = found.map_err(|error| divide(collection, error))?;
        let class = found.as_ref().and_then(|document| document.get("_id").ok().flatten());
        ends.push(class.and_then(|id| id_class(id.element_type())));
    }
    Ok(matches!(ends.as_slice(), [Some(first), Some(last)] if first == last))
}

fn divide(collection: &Collection<RawDocumentBuf>, error: mongodb::error::Error) -> ConnectorError {
    refused(format!("divide {} by _id", collection.name()), error)
}

/// Ids that divide a collection into about equal parts: of a sample, or of all ids in order if a
/// server does not support sampling.
async fn bounds(
    collection: &Collection<RawDocumentBuf>,
    parts: u64,
    documents: u64,
) -> Result<Vec<String>> {
    let drawn = i64::try_from(parts * DRAWN_EACH).unwrap_or(i64::MAX);
    let pipeline = [
        doc! { "$sample": { "size": drawn } },
        doc! { "$project": { "_id": 1 } },
        doc! { "$sort": { "_id": 1 } },
    ];
    let sampled = collection.aggregate(pipeline).with_type::<RawDocumentBuf>().await;
    let (mut ids, step) = match sampled {
        Ok(ids) => (ids, DRAWN_EACH),
        Err(error) if super::connect::code(&error).is_some() && !is_not_found(&error) => {
            let all = collection.find(doc! {}).projection(doc! { "_id": 1 });
            let all = all.sort(doc! { "_id": 1 }).await;
            (all.map_err(|error| divide(collection, error))?, (documents / parts).max(1))
        }
        Err(error) => return Err(divide(collection, error)),
    };
    let mut bounds: Vec<String> = Vec::new();
    let mut at = 0_u64;
    while let Some(document) = ids.try_next().await.map_err(|error| divide(collection, error))? {
        let is_bound = at > 0 && at.is_multiple_of(step) && (bounds.len() as u64) < parts - 1;
        if is_bound && let Ok(Some(id)) = document.get("_id") {
            let id = canonical(id)?;
            if bounds.last() != Some(&id) {
                bounds.push(id);
            }
        }
        at += 1;
    }
    Ok(bounds)
}

/// A value as text that represents it and its type.
pub(super) fn canonical(value: RawBsonRef<'_>) -> Result<String> {
    let mut text = Vec::new();
    let layout = Layout { style: Style::Canonical, spaced: false };
    extjson::write(value, layout, &mut text)
        .map_err(|found| ConnectorError::data("the cursor", found))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
