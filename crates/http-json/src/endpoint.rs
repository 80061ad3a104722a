//! A stream of an API, with everything in its settings checked.
//!
//! Invariant: parameters of one name are sent once: those of a page replace those of the settings.

use forebay_base::ServerError;
use forebay_pgcopy::Column;
use forebay_sdk::settings::{Secret, Text};
use forebay_sdk::values::types;
use url::Url;

use crate::address::Base;
use crate::pointer::Pointer;
use crate::settings::{ColumnOfApi, Pagination, StreamOfApi};

/// Maximum number of columns, parameters, and columns of a key.
const ITEMS_MAX: usize = 1_600;

/// A stream.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) name: String,
    /// Its address without parameters.
    pub(crate) url: Url,
    pub(crate) query: Vec<(String, Secret)>,
    /// Where the records of a response are; `None`: it is the array of them.
    pub(crate) records: Option<Pointer>,
    /// The columns of the settings, and where their values are; empty: those of the first page.
    pub(crate) columns: Vec<(Column, Pointer)>,
    pub(crate) primary_key: Vec<String>,
    pub(crate) cursor_param: Option<String>,
    pub(crate) paging: Paging,
}

/// How a page leads to the next one.
#[derive(Debug, Clone)]
pub(crate) enum Paging {
    /// There is one page.
    Single,
    /// By numbers of pages.
    Number { param: String, size: Option<(String, u32)>, first: u64 },
    /// By the number of records before a page.
    Offset { param: String, size: Option<(String, u32)> },
    /// By a value of the page.
    Cursor { param: String, pointer: Pointer },
    /// By the header `Link`.
    Link,
    /// By an address in the page.
    NextUrl { pointer: Pointer },
}

impl Endpoint {
    /// Checks the settings of a stream.
    ///
    /// # Errors
    /// The first setting that cannot be used, with the stream.
    pub(crate) fn new(base: &Base, stream: &StreamOfApi) -> Result<Self, ServerError> {
        let name = stream.name.0.clone();
        let wrong = |what: &str, way_out: &str| {
            ServerError::settings(format!("stream {name:?}: {what}"), way_out.to_owned())
        };
        if name.is_empty() {
            return Err(wrong("its name is empty", "give it a name"));
        }
        if stream.path.0.contains(['?', '#']) {
            return Err(wrong("`path` has parameters or a fragment", "set `query` instead"));
        }
        if stream.columns.len().max(stream.query.len()).max(stream.primary_key.len()) > ITEMS_MAX {
            return Err(wrong("it has too many columns or parameters", "leave some out"));
        }
        let pointer = |field: &str, text: &Text| {
            Pointer::parse(&text.0).ok_or_else(|| {
                let what = format!("`{field}` is {:?}, which is not a JSON pointer", text.0);
                wrong(&what, "write it as /key/key, with ~1 for / and ~0 for ~")
            })
        };
        let paging = paging(&stream.pagination, &wrong, &pointer)?;
        let columns = columns(&stream.columns, &wrong, &pointer)?;
        let is_known = |key: &&String| columns.iter().any(|(column, _)| column.name == **key);
        if let Some(key) =
            stream.primary_key.iter().find(|key| !columns.is_empty() && !is_known(key))
        {
            let what = format!("`primary_key` names {key:?}, which is not in `columns`");
            return Err(wrong(&what, "name a column"));
        }
        let records = stream.records.as_ref().map(|text| pointer("records", text)).transpose()?;
        let cursor_param = stream.cursor_param.as_ref().map(|param| param.0.clone());
        if cursor_param.as_ref().is_some_and(String::is_empty) {
            return Err(wrong("`cursor_param` is empty", "name a parameter"));
        }
        let url = base.join(&stream.path.0);
        if crate::address::Origin::of(&url).as_ref() != Some(base.origin()) {
            return Err(wrong("`path` leads to another server", "write it without a server"));
        }
        let query =
            stream.query.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let primary_key = stream.primary_key.clone();
        Ok(Self { name, url, query, records, columns, primary_key, cursor_param, paging })
    }

    /// The address of a request.
    ///
    /// * `more`: parameters besides those of the settings, or in their place.
    #[cfg(feature = "client")]
    pub(crate) fn request(&self, more: &[(String, String)]) -> Url {
        let mut url = self.url.clone();
        let own =
            self.query.iter().filter(|(name, _)| !more.iter().any(|(other, _)| name == other));
        let own: Vec<_> = own.collect();
        if own.is_empty() && more.is_empty() {
            return url;
        }
        let mut pairs = url.query_pairs_mut();
        for (name, value) in own {
            pairs.append_pair(name, value.expose());
        }
        for (name, value) in more {
            pairs.append_pair(name, value);
        }
        drop(pairs);
        url
    }
}

/// Makes an error of a stream: what is wrong, and what to do.
type Wrong<'a> = dyn Fn(&str, &str) -> ServerError + 'a;
/// Reads the pointer of a field.
type ReadPointer<'a> = dyn Fn(&str, &Text) -> Result<Pointer, ServerError> + 'a;

fn paging(
    pagination: &Pagination,
    wrong: &Wrong<'_>,
    pointer: &ReadPointer<'_>,
) -> Result<Paging, ServerError> {
    let named = |param: &Text| match param.0.is_empty() {
        true => Err(wrong("a parameter of `pagination` has no name", "name it")),
        false => Ok(param.0.clone()),
    };
    let size = |param: &Option<Text>, size: std::num::NonZeroU32| {
        param.as_ref().map(|param| Ok((named(param)?, size.get()))).transpose()
    };
    Ok(match pagination {
        Pagination::None => Paging::Single,
        Pagination::Link => Paging::Link,
        Pagination::Page(page) => Paging::Number {
            param: named(&page.param)?,
            size: size(&page.size_param, page.size)?,
            first: page.first.into(),
        },
        Pagination::Offset(offset) => Paging::Offset {
            param: named(&offset.param)?,
            size: size(&offset.size_param, offset.size)?,
        },
        Pagination::Cursor(cursor) => Paging::Cursor {
            param: named(&cursor.param)?,
            pointer: pointer("pagination.cursor.pointer", &cursor.pointer)?,
        },
        Pagination::NextUrl(next) => {
            Paging::NextUrl { pointer: pointer("pagination.next_url.pointer", &next.pointer)? }
        }
    })
}

fn columns(
    given: &[ColumnOfApi],
    wrong: &Wrong<'_>,
    pointer: &ReadPointer<'_>,
) -> Result<Vec<(Column, Pointer)>, ServerError> {
    let mut columns: Vec<(Column, Pointer)> = Vec::with_capacity(given.len());
    for ColumnOfApi { name, sql_type, pointer: at } in given {
        if name.0.is_empty() || columns.iter().any(|(known, _)| known.name == name.0) {
            let what = format!("`columns` has {:?} twice, or without a name", name.0);
            return Err(wrong(&what, "give columns different names"));
        }
        let Some(column) = types::column(&name.0, &sql_type.0) else {
            let what = format!("column {:?} cannot be given the type {:?}", name.0, sql_type.0);
            let way_out = "name a type of PostgreSQL such as bigint, numeric(10,2) or timestamptz";
            return Err(wrong(&what, way_out));
        };
        let at = at.as_ref().map(|text| pointer("columns.pointer", text)).transpose()?;
        columns.push((column, at.unwrap_or_else(|| Pointer::key(&name.0))));
    }
    Ok(columns)
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::Settings;

    fn endpoint(stream: Value) -> Result<Endpoint, ServerError> {
        let settings = json!({ "url": "https://h/v2", "streams": [stream] });
        let settings: Settings = serde_json::from_value(settings).unwrap();
        Ok(settings.endpoints()?.remove(0))
    }

    #[test]
    fn parameters_of_a_page_replace_those_of_the_settings() {
        let query = json!({ "since": "2020", "q": "a&b c" });
        let made = endpoint(json!({ "name": "s", "path": "x", "query": query })).unwrap();
        assert_eq!(made.request(&[]).as_str(), "https://h/v2/x?q=a%26b+c&since=2020");
        let more = [("since", "2026-01-01T00:00:00+01:00"), ("page", "1")];
        let url = made.request(&more.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(url.query(), Some("q=a%26b+c&since=2026-01-01T00%3A00%3A00%2B01%3A00&page=1"));
        let plain = endpoint(json!({ "name": "s" })).unwrap();
        assert_eq!(plain.request(&[]).as_str(), "https://h/v2");
    }

    #[test]
    fn a_setting_that_cannot_be_used_is_refused_with_its_stream() {
        for (stream, expected) in [
            (json!({ "name": "" }), "name is empty"),
            (json!({ "name": "s", "path": "a?b=c" }), "`query`"),
            (json!({ "name": "s", "records": "data" }), "`records`"),
            (json!({ "name": "s", "cursor_param": "" }), "`cursor_param`"),
            (json!({ "name": "s", "pagination": { "next_url": { "pointer": "x" } } }), "next_url"),
            (json!({ "name": "s", "pagination": { "page": { "param": "" } } }), "no name"),
            (json!({ "name": "s", "columns": [{ "name": "a", "type": "wrong" }] }), "the type"),
            (
                json!({ "name": "s", "columns": [{ "name": "a", "type": "int" }, { "name": "a", "type": "int" }] }),
                "twice",
            ),
            (
                json!({ "name": "s", "primary_key": ["b"], "columns": [{ "name": "a", "type": "int" }] }),
                "`primary_key`",
            ),
        ] {
            let error = endpoint(stream.clone()).unwrap_err().to_string();
            assert!(error.contains("stream") && error.contains(expected), "{stream}: {error}");
        }
    }

    #[test]
    fn every_kind_of_pagination_is_read() {
        for pagination in [
            json!("none"),
            json!("link"),
            json!({ "page": {} }),
            json!({ "page": { "param": "p", "size_param": "n", "size": 50, "first": 0 } }),
            json!({ "offset": { "size_param": "limit" } }),
            json!({ "cursor": { "pointer": "/meta/next" } }),
            json!({ "next_url": { "pointer": "/next" } }),
        ] {
            endpoint(json!({ "name": "s", "pagination": pagination })).unwrap();
        }
        let unknown = json!({ "name": "s", "pagination": { "page": { "parm": "p" } } });
        assert!(serde_json::from_value::<StreamOfApi>(unknown).is_err());
    }
}
