//! Where the values of a cursor come from, which decides what an incremental run waits for (`horizon`).
//!
//! Invariant: a column counts as one of numbers from sequences only if it is an identity or each of its
//! defaults, those of partitions included, draws from one. That a trigger replaces such a number by one
//! from elsewhere is not considered.

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::Client;

use super::catalog::Table;
use super::connect::refused;
use super::sql::literal;

/// Where the values of a column come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A sequence that the table owns or whose `nextval` is the default.
    Sequence,
    /// The statements that write it: a default that is a constant, or none. They may take a number from
    /// any sequence before they write the table.
    Writer,
    /// `is_zoned`: whether the values say in which zone the clock is.
    Clock { is_zoned: bool },
    /// Anything else: a view, a transaction's number, an expression, a trigger.
    Unknown,
}

/// How a column gets its values, in the table and in each of its parts: the expressions of defaults,
/// those of domains included; whether it is an identity; whether it is computed; whether a trigger can
/// set it; the largest `cache` of its sequences.
///
/// `tgtype`: bits 0 (for each row) and 1 (before), from PostgreSQL's `pg_trigger.h`.
fn catalogue(table: &str, column: &str) -> String {
    format!(
        "
with recursive parts(oid) as (
  select {table}::regclass::oid
  union select i.inhrelid from pg_inherits i join parts p on i.inhparent = p.oid
), columns as (
  select a.attrelid, a.attnum, a.attidentity, a.attgenerated, a.atttypid
  from pg_attribute a join parts p on a.attrelid = p.oid
  where a.attname = {column} and not a.attisdropped
), defaults as (
  select d.oid, pg_get_expr(d.adbin, d.adrelid) as expression
  from pg_attrdef d join columns c on d.adrelid = c.attrelid and d.adnum = c.attnum
), sequences as (
  select s.seqcache from pg_depend d join columns c on d.refobjid = c.attrelid
    and d.refobjsubid = c.attnum join pg_sequence s on s.seqrelid = d.objid
    where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass
  union all select s.seqcache from pg_depend d join defaults f on d.objid = f.oid
    join pg_sequence s on s.seqrelid = d.refobjid
    where d.classid = 'pg_attrdef'::regclass and d.refclassid = 'pg_class'::regclass
)
select
  array(select expression from defaults
    union all select y.typdefault from pg_type y join columns c on y.oid = c.atttypid
      where y.typtype = 'd' and y.typdefault is not null),
  coalesce((select bool_or(attidentity <> '') from columns), false),
  coalesce((select bool_or(attgenerated <> '') from columns), false),
  exists (select from pg_trigger t join parts p on t.tgrelid = p.oid
    where not t.tgisinternal and t.tgenabled <> 'D' and t.tgtype & 3 = 3),
  (select max(seqcache) from sequences)"
    )
}

/// Finds where the values of a column come from.
///
/// # Errors
/// [`ConnectorError::Unsupported`]: a sequence hands out numbers in advance, so that a session can use
/// a small one at any later time.
pub(super) async fn find(client: &Client, table: &Table, column: &str) -> Result<Origin> {
    let ty = table.column(column).map_or("", |column| column.pg_type.name.as_str());
    if !matches!(table.kind, 'r' | 'p') {
        return Ok(Origin::Unknown);
    }
    if is_time(ty) {
        return Ok(Origin::Clock { is_zoned: ty.ends_with("with time zone") });
    }
    // A transaction has its number before it writes any certain table.
    if ty == "xid8" {
        return Ok(Origin::Unknown);
    }
    let query = catalogue(&literal(&table.name.sql()), &literal(column));
    let row = client.query_one(&query, &[]).await.map_err(|error| {
        refused(format!("find where the values of {} come from", table.name), error)
    })?;
    let (defaults, is_identity): (Vec<String>, bool) = (row.get(0), row.get(1));
    let (is_generated, has_trigger): (bool, bool) = (row.get(2), row.get(3));
    let cache: Option<i64> = row.get(4);
    if let Some(cache) = cache.filter(|cache| *cache > 1) {
        return Err(cached(table, column, cache));
    }
    let kinds = defaults.iter().map(|expression| Default::of(expression));
    Ok(match kinds.max() {
        _ if is_generated => Origin::Unknown,
        Some(Default::Other) => Origin::Unknown,
        Some(Default::Sequence) => Origin::Sequence,
        None if is_identity => Origin::Sequence,
        Some(Default::Constant) | None if has_trigger => Origin::Unknown,
        Some(Default::Constant) | None => Origin::Writer,
    })
}

/// Whether values of a type are times.
pub(super) fn is_time(ty: &str) -> bool {
    ty.starts_with("timestamp") || ty == "date"
}

fn cached(table: &Table, column: &str, cache: i64) -> ConnectorError {
    ConnectorError::unsupported(
        format!("{} cannot be read incrementally by {column}", table.name),
        format!(
            "its sequence has `cache {cache}`: a session takes numbers in advance and may use them at \
             any later time, so rows would be missed; use `alter sequence ... cache 1` and reconnect \
             the sessions that write, or read with sync_mode: full_refresh"
        ),
    )
}

/// What a default is, the least certain last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Default {
    /// A value that is drawn while the table is locked, each greater than those before.
    Sequence,
    Constant,
    Other,
}

impl Default {
    /// * `expression`: as `pg_get_expr` prints it.
    fn of(expression: &str) -> Self {
        let drawn = ["nextval('", "uuidv7(", "uuid_generate_v7("];
        if drawn.iter().any(|call| expression.starts_with(call))
            && expression.matches('(').count() == 1
            && expression.ends_with(')')
        {
            Self::Sequence
        } else if is_constant(expression) {
            Self::Constant
        } else {
            Self::Other
        }
    }
}

/// Whether an expression is a literal, with or without casts.
fn is_constant(expression: &str) -> bool {
    let after = match expression.strip_prefix('\'') {
        Some(quoted) => {
            quoted.replace("''", "").split_once('\'').map(|(_, after)| after.to_owned())
        }
        None => {
            let bare = expression.trim_start_matches(['(', '-']);
            let words = ["NULL", "true", "false"];
            let named = words.iter().find_map(|word| bare.strip_prefix(word));
            let digits = bare.trim_start_matches(|at: char| at.is_ascii_digit() || at == '.');
            let number = (digits.len() < bare.len()).then_some(digits);
            named.or(number).map(|after| after.trim_start_matches(')').to_owned())
        }
    };
    // A cast names a type: `::bigint`, `::character varying(9)`.
    let is_cast = |after: &str| {
        let types = |at: char| at.is_alphanumeric() || " :_()\",.[]".contains(at);
        after.starts_with("::") && after.chars().all(types)
    };
    after.is_some_and(|after| after.is_empty() || is_cast(&after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_distinguished_by_what_they_can_be() {
        for (expression, kind) in [
            ("nextval('t_id_seq'::regclass)", Default::Sequence),
            ("nextval('\"a (b\"'::regclass)", Default::Other),
            ("uuidv7()", Default::Sequence),
            ("(nextval('s'::regclass) / 1000)", Default::Other),
            ("0", Default::Constant),
            ("(-1)", Default::Constant),
            ("'-1'::integer", Default::Constant),
            ("'it''s'::character varying(9)", Default::Constant),
            ("NULL::character varying", Default::Constant),
            ("1.5", Default::Constant),
            ("txid_current()", Default::Other),
            ("EXTRACT(epoch FROM now())", Default::Other),
            ("(1 + 1)", Default::Other),
            ("CURRENT_USER", Default::Other),
            ("('x'::text || (CURRENT_TIMESTAMP)::text)", Default::Other),
            ("gen_random_uuid()", Default::Other),
        ] {
            assert_eq!(Default::of(expression), kind, "{expression}");
        }
    }
}
