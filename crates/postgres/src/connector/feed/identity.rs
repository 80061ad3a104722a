//! What a table is recognized by, since its name is not enough.
//!
//! The log has no changes of a table that was dropped and created again until it is published again, none of the time in which a
//! table was taken out of the publication or the publication left out operations, and no rows of a table that became a partition
//! with them. The catalog shows all of this: by numbers that no other object gets, and by the transactions that wrote its rows.
//!
//! Two more marks do not belong to what a table is recognized by, since they change with a table that stays the same. They say
//! what a column that is added later can have held before (`redefine`).
//!
//! Invariant: a table that has anything new of this kind is not followed on.

use forebay_sdk::changes::feed::FeedColumn;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::super::connect::refused;
use super::super::sql::TableName;
use crate::replication::pgoutput::Oid;

/// The kinds of marks.
const TABLE: &str = "table";
const PUBLISHED: &str = "published";
const SCHEMA: &str = "schema";
const PUBLICATION: &str = "publication";
/// The transaction that wrote the operations of the publication.
const OPERATIONS: &str = "operations";
const PARTITION: &str = "partition";
/// How many columns a table has had, generated and dropped ones included.
const COLUMNS: &str = "columns";
/// The files that have its rows: others after it was rewritten.
const STORAGE: &str = "storage";

/// The numbers of tables, of their places in a publication (none if it has all tables), and of the publication, with the
/// transaction that wrote its operations; and the columns and the files of the tables.
const NUMBERS: &str = "
select c.oid::text, r.oid::text, p.oid::text, p.xmin::text, c.relnatts::text,
  (select md5(string_agg(f.relfilenode::text, ' ' order by f.oid))
   from (select c.oid union select relid from pg_partition_tree(c.oid) where isleaf) parts(oid)
   join pg_class f on f.oid = parts.oid)
from unnest($1::text[], $2::text[]) with ordinality asked(schema, name, ord)
left join (pg_class c join pg_namespace n on n.oid = c.relnamespace)
  on n.nspname = asked.schema and c.relname = asked.name
left join pg_publication p on p.pubname = $3
left join pg_publication_rel r on r.prpubid = p.oid and r.prrelid = c.oid
order by asked.ord";

/// Whether the server can publish the tables of a schema, as PostgreSQL 15 can.
const HAS_SCHEMAS: &str = "select to_regclass('pg_catalog.pg_publication_namespace') is not null";

/// The places of the schemas of tables in a publication.
const SCHEMAS: &str = "
select asked.ord, s.oid::text
from unnest($1::text[]) with ordinality asked(schema, ord)
join pg_namespace n on n.nspname = asked.schema
join pg_publication p on p.pubname = $2
join pg_publication_namespace s on s.pnpubid = p.oid and s.pnnspid = n.oid
order by 1";

/// Partitions that were tables before they were attached, with the transaction that did it. The entry of a system column is
/// written when a table is created, and never again.
const ATTACHED: &str = "
with recursive asked(root, ord) as (select * from unnest($1::oid[]) with ordinality),
  parts(ord, oid) as (
    select a.ord, c.oid from asked a join pg_class c on c.oid = a.root and c.relkind = 'p'
    union select p.ord, i.inhrelid from pg_inherits i join parts p on i.inhparent = p.oid)
select p.ord, i.inhrelid::text || '@' || i.xmin::text
from parts p join pg_inherits i on i.inhparent = p.oid
join pg_attribute a on a.attrelid = i.inhrelid and a.attname = 'ctid' and a.attnum < 0
where a.xmin <> i.xmin
order by 1, 2";

/// What a table is recognized by, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// Its number; `None`: there is no table of this name.
    pub(super) oid: Option<Oid>,
    /// Marks that the feed records: a kind and a number.
    pub(super) marks: Vec<String>,
}

impl Identity {
    /// Why a table is not the one that was recorded; `None` if it is.
    ///
    /// * `recorded`: its marks; none in feeds of earlier versions.
    pub(super) fn other_than(&self, recorded: &[String], name: &TableName) -> Option<String> {
        if recorded.is_empty() {
            return None;
        }
        let new =
            |of: &str| self.marks.iter().any(|mark| kind(mark) == of && !recorded.contains(mark));
        let is_known = |of: &str| recorded.iter().any(|mark| kind(mark) == of);
        if new(TABLE) {
            return Some(format!("{name} was dropped and created again"));
        }
        if new(PUBLICATION) {
            return Some(format!("the publication of {name} was dropped and created again"));
        }
        if new(PARTITION) {
            return Some(format!(
                "a table was attached to {name} as a partition, and the log has no rows that it had before"
            ));
        }
        // Any entry that has stayed is enough.
        let is_entry = |mark: &&String| matches!(kind(mark), PUBLISHED | SCHEMA);
        let mut entries = recorded.iter().filter(is_entry).peekable();
        if entries.peek().is_some() && !entries.any(|entry| self.marks.contains(entry)) {
            let is_back = self.marks.iter().any(|mark| is_entry(&mark));
            let again = if is_back { " and added again" } else { "" };
            return Some(format!("{name} was taken out of the publication{again}"));
        }
        // Feeds of earlier versions do not have it.
        if is_known(OPERATIONS) && new(OPERATIONS) {
            return Some(format!(
                "the publication of {name} was altered, and may have left out changes until then"
            ));
        }
        None
    }

    /// Whether a table has the files that it had.
    pub(super) fn has_storage(&self, baseline: &Baseline) -> bool {
        baseline.storage.is_some() && value(&self.marks, STORAGE) == baseline.storage.as_deref()
    }

    /// What can be known of columns that are added later.
    ///
    /// * `recorded`: the marks of the table.
    /// * `columns`: its columns, as they are recorded.
    pub(super) fn baseline(&self, recorded: &[String], columns: &[FeedColumn]) -> Baseline {
        let highest = columns.iter().map(|column| column.number).max().unwrap_or(0);
        let numbered = value(recorded, COLUMNS).and_then(|count| count.parse().ok()).unwrap_or(0);
        let last = highest.max(numbered);
        let now = value(&self.marks, COLUMNS).and_then(|count| count.parse().ok());
        // No column was added since then, so it does not matter whether the table was rewritten.
        let marks = if now == Some(last) { &self.marks } else { recorded };
        Baseline { last, storage: value(marks, STORAGE).map(str::to_owned) }
    }
}

/// What a table was like when its columns were those that are recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Baseline {
    /// The highest number of a column that it has had.
    pub(super) last: i16,
    /// Its files; `None`: unknown.
    pub(super) storage: Option<String>,
}

/// What a mark of a kind says.
fn value<'a>(marks: &'a [String], of: &str) -> Option<&'a str> {
    marks
        .iter()
        .filter_map(|mark| mark.split_once(' '))
        .find(|mark| mark.0 == of)
        .map(|mark| mark.1)
}

/// The kind of a mark.
fn kind(mark: &str) -> &str {
    mark.split(' ').next().unwrap_or_default()
}

/// Looks up what tables are recognized by.
pub(super) async fn identities(
    client: &Client,
    publication: &str,
    names: &[TableName],
) -> Result<Vec<Identity>> {
    let act = |error| refused("look up the tables that are followed", error);
    let schemas: Vec<&str> = names.iter().map(|name| name.schema.as_str()).collect();
    let tables: Vec<&str> = names.iter().map(|name| name.table.as_str()).collect();
    let of: [(&(dyn ToSql + Sync), Type); 3] =
        [(&schemas, Type::TEXT_ARRAY), (&tables, Type::TEXT_ARRAY), (&publication, Type::TEXT)];
    let rows = client.query_typed(NUMBERS, &of).await.map_err(act)?;
    let mut found: Vec<Identity> = rows
        .iter()
        .map(|row| {
            let kinds = [TABLE, PUBLISHED, PUBLICATION, OPERATIONS, COLUMNS, STORAGE];
            let marks = kinds.into_iter().enumerate().filter_map(|(at, kind)| {
                row.get::<_, Option<String>>(at).map(|value| format!("{kind} {value}"))
            });
            let oid = row.get::<_, Option<String>>(0).and_then(|oid| oid.parse().ok());
            Identity { oid: oid.map(Oid), marks: marks.collect() }
        })
        .collect();
    if client.query_typed_one(HAS_SCHEMAS, &[]).await.map_err(act)?.get(0) {
        let of: [(&(dyn ToSql + Sync), Type); 2] =
            [(&schemas, Type::TEXT_ARRAY), (&publication, Type::TEXT)];
        let rows = client.query_typed(SCHEMAS, &of).await.map_err(act)?;
        add_marks(&mut found, &rows, SCHEMA);
    }
    let roots: Vec<u32> = found.iter().map(|one| one.oid.map_or(0, |oid| oid.0)).collect();
    let rows = client.query_typed(ATTACHED, &[(&roots, Type::OID_ARRAY)]).await.map_err(act)?;
    add_marks(&mut found, &rows, PARTITION);
    Ok(found)
}

/// Adds marks of a kind to tables.
///
/// * `rows`: the number of a table, from 1, and what the mark says.
fn add_marks(found: &mut [Identity], rows: &[Row], kind: &str) {
    for row in rows {
        let at = usize::try_from(row.get::<_, i64>(0)).ok().and_then(|at| at.checked_sub(1));
        if let Some(one) = at.and_then(|at| found.get_mut(at)) {
            one.marks.push(format!("{kind} {}", row.get::<_, String>(1)));
        }
    }
}

/// The tables of a feed, which stay the same as long as it is read.
pub(super) struct Recognized {
    publication: String,
    names: Vec<TableName>,
    recorded: Vec<Vec<String>>,
}

impl Recognized {
    /// * `recorded`: the marks of each table.
    pub(super) fn new(
        publication: &str,
        names: Vec<TableName>,
        recorded: Vec<Vec<String>>,
    ) -> Self {
        Self { publication: publication.to_owned(), names, recorded }
    }

    /// Checks that the tables are still the same.
    ///
    /// # Errors
    /// [`ConnectorError::Busy`]: one is not, so the feed has to be attached again, which decides what follows.
    pub(super) async fn check(&self, client: &Client) -> Result<()> {
        let now = identities(client, &self.publication, &self.names).await?;
        for ((now, name), recorded) in now.iter().zip(&self.names).zip(&self.recorded) {
            let found = match now.oid {
                None => Some(format!("there is no table {name} any more")),
                Some(_) => now.other_than(recorded, name),
            };
            if let Some(found) = found {
                let act = format!("follow {name}");
                return Err(ConnectorError::Busy { act, source: found.into() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(marks: &[&str]) -> Vec<String> {
        marks.iter().map(|mark| (*mark).to_owned()).collect()
    }

    #[test]
    fn a_table_with_a_mark_that_was_not_recorded_is_another_one() {
        let name = TableName::new("public", "t");
        let recorded = marks(&["table 7", "published 8", "publication 9", "partition 5@700"]);
        let now = |of: &[&str]| Identity { oid: Some(Oid(7)), marks: marks(of) };
        for (of, expected) in [
            (&["table 7", "published 8", "publication 9", "partition 5@700"][..], None),
            // A partition that was detached.
            (&["table 7", "published 8", "publication 9"], None),
            (&["table 7", "publication 9"], Some("was taken out of the publication")),
            (&["table 6", "published 5", "publication 9"], Some("was dropped and created again")),
            (&["table 7", "published 5", "publication 9"], Some("and added again")),
            (&["table 7", "published 8", "publication 5"], Some("the publication of public.t")),
            (&["table 7", "partition 5@701"], Some("was attached to public.t")),
            // What a feed of an earlier version did not record.
            (&["table 7", "published 8", "publication 9", "operations 700", "schema 3"], None),
        ] {
            let found = now(of).other_than(&recorded, &name);
            match expected {
                None => assert_eq!(found, None, "{of:?}"),
                Some(text) => assert!(found.unwrap().contains(text), "{of:?}"),
            }
        }
        assert_eq!(now(&["table 6"]).other_than(&[], &name), None);
        // A publication of all tables has no entries.
        assert_eq!(now(&["table 7"]).other_than(&marks(&["table 7"]), &name), None);
    }

    #[test]
    fn a_publication_that_left_out_changes_for_a_while_is_noticed() {
        let name = TableName::new("public", "t");
        let recorded = marks(&["table 7", "publication 9", "operations 700", "schema 3"]);
        let found = |of: &[&str]| {
            let marks = marks(&[&["table 7", "publication 9"], of].concat());
            Identity { oid: Some(Oid(7)), marks }.other_than(&recorded, &name)
        };
        assert_eq!(found(&["operations 700", "schema 3"]), None);
        // It is published by its name as well.
        assert_eq!(found(&["operations 700", "schema 3", "published 8"]), None);
        for (of, expected) in [
            (&["operations 701", "schema 3"][..], "was altered"),
            (&["operations 700", "schema 4"], "and added again"),
            (&["operations 700", "published 8"], "and added again"),
            (&["operations 700"], "was taken out of the publication"),
        ] {
            assert!(found(of).unwrap().contains(expected), "{of:?}");
        }
    }

    #[test]
    fn what_a_table_was_like_counts_from_when_it_got_its_last_column() {
        let of = |name: &str, number| {
            let (name, sql_type) = (name.into(), "text".into());
            FeedColumn { name, sql_type, is_key: false, number, wire: None }
        };
        let columns = [of("id", 1), of("v", 4)];
        let recorded = marks(&["table 7", "columns 5", "storage old"]);
        let now = |of: &[&str]| Identity { oid: Some(Oid(7)), marks: marks(of) };
        let baseline =
            |last, storage: Option<&str>| Baseline { last, storage: storage.map(Into::into) };
        for (now, recorded, columns, expected) in [
            (now(&["columns 5", "storage new"]), &recorded, &columns[..], baseline(5, Some("new"))),
            (now(&["columns 6", "storage new"]), &recorded, &columns, baseline(5, Some("old"))),
            (
                now(&["columns 4", "storage new"]),
                &marks(&["table 7"]),
                &columns,
                baseline(4, Some("new")),
            ),
            (now(&["columns 6", "storage new"]), &marks(&["table 7"]), &columns, baseline(4, None)),
            (
                now(&["columns 9", "storage new"]),
                &recorded,
                &[of("w", 9)],
                baseline(9, Some("new")),
            ),
        ] {
            assert_eq!(now.baseline(recorded, columns), expected, "{now:?} {recorded:?}");
        }
    }
}
