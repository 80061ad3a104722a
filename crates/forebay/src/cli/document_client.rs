//! A client of a server's documents: pages of a namespace, followed to the end.
//!
//! Invariant: documents keep their bytes; what a server sends is limited in size.

use forebay_intake::names::Namespace;
use serde::Deserialize;

use serde_json::value::RawValue;
use ureq::SendBody;
use ureq::http::Method;

use super::file_client::{Client, Failure};
use super::server::encode;

/// Maximum size of a page, in bytes: the largest document that a log entry can hold, and what stands around it.
pub(super) const PAGE_SIZE_MAX: u64 = 160 << 20;

/// A page of documents.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    /// `table` or `collection`.
    pub(super) target: String,
    pub(super) documents: Vec<Document>,
    next_cursor: Option<String>,
}

/// A document of a page.
#[derive(Debug, Deserialize)]
pub(super) struct Document {
    pub(super) id: u64,
    pub(super) received: String,
    /// Its bytes, as they are stored.
    pub(super) document: Box<RawValue>,
}

/// The documents of a namespace, in the order of arrival.
#[derive(Debug)]
pub(super) struct Documents {
    path: String,
    filter: Option<String>,
    cursor: Option<String>,
    is_at_end: bool,
}

impl Documents {
    /// * `filter`: an expression of `where`.
    pub(super) fn new(namespace: &Namespace, filter: Option<&str>) -> Self {
        let filter = filter.map(|filter| format!("&where={}", encode(filter)));
        let path = format!("/v1/documents/{namespace}");
        Self { path, filter, cursor: None, is_at_end: false }
    }

    /// Fetches the next page; `None` after the last. One with a filter may be empty.
    ///
    /// * `limit`: maximum number of documents, 1 to 1,000.
    pub(super) fn next(&mut self, client: &Client, limit: u64) -> Result<Option<Page>, Failure> {
        if self.is_at_end {
            return Ok(None);
        }
        let mut path = format!("{}?limit={limit}", self.path);
        path.push_str(self.filter.as_deref().unwrap_or_default());
        if let Some(cursor) = &self.cursor {
            path.push_str(&format!("&cursor={}", encode(cursor)));
        }
        let request = client.request(Method::GET, &path).header("accept", "application/json");
        let page: Page = client.read(client.send(request, SendBody::none())?, PAGE_SIZE_MAX)?;
        self.cursor = page.next_cursor.clone();
        self.is_at_end = self.cursor.is_none();
        Ok(Some(page))
    }
}

/// The URL path of a document.
pub(super) fn document_path(namespace: &Namespace, id: u64) -> String {
    format!("/v1/documents/{namespace}/{id}")
}
