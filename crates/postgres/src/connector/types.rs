//! Types of a server, from its catalogue.

use std::collections::HashMap;

use forebay_pgcopy::catalog::PgType;

/// Types, and those they consist of.
pub(super) struct Types(HashMap<u32, Row>);

struct Row {
    name: String,
    typtype: char,
    category: char,
    base: u32,
    element: u32,
    base_typmod: i32,
}

/// Maximum nesting of types: domains over domains, arrays of domains.
const DEPTH_MAX: u32 = 16;

/// The types of a table's columns, with those they consist of.
pub(super) const OF_TABLE: &str = "
with recursive wanted(oid) as (
    select a.atttypid
    from pg_namespace n join pg_class c on c.relnamespace = n.oid join pg_attribute a on a.attrelid = c.oid
    where n.nspname = $1 and c.relname = $2 and a.attnum > 0 and not a.attisdropped
    union
    select x.oid from wanted w join pg_type t on t.oid = w.oid,
        lateral (values (t.typbasetype),
                        (case when t.typcategory = 'A' and t.typlen = -1 then t.typelem else 0 end)) x(oid)
    where x.oid <> 0
)
select t.oid, format_type(t.oid, null), t.typtype::text, t.typcategory::text, t.typbasetype,
       case when t.typcategory = 'A' and t.typlen = -1 then t.typelem else 0 end, t.typtypmod
from wanted w join pg_type t on t.oid = w.oid";

impl Types {
    /// Parses the rows of [`OF_TABLE`].
    pub(super) fn new(rows: &[tokio_postgres::Row]) -> Self {
        let first = |text: String| text.chars().next().unwrap_or('\0');
        let types = rows.iter().map(|row| {
            let made = Row {
                name: row.get(1),
                typtype: first(row.get(2)),
                category: first(row.get(3)),
                base: row.get(4),
                element: row.get(5),
                base_typmod: row.get(6),
            };
            (row.get(0), made)
        });
        Self(types.collect())
    }

    /// A type with its modifier; `written` is its name.
    pub(super) fn of(&self, oid: u32, typmod: i32, written: String) -> Option<PgType> {
        self.made(oid, typmod, Some(written), 0)
    }

    fn made(&self, oid: u32, typmod: i32, written: Option<String>, depth: u32) -> Option<PgType> {
        let row = self.0.get(&oid).filter(|_| depth < DEPTH_MAX)?;
        let part = |oid: u32, typmod| {
            (oid != 0).then(|| self.made(oid, typmod, None, depth + 1)).flatten().map(Box::new)
        };
        Some(PgType {
            oid,
            name: written.unwrap_or_else(|| row.name.clone()),
            typtype: row.typtype,
            category: row.category,
            basetype: part(row.base, row.base_typmod),
            // The modifier of an array is that of its elements.
            element: part(row.element, typmod),
            typmod,
        })
    }
}
