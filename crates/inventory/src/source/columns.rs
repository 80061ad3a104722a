//! The columns of a table and their meaning.
//!
//! Columns are found by name. The names of S3 Inventory are known in both spellings
//! (`LastModifiedDate`, `last_modified_date`), and a few other common ones. Case, `_`, `-` and
//! blanks are ignored unless the user specified the column.

use std::str::FromStr;

use super::SourceError;
use super::foreign::Foreign;

/// The column of one field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Column {
    /// A column with one of its usual names; absent if there is none.
    #[default]
    Usual,
    /// The column with this name, which must exist.
    Named(String),
    /// None, even if a column with a usual name exists.
    Absent,
}

/// The columns of the fields of an object. The key and the size must exist. Without a storage class
/// an object is `STANDARD`, without a date its month is unknown, without versions it is current.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    /// The key.
    pub key: Column,
    /// Bytes.
    pub size: Column,
    /// The storage class.
    pub class: Column,
    /// When it was last modified.
    pub last_modified: Column,
    /// Whether it is the latest version of its key.
    pub is_latest: Column,
    /// Whether it is a marker that says its key was deleted.
    pub is_delete_marker: Column,
    /// The id of the version.
    pub version_id: Column,
    /// The access tier of an object in `INTELLIGENT_TIERING`.
    pub tier: Column,
}

/// A field of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Key,
    Size,
    Class,
    LastModified,
    IsLatest,
    IsDeleteMarker,
    VersionId,
    Tier,
}

/// Fields with their usual names, without case and separators, the likeliest first.
const FIELDS: [(Field, &str, &[&str]); 8] = [
    (Field::Key, "key", &["key", "objectkey", "objectname", "name", "path"]),
    (Field::Size, "size", &["size", "bytes", "sizebytes", "objectsize", "contentlength", "length"]),
    (Field::Class, "class", &["storageclass", "class"]),
    (
        Field::LastModified,
        "last_modified",
        &["lastmodifieddate", "lastmodified", "modified", "mtime", "updated"],
    ),
    (Field::IsLatest, "is_latest", &["islatest"]),
    (Field::IsDeleteMarker, "is_delete_marker", &["isdeletemarker"]),
    (Field::VersionId, "version_id", &["versionid"]),
    (Field::Tier, "tier", &["intelligenttieringaccesstier"]),
];

/// Indexes of the columns in a table. A file without one of them lacks the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) key: usize,
    pub(crate) size: usize,
    pub(crate) class: Option<usize>,
    pub(crate) last_modified: Option<usize>,
    pub(crate) is_latest: Option<usize>,
    pub(crate) is_delete_marker: Option<usize>,
    pub(crate) version_id: Option<usize>,
    pub(crate) tier: Option<usize>,
}

impl Columns {
    /// Columns with their usual names.
    #[must_use]
    pub fn usual() -> Self {
        Self::default()
    }

    /// Whether a table with columns of these names distinguishes versions of a key.
    pub(crate) fn has_versions(&self, names: &[String]) -> bool {
        let there = |field| self.place(field, "", names).is_ok_and(|place| place.is_some());
        there(Field::IsLatest) || there(Field::VersionId)
    }

    /// Finds the columns among the names of a table.
    ///
    /// # Errors
    /// [`SourceError::Column`] if a specified column is missing or ambiguous, the key or the size
    /// is missing, or these are the columns of another store's report.
    pub(crate) fn places<S: AsRef<str>>(
        &self,
        file: &str,
        names: &[S],
    ) -> Result<Places, SourceError> {
        if let Some(foreign) = Foreign::of_columns(names) {
            let reason = foreign.reason();
            return Err(SourceError::Column { file: file.to_owned(), reason });
        }
        let place = |field| self.place(field, file, names);
        let needed = |field, what: &str| {
            place(field)?.ok_or_else(|| {
                let names: Vec<&str> = names.iter().map(AsRef::as_ref).take(40).collect();
                let reason = format!(
                    "no column contains the {what} of an object; the columns are {}; specify \
                     {what}=COLUMN",
                    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
                );
                SourceError::Column { file: file.to_owned(), reason }
            })
        };
        Ok(Places {
            key: needed(Field::Key, "key")?,
            size: needed(Field::Size, "size")?,
            class: place(Field::Class)?,
            last_modified: place(Field::LastModified)?,
            is_latest: place(Field::IsLatest)?,
            is_delete_marker: place(Field::IsDeleteMarker)?,
            version_id: place(Field::VersionId)?,
            tier: place(Field::Tier)?,
        })
    }

    fn place<S: AsRef<str>>(
        &self,
        field: Field,
        file: &str,
        names: &[S],
    ) -> Result<Option<usize>, SourceError> {
        let wrong = |reason| SourceError::Column { file: file.to_owned(), reason };
        let at = |wanted: &dyn Fn(&str) -> bool| {
            let mut found = names.iter().enumerate().filter(|(_, name)| wanted(name.as_ref()));
            (found.next().map(|(at, _)| at), found.next().is_some())
        };
        match self.field(field) {
            Column::Absent => Ok(None),
            Column::Named(wanted) => match at(&|name| name == wanted) {
                (Some(_), true) => Err(wrong(format!("it has two columns named {wanted:?}"))),
                (Some(place), false) => Ok(Some(place)),
                (None, _) => match at(&|name| name.eq_ignore_ascii_case(wanted)) {
                    (Some(place), false) => Ok(Some(place)),
                    _ => Err(wrong(format!("it has no column {wanted:?}"))),
                },
            },
            Column::Usual => {
                let usual = FIELDS.iter().filter(|(known, ..)| *known == field);
                for wanted in usual.flat_map(|(_, _, usual)| usual.iter()) {
                    match at(&|name| plain(name) == *wanted) {
                        (Some(_), true) => {
                            let reason = format!("two of its columns are named {wanted}");
                            return Err(wrong(reason));
                        }
                        (Some(place), false) => return Ok(Some(place)),
                        (None, _) => {}
                    }
                }
                Ok(None)
            }
        }
    }

    fn field(&self, field: Field) -> &Column {
        match field {
            Field::Key => &self.key,
            Field::Size => &self.size,
            Field::Class => &self.class,
            Field::LastModified => &self.last_modified,
            Field::IsLatest => &self.is_latest,
            Field::IsDeleteMarker => &self.is_delete_marker,
            Field::VersionId => &self.version_id,
            Field::Tier => &self.tier,
        }
    }

    fn field_mut(&mut self, field: Field) -> &mut Column {
        match field {
            Field::Key => &mut self.key,
            Field::Size => &mut self.size,
            Field::Class => &mut self.class,
            Field::LastModified => &mut self.last_modified,
            Field::IsLatest => &mut self.is_latest,
            Field::IsDeleteMarker => &mut self.is_delete_marker,
            Field::VersionId => &mut self.version_id,
            Field::Tier => &mut self.tier,
        }
    }
}

impl FromStr for Columns {
    type Err = SourceError;

    /// Parses `key=Name,size=Length,class=-,...`: the fields have the names of this type's fields,
    /// and `-` means that a field has no column. Others are found by their usual names. An unknown
    /// field, a repeated one, or one without a column is an error.
    fn from_str(text: &str) -> Result<Self, SourceError> {
        let wrong = |reason: String| SourceError::Spec { given: text.to_owned(), reason };
        let mut columns = Self::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, column) = pair
                .split_once('=')
                .map(|(name, column)| (name.trim(), column.trim()))
                .filter(|(_, column)| !column.is_empty())
                .ok_or_else(|| wrong(format!("{pair:?} is not FIELD=COLUMN")))?;
            let field = FIELDS.iter().find(|(_, known, _)| *known == name).ok_or_else(|| {
                let known: Vec<&str> = FIELDS.iter().map(|(_, name, _)| *name).collect();
                wrong(format!("unknown field {name:?}; the fields are {}", known.join(", ")))
            })?;
            let place = columns.field_mut(field.0);
            if *place != Column::Usual {
                return Err(wrong(format!("the column of {name} is specified twice")));
            }
            *place = match column {
                "-" => Column::Absent,
                _ => Column::Named(column.to_owned()),
            };
        }
        Ok(columns)
    }
}

/// A name without case and separators.
pub(crate) fn plain(name: &str) -> String {
    let kept = name.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
    kept.map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(result: Result<Places, SourceError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn usual_names_are_found_in_either_spelling() {
        let ours = ["Bucket", "Key", "VersionId", "IsLatest", "Size", "LastModifiedDate"];
        let places = Columns::usual().places("f", &ours).unwrap();
        assert_eq!((places.key, places.size), (1, 4));
        assert_eq!((places.version_id, places.is_latest), (Some(2), Some(3)));
        assert_eq!((places.last_modified, places.class, places.tier), (Some(5), None, None));
        let theirs = ["size", "storage_class", "last_modified_date", "key", "name"];
        let places = Columns::usual().places("f", &theirs).unwrap();
        assert_eq!((places.key, places.size, places.class), (3, 0, Some(1)));
        assert_eq!(places.last_modified, Some(2));
    }

    #[test]
    fn named_columns_are_those_and_absent_ones_are_none() {
        let columns = "key=object, class=-,size=Länge".parse::<Columns>().unwrap();
        let places = columns.places("f", &["key", "OBJECT", "Länge", "storage_class"]).unwrap();
        assert_eq!((places.key, places.size, places.class), (1, 2, None));
        let missing = columns.places("f.csv", &["key", "Länge"]);
        assert_eq!(reason(missing), "f.csv: it has no column \"object\"");
    }

    #[test]
    fn an_undecidable_column_is_an_error() {
        assert!(
            reason(Columns::usual().places("f", &["size", "x"])).contains("columns are size, x")
        );
        assert!(reason(Columns::usual().places::<&str>("f", &[])).contains("columns are none"));
        assert!(
            reason(Columns::usual().places("f", &["key"])).contains("no column contains the size")
        );
        let twice = Columns::usual().places("f", &["key", "Key", "size"]);
        assert_eq!(reason(twice), "f: two of its columns are named key");
        for text in ["keys=a", "key", "key=", "key=a,key=b"] {
            assert!(matches!(text.parse::<Columns>(), Err(SourceError::Spec { .. })), "{text}");
        }
    }
}
