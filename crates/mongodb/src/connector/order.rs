//! The order in which an incremental stream is read: by its cursor field, then by its tie-breaker.
//!
//! A server's comparison only matches values of the same type. So documents are selected by what they
//! are *not*, wherever values of other types belong to them: together with the last document that was
//! read are all those with its cursor value that are not after it, whatever their tie-breaker is.
//!
//! They are counted with the cursor. A document that is added later with the same value and a smaller
//! tie-breaker would be missed: the count shows that there is one.

use forebay_sdk::connector::{Cursor, Result};
use forebay_sdk::error::ConnectorError;
use mongodb::Collection;
use mongodb::bson::raw::RawDocument;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::connect::refused;
use super::decode::shown_id;
use super::extjson;
use super::infer::id_class;
use super::ranges::canonical;

/// The order of a stream.
pub(super) struct Order<'a> {
    collection: &'a Collection<RawDocumentBuf>,
    pub(super) field: String,
    tie_breaker: Option<String>,
}

/// The documents with the last value that belong to a load: their filter and number.
pub(super) type Last = (Document, u64);

impl<'a> Order<'a> {
    pub(super) fn new(
        collection: &'a Collection<RawDocumentBuf>,
        field: String,
        tie_breaker: Option<String>,
    ) -> Self {
        Self { collection, field, tie_breaker }
    }

    pub(super) fn sort(&self, direction: i32) -> Document {
        let mut sort = doc! { self.field.clone(): direction };
        if let Some(name) = &self.tie_breaker {
            sort.insert(name.clone(), direction);
        }
        sort
    }

    /// The current last document, without its [count](Self::counted).
    pub(super) async fn last(&self) -> Result<Option<Cursor>> {
        let found = self.collection.find_one(doc! {}).sort(self.sort(-1)).await;
        let act = format!("find the last document of {}", self.collection.name());
        let Some(found) = found.map_err(|error| refused(act, error))? else { return Ok(None) };
        let Some(last) = self.value(&found, &self.field)? else { return Ok(None) };
        if is_endless(&last) {
            return Err(Cursor::new(last, None).endless(self.collection.name(), &self.field));
        }
        let tie_breaker = self.tie_breaker.as_deref();
        let tie_breaker = tie_breaker.map(|name| self.value(&found, name)).transpose()?.flatten();
        let tie_breaker_field = self.tie_breaker.clone();
        Ok(Some(Cursor { tie_breaker_field, ..Cursor::new(last, tie_breaker) }))
    }

    /// The value of a field, as text; `None` if it has none.
    fn value(&self, document: &RawDocument, name: &str) -> Result<Option<String>> {
        let Ok(Some(value)) = document.get(name) else { return Ok(None) };
        if id_class(value.element_type()).is_some() {
            return canonical(value).map(Some);
        }
        if value.as_null().is_some() {
            return Ok(None);
        }
        Err(ConnectorError::unsupported(
            format!(
                "field {name:?} of {} {} has a value that is not a number, text, date, binary or \
                 ObjectId",
                self.collection.name(),
                shown_id(document)
            ),
            "choose another `cursor_field`",
        ))
    }

    /// Whether two cursors are of the same document.
    pub(super) fn is_same_place(one: &Cursor, other: &Cursor) -> bool {
        one.value == other.value && one.tie_breaker == other.tie_breaker
    }

    /// The cursor with the number of documents that have its value and are not after it. Ids are not
    /// counted: they are unique.
    pub(super) async fn counted(&self, cursor: Cursor) -> Result<Cursor> {
        if self.tie_breaker.is_none() {
            return Ok(cursor);
        }
        let rows_at = Some(count(self.collection, &self.at(&cursor)?).await?);
        Ok(Cursor { rows_at, ..cursor })
    }

    /// The documents that a counted cursor has counted.
    pub(super) fn end(&self, last: &Cursor) -> Result<Option<Last>> {
        last.rows_at.map(|rows| Ok((self.at(last)?, rows))).transpose()
    }

    /// Fails if documents were added with the last value that was read, and not after the last one.
    pub(super) async fn refuse_late(&self, since: &Cursor) -> Result<()> {
        let Some(read) = since.rows_at else { return Ok(()) };
        let now = count(self.collection, &self.at(since)?).await?;
        match now.checked_sub(read) {
            None | Some(0) => Ok(()),
            Some(late) => Err(since.late(self.collection.name(), &self.field, late)),
        }
    }

    /// Documents with the value of a cursor that are at or before it.
    fn at(&self, cursor: &Cursor) -> Result<Document> {
        let (value, then) = decode(cursor)?;
        Ok(self.upto_tie(value, then))
    }

    /// Documents with this value whose tie-breaker is not greater.
    fn upto_tie(&self, value: Bson, then: Option<Bson>) -> Document {
        let mut at = doc! { self.field.clone(): value };
        if let (Some(tie), Some(then)) = (&self.tie_breaker, then) {
            at.insert("$nor", vec![doc! { tie.clone(): { "$gt": then } }]);
        }
        at
    }

    /// Documents after `since`, up to and including `last`. Without `since`, also those without a value
    /// of the cursor's type.
    ///
    /// * `may_repeat`: whether documents with the value of `since` may be read again.
    pub(super) fn between(
        &self,
        since: Option<&Cursor>,
        last: &Cursor,
        may_repeat: bool,
    ) -> Result<Document> {
        let (to, then) = decode(last)?;
        let up_to = match &self.tie_breaker {
            Some(_) => {
                let or = [self.compared("$lt", &to), self.upto_tie(to.clone(), then)];
                doc! { "$or": or.to_vec() }
            }
            None => self.compared("$lte", &to),
        };
        let Some(since) = since else {
            let other = [self.compared("$lte", &to), self.compared("$gt", &to)];
            return Ok(doc! { "$or": [up_to, { "$nor": other.to_vec() }] });
        };
        let (from, before) = decode(since)?;
        if kind(&from) != kind(&to) {
            return Err(ConnectorError::unsupported(
                format!("the type of the values of {:?} has changed", self.field),
                "reset the stream to copy it from the beginning: `forebay pipeline reset`",
            ));
        }
        let after = match (&self.tie_breaker, before) {
            (Some(_), _) if may_repeat => self.compared("$gte", &from),
            (Some(tie), Some(before)) => {
                let or = [
                    self.compared("$gt", &from),
                    doc! { self.field.clone(): from.clone(), tie.clone(): { "$gt": before } },
                ];
                doc! { "$or": or.to_vec() }
            }
            _ => self.compared("$gt", &from),
        };
        Ok(doc! { "$and": [after, up_to] })
    }

    /// The warning about documents without a value of a cursor's type, if there are any.
    pub(super) async fn unordered(&self, since: &Cursor) -> Result<Option<String>> {
        let (value, _) = decode(since)?;
        let others = kind(&value).map(others).unwrap_or_default();
        // Also where the field is missing. An index on the field answers both.
        let or = [
            doc! { self.field.clone(): Bson::Null },
            doc! { self.field.clone(): { "$type": others } },
        ];
        let rows = count(self.collection, &doc! { "$or": or.to_vec() }).await?;
        let name = self.collection.name();
        Ok((rows > 0).then(|| Cursor::unordered(name, &self.field, rows)))
    }

    fn compared(&self, operator: &str, value: &Bson) -> Document {
        doc! { self.field.clone(): { operator: value.clone() } }
    }
}

/// The types of values, in the server's terms, that cannot be compared with those of a kind. Without those
/// that not every server knows.
fn others(of: &str) -> Vec<&'static str> {
    const TYPES: [(&str, &str); 10] = [
        ("number", "number"),
        ("string", "string"),
        ("binary", "binData"),
        ("ObjectId", "objectId"),
        ("date", "date"),
        ("", "object"),
        ("", "array"),
        ("", "bool"),
        ("", "regex"),
        ("", "timestamp"),
    ];
    TYPES.iter().filter(|(kind, _)| *kind != of).map(|(_, name)| *name).collect()
}

/// Number of documents.
async fn count(collection: &Collection<RawDocumentBuf>, filter: &Document) -> Result<u64> {
    let counted = collection.count_documents(filter.clone()).await;
    let act = || format!("count documents of {}", collection.name());
    counted.map_err(|error| refused(act(), error))
}

/// Fails if documents with the last value were added while it was read: nothing would show in the next
/// run whether they were read.
pub(super) async fn check_end(
    collection: &Collection<RawDocumentBuf>,
    (filter, rows): &Last,
) -> Result<()> {
    let now = count(collection, filter).await?;
    if now <= *rows {
        return Ok(());
    }
    Err(ConnectorError::unsupported(
        format!(
            "{} documents with the last value of the cursor were added to {} while it was read",
            now - rows,
            collection.name()
        ),
        "run again: what is not complete is read from the beginning",
    ))
}

/// Whether no later value is greater than this one.
fn is_endless(value: &str) -> bool {
    matches!(extjson::read(value), Ok(Bson::Double(value)) if !value.is_finite())
}

fn kind(value: &Bson) -> Option<&'static str> {
    id_class(value.element_type())
}

fn decode(cursor: &Cursor) -> Result<(Bson, Option<Bson>)> {
    let read = |text: &String| {
        extjson::read(text)
            .map_err(|found| ConnectorError::data("the cursor of the last run", found))
    };
    Ok((read(&cursor.value)?, cursor.tie_breaker.as_ref().map(read).transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Of a unit, because not every server stores these values.
    #[test]
    fn a_cursor_that_nothing_can_follow_is_recognised() {
        for (value, endless) in [
            (f64::INFINITY, true),
            (f64::NEG_INFINITY, true),
            (f64::NAN, true),
            (f64::MAX, false),
            (0.0, false),
        ] {
            let document = rawdoc_of(value);
            let text = canonical(document.get("at").unwrap().unwrap()).unwrap();
            assert_eq!(is_endless(&text), endless, "{text}");
        }
        assert!(!is_endless("{\"$numberInt\":\"7\"}"));
    }

    fn rawdoc_of(value: f64) -> RawDocumentBuf {
        RawDocumentBuf::try_from(&doc! { "at": value }).unwrap()
    }
}
