//! The files of the catalogue: what is known of each, not their bytes.
//!
//! They are read by namespace and name, a page at a time. A file that is stored, renamed or deleted meanwhile is in
//! the rows as it was when its page was read, or not at all if its page was read before. Every run reads all of
//! them: a file that was deleted is in no later reading, so `write_mode: replace` has exactly those that exist.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::connector::{Cursor, Opening, Result, SourceStream, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Outlet, Phase};
use forebay_sdk::settings::StreamSettings;
use serde::Deserialize;

use super::client::Server;
use super::rows::{self, Gathered, append};
use super::source::{parameters, whole};

/// What is attempted, for messages.
const ACT: &str = "list files";
/// Maximum number of files of a page, as in the server.
const PAGE: &str = "1000";

/// Columns, and whether they are nullable.
const COLUMNS: [(&str, &str, bool); 11] = [
    ("namespace", "text", false),
    ("name", "text", false),
    ("id", "text", false),
    ("size", "bigint", false),
    ("sha256", "text", false),
    ("mime", "text", false),
    ("category", "text", false),
    ("comment", "text", true),
    ("created", "timestamptz", false),
    ("expires", "timestamptz", true),
    ("attributes", "json", true),
];

/// A page of files.
#[derive(Debug, Deserialize)]
struct Page {
    files: Vec<File>,
    next_cursor: Option<String>,
}

/// A file as the server describes it.
#[derive(Debug, Deserialize)]
struct File {
    namespace: String,
    name: String,
    id: String,
    size: u64,
    sha256: String,
    mime: String,
    category: String,
    comment: Option<String>,
    created: String,
    expires: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

/// The columns of files.
pub(super) fn columns() -> Vec<Column> {
    rows::described(COLUMNS).collect()
}

/// The filter in a stream's name: after `files/` a namespace, or parameters of the listing such as
/// `namespace=photos&category=image`.
fn filter(name: &str) -> Result<Vec<(String, String)>> {
    let Some(asked) = name.strip_prefix("files/") else { return Ok(Vec::new()) };
    if !asked.contains('=') {
        return Ok(vec![("namespace".into(), asked.to_owned())]);
    }
    const KNOWN: [&str; 10] = [
        "namespace",
        "prefix",
        "category",
        "mime",
        "sha256",
        "size_min",
        "size_max",
        "created_from",
        "created_to",
        "tag",
    ];
    parameters(asked, "files", &KNOWN)
}

/// The open catalogue.
pub(super) struct FileStream {
    server: Server,
    filter: Vec<(String, String)>,
    columns: Vec<Column>,
    units: Vec<Unit>,
    batch_size: usize,
}

impl FileStream {
    /// Opens what a stream's name selects. Asks the server for a file, so that a filter it refuses is an error now.
    pub(super) async fn open(
        server: &Server,
        stream: &StreamSettings,
        opening: &Opening,
    ) -> Result<Self> {
        let (filter, all) = (filter(&stream.name)?, columns());
        let chosen = rows::choose(&all, stream)?;
        let columns = chosen.into_iter().filter_map(|at| all.get(at).cloned()).collect();
        let units = whole(stream, opening, None, "files are")?;
        let (server, batch_size) = (server.clone(), opening.batch_size);
        let opened = Self { server, filter, columns, units, batch_size };
        opened.page("1", None).await?;
        Ok(opened)
    }

    async fn page(&self, limit: &str, cursor: Option<String>) -> Result<Page> {
        let mut query = self.filter.clone();
        query.push(("limit".into(), limit.to_owned()));
        query.extend(cursor.map(|cursor| ("cursor".to_owned(), cursor)));
        let path = ["v1", "files"];
        let answer = self.server.get(ACT, &path, &query, "application/json").await?;
        let body = self.server.body(ACT, answer).await?;
        serde_json::from_slice(&body).map_err(|error| self.server.misunderstood(ACT, error))
    }
}

/// Metadata and tags as one JSON object; `None` if there are none.
fn attributes(file: &File) -> Option<String> {
    let parts = [("metadata", &file.metadata), ("tags", &file.tags)];
    let found: BTreeMap<_, _> = parts.into_iter().filter(|(_, of)| !of.is_empty()).collect();
    (!found.is_empty()).then(|| serde_json::json!(found).to_string())
}

fn append_file(file: &File, rows: &mut Gathered<'_>) -> Result<()> {
    for (column, builder) in rows.builders() {
        let appended = match column.name.as_str() {
            "namespace" => builder.text(&file.namespace),
            "name" => builder.text(&file.name),
            "id" => builder.text(&file.id),
            "size" => builder.text(&file.size.to_string()),
            "sha256" => builder.text(&file.sha256),
            "mime" => builder.text(&file.mime),
            "category" => builder.text(&file.category),
            "comment" => append(builder, file.comment.as_deref()),
            "created" => builder.text(&file.created),
            "expires" => append(builder, file.expires.as_deref()),
            _ => append(builder, attributes(file).as_deref()),
        };
        appended.map_err(|found| {
            let place = format!("file {:?} of {}, {}", file.name, file.namespace, column.name);
            ConnectorError::data(place, found)
        })?;
    }
    Ok(())
}

#[async_trait]
impl SourceStream for FileStream {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        false
    }

    fn cursor(&self) -> Option<Cursor> {
        None
    }

    fn notes(&self) -> Vec<String> {
        vec![format!(
            "what is known of files, by namespace and name, {PAGE} per request; not their bytes"
        )]
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        if unit >= self.units.len() {
            return Err(ConnectorError::data("files", "there is no such unit"));
        }
        let phases = Arc::clone(&out.context().phases);
        let mut rows = Gathered::new(&self.columns, self.batch_size);
        let mut cursor = None;
        loop {
            let begun = Instant::now();
            let page = self.page(PAGE, cursor.clone()).await?;
            phases.add(Phase::Fetch, begun);
            for file in &page.files {
                append_file(file, &mut rows)?;
                if let Some(batch) = rows.count(file.name.len() + 256)? {
                    out.send(batch).await?;
                }
            }
            // A server that repeats itself must not be asked for ever.
            if page.next_cursor.is_some() && page.next_cursor == cursor {
                return Err(self.server.misunderstood(ACT, "a page leads to itself"));
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        match rows.take()? {
            Some(batch) => out.send(batch).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_chooses_files() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(filter("files").unwrap(), []);
        assert_eq!(filter("files/photos").unwrap(), [pair("namespace", "photos")]);
        let both = filter("files/prefix=2026/&tag=a%3Db").unwrap();
        assert_eq!(both, [pair("prefix", "2026/"), pair("tag", "a=b")]);
        assert!(filter("files/sort=size").is_err());
    }

    #[test]
    fn attributes_are_there_only_if_there_are_some() {
        let file = |more: serde_json::Value| {
            let mut file = serde_json::json!({ "namespace": "n", "name": "a", "id": "0", "size": 1, "sha256": "",
                "mime": "", "category": "", "created": "" });
            let (Some(all), Some(more)) = (file.as_object_mut(), more.as_object()) else {
                panic!()
            };
            all.extend(more.clone());
            serde_json::from_value::<File>(file).unwrap()
        };
        assert_eq!(attributes(&file(serde_json::json!({}))), None);
        let tagged = file(serde_json::json!({ "tags": { "a": "b" } }));
        assert_eq!(attributes(&tagged).as_deref(), Some(r#"{"tags":{"a":"b"}}"#));
    }
}
