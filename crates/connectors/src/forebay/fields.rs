//! Columns for the common fields of documents, as in the server's own tables.
//!
//! A value that does not match its column's type is NULL, as in the server: the document beside it
//! has the original.

#![deny(clippy::indexing_slicing)]

use forebay_pgcopy::Column;
use serde::Deserialize;
use serde_json::value::RawValue;

use forebay_sdk::values::read::Builder;
use forebay_sdk::values::types;

/// A column as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct FieldColumn {
    /// Keys of the field, separated by dots.
    pub(super) path: String,
    column: String,
    #[serde(rename = "type")]
    kind: String,
}

impl FieldColumn {
    /// The column, with a name that is not in `taken`; `None` if the type is unknown, as of a later
    /// version.
    pub(super) fn column(&self, taken: &[Column]) -> Option<Column> {
        let sql_type = match self.kind.as_str() {
            "boolean" => "boolean",
            "integer" => "bigint",
            "real" => "double precision",
            "decimal" => "numeric",
            "text" => "text",
            "timestamp" => "timestamptz",
            "date" => "date",
            "bytes" => "bytea",
            "json" => "json",
            _ => return None,
        };
        let mut name = self.column.clone();
        while taken.iter().any(|column| column.name == name) {
            name.insert_str(0, "field_");
        }
        types::column(&name, sql_type)
    }
}

/// A document whose keys have been located.
pub(super) struct Members<'a>(Vec<(std::borrow::Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The members of a value; none if it is not an object.
    pub(super) fn of(value: &'a RawValue) -> Self {
        Self::read(value.get()).unwrap_or(Self(Vec::new()))
    }

    fn read(json: &'a str) -> Option<Self> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        /// Borrowed if it has no escapes.
        #[derive(Deserialize)]
        struct Key<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

        let mut reader = serde_json::Deserializer::from_str(json);
        serde::Deserializer::deserialize_map(&mut reader, Visitor).ok()
    }

    /// The value at a path. A key may itself contain dots.
    fn at(&self, path: &str) -> Option<&'a RawValue> {
        let (mut found, mut inner) = (None, None);
        for (key, value) in &self.0 {
            if key == path {
                // Of a repeated key, the last one counts.
                found = Some(*value);
            } else if let Some(rest) = path.strip_prefix(&**key).and_then(|it| it.strip_prefix('.'))
                && value.get().starts_with('{')
            {
                inner = Members::of(value).at(rest).or(inner);
            }
        }
        found.or(inner)
    }
}

/// Appends the value at a path to its column.
pub(super) fn append(members: &Members<'_>, path: &str, column: &Column, into: &mut Builder) {
    let value = members.at(path).map(RawValue::get);
    let appended = match value {
        None | Some("null") => Err(String::new()),
        Some(json) if into.is_json() => into.text(json),
        Some(json) => match (column.sql_type.as_str(), json.as_bytes().first()) {
            ("boolean", Some(b't' | b'f'))
            | ("text" | "bytea" | "date" | "timestamp with time zone", Some(b'"'))
            | ("bigint" | "double precision" | "numeric", Some(b'-' | b'0'..=b'9')) => {
                into.json(json)
            }
            _ => Err(String::new()),
        },
    };
    if appended.is_err() {
        into.null();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(document: &str, path: &str) -> Option<String> {
        let document: Box<RawValue> = serde_json::from_str(document).unwrap();
        Members::of(&document).at(path).map(|value| value.get().to_owned())
    }

    #[test]
    fn paths_go_through_objects_and_keys_with_dots() {
        let document = r#"{"a":{"b":1,"c.d":{"e":2}},"a.b":3,"x\u002ey":4,"a":{"b":5}}"#;
        assert_eq!(at(document, "a.b").as_deref(), Some("3"));
        assert_eq!(at(document, "a.c.d.e").as_deref(), Some("2"));
        assert_eq!(at(document, "x.y").as_deref(), Some("4"));
        assert_eq!(at(r#"{"a":{"b":1},"a":{"b":5}}"#, "a.b").as_deref(), Some("5"));
        assert_eq!(at(document, "a.z"), None);
        assert_eq!(at("[1]", "a"), None);
    }

    #[test]
    fn dates_and_timestamps_have_columns() {
        for (kind, sql_type, good, bad) in [
            ("date", "date", "\"2024-01-02\"", "\"soon\""),
            (
                "timestamp",
                "timestamp with time zone",
                "\"2024-01-02T03:04:05+01:00\"",
                "\"2024-01-02\"",
            ),
        ] {
            let field = FieldColumn { path: "t".into(), column: "t".into(), kind: kind.into() };
            let column = field.column(&[]).unwrap();
            assert_eq!(column.sql_type, sql_type);
            let mut builder = Builder::new(&column);
            for value in [good, bad, "7"] {
                let document: Box<RawValue> =
                    serde_json::from_str(&format!("{{\"t\":{value}}}")).unwrap();
                append(&Members::of(&document), "t", &column, &mut builder);
            }
            let array = builder.finish();
            assert!(array.is_valid(0) && array.null_count() == 2, "{kind}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_null() {
        let kind = FieldColumn { path: "n".into(), column: "n".into(), kind: "integer".into() };
        let column = kind.column(&[]).unwrap();
        let mut builder = Builder::new(&column);
        for document in [r#"{"n":1}"#, r#"{"n":"2"}"#, r#"{"n":1.5}"#, r#"{"n":null}"#, "{}"] {
            let document: Box<RawValue> = serde_json::from_str(document).unwrap();
            append(&Members::of(&document), "n", &column, &mut builder);
        }
        let array = builder.finish();
        assert_eq!((array.len(), array.null_count()), (5, 4));
        assert_eq!(kind.column(&[column]).unwrap().name, "field_n");
    }
}
