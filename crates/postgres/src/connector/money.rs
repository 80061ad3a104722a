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

/// Refuses columns of `money` if this session gives its values another number of digits.
pub(super) async fn check(client: &Client, table: &TableName, columns: &[Column]) -> Result<()> {
    let Some(column) = columns.iter().find(|column| is_money(&column.wire)) else { return Ok(()) };
    let found = client.query_typed_one(FOUND, &[]).await;
    let found =
        found.map_err(|error| refused(format!("look up the currency of {table}"), error))?;
    let (digits, locale): (Option<i32>, String) = (found.get(0), found.get(1));
    if digits == Some(DIGITS) {
        return Ok(());
    }
    Err(ConnectorError::unsupported(
        format!(
            "column {:?} of {table} is money, which has {} digits after the point by lc_monetary = \
             {locale:?}: values would be other ones where it has {DIGITS}",
            column.name,
            digits.unwrap_or_default()
        ),
        "read a view that casts it to numeric, or set lc_monetary for the role to a locale with two \
         digits if the values have them",
    ))
}
