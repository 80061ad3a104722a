//! Settings of a JSON API, as they are in a pipeline file.
//!
//! Invariant: texts that may be secret (the address, headers, parameters) are never printed.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::{ByteSize, HumanDuration, ServerError};
use forebay_sdk::connector::Source;
use forebay_sdk::registry::{ConnectorSettings, SourceSettings};
use forebay_sdk::settings::{Reach, Secret, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::address::{Base, host_and_port};
use crate::endpoint::Endpoint;

/// The largest `max_response_size`: positions in a response are numbers of 32 bits.
const RESPONSE_SIZE_MAX: ByteSize = ByteSize(1 << 30);
/// Maximum number of streams.
const STREAMS_MAX: usize = 1_000;

/// Settings of a JSON API.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Address that the paths of streams are appended to: `https://api.example.org/v2`. It is never
    /// printed in full.
    pub url: Secret,
    /// Headers of every request to this server, such as `authorization`. Their values are never printed.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// Streams of the API.
    pub streams: Vec<StreamOfApi>,
    /// Other servers, as `HOST` or `HOST:PORT`, that redirects and addresses of pages may lead to. They
    /// get no `headers`. By default only the server of `url` is used.
    #[serde(default)]
    pub other_hosts: Vec<Text>,
    /// A file of certificates (PEM) that are trusted instead of the system's.
    #[serde(default)]
    pub tls_ca_file: Option<Text>,
    /// Whether `headers` and `query` may be sent to another machine over an unencrypted connection.
    #[serde(default)]
    pub allow_http: bool,
    /// Maximum time for a request, from the connection to the end of the response.
    #[serde(default = "timeout")]
    #[schemars(with = "String")]
    pub timeout: HumanDuration,
    /// Maximum number of times that a request is repeated after a lost connection, or after an answer
    /// 429, 502, 503 or 504.
    #[serde(default = "retries")]
    pub retries: u32,
    /// Maximum delay that a server may ask for with `Retry-After`. A longer one fails the run.
    #[serde(default = "retry_after_max")]
    #[schemars(with = "String")]
    pub retry_after_max: HumanDuration,
    /// Maximum size of a response in bytes. A larger one fails the run.
    #[serde(default = "max_response_size")]
    #[schemars(with = "String")]
    pub max_response_size: ByteSize,
    /// Maximum number of pages of a stream. A stream that has more fails the run.
    #[serde(default = "max_pages")]
    pub max_pages: NonZeroU32,
}

const fn timeout() -> HumanDuration {
    HumanDuration(Duration::from_secs(60))
}

const fn retries() -> u32 {
    5
}

const fn retry_after_max() -> HumanDuration {
    HumanDuration(Duration::from_secs(120))
}

const fn max_response_size() -> ByteSize {
    ByteSize(16 << 20)
}

const fn max_pages() -> NonZeroU32 {
    match NonZeroU32::new(100_000) {
        Some(pages) => pages,
        None => NonZeroU32::MIN,
    }
}

/// A stream of an API.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamOfApi {
    /// Its name, as in `streams[].name` of the source.
    pub name: Text,
    /// Its path below `url`.
    #[serde(default)]
    pub path: Text,
    /// Parameters of its requests. Their values are never printed.
    #[serde(default)]
    pub query: BTreeMap<String, Secret>,
    /// JSON pointer (RFC 6901) to the array of records in a response: `/data/items`. By default the
    /// response is this array.
    #[serde(default)]
    pub records: Option<Text>,
    /// Columns. By default they are the keys of the records of the first page.
    #[serde(default)]
    pub columns: Vec<ColumnOfApi>,
    /// Columns that identify a record. `forebay pipeline discover` reports them.
    #[serde(default)]
    pub primary_key: Vec<String>,
    /// Parameter that gets the last value of the cursor field, in an incremental run after the first.
    /// Without it every run reads all pages, and leaves out what earlier runs have read.
    #[serde(default)]
    pub cursor_param: Option<Text>,
    /// How a page leads to the next one.
    #[serde(default)]
    pub pagination: Pagination,
}

/// A column of a stream of an API.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ColumnOfApi {
    /// Its name.
    pub name: Text,
    /// Its type in SQL: `bigint`, `numeric(10,2)`, `timestamptz`, `jsonb`.
    #[serde(rename = "type")]
    pub sql_type: Text,
    /// JSON pointer to its value in a record: `/address/city`. By default it is the key with the name of
    /// the column. An empty pointer is the record itself.
    #[serde(default)]
    pub pointer: Option<Text>,
}

/// How a page leads to the next one.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pagination {
    /// There is one page.
    #[default]
    None,
    /// Pages have numbers. The first one without records is the end.
    Page(PageNumber),
    /// Pages begin after a number of records. The first one without records is the end.
    Offset(Offset),
    /// A page has a value that the next request passes on. A page without one is the last.
    Cursor(NextCursor),
    /// The header `Link` with `rel="next"` (RFC 8288). A page without one is the last.
    Link,
    /// A page has the address of the next one. A page without one is the last.
    NextUrl(NextUrl),
}

/// Pages that have numbers.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageNumber {
    /// Parameter with the number of the page.
    #[serde(default = "page")]
    pub param: Text,
    /// Parameter with the number of records of a page.
    #[serde(default)]
    pub size_param: Option<Text>,
    /// Number of records of a page, for `size_param`.
    #[serde(default = "size")]
    pub size: NonZeroU32,
    /// Number of the first page.
    #[serde(default = "first")]
    pub first: u32,
}

/// Pages that begin after a number of records.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Offset {
    /// Parameter with the number of records before the page.
    #[serde(default = "offset")]
    pub param: Text,
    /// Parameter with the number of records of a page.
    #[serde(default)]
    pub size_param: Option<Text>,
    /// Number of records of a page, for `size_param`.
    #[serde(default = "size")]
    pub size: NonZeroU32,
}

/// Pages with a value that the next request passes on.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextCursor {
    /// Parameter that gets the value.
    #[serde(default = "cursor")]
    pub param: Text,
    /// JSON pointer to the value in a response: `/meta/next`. Where there is none, or `null`, `false` or
    /// an empty text, the page is the last.
    pub pointer: Text,
}

/// Pages with the address of the next one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextUrl {
    /// JSON pointer to the address in a response: `/links/next`. Where there is none, or `null`, `false`
    /// or an empty text, the page is the last.
    pub pointer: Text,
}

fn page() -> Text {
    Text("page".into())
}

fn offset() -> Text {
    Text("offset".into())
}

fn cursor() -> Text {
    Text("cursor".into())
}

const fn size() -> NonZeroU32 {
    match NonZeroU32::new(100) {
        Some(size) => size,
        None => NonZeroU32::MIN,
    }
}

const fn first() -> u32 {
    1
}

impl Settings {
    /// The streams, checked.
    ///
    /// # Errors
    /// The first setting of a stream that cannot be used.
    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>, ServerError> {
        let base = Base::new(self)?;
        let count = self.streams.len();
        if count == 0 || count > STREAMS_MAX {
            let what = format!("`streams` has {count} streams");
            return Err(ServerError::settings(what, format!("list 1 to {STREAMS_MAX} of them")));
        }
        let mut made: Vec<Endpoint> = Vec::with_capacity(count);
        for stream in &self.streams {
            if made.iter().any(|known| known.name == stream.name.0) {
                let what = format!("`streams` has two streams {:?}", stream.name.0);
                return Err(ServerError::settings(what, "give them different names"));
            }
            made.push(Endpoint::new(&base, stream)?);
        }
        Ok(made)
    }
}

impl ConnectorSettings for Settings {
    fn check(&self) -> Result<(), ServerError> {
        crate::address::headers(&self.headers)?;
        self.endpoints()?;
        if self.max_response_size > RESPONSE_SIZE_MAX {
            let what = format!("`max_response_size` is {}", self.max_response_size);
            return Err(ServerError::settings(what, format!("set at most {RESPONSE_SIZE_MAX}")));
        }
        if self.timeout.get().is_zero() {
            return Err(ServerError::settings("`timeout` is 0", "set at least 1ms"));
        }
        Ok(())
    }

    /// An invalid `url` refers to no server.
    fn reach(&self) -> Reach {
        let mut reach = Reach::default();
        if let Ok(base) = Base::new(self) {
            reach.add_host(base.origin().host(), Some(base.origin().port()));
        }
        for other in &self.other_hosts {
            if let Some((host, port)) = host_and_port(&other.0) {
                reach.add_host(&host, port);
            }
        }
        reach.and_file(self.tls_ca_file.as_ref())
    }
}

impl SourceSettings for Settings {
    #[cfg(feature = "client")]
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(crate::HttpJson::new(self.clone()))
    }

    #[cfg(not(feature = "client"))]
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(forebay_sdk::absent::Absent("http-json"))
    }
}
