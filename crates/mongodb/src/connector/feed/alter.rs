//! Documents get the fields of the columns of their source, as `schema_evolution` allows.
//!
//! Every document has its own fields, so a column that is added without a value, or dropped, changes none of those
//! that are there.
//!
//! Invariant: a step that was done already, by the copy or before a failure, changes nothing.

use forebay_pgcopy::Wire;
use forebay_sdk::changes::decoded::existing;
use forebay_sdk::changes::feed::{ColumnStep, FeedColumn, Redefinition};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{NewColumn, RemovedColumn, TargetSettings};
use mongodb::bson::raw::{CString, RawDocument};
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::super::encode::Forms;
use super::super::ledger::text;
use super::super::statement::broken;
use super::super::target::indexes;
use super::pending::Work;
use super::{table, values};

/// A change of the fields of all documents that are there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    /// The part of the unit that it comes before: what was staged in earlier ones has the fields before it.
    pub(super) part: i64,
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    /// A field has another name.
    Rename { from: String, to: String },
    /// Documents without a field get it.
    Add { name: String, value: Bson },
}

impl Step {
    pub(super) fn encoded(&self) -> Document {
        match &self.what {
            What::Rename { from, to } => doc! { "part": self.part, "rename": from, "to": to },
            What::Add { name, value } => {
                doc! { "part": self.part, "add": name, "value": value.clone() }
            }
        }
    }

    pub(super) fn decoded(from: &Bson) -> Result<Self> {
        let odd = |what: &str| ConnectorError::data("the recorded feed", what.to_owned());
        let of = from.as_document().ok_or_else(|| odd("a step is no document"))?;
        let part = of.get_i64("part").map_err(|_| odd("a step has no part"))?;
        let what = if of.contains_key("rename") {
            What::Rename { from: text(of, "rename")?.to_owned(), to: text(of, "to")?.to_owned() }
        } else {
            let value = of.get("value").cloned().unwrap_or(Bson::Null);
            What::Add { name: text(of, "add")?.to_owned(), value }
        };
        Ok(Self { part, what })
    }

    /// Takes it, for all documents of a collection.
    pub(super) async fn take(&self, work: &Work, into: &str) -> Result<()> {
        match &self.what {
            What::Rename { from, to } => {
                drop_unique(work, into, from).await?;
                let condition = doc! { from.clone(): { "$exists": true } };
                let rename = doc! { "$rename": { from.clone(): to.clone() } };
                work.update_all(into, condition, rename).await
            }
            What::Add { name, value } => {
                let condition = doc! { name.clone(): { "$exists": false } };
                let set = doc! { "$set": { name.clone(): value.clone() } };
                work.update_all(into, condition, set).await
            }
        }
    }

    /// The name that a field has in documents of a part, before the steps that come after it.
    pub(super) fn before(steps: &[Self], name: &str, part: i64) -> String {
        let mut before = name.to_owned();
        for step in steps.iter().rev().filter(|step| step.part > part) {
            if let What::Rename { from, to } = &step.what
                && *to == before
            {
                before.clone_from(from);
            }
        }
        before
    }

    /// A document after the steps that come after a part.
    ///
    /// * `is_whole`: whether it has all fields of its row.
    pub(super) fn through(
        steps: &[Self],
        document: &RawDocument,
        part: i64,
        is_whole: bool,
    ) -> Result<RawDocumentBuf> {
        let mut now = document.to_owned();
        for step in steps.iter().filter(|step| step.part > part) {
            match &step.what {
                What::Rename { from, to } => now = renamed(&now, from, to)?,
                What::Add { name, value } => {
                    let is_missing = !matches!(now.get(name), Ok(Some(_)));
                    if is_whole && is_missing {
                        let name = CString::try_from(name.clone());
                        let name = name.map_err(|error| broken(error.to_string()))?;
                        let value = mongodb::bson::RawBson::try_from(value.clone());
                        now.append(name, value.map_err(|error| broken(error.to_string()))?);
                    }
                }
            }
        }
        Ok(now)
    }
}

/// A document whose field has another name.
fn renamed(document: &RawDocument, from: &str, to: &str) -> Result<RawDocumentBuf> {
    if !matches!(document.get(from), Ok(Some(_))) {
        return Ok(document.to_owned());
    }
    let mut now = RawDocumentBuf::new();
    for field in document {
        let (name, value) = field.map_err(|error| broken(error.to_string()))?;
        if name == from {
            let to = CString::try_from(to.to_owned());
            now.append(to.map_err(|error| broken(error.to_string()))?, value);
        } else if name != to {
            now.append(name, value);
        }
    }
    Ok(now)
}

/// Drops the unique index of the key that a field is a part of: two documents without the field would collide in it.
/// It is created again when the unit is complete.
async fn drop_unique(work: &Work, into: &str, field: &str) -> Result<()> {
    for index in indexes(&work.server, into).await? {
        let options = index.options.as_ref();
        let is_unique = options.and_then(|options| options.unique).unwrap_or(false);
        let name = options.and_then(|options| options.name.clone());
        if let (true, Some(name)) = (is_unique && index.keys.contains_key(field), name) {
            let act = format!("drop the index {name:?} of {into}");
            work.server.run(&act, doc! { "dropIndexes": into, "index": name }).await?;
        }
    }
    Ok(())
}

/// A stream whose columns change.
pub(super) struct Altering<'a> {
    pub(super) target: &'a TargetSettings,
    pub(super) forms: &'a Forms,
    /// Its columns until now.
    pub(super) before: &'a [FeedColumn],
    /// The fields of unique indexes besides that of the key.
    pub(super) unique: &'a [Vec<String>],
    /// Whether documents that are there keep what they are, as in a log.
    pub(super) is_log: bool,
    /// The part of the unit that it comes before.
    pub(super) part: i64,
}

impl Altering<'_> {
    /// What becomes of the documents that are there.
    ///
    /// # Errors
    /// `schema_evolution` forbids it, or the documents cannot follow.
    pub(super) fn steps(&self, redefinition: &Redefinition) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for step in &redefinition.steps {
            let what = match step {
                ColumnStep::Rename { from, to } => self.rename(from, to)?,
                ColumnStep::Add { name, existing, .. } => {
                    self.add(name, existing.as_deref(), &redefinition.columns)?
                }
                ColumnStep::Retype { name, .. } => {
                    self.retype(name, &redefinition.columns)?;
                    None
                }
                ColumnStep::Drop { name } => {
                    if self.target.schema_evolution.removed_column == RemovedColumn::Fail {
                        let what = format!("column {name:?} was dropped");
                        let way_out = "set `schema_evolution.removed_column: ignore`";
                        return Err(self.forbidden(&what, way_out));
                    }
                    None
                }
            };
            let part = self.part;
            steps.extend(what.filter(|_| !self.is_log).map(|what| Step { part, what }));
        }
        Ok(steps)
    }

    fn rename(&self, from: &str, to: &str) -> Result<Option<What>> {
        let what = format!("column {from:?} was renamed to {to:?}");
        self.may_add(&what)?;
        if self.unique.iter().flatten().any(|field| field == from) {
            return Err(self.forbidden(&what, "drop its unique index, and run again"));
        }
        Ok(Some(What::Rename { from: from.to_owned(), to: to.to_owned() }))
    }

    fn add(&self, name: &str, value: Option<&str>, now: &[FeedColumn]) -> Result<Option<What>> {
        self.may_add(&format!("column {name:?} was added"))?;
        let Some(value) = value else { return Ok(None) };
        let column = table::column(&self.target.into, self.found(name, now)?)?;
        let array = existing(&self.target.into, &column, value)?;
        let value = values::one(&self.target.into, self.forms, &column, array)?;
        Ok(Some(What::Add { name: name.to_owned(), value }))
    }

    fn retype(&self, name: &str, now: &[FeedColumn]) -> Result<()> {
        let now = self.found(name, now)?;
        let before = self.before.iter().find(|before| before.number == now.number);
        if self.is_log || before.is_some_and(|before| keeps_values(before, now)) {
            return Ok(());
        }
        let what = format!("column {name:?} has the type {} now", now.sql_type);
        Err(self.forbidden(&what, "run with `--from-scratch`"))
    }

    fn found<'a>(&self, name: &str, now: &'a [FeedColumn]) -> Result<&'a FeedColumn> {
        now.iter().find(|column| column.name == name).ok_or_else(|| {
            let found = format!("column {name:?} is not among those of the stream");
            ConnectorError::data(&*self.target.into, found)
        })
    }

    fn may_add(&self, what: &str) -> Result<()> {
        match self.target.schema_evolution.new_column {
            NewColumn::Add => Ok(()),
            _ => Err(self.forbidden(what, "set `schema_evolution.new_column: add`")),
        }
    }

    fn forbidden(&self, what: &str, way_out: &str) -> ConnectorError {
        ConnectorError::unsupported(
            format!("{}: {what} at the source", self.target.into),
            format!("change the documents likewise, or {way_out}"),
        )
    }
}

/// Whether the values of a column are the same after its type has changed.
fn keeps_values(before: &FeedColumn, now: &FeedColumn) -> bool {
    match (&before.wire, &now.wire) {
        (Some(Wire::Int2), Some(Wire::Int4 | Wire::Int8))
        | (Some(Wire::Int4), Some(Wire::Int8)) => true,
        (
            Some(Wire::Decimal { precision, scale }),
            Some(Wire::Decimal { precision: wider, scale: same }),
        ) => scale == same && precision <= wider,
        (Some(Wire::Text), Some(Wire::Text)) => {
            match (length_max(&before.sql_type), length_max(&now.sql_type)) {
                (Some(before), Some(now)) => before <= now,
                _ => false,
            }
        }
        _ => false,
    }
}

/// The maximum length of texts of a type; `None`: it is not one of texts as they are.
fn length_max(sql_type: &str) -> Option<u32> {
    match sql_type {
        "text" | "character varying" => Some(u32::MAX),
        other => other.strip_prefix("character varying(")?.strip_suffix(')')?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::rawdoc;

    use super::*;

    fn column(sql_type: &str, wire: Wire) -> FeedColumn {
        let (name, sql_type) = ("c".into(), sql_type.into());
        FeedColumn { name, sql_type, is_key: false, number: 1, wire: Some(wire) }
    }

    #[test]
    fn a_type_may_become_wider_where_that_changes_no_value() {
        let decimal = |precision, scale| Wire::Decimal { precision, scale };
        for (before, now, keeps) in [
            (column("smallint", Wire::Int2), column("bigint", Wire::Int8), true),
            (column("bigint", Wire::Int8), column("integer", Wire::Int4), false),
            (column("numeric(5,2)", decimal(5, 2)), column("numeric(9,2)", decimal(9, 2)), true),
            (column("numeric(5,2)", decimal(5, 2)), column("numeric(9,3)", decimal(9, 3)), false),
            (column("character varying(5)", Wire::Text), column("text", Wire::Text), true),
            (column("text", Wire::Text), column("character varying(5)", Wire::Text), false),
            (column("character(5)", Wire::Text), column("text", Wire::Text), false),
            (column("integer", Wire::Int4), column("text", Wire::Text), false),
        ] {
            assert_eq!(keeps_values(&before, &now), keeps, "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_document_of_an_earlier_part_gets_the_fields_of_later_steps() {
        let rename = |part, from: &str, to: &str| Step {
            part,
            what: What::Rename { from: from.into(), to: to.into() },
        };
        let add = Step { part: 2, what: What::Add { name: "a".into(), value: Bson::Int32(5) } };
        // The second column takes the name that the first one had.
        let steps = [rename(2, "a", "b"), add, rename(3, "b", "c")];
        let document = rawdoc! { "_id": 1, "a": "x", "b": "stale" };
        let of = |part, is_whole| Step::through(&steps, &document, part, is_whole).unwrap();
        assert_eq!(of(1, true), rawdoc! { "_id": 1, "c": "x", "a": 5 });
        assert_eq!(of(1, false), rawdoc! { "_id": 1, "c": "x" });
        assert_eq!(of(2, true), rawdoc! { "_id": 1, "a": "x", "c": "stale" });
        assert_eq!(of(3, true), document);
        assert_eq!([1, 2, 3].map(|part| Step::before(&steps, "c", part)), ["a", "b", "c"]);
        for step in steps {
            let encoded = Bson::Document(step.encoded());
            assert_eq!(Step::decoded(&encoded).unwrap(), step);
        }
    }
}
