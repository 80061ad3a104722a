//! A row of a change.
//!
//! Its fields are one after the other as in a binary COPY: the size of the value as a number of four bytes, then
//! the value. A size of -1 is NULL, as there; -2 is a value that the change left as it was and that was not sent.
//! A row without such a value is copied to PostgreSQL as it is.
//!
//! Invariant: a row has complete fields, which is checked where it is made.

use crate::error::ConnectorError;

const NULL: i32 = -1;
const UNCHANGED: i32 = -2;

/// A field of a changed row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field<'a> {
    /// NULL.
    Null,
    /// A value that the change left as it was, and that was not sent.
    Unchanged,
    /// A value, in its binary form.
    Value(&'a [u8]),
}

/// The fields of a row that a change has, in the order of the columns.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ChangedRow {
    bytes: Box<[u8]>,
    has_unchanged: bool,
}

/// The values of a row's key, each with its size before it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey(Box<[u8]>);

impl RowKey {
    /// A key of these bytes, as [`as_bytes`](Self::as_bytes) has them.
    ///
    /// * `count`: number of its values.
    /// * `may_be_null`: whether it is that of a row without a key, which has NULL, too.
    ///
    /// # Errors
    /// They are not complete values of this number.
    pub(super) fn received(
        bytes: &[u8],
        count: usize,
        may_be_null: bool,
    ) -> Result<Self, ConnectorError> {
        let has = checked(bytes, count)?;
        if has.unchanged || has.null && !may_be_null {
            let found = "a value of a key is missing".to_owned();
            return Err(ConnectorError::data("a changed row", found));
        }
        Ok(Self(bytes.into()))
    }

    /// The fields as in a binary COPY.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The values, in the order of the table.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || take(&mut rest))
    }
}

impl std::fmt::Debug for ChangedRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.fields()).finish()
    }
}

impl ChangedRow {
    /// A row with these fields.
    ///
    /// # Errors
    /// A value has 2 GiB or more.
    pub fn new<'a>(fields: impl IntoIterator<Item = Field<'a>>) -> Result<Self, ConnectorError> {
        let (mut bytes, mut has_unchanged) = (Vec::new(), false);
        for field in fields {
            has_unchanged |= field == Field::Unchanged;
            append(&mut bytes, field)?;
        }
        Ok(Self { bytes: bytes.into(), has_unchanged })
    }

    /// A row of these bytes, as [`as_bytes`](Self::as_bytes) has them.
    ///
    /// * `count`: number of its fields.
    ///
    /// # Errors
    /// They are not complete fields of this number.
    pub(super) fn received(bytes: &[u8], count: usize) -> Result<Self, ConnectorError> {
        let has_unchanged = checked(bytes, count)?.unchanged;
        Ok(Self { bytes: bytes.into(), has_unchanged })
    }

    /// The fields as this module describes them.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The fields, in the order of the columns.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || take(&mut rest))
    }

    /// Whether a value is missing because it is as it was.
    #[must_use]
    pub fn has_unchanged(&self) -> bool {
        self.has_unchanged
    }

    /// The fields as in a binary COPY, if no value is missing.
    #[must_use]
    pub fn as_copy(&self) -> Option<&[u8]> {
        (!self.has_unchanged).then_some(&*self.bytes)
    }

    /// Size in memory, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }

    /// The key.
    ///
    /// * `columns`: those of the key, in the order of the table.
    ///
    /// # Errors
    /// A column of the key is NULL, or was not sent.
    pub fn key(&self, columns: &[usize]) -> Result<RowKey, ConnectorError> {
        let mut key = Vec::new();
        let mut wanted = columns.iter().copied().peekable();
        for (at, field) in self.fields().enumerate() {
            if wanted.next_if_eq(&at).is_none() {
                continue;
            }
            match field {
                Field::Value(_) => append(&mut key, field)?,
                Field::Null | Field::Unchanged => {
                    let found = format!("column {} of the key has no value", at + 1);
                    return Err(ConnectorError::data("a changed row", found));
                }
            }
        }
        match wanted.next() {
            None => Ok(RowKey(key.into())),
            Some(at) => {
                let found = format!("column {} of the key is missing", at + 1);
                Err(ConnectorError::data("a changed row", found))
            }
        }
    }

    /// All values as a key, with those that are NULL, of a row that has no other.
    ///
    /// # Errors
    /// A value was not sent.
    pub fn whole_key(&self) -> Result<RowKey, ConnectorError> {
        match self.as_copy() {
            Some(fields) => Ok(RowKey(fields.into())),
            None => {
                let found = "a row that has no key misses a value".to_owned();
                Err(ConnectorError::data("a changed row", found))
            }
        }
    }

    /// This row, with the values of its key that were not sent as they are in a key.
    ///
    /// * `columns`: those of the key, in the order of the table.
    ///
    /// # Errors
    /// The key has not these columns.
    pub fn with_key(self, columns: &[usize], key: &RowKey) -> Result<Self, ConnectorError> {
        if !self.has_unchanged {
            return Ok(self);
        }
        let mut values = key.fields();
        let mut fields = Vec::new();
        for (at, field) in self.fields().enumerate() {
            let value = if columns.contains(&at) { Some(values.next()) } else { None };
            fields.push(match (field, value) {
                (Field::Unchanged, Some(Some(value))) => value,
                (_, Some(None)) => {
                    let found = "its old key has fewer columns".to_owned();
                    return Err(ConnectorError::data("a changed row", found));
                }
                (field, _) => field,
            });
        }
        Self::new(fields)
    }

    /// This row, with the values that were not sent as they are in the row before.
    ///
    /// # Errors
    /// The two have not the same number of fields.
    pub fn over(self, before: &Self) -> Result<Self, ConnectorError> {
        if !self.has_unchanged {
            return Ok(self);
        }
        let (mut own, mut earlier) = (self.fields(), before.fields());
        let mut fields = Vec::new();
        loop {
            match (own.next(), earlier.next()) {
                (Some(Field::Unchanged), Some(earlier)) => fields.push(earlier),
                (Some(field), Some(_)) => fields.push(field),
                (None, None) => break,
                _ => {
                    let found = "it has not the columns of the row before".to_owned();
                    return Err(ConnectorError::data("a changed row", found));
                }
            }
        }
        drop(own);
        Self::new(fields)
    }
}

fn append(bytes: &mut Vec<u8>, field: Field<'_>) -> Result<(), ConnectorError> {
    let (size, value): (i32, &[u8]) = match field {
        Field::Null => (NULL, &[]),
        Field::Unchanged => (UNCHANGED, &[]),
        Field::Value(value) => {
            let size = i32::try_from(value.len()).map_err(|_| {
                ConnectorError::data("a changed row", "a value has 2 GiB or more".to_owned())
            })?;
            (size, value)
        }
    };
    bytes.extend_from_slice(&size.to_be_bytes());
    bytes.extend_from_slice(value);
    Ok(())
}

/// Which fields some bytes have.
struct Has {
    null: bool,
    unchanged: bool,
}

/// Checks that bytes are complete fields of this number.
fn checked(bytes: &[u8], count: usize) -> Result<Has, ConnectorError> {
    let (mut rest, mut found) = (bytes, 0_usize);
    let mut has = Has { null: false, unchanged: false };
    while !rest.is_empty() {
        let Some(field) = take(&mut rest) else {
            let found = "a field is cut off".to_owned();
            return Err(ConnectorError::data("a changed row", found));
        };
        has.null |= field == Field::Null;
        has.unchanged |= field == Field::Unchanged;
        found += 1;
    }
    if found != count {
        let found = format!("{found} fields instead of {count}");
        return Err(ConnectorError::data("a changed row", found));
    }
    Ok(has)
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<Field<'a>> {
    let (size, after) = rest.split_first_chunk()?;
    *rest = after;
    match i32::from_be_bytes(*size) {
        NULL => Some(Field::Null),
        UNCHANGED => Some(Field::Unchanged),
        size => {
            let (value, after) = after.split_at_checked(usize::try_from(size).ok()?)?;
            *rest = after;
            Some(Field::Value(value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fields: &[Field<'_>]) -> ChangedRow {
        ChangedRow::new(fields.iter().copied()).unwrap()
    }

    #[test]
    fn a_row_has_the_fields_that_it_was_made_of() {
        let fields = [Field::Value(b"ab"), Field::Null, Field::Unchanged, Field::Value(b"")];
        let made = row(&fields);
        assert_eq!(made.fields().collect::<Vec<_>>(), fields);
        assert!(made.has_unchanged() && made.as_copy().is_none());
        let whole = row(&fields[..2]);
        assert_eq!(whole.as_copy().unwrap(), b"\0\0\0\x02ab\xFF\xFF\xFF\xFF");
    }

    #[test]
    fn values_that_were_not_sent_are_taken_from_the_row_before() {
        let before = row(&[Field::Value(b"1"), Field::Value(b"large"), Field::Unchanged]);
        let after = row(&[Field::Value(b"2"), Field::Unchanged, Field::Unchanged]);
        let merged = after.over(&before).unwrap();
        assert_eq!(merged, row(&[Field::Value(b"2"), Field::Value(b"large"), Field::Unchanged]));
        row(&[Field::Unchanged]).over(&before).unwrap_err();
    }

    #[test]
    fn a_key_has_all_its_values_or_is_an_error() {
        let of = |fields: &[Field<'_>]| row(fields).key(&[0, 2]);
        let one = of(&[Field::Value(b"a"), Field::Null, Field::Value(b"bc")]).unwrap();
        let other = of(&[Field::Value(b"ab"), Field::Null, Field::Value(b"c")]).unwrap();
        assert_ne!(one, other);
        assert_eq!(one.as_bytes(), b"\0\0\0\x01a\0\0\0\x02bc");
        for fields in [
            [Field::Null, Field::Null, Field::Value(b"b")],
            [Field::Value(b"a"), Field::Null, Field::Unchanged],
        ] {
            of(&fields).unwrap_err();
        }
        of(&[Field::Value(b"a")]).unwrap_err();
    }
}
