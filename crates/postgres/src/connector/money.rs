//! Values of `money`, which depend on a setting.
//!
//! A value is a whole number of the smallest unit. How many of them make a whole one is not stored with it:
//! it follows from `lc_monetary` (two digits after the point in nearly all locales, none for the yen). So
//! the same bytes are 1.00 on one server and 100 on another.
//!
//! Invariant: `money` is passed between servers only where both sides give it two digits.

use forebay_pgcopy::{Column, Wire};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::Client;

use super::connect::refused;
use super::sql::TableName;

/// Digits after the point of the values that are passed on.
const DIGITS: i32 = 2;

const FOUND: &str = "select scale('1'::money::numeric), current_setting('lc_monetary')";

/// Whether a column has values of `money`.
fn is_money(wire: &Wire) -> bool {
    match wire {
        Wire::Money => true,
        Wire::Array { element, .. } => is_money(element),
        _ => false,
    }
}

/// The first of the types `$1` that contains `money` as an element, a field, a bound of a range, or as what a
/// domain is made of, by its number from 1.
const CONTAINING: &str = "
with recursive types(number, oid) as (
  select number, to_regtype(name)::oid from unnest($1::text[]) with ordinality as given(name, number)
  union
  select t.number, inner_type.oid from types t join pg_type y on y.oid = t.oid cross join lateral (
    select y.typelem where y.typelem <> 0
    union all select y.typbasetype where y.typbasetype <> 0
    union all select r.rngsubtype from pg_range r where y.oid in (r.rngtypid, r.rngmultitypid)
    union all select a.atttypid from pg_attribute a
      where y.typrelid <> 0 and a.attrelid = y.typrelid and a.attnum > 0 and not a.attisdropped
  ) as inner_type(oid)
)
select min(number) from types where oid = 'money'::regtype";

/// Finds a column that has values of `money`, also inside of others.
async fn find<'a>(
    client: &Client,
    table: &TableName,
    columns: &'a [Column],
) -> Result<Option<&'a Column>> {
    if let Some(column) = columns.iter().find(|column| is_money(&column.wire)) {
        return Ok(Some(column));
    }
    let opaque: Vec<&Column> = columns.iter().filter(|column| is_opaque(&column.wire)).collect();
    if opaque.is_empty() {
        return Ok(None);
    }
    let types: Vec<&str> = opaque.iter().map(|column| column.sql_type.as_str()).collect();
    let found = client.query_one(CONTAINING, &[&types]).await.map_err(|error| {
        refused(format!("look up what the types of {table} are made of"), error)
    })?;
    let number: Option<i64> = found.get(0);
    let index = number.and_then(|number| usize::try_from(number - 1).ok());
    Ok(index.and_then(|index| opaque.get(index).copied()))
}

/// Whether values are passed on as they are, whatever is in them.
fn is_opaque(wire: &Wire) -> bool {
    match wire {
        Wire::Opaque => true,
        Wire::Array { element, .. } => is_opaque(element),
        _ => false,
    }
}

/// Refuses columns with values of `money` if this session gives them another number of digits.
pub(super) async fn check(client: &Client, table: &TableName, columns: &[Column]) -> Result<()> {
    let Some(column) = find(client, table, columns).await? else { return Ok(()) };
    let found = client.query_typed_one(FOUND, &[]).await;
    let found =
        found.map_err(|error| refused(format!("look up the currency of {table}"), error))?;
    let (digits, locale): (Option<i32>, String) = (found.get(0), found.get(1));
    if digits == Some(DIGITS) {
        return Ok(());
    }
    Err(ConnectorError::unsupported(
        format!(
            "column {:?} of {table}, of the type {}, has values of money, which has {} digits after the point by \
             lc_monetary = {locale:?}: values would be other ones where it has {DIGITS}",
            column.name,
            column.sql_type,
            digits.unwrap_or_default()
        ),
        "read a view that casts it to numeric, or set lc_monetary for the role to a locale with two \
         digits if the values have them",
    ))
}
