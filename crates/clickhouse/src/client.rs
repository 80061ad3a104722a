//! Requests to a server, and its answers.
//!
//! Every request is a POST with the statement, the database and the settings. A statement without many rows waits
//! for its complete answer on the server (`wait_end_of_query`), so its status is that of the whole statement. An INSERT has
//! its statement in the parameter `query`, or before the rows if it is long, and rows with a `Content-Length` in its body: one that is cut off adds nothing.
//!
//! Invariants: an answer in memory has at most [`ANSWER_SIZE_MAX`] bytes. Nothing is sent to another server by a redirect.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_base::backoff::Backoff;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::Secret;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Certificate, RequestBuilder, Response};
use tokio::sync::OnceCell;
use url::Url;

use crate::error::{Failed, NotConnected};
use crate::settings::Settings;

/// Maximum size of an answer in memory, in bytes: the record of a load with many units.
const ANSWER_SIZE_MAX: usize = 256 << 20;
/// Bytes that are read of an answer that is an error.
const ERROR_SIZE_MAX: usize = 64 << 10;
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size in bytes of the statement of an INSERT in the address. A longer one is in the body, before the rows.
pub(crate) const STATEMENT_SIZE_MAX: usize = 16 << 10;
/// Number of times that a statement is sent whose effect is the same however often it is executed.
const SENT_MAX: u32 = 5;
/// Delay before it is sent again, the first and the longest.
const SENT_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// How long a connection waits for its next request.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// A block has any number of rows: it ends with the INSERT.
const ROWS_OF_A_BLOCK: &str = "1000000000000000";

/// Settings of an INSERT whose rows become one part, and are not changed on the way. Those that a server does not have
/// are left out: they came with what they switch off.
const INSERT_SETTINGS: [(&str, &str); 17] = [
    ("async_insert", "0"),
    ("date_time_overflow_behavior", "throw"),
    // On newer servers these two take the place of `insert_deduplicate`.
    ("deduplicate_insert", "disable"),
    ("deduplicate_insert_select", "disable"),
    ("input_format_arrow_allow_missing_columns", "0"),
    ("input_format_null_as_default", "0"),
    ("input_format_parallel_parsing", "0"),
    ("insert_deduplicate", "0"),
    ("insert_null_as_default", "0"),
    ("max_insert_block_size_bytes", "0"),
    ("max_insert_threads", "1"),
    ("max_threads", "1"),
    ("min_insert_block_size_bytes", "0"),
    ("min_insert_block_size_rows", ROWS_OF_A_BLOCK),
    ("parallel_distributed_insert_select", "0"),
    ("use_query_cache", "0"),
    ("use_strict_insert_block_limits", "0"),
];

/// Settings of every statement: one that meets a limit of the user's profile fails. With other values it would end as if
/// there were no more rows, and rows that are there would not be found.
const WHOLE: [(&str, &str); 7] = [
    ("group_by_overflow_mode", "throw"),
    ("limit", "0"),
    ("offset", "0"),
    ("read_overflow_mode", "throw"),
    ("result_overflow_mode", "throw"),
    ("set_overflow_mode", "throw"),
    ("timeout_overflow_mode", "throw"),
];

/// A server and how it is reached. Cloning is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    url: Url,
    settings: Settings,
    /// The settings of an INSERT that the server has.
    known: OnceCell<Vec<(&'static str, &'static str)>>,
}

/// Rows of an INSERT.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    /// The value of `content-encoding`.
    pub(crate) encoding: Option<&'static str>,
}

impl Body {
    /// Lines of JSON.
    pub(crate) fn plain(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into(), encoding: None }
    }
}

/// The error of a request without a complete answer.
fn lost(error: reqwest::Error) -> Failed {
    let (is_quick, is_connected) = (!error.is_timeout(), !error.is_connect());
    let error = error.without_url();
    let source = if is_connected { error.into() } else { NotConnected(error.into()).into() };
    Failed::Lost { is_quick, source }
}

/// A request whose body is a statement.
fn statement(request: RequestBuilder, sql: String) -> RequestBuilder {
    // By default a statement has at most 256 KiB.
    let max = (sql.len() + STATEMENT_SIZE_MAX).max(256 << 10).to_string();
    request.query(&[("max_query_size", max)]).header(CONTENT_TYPE, "text/plain").body(sql)
}

/// The headers with user and password.
fn credentials(settings: &Settings) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let password = settings.password.as_ref().map(Secret::expose);
    let all = [
        ("user", "x-clickhouse-user", Some(&*settings.user.0)),
        ("password", "x-clickhouse-key", password),
    ];
    for (setting, header, value) in all {
        let Some(value) = value else { continue };
        let value = HeaderValue::from_bytes(value.as_bytes());
        let mut value = value.map_err(|_| {
            ConnectorError::unsupported(
                format!("`{setting}` has a control character"),
                "remove it; a line end after a password in a file is removed by itself",
            )
        })?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

impl Server {
    /// Creates a client with these settings; sends nothing.
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        let url = settings.address()?;
        let mut client = reqwest::Client::builder()
            .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // Less than a server waits for the next request: one that meets the end of a connection has no answer.
            .pool_idle_timeout(IDLE_MAX)
            .read_timeout(settings.timeout.get())
            .tcp_nodelay(true)
            .default_headers(credentials(settings)?)
            // The password is for this server alone.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(file) = &settings.tls_ca_file {
            let unread = |source: Box<dyn std::error::Error + Send + Sync>| {
                ConnectorError::file("read certificates of", &file.0, source)
            };
            let pem = std::fs::read(&file.0).map_err(|error| unread(error.into()))?;
            let trusted = Certificate::from_pem_bundle(&pem).map_err(|e| unread(e.into()))?;
            client = client.tls_built_in_root_certs(false);
            for certificate in trusted {
                client = client.add_root_certificate(certificate);
            }
        }
        let http = client.build().map_err(|error| ConnectorError::Refused {
            act: "set up connections to a ClickHouse".into(),
            source: error.into(),
        })?;
        let known = OnceCell::new();
        Ok(Self(Arc::new(Inner { http, url, settings: settings.clone(), known })))
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Its name in messages.
    pub(crate) fn name(&self) -> String {
        let url = &self.0.url;
        let port = url.port_or_known_default().unwrap_or_default();
        format!("ClickHouse at {}:{port}", url.host_str().unwrap_or_default())
    }

    /// What identifies a table of it.
    pub(crate) fn place(&self, table: &str) -> String {
        let database = &self.0.settings.database.0;
        let host = self.0.url.host_str().unwrap_or_default();
        let port = self.0.url.port_or_known_default().unwrap_or_default();
        format!("clickhouse {host}:{port} {database:?} {table:?}")
    }

    /// A request with a comment, by which `system.processes` shows it.
    fn request(&self, comment: &str) -> RequestBuilder {
        let Inner { http, url, settings, .. } = &*self.0;
        let parameters = [("database", settings.database.0.as_str()), ("log_comment", comment)];
        http.post(url.clone()).query(&parameters).query(&WHOLE)
    }

    /// Sends a request, and returns a successful answer whose body is still to be read.
    async fn send(&self, request: RequestBuilder) -> Result<Response, Failed> {
        let mut answer = request.send().await.map_err(lost)?;
        let header = answer.headers().get("x-clickhouse-exception-code");
        let code = header.map(|code| String::from_utf8_lossy(code.as_bytes()).into_owned());
        let status = answer.status().as_u16();
        if status == 200 && code.is_none() {
            return Ok(answer);
        }
        let mut body = Vec::new();
        while body.len() < ERROR_SIZE_MAX {
            match answer.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                // What there is of an error says enough.
                Ok(None) | Err(_) => break,
            }
        }
        Err(Failed::answered(code.as_deref(), status, &body))
    }

    /// Reads a complete answer.
    async fn receive(&self, mut answer: Response) -> Result<Vec<u8>, Failed> {
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(lost)? {
            if chunk.len() > ANSWER_SIZE_MAX - body.len() {
                let found = format!("the answer has more than {ANSWER_SIZE_MAX} bytes");
                return Err(Failed::Lost { is_quick: false, source: found.into() });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Executes a statement, and returns its answer.
    pub(crate) async fn ask(&self, sql: String, comment: &str) -> Result<Vec<u8>, Failed> {
        let settings = [("wait_end_of_query", "1"), ("use_query_cache", "0")];
        let request = statement(self.request(comment).query(&settings), sql);
        let answer = self.send(request).await?;
        self.receive(answer).await
    }

    /// The same for a statement whose effect is the same however often it is executed: it is sent again if its answer
    /// is lost.
    pub(crate) async fn ask_again(&self, sql: &str, comment: &str) -> Result<Vec<u8>, Failed> {
        let mut backoff = Backoff::new(SENT_AGAIN.0, SENT_AGAIN.1);
        let mut sent = 1;
        loop {
            match self.ask(sql.to_owned(), comment).await {
                Err(Failed::Lost { is_quick: true, .. }) if sent < SENT_MAX => {}
                answer => return answer,
            }
            sent += 1;
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    /// Executes a statement without an answer, whose effect is the same however often it is executed.
    ///
    /// * `act`: what is attempted, for messages.
    pub(crate) async fn ensure(&self, act: &str, sql: &str) -> Result<()> {
        match self.ask_again(sql, "forebay").await {
            Ok(_) => Ok(()),
            Err(failed) => Err(self.failed(act, failed)),
        }
    }

    /// Executes a statement without an answer, once.
    ///
    /// * `act`: what is attempted, for messages.
    pub(crate) async fn run(&self, act: &str, sql: impl Into<String>) -> Result<()> {
        match self.ask(sql.into(), "forebay").await {
            Ok(_) => Ok(()),
            Err(failed) => Err(self.failed(act, failed)),
        }
    }

    /// Rows of a query, as texts. It must not have NULL in its columns.
    pub(crate) async fn try_rows(&self, sql: &str) -> Result<Vec<Vec<String>>, Failed> {
        let sql = format!("{sql}\nFORMAT JSONCompactStringsEachRow");
        let answer = self.ask_again(&sql, "forebay-read").await?;
        let lines = answer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(serde_json::from_slice)
            .collect::<Result<_, _>>()
            .map_err(|_| Failed::answered(None, 200, &answer))
    }

    /// The same, with the error of a connector.
    pub(crate) async fn rows(&self, act: &str, sql: &str) -> Result<Vec<Vec<String>>> {
        self.try_rows(sql).await.map_err(|failed| self.failed(act, failed))
    }

    /// The only value of a query, which is a number.
    pub(crate) async fn number(&self, act: &str, sql: &str) -> Result<u64> {
        let rows = self.rows(act, sql).await?;
        let value = rows.first().and_then(|row| row.first()).and_then(|text| text.parse().ok());
        value.ok_or_else(|| ConnectorError::Refused {
            act: act.to_owned(),
            source: "the answer is not a number".into(),
        })
    }

    /// Adds rows with one block.
    ///
    /// * `sql`: an INSERT that ends with the format of the body.
    /// * `comment`: by which `system.processes` shows it.
    pub(crate) async fn insert(&self, sql: &str, body: Body, comment: &str) -> Result<(), Failed> {
        let known = self.insert_settings().await?;
        let request = self.request(comment).query(&[("wait_end_of_query", "1")]).query(known);
        let request = request.header(CONTENT_TYPE, "application/octet-stream");
        let request = match body.encoding {
            None if sql.len() > STATEMENT_SIZE_MAX => {
                let max = (sql.len() + STATEMENT_SIZE_MAX).max(256 << 10).to_string();
                let whole = [sql.as_bytes(), b"\n", &body.bytes].concat();
                request.query(&[("max_query_size", max)]).body(whole)
            }
            None => request.query(&[("query", sql)]).body(body.bytes),
            Some(encoding) => {
                let request = request.query(&[("query", sql)]).body(body.bytes);
                request.header(CONTENT_ENCODING, encoding)
            }
        };
        let answer = self.send(request).await?;
        self.receive(answer).await.map(drop)
    }

    /// The settings of an INSERT that the server has.
    async fn insert_settings(&self) -> Result<&Vec<(&'static str, &'static str)>, Failed> {
        let known = self.0.known.get_or_try_init(async || {
            let names = INSERT_SETTINGS.map(|(name, _)| format!("'{name}'")).join(", ");
            let sql = format!("SELECT name FROM system.settings WHERE name IN ({names})");
            let found = self.try_rows(&sql).await?;
            let is_there = |name: &str| found.iter().flatten().any(|found| found == name);
            Ok(INSERT_SETTINGS.into_iter().filter(|(name, _)| is_there(name)).collect())
        });
        known.await
    }

    /// Begins to read the answer of a query with many rows.
    pub(crate) async fn stream(&self, act: &str, sql: String) -> Result<Response> {
        let settings = [
            ("output_format_arrow_compression_method", "none"),
            ("output_format_arrow_low_cardinality_as_dictionary", "0"),
            ("output_format_arrow_string_as_string", "0"),
            ("use_query_cache", "0"),
        ];
        let request = statement(self.request("forebay").query(&settings), sql);
        self.send(request).await.map_err(|failed| self.failed(act, failed))
    }

    /// The error of a request, as that of a connector.
    pub(crate) fn failed(&self, act: &str, failed: Failed) -> ConnectorError {
        failed.into_error(act, &self.name())
    }
}
