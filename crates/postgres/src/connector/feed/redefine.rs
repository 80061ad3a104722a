//! Tables whose columns change while they are followed.
//!
//! The stream has the names and types of columns, and no more. What became of the rows that were there is in the
//! catalog: a column keeps its number when it is renamed, and a constant default of a new one is recorded for the
//! rows before it. Where the catalog does not show it either, the change is refused.
//!
//! Invariant: after the steps of a redefinition, rows that no change concerned are the same on both sides, unless
//! the type of a column was changed by an expression (`alter ... using`).

use std::collections::HashMap;

use forebay_sdk::changes::feed::{ColumnStep, FeedColumn, Redefinition};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::super::connect::refused;
use super::super::sql::{TableName, ident};
use super::identity::identities;
use super::tables::{Followed, Wires, check_type};
use crate::replication::pgoutput::{Relation, ReplicaIdentity};

/// A column in the catalog, as it is now.
struct Live {
    number: i16,
    /// Rows may have got a value that the log does not show.
    has_default: bool,
    /// The value of the rows that were there when it was added.
    missing: Option<String>,
}

/// Names of types, and whether their values can be passed on. A type that was dropped since is unknown.
const TYPES: &str = "
with recursive asked(ord, oid, modifier) as (
  select ord, oid, modifier from unnest($1::oid[], $2::int4[]) with ordinality a(oid, modifier, ord)),
based(ord, base) as (
  select ord, oid from asked
  union select b.ord, t.typbasetype from based b join pg_type t on t.oid = b.base where t.typbasetype <> 0)
select format_type(a.oid, a.modifier), coalesce(t.typsend <> 0, false),
       coalesce(t.typtype = 'c' or t.typelem >= 16384, false)
from asked a left join (based b join pg_type t on t.oid = b.base and t.typbasetype = 0) on b.ord = a.ord
order by a.ord";

/// The columns of a table by name. The value of the rows that were there is recorded with the tables that have rows: of a
/// partitioned one with its partitions.
const COLUMNS: &str = "
select a.attname::text, a.attnum, a.atthasdef or a.attidentity <> '', missing.is_one,
       (missing.of::text[])[1]
from pg_attribute a cross join lateral (
  select count(distinct m.attmissingval::text) = 1, min(m.attmissingval::text)
  from (select $1 union select relid from pg_partition_tree($1) where isleaf) part(oid)
  join pg_attribute m on m.attrelid = part.oid and m.attname = a.attname and m.attnum > 0 and m.atthasmissing) missing(is_one, of)
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped";

/// The name of a table by its number, as it is now.
const NAME: &str = "
select n.nspname::text, c.relname::text
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = $1";

/// Compares a relation with what is recorded of its table; `None`: it is the same. It may take as long as reading the table.
///
/// # Errors
/// What became of the rows cannot be known, or values of a type cannot be passed on.
pub(super) async fn redefinition(
    client: &Client,
    followed: &Followed,
    relation: &Relation,
) -> Result<Option<Redefinition>> {
    let Followed { name, columns: recorded, baseline, .. } = followed;
    let act = |error| refused(format!("look up {name}"), error);
    let oids: Vec<u32> = relation.columns.iter().map(|column| column.type_oid.0).collect();
    let modifiers: Vec<i32> = relation.columns.iter().map(|column| column.type_modifier).collect();
    let of: [(&(dyn ToSql + Sync), Type); 2] =
        [(&oids, Type::OID_ARRAY), (&modifiers, Type::INT4_ARRAY)];
    let types = client.query_typed(TYPES, &of).await.map_err(act)?;
    let rows = client.query_typed(COLUMNS, &[(&relation.oid.0, Type::OID)]).await.map_err(act)?;
    let live = rows.iter().map(|row| {
        let is_missing: bool = row.get(3);
        let missing = row.get::<_, Option<String>>(4).filter(|_| is_missing);
        let live = Live { number: row.get(1), has_default: row.get(2), missing };
        (row.get(0), live)
    });
    let live: HashMap<String, Live> = live.collect();
    let wires = Wires::of(client, name).await?;
    // Without a key rows can only be inserted.
    let has_key = relation.identity != ReplicaIdentity::Full
        && relation.columns.iter().any(|column| column.is_identity);
    let mut columns = Vec::with_capacity(relation.columns.len());
    for (column, of) in relation.columns.iter().zip(&types) {
        let sql_type: String = of.get(0);
        let known = recorded.iter().find(|known| known.name == column.name);
        let known = known.filter(|known| known.sql_type == sql_type);
        let wire = wires.find(&column.name, &sql_type);
        let number = number(&column.name, &live, recorded);
        let by_number = || recorded.iter().find(|known| known.number == number);
        let before = recorded.iter().find(|known| known.name == column.name).or_else(by_number);
        let is_recorded_key = || before.is_some_and(|before| before.is_key);
        let found = FeedColumn {
            name: column.name.clone(),
            wire: wire.or_else(|| known.and_then(|known| known.wire.clone())),
            sql_type,
            is_key: if has_key { column.is_identity } else { is_recorded_key() },
            number,
        };
        check_type(name, &found, of.get(1), of.get(2))?;
        columns.push(found);
    }
    let steps = steps(name, recorded, &columns, &live, baseline.last)?;
    check_added(client, followed, &steps).await?;
    let is_same =
        steps.is_empty() && recorded.iter().map(identity).eq(columns.iter().map(identity));
    Ok((!is_same).then_some(Redefinition { columns, steps }))
}

/// Refuses columns that rows may have got values of without a change in the log: the table was rewritten, and a row that
/// is older than the last change of the column's definition has a value. Dropping a default, or the expression of a
/// generated column, is such a change.
async fn check_added(client: &Client, followed: &Followed, steps: &[ColumnStep]) -> Result<()> {
    let added = steps.iter().filter_map(|step| match step {
        ColumnStep::Add { name, existing: None, .. } => Some(name),
        _ => None,
    });
    let added: Vec<&String> = added.collect();
    if added.is_empty() {
        return Ok(());
    }
    let Followed { name, oid, baseline, .. } = followed;
    let act = |error| refused(format!("look up the rows of {name}"), error);
    // It may have another name by now, or none.
    let Some(row) = client.query_typed_opt(NAME, &[(&oid.0, Type::OID)]).await.map_err(act)? else {
        return Ok(());
    };
    let now = TableName::new(row.get(0), row.get(1));
    let storage = identities(client, "", std::slice::from_ref(&now)).await?;
    if storage.iter().all(|storage| storage.has_storage(baseline)) {
        return Ok(());
    }
    for column in added {
        let (table, quoted) = (now.sql(), ident(column));
        let sql = format!(
            "select exists (select from {table} t, pg_attribute a
             where a.attrelid = $1 and a.attname = $2::text and t.{quoted} is not null
               and (age(t.xmin) > age(a.xmin) or age(t.xmin) < 0
                 or t.xmin = a.xmin and t.cmin::text::int8 < a.cmin::text::int8))"
        );
        let of: [(&(dyn ToSql + Sync), Type); 2] = [(&oid.0, Type::OID), (column, Type::TEXT)];
        if client.query_typed_one(&sql, &of).await.map_err(act)?.get(0) {
            let found = "was added, and the table was rewritten, which may have given it values";
            return Err(unknown(name, column, found));
        }
    }
    Ok(())
}

/// What the log does not show.
fn unknown(name: &TableName, column: &str, what: &str) -> ConnectorError {
    ConnectorError::unsupported(
        format!(
            "column {column:?} of {name} {what}, and the log does not show what that did to its rows"
        ),
        "run with `--from-scratch`, which copies the tables again",
    )
}

/// The number of a column, which stays when it is renamed. The catalog may have another name for it already, by a
/// change that follows.
fn number(column: &str, live: &HashMap<String, Live>, recorded: &[FeedColumn]) -> i16 {
    let known = || recorded.iter().find(|known| known.name == column).map(|known| known.number);
    live.get(column).map(|live| live.number).or_else(known).unwrap_or_default()
}

/// What values are read by.
fn identity(column: &FeedColumn) -> (&str, &str, bool) {
    (&column.name, &column.sql_type, column.is_key)
}

/// The steps from the recorded columns to those of now.
///
/// * `last`: the highest number of a column that was there then, also of one that is not recorded because it was generated.
fn steps(
    name: &TableName,
    recorded: &[FeedColumn],
    now: &[FeedColumn],
    live: &HashMap<String, Live>,
    last: i16,
) -> Result<Vec<ColumnStep>> {
    let unknown = |column: &str, what: &str| unknown(name, column, what);
    let known = |column: &str| recorded.iter().find(|known| known.name == column);
    let is_now = |column: &str| now.iter().any(|other| other.name == column);
    let (mut renamed, mut rest) = (Vec::new(), Vec::new());
    for column in now {
        let is_there = live.get(&column.name);
        let before = match (known(&column.name), is_there) {
            (Some(known), Some(live)) if live.number != known.number => {
                return Err(unknown(&column.name, "was dropped and created again"));
            }
            (Some(known), _) => known,
            (None, None) => return Err(unknown(&column.name, "was added and changed again")),
            (None, Some(live)) => {
                let by_number = recorded.iter().find(|known| known.number == live.number);
                match by_number {
                    Some(known) if !is_now(&known.name) => {
                        let (from, to) = (known.name.clone(), column.name.clone());
                        renamed.push(ColumnStep::Rename { from, to });
                        known
                    }
                    Some(_) => return Err(unknown(&column.name, "has the place of another one")),
                    None if live.number <= last => {
                        return Err(unknown(&column.name, "was computed before"));
                    }
                    None if live.has_default && live.missing.is_none() => {
                        return Err(unknown(&column.name, "was added with a default"));
                    }
                    None => {
                        rest.push(ColumnStep::Add {
                            name: column.name.clone(),
                            sql_type: column.sql_type.clone(),
                            existing: live.missing.clone(),
                        });
                        continue;
                    }
                }
            }
        };
        if before.sql_type != column.sql_type {
            let (name, sql_type) = (column.name.clone(), column.sql_type.clone());
            rest.push(ColumnStep::Retype { name, sql_type });
        }
    }
    let is_kept = |known: &FeedColumn| {
        let is_renamed = |step: &ColumnStep| matches!(step, ColumnStep::Rename { from, .. } if *from == known.name);
        is_now(&known.name) || renamed.iter().any(is_renamed)
    };
    let dropped = recorded.iter().filter(|known| !is_kept(known));
    let dropped = dropped.map(|known| ColumnStep::Drop { name: known.name.clone() });
    let dropped: Vec<_> = dropped.collect();
    renamed.extend(dropped);
    renamed.append(&mut rest);
    Ok(renamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, sql_type: &str, number: i16) -> FeedColumn {
        let (name, sql_type) = (name.into(), sql_type.into());
        FeedColumn { name, sql_type, is_key: number == 1, number, wire: None }
    }

    fn live(columns: &[(&str, i16, bool, Option<&str>)]) -> HashMap<String, Live> {
        let columns = columns.iter().map(|(name, number, has_default, missing)| {
            let missing = missing.map(str::to_owned);
            ((*name).to_owned(), Live { number: *number, has_default: *has_default, missing })
        });
        columns.collect()
    }

    #[test]
    fn a_column_that_was_renamed_since_keeps_its_number() {
        let recorded = [column("id", "integer", 1), column("a", "text", 2)];
        let live = live(&[("key", 1, false, None), ("a", 3, false, None)]);
        let found = ["id", "a", "b"].map(|column| number(column, &live, &recorded));
        assert_eq!(found, [1, 3, 0]);
    }

    #[test]
    fn steps_say_what_became_of_each_column() {
        let name = TableName::new("public", "t");
        let before =
            [column("id", "integer", 1), column("a", "text", 2), column("b", "integer", 4)];
        let now = [
            column("id", "integer", 1),
            column("c", "text", 2),
            column("b", "bigint", 4),
            column("d", "date", 6),
            column("e", "integer", 7),
        ];
        let catalog = live(&[
            ("id", 1, true, None),
            ("c", 2, false, None),
            ("b", 4, false, None),
            ("d", 6, false, None),
            ("e", 7, true, Some("5")),
        ]);
        let found = steps(&name, &before, &now, &catalog, 5).unwrap();
        let text = str::to_owned;
        assert_eq!(
            found,
            [
                ColumnStep::Rename { from: text("a"), to: text("c") },
                ColumnStep::Retype { name: text("b"), sql_type: text("bigint") },
                ColumnStep::Add { name: text("d"), sql_type: text("date"), existing: None },
                ColumnStep::Add {
                    name: text("e"),
                    sql_type: text("integer"),
                    existing: Some(text("5"))
                },
            ]
        );
        let fewer = [column("id", "integer", 1), column("b", "integer", 4)];
        let found = steps(
            &name,
            &before,
            &fewer,
            &live(&[("id", 1, true, None), ("b", 4, false, None)]),
            5,
        );
        assert_eq!(found.unwrap(), [ColumnStep::Drop { name: text("a") }]);
    }

    #[test]
    fn what_the_log_does_not_show_is_refused() {
        let name = TableName::new("public", "t");
        let before = [column("id", "integer", 1), column("a", "text", 2)];
        let with =
            |other: &str, number| [column("id", "integer", 1), column(other, "text", number)];
        for (now, catalog) in [
            // Dropped and created again; a default that is computed; gone from the catalog; was generated, before and after
            // the columns that are recorded.
            (with("a", 3), live(&[("id", 1, false, None), ("a", 3, false, None)])),
            (with("b", 3), live(&[("id", 1, false, None), ("b", 3, true, None)])),
            (with("b", 0), live(&[("id", 1, false, None)])),
            (with("b", 0), live(&[("id", 1, false, None), ("b", 0, false, None)])),
            (with("b", 3), live(&[("id", 1, false, None), ("b", 3, false, None)])),
        ] {
            steps(&name, &before, &now, &catalog, 3).unwrap_err();
        }
    }
}
