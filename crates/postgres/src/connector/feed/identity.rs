//! What a table is recognized by, since its name is not enough.
//!
//! The log has no changes of a table that was dropped and created again until it is published again, none of the time in which a
//! table was taken out of the publication, and no rows of a table that became a partition with them. The catalog shows all
//! three: by numbers that no other object gets, and by the transactions that wrote its rows.
//!
//! Invariant: a table that has anything new of this kind is not followed on.

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::super::connect::refused;
use super::super::sql::TableName;
use crate::replication::pgoutput::Oid;

/// The kinds of marks.
const TABLE: &str = "table";
const PUBLISHED: &str = "published";
const PUBLICATION: &str = "publication";
const PARTITION: &str = "partition";

/// The numbers of tables, of their places in a publication (none if it has all tables), and of the publication.
const NUMBERS: &str = "
select c.oid, r.oid, p.oid
from unnest($1::text[], $2::text[]) with ordinality asked(schema, name, ord)
left join (pg_class c join pg_namespace n on n.oid = c.relnamespace)
  on n.nspname = asked.schema and c.relname = asked.name
left join pg_publication p on p.pubname = $3
left join pg_publication_rel r on r.prpubid = p.oid and r.prrelid = c.oid
order by asked.ord";

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
        let Some(new) = self.marks.iter().find(|mark| !recorded.contains(mark)) else {
            let is_published = |marks: &[String]| marks.iter().any(|mark| kind(mark) == PUBLISHED);
            let is_gone = is_published(recorded) && !is_published(&self.marks);
            return is_gone.then(|| format!("{name} was taken out of the publication"));
        };
        Some(match kind(new) {
            PUBLISHED => format!("{name} was taken out of the publication and added again"),
            PUBLICATION => format!("the publication of {name} was dropped and created again"),
            PARTITION => format!(
                "a table was attached to {name} as a partition, and the log has no rows that it had before"
            ),
            _ => format!("{name} was dropped and created again"),
        })
    }
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
            let kinds = [TABLE, PUBLISHED, PUBLICATION].into_iter().enumerate();
            let marks = kinds.filter_map(|(at, kind)| {
                row.get::<_, Option<u32>>(at).map(|number| format!("{kind} {number}"))
            });
            Identity { oid: row.get::<_, Option<u32>>(0).map(Oid), marks: marks.collect() }
        })
        .collect();
    let roots: Vec<u32> = found.iter().map(|one| one.oid.map_or(0, |oid| oid.0)).collect();
    let rows = client.query_typed(ATTACHED, &[(&roots, Type::OID_ARRAY)]).await.map_err(act)?;
    for row in &rows {
        let at = usize::try_from(row.get::<_, i64>(0)).ok().and_then(|at| at.checked_sub(1));
        if let Some(one) = at.and_then(|at| found.get_mut(at)) {
            one.marks.push(format!("{PARTITION} {}", row.get::<_, String>(1)));
        }
    }
    Ok(found)
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
}
