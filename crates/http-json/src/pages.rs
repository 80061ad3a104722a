//! The pages of a stream: each is requested once, and leads to the next one.
//!
//! Invariants: a reading ends, since a page, a value or an address that repeats is an error, and so is a page
//! beyond the maximum; a page that cannot be understood is an error that names it, never the end.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::Arc;

use forebay_sdk::ConnectorError;
use forebay_sdk::connector::Result;
use forebay_sdk::run::Context;
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;
use url::Url;

use crate::api::Api;
use crate::client::{Answer, refused};
use crate::endpoint::Paging;
use crate::link;
use crate::pointer::{plain, read, whole};

/// Maximum number of records of a page.
const RECORDS_MAX: usize = 1 << 20;

/// A page.
#[derive(Debug)]
pub(crate) struct Page {
    /// Its number, from 1.
    pub(crate) number: u32,
    text: String,
    records: Vec<Range<usize>>,
}

impl Page {
    /// Number of records.
    pub(crate) fn count(&self) -> usize {
        self.records.len()
    }

    /// The JSON of a record.
    pub(crate) fn record(&self, index: usize) -> Option<&str> {
        self.text.get(self.records.get(index)?.clone())
    }
}

/// The pages that were not requested yet.
pub(crate) struct Pages {
    api: Arc<Api>,
    /// Parameters besides those of the settings and of the page.
    given: Vec<(String, String)>,
    next: Option<Url>,
    number: u32,
    /// Number of records so far.
    records: u64,
    /// Hashes of the values or addresses that led to a page.
    known: HashSet<u64>,
    /// Hash of the last page.
    last: Option<u64>,
}

impl Pages {
    /// All pages of a stream.
    ///
    /// * `since`: the last value of the cursor, for the parameter that gets it.
    pub(crate) fn new(api: &Arc<Api>, since: Option<&str>) -> Self {
        let given = api.endpoint.cursor_param.clone().zip(since.map(ToOwned::to_owned));
        let mut pages = Self {
            api: Arc::clone(api),
            given: given.into_iter().collect(),
            next: None,
            number: 0,
            records: 0,
            known: HashSet::new(),
            last: None,
        };
        pages.next = Some(pages.first());
        pages
    }

    /// The address of the first page.
    fn first(&self) -> Url {
        match &self.api.endpoint.paging {
            Paging::Number { param, first, .. } => self.address(param, first.to_string()),
            Paging::Offset { param, .. } => self.address(param, "0".to_owned()),
            _ => self.api.endpoint.request(&self.given),
        }
    }

    /// The address of a page with this value of a parameter.
    fn address(&self, param: &str, value: String) -> Url {
        let mut more = self.given.clone();
        more.push((param.to_owned(), value));
        if let Paging::Number { size: Some((param, size)), .. }
        | Paging::Offset { size: Some((param, size)), .. } = &self.api.endpoint.paging
        {
            more.push((param.clone(), size.to_string()));
        }
        self.api.endpoint.request(&more)
    }

    /// Requests the next page; `None` at the end.
    ///
    /// # Errors
    /// It cannot be requested or understood, or there are too many.
    pub(crate) async fn next(&mut self, context: &Context) -> Result<Option<Page>> {
        let Some(url) = self.next.take() else { return Ok(None) };
        if context.is_cancelled() {
            return Err(ConnectorError::Stopped);
        }
        let pages_max = self.api.pages_max;
        let Some(number) = self.number.checked_add(1).filter(|number| *number <= pages_max) else {
            let found = format!("there are more pages than `max_pages`, {pages_max}");
            return Err(self.wrong(found));
        };
        self.number = number;
        let mut answer = self.api.client.get(&url, context).await?;
        let body = answer.body.take();
        let page = self.understand(body)?;
        self.records = self.records.saturating_add(page.records.len() as u64);
        self.next = self.follow(&page, &answer)?;
        Ok(Some(page))
    }

    /// An error of the last page.
    fn wrong(&self, found: impl Into<String>) -> ConnectorError {
        ConnectorError::data(format!("{} page {}", self.api.endpoint.name, self.number), found)
    }

    /// Finds the records of an answer.
    fn understand(&self, body: Option<Vec<u8>>) -> Result<Page> {
        let number = self.number;
        let Some(body) = body else {
            return Ok(Page { number, text: String::new(), records: Vec::new() });
        };
        let text = String::from_utf8(body).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            self.wrong(format!("the answer is not UTF-8 at byte {at}"))
        })?;
        let root = whole(&text).map_err(|error| {
            let excerpt = self.api.client.excerpt(text.as_bytes());
            self.wrong(format!("the answer is not JSON: {error}; it begins with {excerpt:?}"))
        })?;
        let found = match &self.api.endpoint.records {
            None => Some(root),
            Some(pointer) => pointer.find(root).map_err(|found| self.wrong(found))?,
        };
        let records = match (found, &self.api.endpoint.records) {
            // How some languages write an empty list.
            (Some("null"), _) => Vec::new(),
            (Some(array), _) if array.starts_with('[') => {
                let origin = text.as_ptr().addr();
                read(array, Elements { origin }).map_err(|found| self.wrong(found))?
            }
            (_, None) => {
                let found =
                    "the answer is not an array; set `records` to the pointer of the one in it";
                return Err(self.wrong(found));
            }
            (None, Some(pointer)) => {
                return Err(
                    self.wrong(format!("there is nothing at {pointer}, where `records` points"))
                );
            }
            (Some(_), Some(pointer)) => {
                return Err(
                    self.wrong(format!("{pointer}, where `records` points, is not an array"))
                );
            }
        };
        Ok(Page { number, text, records })
    }

    /// The address of the page after one.
    fn follow(&mut self, page: &Page, answer: &Answer) -> Result<Option<Url>> {
        let api = Arc::clone(&self.api);
        match &api.endpoint.paging {
            Paging::Single => Ok(None),
            Paging::Number { .. } | Paging::Offset { .. } if page.records.is_empty() => Ok(None),
            Paging::Number { param, first, .. } => {
                self.differs(page, param)?;
                Ok(Some(self.address(param, first.saturating_add(self.number.into()).to_string())))
            }
            Paging::Offset { param, .. } => {
                self.differs(page, param)?;
                Ok(Some(self.address(param, self.records.to_string())))
            }
            Paging::Cursor { param, pointer } => {
                let found = pointer.find(page.text.trim()).map_err(|found| self.wrong(found))?;
                let Some(value) = found.and_then(present) else { return Ok(None) };
                if value.starts_with(['{', '[']) {
                    return Err(
                        self.wrong(format!("the value at {pointer} is neither text nor number"))
                    );
                }
                let value = plain(value).into_owned();
                self.is_new(&value, "the value of the next page")?;
                Ok(Some(self.address(param, value)))
            }
            Paging::Link => match link::next(answer.links.iter().map(String::as_str)) {
                Some(target) => self.linked(answer, target).map(Some),
                None => Ok(None),
            },
            Paging::NextUrl { pointer } => {
                let found = pointer.find(page.text.trim()).map_err(|found| self.wrong(found))?;
                match found.and_then(present) {
                    None => Ok(None),
                    Some(value) if value.starts_with('"') => {
                        self.linked(answer, &plain(value)).map(Some)
                    }
                    Some(_) => Err(self.wrong(format!("the value at {pointer} is not a text"))),
                }
            }
        }
    }

    /// The address that a page leads to, if it may be used and was not used before.
    fn linked(&mut self, answer: &Answer, target: &str) -> Result<Url> {
        let joined = answer.url.join(target);
        let mut url =
            joined.map_err(|_| self.wrong("the address of the next page is not valid"))?;
        url.set_fragment(None);
        self.api.client.base().judge(&url).map_err(|found| refused(&answer.url, found))?;
        if self.number == 1 {
            self.known.insert(hash(self.first().as_str()));
        }
        self.is_new(url.as_str(), "the address of the next page")?;
        Ok(url)
    }

    /// Fails if a page is the same as the previous one: the server ignores the parameter.
    fn differs(&mut self, page: &Page, param: &str) -> Result<()> {
        let hash = Some(hash(&page.text));
        if self.last == hash {
            return Err(self.wrong(format!(
                "the page is the same as the previous one: the server seems to ignore the parameter \
                 {param:?}"
            )));
        }
        self.last = hash;
        Ok(())
    }

    /// Fails if something has led to a page before.
    fn is_new(&mut self, value: &str, what: &str) -> Result<()> {
        match self.known.insert(hash(value)) {
            true => Ok(()),
            false => {
                Err(self
                    .wrong(format!("{what} is one that was used before: the pages have no end")))
            }
        }
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// A value that leads to another page.
fn present(json: &str) -> Option<&str> {
    (!matches!(json, "null" | "false" | "\"\"")).then_some(json)
}

/// Where the elements of an array are.
struct Elements {
    /// Address of the text that positions count from.
    origin: usize,
}

impl<'de> DeserializeSeed<'de> for Elements {
    type Value = Vec<Range<usize>>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<Range<usize>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(element) = elements.next_element::<&'de RawValue>()? {
            if found.len() == RECORDS_MAX {
                let limit = format_args!("there are more than {RECORDS_MAX} records");
                return Err(de::Error::custom(limit));
            }
            // A value is a part of the text, so its address is not before that of the text.
            let start = element.get().as_ptr().addr().saturating_sub(self.origin);
            found.push(start..start.saturating_add(element.get().len()));
        }
        Ok(found)
    }
}
