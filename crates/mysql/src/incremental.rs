//! Reading rows that are new since the last run, by a column that increases with every change.
//!
//! An upper limit is fixed first: the current maximum. Then the run waits until everything up to it is committed
//! (`horizon`), and takes its snapshot, in which rows up to the limit are read.
//!
//! Rows may have the same value. Those at the limit are counted with the cursor: if the next run finds more of them at
//! or before the last row, it refuses, or reads them again where that does no harm.

use forebay_sdk::connector::{Cursor, Division, Opening, Result, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;
use forebay_sdk::settings::StreamSettings;
use mysql_async::{Row, Value};

use crate::catalog::Table;
use crate::connect::Session;
use crate::horizon;
use crate::order::Ordered;
use crate::settings::Settings;
use crate::sql::ident;
use crate::types::Kind;
use crate::units::{Part, Parts};

/// The columns that order the rows of a stream.
pub(crate) struct Order<'a> {
    context: &'a Context,
    table: &'a Table,
    field: Ordered,
    /// What distinguishes rows with the same value.
    tie: Option<Ordered>,
    /// Whether rows may have the same value.
    has_ties: bool,
}

/// A condition with the values of its placeholders.
type Condition = (String, Vec<Value>);

impl<'a> Order<'a> {
    /// The order that a stream requests, or that of the last run.
    ///
    /// # Errors
    /// A column does not exist, or has no order.
    pub(crate) fn of(
        context: &'a Context,
        table: &'a Table,
        stream: &StreamSettings,
        since: Option<&Cursor>,
    ) -> Result<Self> {
        let field = Ordered::of(table, stream.cursor_field.as_deref().unwrap_or_default())?;
        let has_ties = !table.is_unique(&field.name);
        let before = since.and_then(|since| since.tie_breaker_field.as_deref());
        let given = stream.tie_breaker_field.as_deref().or(before);
        let key = match table.primary_key.as_slice() {
            [key] if has_ties => Some(key.as_str()),
            _ => None,
        };
        let tie = match (given, key) {
            (Some(name), _) if name != field.name => Some(Ordered::of(table, name)?),
            // A key without an order is none that was asked for.
            (None, Some(key)) if key != field.name => Ordered::of(table, key).ok(),
            _ => None,
        };
        Ok(Self { context, table, field, tie, has_ties })
    }

    fn act(&self) -> String {
        format!("find the last row of {}", self.table.name)
    }

    /// The largest value of a column under a condition.
    async fn largest(
        &self,
        session: &mut Session,
        of: &Ordered,
        (condition, parameters): Condition,
    ) -> Result<Option<String>> {
        let (name, table) = (&of.sql, ident(&self.table.name));
        let sql = format!(
            "SELECT {name} FROM {table} WHERE {name} IS NOT NULL AND {condition} ORDER BY {name} DESC LIMIT 1"
        );
        let rows: Vec<Row> = session.query(&self.act(), &sql, parameters).await?;
        rows.first().and_then(|row| row.as_ref(0)).map(|value| of.text(value)).transpose()
    }

    async fn count(
        &self,
        session: &mut Session,
        (condition, parameters): Condition,
    ) -> Result<u64> {
        let sql = format!("SELECT COUNT(*) FROM {} WHERE {condition}", ident(&self.table.name));
        let rows: Vec<(u64,)> = session.query(&self.act(), &sql, parameters).await?;
        Ok(rows.first().map_or(0, |(count,)| *count))
    }

    /// A comparison of the cursor field.
    fn compare(&self, operator: &str, value: &str) -> Result<Condition> {
        let Ordered { sql, .. } = &self.field;
        let condition = format!("{sql} {operator} {}", self.field.placeholder());
        Ok((condition, vec![self.field.parameter(value)?]))
    }

    /// The tie breaker and its last value, if there are both.
    fn tie_at<'c>(&self, cursor: &'c Cursor) -> Option<(&Ordered, &'c str)> {
        self.tie.as_ref().zip(cursor.tie_breaker.as_deref())
    }

    /// The rows with the value of a cursor that are at or before it.
    fn at(&self, cursor: &Cursor) -> Result<Condition> {
        let (mut condition, mut parameters) = self.compare("=", &cursor.value)?;
        if let Some((tie, last)) = self.tie_at(cursor) {
            let (name, place) = (&tie.sql, tie.placeholder());
            condition = format!("{condition} AND ({name} IS NULL OR {name} <= {place})");
            parameters.push(tie.parameter(last)?);
        }
        Ok((condition, parameters))
    }

    /// The rows up to a cursor.
    fn up_to(&self, cursor: &Cursor) -> Result<Condition> {
        let (before, mut parameters) = self.compare("<", &cursor.value)?;
        let (at, of_at) = self.at(cursor)?;
        parameters.extend(of_at);
        // The first part alone lets an index be used.
        let (limit, of_limit) = self.compare("<=", &cursor.value)?;
        parameters.splice(0..0, of_limit);
        Ok((format!("{limit} AND ({before} OR {at})"), parameters))
    }

    /// The rows after a cursor.
    ///
    /// * `may_repeat`: whether rows with its value may be read again.
    fn after(&self, since: &Cursor, may_repeat: bool) -> Result<Condition> {
        if may_repeat && self.has_ties {
            return self.compare(">=", &since.value);
        }
        let (after, of_after) = self.compare(">", &since.value)?;
        let Some((tie, last)) = self.tie_at(since) else { return Ok((after, of_after)) };
        let (from, mut parameters) = self.compare(">=", &since.value)?;
        parameters.extend(of_after);
        parameters.push(tie.parameter(last)?);
        Ok((format!("{from} AND ({after} OR {} > {})", tie.sql, tie.placeholder()), parameters))
    }

    /// The cursor of the last row with this value.
    async fn last(&self, session: &mut Session, value: String) -> Result<Cursor> {
        let mut cursor = Cursor::new(value, None);
        if let Some(tie) = &self.tie {
            let at = self.at(&cursor)?;
            cursor.tie_breaker = self.largest(session, tie, at).await?;
            cursor.tie_breaker_field = Some(tie.name.clone());
        }
        if self.has_ties {
            cursor.rows_at = Some(self.count(session, self.at(&cursor)?).await?);
        }
        Ok(cursor)
    }

    /// Fails if rows were added at or before the last row that was read.
    async fn refuse_late(&self, session: &mut Session, since: &Cursor) -> Result<()> {
        let Some(read) = since.rows_at else { return Ok(()) };
        let now = self.count(session, self.at(since)?).await?;
        match now.checked_sub(read) {
            None | Some(0) => Ok(()),
            Some(late) => Err(since.late(&self.table.name, &self.field.name, late)),
        }
    }

    /// A note about rows without a cursor value, which are not read.
    async fn note_nulls(&self, session: &mut Session) -> Result<Option<String>> {
        let is_nullable = self.table.column(&self.field.name).is_some_and(|column| column.nullable);
        if !is_nullable {
            return Ok(None);
        }
        let condition = format!("{} IS NULL", self.field.sql);
        let count = self.count(session, (condition, Vec::new())).await?;
        let note = format!(
            "{count} rows of {} are not read: they have no value in {:?}. Give the column a default and NOT \
             NULL, or set `sync_mode: full_refresh`",
            self.table.name, self.field.name
        );
        Ok((count > 0).then_some(note).inspect(|note| self.context.warn(note)))
    }

    /// A note about a last value so far ahead that rows added until then are not read.
    async fn note_future(&self, session: &mut Session, bound: &str) -> Result<Option<String>> {
        if !matches!(self.field.kind, Kind::Date | Kind::Datetime | Kind::Timestamp) {
            return Ok(None);
        }
        let sql = "SELECT CAST(? AS DATETIME(6)) > UTC_TIMESTAMP() + INTERVAL 36 HOUR";
        let ahead: Vec<(Option<i64>,)> =
            session.query(&self.act(), sql, vec![bound.to_owned()]).await?;
        let note = format!(
            "the last value of {:?} in {} is {bound}: rows that are added until then with earlier values are \
             not read",
            self.field.name, self.table.name
        );
        let is_ahead = ahead.first().is_some_and(|(is_ahead,)| *is_ahead == Some(1));
        Ok(is_ahead.then_some(note).inspect(|note| self.context.warn(note)))
    }
}

/// The largest value of the cursor up to which everything has been committed or rolled back. `None` if there is none.
pub(crate) async fn upper_bound(
    context: &Context,
    session: &mut Session,
    table: &Table,
    stream: &StreamSettings,
    since: Option<&Cursor>,
    settings: &Settings,
) -> Result<Option<String>> {
    let order = Order::of(context, table, stream, since)?;
    let bound = order.largest(session, &order.field, ("TRUE".to_owned(), Vec::new())).await?;
    if let Some(bound) = &bound
        && since.is_none_or(|since| since.value != *bound)
    {
        horizon::settle(context, session, table, &order.field, bound, settings).await?;
    }
    Ok(bound)
}

/// The rows after those of the last run, up to `bound`, as one part.
pub(crate) async fn parts(
    context: &Context,
    session: &mut Session,
    table: &Table,
    stream: &StreamSettings,
    opening: &Opening,
    bound: Option<String>,
) -> Result<Parts> {
    // Rows that are read again then replace themselves.
    let may_repeat = opening.division == Division::Any;
    let since = opening.since.as_ref();
    let order = Order::of(context, table, stream, since)?;
    let mut notes: Vec<String> = order.note_nulls(session).await?.into_iter().collect();
    let nothing =
        |notes| Parts { units: Vec::new(), is_stable: true, cursor: since.cloned(), notes };
    if let Some(since) = since.filter(|_| !may_repeat) {
        order.refuse_late(session, since).await?;
    }
    let Some(bound) = bound else { return Ok(nothing(notes)) };
    notes.extend(order.note_future(session, &bound).await?);
    // The last row at the limit, so that one added later with the same value is read next time.
    let last = order.last(session, bound).await?;
    if since.is_some_and(|since| since.is_at(&last)) {
        return Ok(nothing(notes));
    }
    let (up_to, of_up_to) = order.up_to(&last)?;
    let (condition, parameters) = match since {
        Some(since) => {
            let (after, mut parameters) = order.after(since, may_repeat)?;
            parameters.extend(of_up_to);
            (format!("{after} AND {up_to}"), parameters)
        }
        None => (up_to, of_up_to),
    };
    let field = &order.field.name;
    let unit = Unit {
        name: format!("{field} {}..{}", since.map_or("", |since| &since.value), last.value),
        from: since.map(|since| since.value.clone()),
        to: Some(last.value.clone()),
        rows: None,
        bytes: None,
    };
    let units = vec![(unit, Some(Part { condition, parameters }))];
    Ok(Parts { units, is_stable: false, cursor: Some(last), notes })
}

/// The error of a unit of an earlier load.
pub(crate) fn unknown(table: &str) -> ConnectorError {
    ConnectorError::unsupported(
        format!("{table}: a unit of an earlier incremental load cannot be read"),
        "run with `--from-scratch` to load it from the beginning",
    )
}
