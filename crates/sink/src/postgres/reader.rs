//! Reading: documents and rows page by page.
//!
//! Invariants: a reader changes nothing and locks nothing; each call sees one committed state (a
//! read-only transaction, `REPEATABLE READ`) and returns its [`Position`]; a page is limited in
//! rows and bytes.

use std::time::Duration;

use forebay_pgcopy::text::numeric;
use futures_util::TryStreamExt as _;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, Row, SimpleQueryMessage};

use super::connect::{Server, failure};
use super::layout::{self, Layout};
use super::pool::Pool;
use super::settings::Settings;
use crate::book::Namespace;
use crate::column::ColumnType;
use crate::driver::Driver;
use crate::error::{OpenError, ReadError};
use crate::name::check_namespace;
use crate::schema::TableSchema;
use crate::server::ServerError;
use crate::sink::{Position, StoredDocument};
use crate::sqlite::{DocumentPage, NamespaceInfo, OwnedValue, PageLimits, RowPage, StoredRow};

/// Maximum number of rows of a page.
const PAGE_ROWS_MAX: usize = 100_000;
/// Timeout of one call.
const READ_TIMEOUT: Duration = Duration::from_secs(600);
const ACT: &str = "read";

/// Reads a sink's schema, from any number of threads, while a sink writes.
///
/// Its calls block and must not be made in tasks of a runtime.
#[derive(Debug)]
pub struct PostgresReader {
    // Before the driver, which its connections live on.
    pool: Pool,
    layout: Layout,
    place: String,
    driver: Driver,
}

impl PostgresReader {
    /// Connects to the server of a sink.
    ///
    /// # Errors
    /// As for [`PostgresSink::open`](super::PostgresSink::open), except that another writer is not
    /// an error; [`ServerError::Contents`] if there is no sink.
    pub fn open(settings: &Settings) -> Result<PostgresReader, OpenError> {
        let server = Server::new(&settings.server)?;
        let place = format!("schema {} of {}", settings.schema, server.name());
        let pool = Pool::new(server, settings.pool)?;
        let layout = Layout::new(&settings.schema);
        let reader =
            PostgresReader { pool, layout, place, driver: Driver::new("forebay-postgres")? };
        reader.wait(reader.pool.warm_up())?;
        reader.position()?;
        Ok(reader)
    }

    fn wait<T>(
        &self,
        future: impl Future<Output = Result<T, ServerError>>,
    ) -> Result<T, ServerError> {
        self.driver.wait(READ_TIMEOUT, future).unwrap_or_else(|| {
            Err(ServerError::Unreachable {
                act: ACT.to_owned(),
                server: self.place.clone(),
                source: "no answer in time".into(),
            })
        })
    }

    /// Runs `read` in a separate transaction.
    async fn within<T>(
        &self,
        read: impl AsyncFnOnce(&Client, Option<Position>) -> Result<T, ServerError>,
    ) -> Result<T, ServerError> {
        let lent = self.pool.lend().await?;
        let begin =
            format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {}", self.layout.state());
        let state = self.ask(&lent.client, &begin).await?;
        let (_, position) = layout::parse_state(&state).map_err(|found| self.contents(found))?;
        let read = read(&lent.client, position).await?;
        self.ask(&lent.client, "COMMIT").await?;
        self.pool.give_back(lent);
        Ok(read)
    }

    async fn ask(
        &self,
        client: &Client,
        sql: &str,
    ) -> Result<Vec<SimpleQueryMessage>, ServerError> {
        client.simple_query(sql).await.map_err(|error| failure(ACT, &self.place, error))
    }

    fn contents(&self, found: String) -> ServerError {
        ServerError::Contents { act: ACT.to_owned(), server: self.place.clone(), found }
    }

    /// Every namespace, or one, and its columns, as of the client's transaction.
    async fn known(
        &self,
        client: &Client,
        only: Option<&str>,
    ) -> Result<Vec<Namespace>, ServerError> {
        let namespaces = self.ask(client, &self.layout.namespaces(only)).await?;
        let columns = self.ask(client, &self.layout.columns(only)).await?;
        layout::parse_namespaces(&namespaces, &columns).map_err(|found| self.contents(found))
    }

    /// The committed position.
    ///
    /// # Errors
    /// The server's, like every read.
    pub fn position(&self) -> Result<Option<Position>, ServerError> {
        self.wait(self.within(async |_, position| Ok(position)))
    }

    /// Every namespace.
    ///
    /// # Errors
    /// The server's, like every read.
    pub fn namespaces(&self) -> Result<Vec<NamespaceInfo>, ReadError> {
        let known = self.wait(self.within(async |client, _| self.known(client, None).await))?;
        let info = |namespace: Namespace| NamespaceInfo {
            kind: namespace.schema.kind(),
            name: namespace.name,
            table: namespace.table,
            row_count: namespace.row_count,
            last_id: namespace.last_id,
        };
        Ok(known.into_iter().map(info).collect())
    }

    /// Documents of `namespace` with ids above `after`; none if it does not exist. Rows without a
    /// document are skipped.
    ///
    /// # Errors
    /// The server's, like every read.
    pub fn documents(
        &self,
        namespace: &str,
        after: Option<u64>,
        limits: PageLimits,
    ) -> Result<DocumentPage, ReadError> {
        let page = self.page(namespace, after, limits, true)?;
        let document = |row: StoredRow| {
            let StoredRow { id, received_ms, document, .. } = row;
            document.map(|raw| StoredDocument { id, received_ms, raw })
        };
        let documents = page.rows.into_iter().filter_map(document).collect();
        Ok(DocumentPage { position: page.position, documents, more: page.more })
    }

    /// Rows of `namespace` with ids above `after`; none if it does not exist.
    ///
    /// # Errors
    /// The server's, like every read.
    pub fn rows(
        &self,
        namespace: &str,
        after: Option<u64>,
        limits: PageLimits,
    ) -> Result<RowPage, ReadError> {
        self.page(namespace, after, limits, false)
    }

    fn page(
        &self,
        namespace: &str,
        after: Option<u64>,
        limits: PageLimits,
        documents_only: bool,
    ) -> Result<RowPage, ReadError> {
        let page = self.within(async |client, position| {
            let schema = TableSchema::default();
            let mut page = RowPage { position, schema, rows: Vec::new(), more: false };
            if check_namespace(namespace).is_err() {
                return Ok(page);
            }
            let known = self.known(client, Some(namespace)).await?;
            let Some(found) = known.into_iter().next() else { return Ok(page) };
            self.fill(client, &found, (after, limits, documents_only), &mut page).await?;
            page.schema = found.schema;
            Ok(page)
        });
        Ok(self.wait(page)?)
    }

    async fn fill(
        &self,
        client: &Client,
        namespace: &Namespace,
        (after, limits, documents_only): (Option<u64>, PageLimits, bool),
        page: &mut RowPage,
    ) -> Result<(), ServerError> {
        let rows_max = limits.rows_max.clamp(1, PAGE_ROWS_MAX);
        let filter = if documents_only { " AND _document IS NOT NULL" } else { "" };
        let sql = format!(
            "SELECT {} FROM {} WHERE _id > $1{filter} ORDER BY _id LIMIT {}",
            layout::column_names(namespace),
            self.layout.table(&namespace.table),
            rows_max + 1
        );
        let failed = |error| failure(ACT, &self.place, error);
        // Ids begin at 0.
        let after = after.map_or(-1, |after| i64::try_from(after).unwrap_or(i64::MAX));
        let stream = client.query_raw(&sql, [after]).await.map_err(failed)?;
        let mut stream = std::pin::pin!(stream);
        let mut size = 0;
        while let Some(row) = stream.try_next().await.map_err(failed)? {
            if page.rows.len() >= rows_max || (size >= limits.bytes_max && !page.rows.is_empty()) {
                page.more = true;
                break;
            }
            let row = self.row(namespace, &row)?;
            size += row.document.as_ref().map_or(0, Vec::len);
            page.rows.push(row);
        }
        Ok(())
    }

    fn row(&self, namespace: &Namespace, row: &Row) -> Result<StoredRow, ServerError> {
        let odd = |what: &str| self.contents(format!("{what} in {}", namespace.table));
        let whole = |index: usize| {
            let number: i64 =
                row.try_get(index).map_err(|_| odd("there is a row without id or time"))?;
            u64::try_from(number).map_err(|_| odd("there is a negative id or time"))
        };
        let columns = namespace.schema.columns();
        let mut values = Vec::with_capacity(columns.len());
        for (index, column) in (2..).zip(columns) {
            let field: Option<Field<'_>> =
                row.try_get(index).map_err(|error| self.contents(error.to_string()))?;
            let value = field.map(|field| value(column.ty, field.0));
            let value = value.map_or(Some(OwnedValue::Null), |value| value);
            values
                .push(value.ok_or_else(|| {
                    odd(&format!("there is an invalid value of {}", column.name))
                })?);
        }
        let document: Option<Field<'_>> =
            row.try_get(2 + columns.len()).map_err(|error| self.contents(error.to_string()))?;
        let document = document.map(|field| field.0.to_vec());
        Ok(StoredRow { id: whole(0)?, received_ms: whole(1)?, document, values })
    }
}

/// A field, as it is on the wire.
struct Field<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Field<'a> {
    fn from_sql(
        _: &Type,
        raw: &'a [u8],
    ) -> Result<Field<'a>, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Field(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A column's field; `None` if it is not of this type.
fn value(ty: ColumnType, field: &[u8]) -> Option<OwnedValue> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok().map(OwnedValue::Text);
    match ty {
        ColumnType::Boolean => field.first().map(|byte| OwnedValue::Integer(i64::from(*byte))),
        ColumnType::Integer => {
            Some(OwnedValue::Integer(i64::from_be_bytes(field.try_into().ok()?)))
        }
        ColumnType::Real => Some(OwnedValue::Real(f64::from_be_bytes(field.try_into().ok()?))),
        ColumnType::Decimal => {
            let mut printed = Vec::new();
            numeric::to_text(field, &mut printed).ok()?;
            text(&printed)
        }
        ColumnType::Text | ColumnType::Json => text(field),
        ColumnType::Bytes => Some(OwnedValue::Bytes(field.to_vec())),
    }
}
