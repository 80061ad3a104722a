//! Decoded changes as documents, in the form that copies have.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use forebay_pgcopy::Column;
use forebay_pgcopy::column::schema;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use mongodb::bson::raw::{RawBsonRef, RawDocument, cstr};
use mongodb::bson::{Bson, RawDocumentBuf};

use super::super::bulk::Documents;
use super::super::encode::{Field, Forms, Refused};
use super::super::statement::{broken, raw};

/// A document for each row of a batch.
///
/// * `is_sent`: whether a row, by its number, has a value of a column, by its number.
///
/// # Errors
/// A value cannot be represented.
pub(super) fn documents(
    table: &str,
    forms: &Forms,
    batch: &RecordBatch,
    columns: &[Column],
    is_sent: impl Fn(usize, usize) -> bool,
) -> Result<Documents> {
    let mut refused = Refused::new();
    let normal = forms.normalise(batch, columns, &mut refused)?;
    if let Some((_, found)) = refused.pop_first() {
        return Err(ConnectorError::data(format!("a changed row of {table}"), found));
    }
    let fields = normal.columns().iter().zip(columns);
    let fields = fields.map(|(array, column)| Field::new(array.as_ref(), column, forms));
    let fields: Vec<Field<'_>> = fields.collect::<Result<_>>()?;
    let mut documents = Documents::default();
    for row in 0..normal.num_rows() {
        let added = documents.add(|out| {
            let sent = fields.iter().enumerate().filter(|(at, _)| is_sent(row, *at));
            sent.map(|(_, field)| field).try_for_each(|field| {
                let appended = field.append(row, out);
                appended.map_err(|found| format!("column {:?}: {found}", field.name()))
            })
        });
        added.map_err(|found| ConnectorError::data(format!("a changed row of {table}"), found))?;
    }
    Ok(documents)
}

/// A document for each value of a column.
pub(super) fn single(
    table: &str,
    forms: &Forms,
    column: &Column,
    array: ArrayRef,
) -> Result<Documents> {
    let columns = std::slice::from_ref(column);
    let batch = RecordBatch::try_new(Arc::new(schema(columns)), vec![array]);
    let batch = batch.map_err(|error| ConnectorError::data(table, error.to_string()))?;
    documents(table, forms, &batch, columns, |_, _| true)
}

/// The only value of an array.
pub(super) fn one(table: &str, forms: &Forms, column: &Column, array: ArrayRef) -> Result<Bson> {
    let documents = single(table, forms, column, array)?;
    let value = raw(documents.get(0))?.get(&column.name);
    let value = value.map_err(|error| broken(error.to_string()))?;
    let value = value.ok_or_else(|| broken(format!("it has no {:?}", column.name)))?;
    Bson::try_from(value).map_err(|error| broken(error.to_string()))
}

/// A document with the fields of another one over its own.
pub(super) fn merged(of: &RawDocument, over: &RawDocument) -> Result<RawDocumentBuf> {
    let odd = |error: mongodb::bson::error::Error| broken(error.to_string());
    let mut both = RawDocumentBuf::new();
    for field in of {
        let (name, value) = field.map_err(odd)?;
        both.append(name, over.get(name).map_err(odd)?.unwrap_or(value));
    }
    for field in over {
        let (name, value) = field.map_err(odd)?;
        if of.get(name).map_err(odd)?.is_none() {
            both.append(name, value);
        }
    }
    Ok(both)
}

/// Values as bytes that are the same for values that are the same: whole numbers do not have a width.
pub(super) fn canonical<'a>(values: impl IntoIterator<Item = RawBsonRef<'a>>) -> Vec<u8> {
    let mut all = RawDocumentBuf::new();
    for value in values {
        all.append(
            cstr!(""),
            match value {
                RawBsonRef::Int32(number) => RawBsonRef::Int64(number.into()),
                other => other,
            },
        );
    }
    all.into_bytes()
}

/// The key of a document, as bytes that are the same for the same key.
pub(super) fn key_of(document: &RawDocument, key: &[String]) -> Result<Vec<u8>> {
    let values = key.iter().map(|name| match document.get(name) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(broken(format!("it has no {name:?}"))),
        Err(error) => Err(broken(error.to_string())),
    });
    Ok(canonical(values.collect::<Result<Vec<_>>>()?))
}

#[cfg(test)]
mod tests {
    use mongodb::bson::rawdoc;

    use super::*;

    #[test]
    fn fields_of_a_change_take_the_place_of_those_that_are_there() {
        let there = rawdoc! { "_id": 1, "a": "x", "own": true, "b": 2 };
        let change = rawdoc! { "b": null, "c": 3, "a": "y" };
        let both = rawdoc! { "_id": 1, "a": "y", "own": true, "b": null, "c": 3 };
        assert_eq!(merged(&there, &change).unwrap(), both);
    }

    #[test]
    fn keys_are_the_same_whatever_the_width_of_their_numbers() {
        let key = ["a".to_owned(), "b".to_owned()];
        let of = |document: RawDocumentBuf| key_of(&document, &key).unwrap();
        let narrow = of(rawdoc! { "b": "x", "a": 1_i32 });
        assert_eq!(narrow, of(rawdoc! { "a": 1_i64, "b": "x", "c": 1 }));
        assert_ne!(narrow, of(rawdoc! { "a": 1_i64, "b": "y" }));
        assert_ne!(narrow, of(rawdoc! { "a": "x", "b": 1_i32 }));
        key_of(&rawdoc! { "a": 1 }, &key).unwrap_err();
    }
}
