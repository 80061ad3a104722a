//! What belongs to a table and would be lost if another table took its place.
//!
//! `replace` loads into a staging table. A swap drops the table and renames the staging table: that is
//! quick, and readers wait for a moment only. It keeps columns, defaults, checks, indexes and their
//! names, owned sequences, and privileges. Whatever else belongs to a table, or depends on it, keeps
//! its table only if the rows are replaced inside it: then the table is refilled.
//!
//! Invariants:
//! * What is not known to survive a swap is a reason to refill: any dependent object that is not listed
//!   here is one.
//! * Rows of other tables that refer to this one are never deleted or changed because their row was
//!   deleted for a moment: rows with the same key stay.

use forebay_sdk::connector::Result;
use tokio_postgres::Client;

use super::connect::refused;
use super::sql::{TableName, ident, idents, literal};

/// Maximum number of names that are listed of each kind.
const NAMES_MAX: usize = 3;

/// What a swap would lose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// Each kind of object with its names; empty if a swap keeps everything.
    reasons: Vec<(String, Vec<String>)>,
    /// The key by which foreign keys of other tables refer to its rows.
    key: Option<Vec<String>>,
    /// Whether every table of its schema or database is published: also a staging table, unless it
    /// is unlogged.
    pub(super) is_published_with_all: bool,
    /// Columns whose values only the server assigns.
    assigned: Vec<String>,
    /// Whether its rows are in partitions. Rows of tables that inherit from any other table stay.
    pub(super) is_partitioned: bool,
}

/// What a swap would lose of the table `t`: kind and name, in the order of importance.
///
/// `pg_depend` is the last resort: it finds what no line here names.
const REASONS: &str = "
with t as (select * from pg_class where oid = $1::regclass),
losses(rank, kind, name) as (
  select 1, 'row security', null from t where relrowsecurity or relforcerowsecurity
  union all select 2, 'policies', polname::text from pg_policy, t where polrelid = t.oid
  union all select 3, 'triggers', tgname::text from pg_trigger, t where tgrelid = t.oid and not tgisinternal
  union all select 4, 'rules', rulename::text from pg_rewrite, t where ev_class = t.oid and rulename <> '_RETURN'
  union all select 5, 'publications', p.pubname::text from pg_publication_tables p, t
    where (p.schemaname, p.tablename) = ((select nspname from pg_namespace where oid = t.relnamespace), t.relname)
  union all select 6, 'another owner', pg_get_userbyid(relowner)::text from t
    where pg_get_userbyid(relowner) <> current_user
  union all select 7, 'privileges on columns', attname::text from pg_attribute, t where attrelid = t.oid and attacl is not null
  union all select 8, 'privileges granted by others or withdrawn from the owner', null from t
    where exists (select from aclexplode(t.relacl) x where x.grantor <> t.relowner)
       or t.relacl is not null and exists (
         select x.privilege_type from aclexplode(acldefault('r', t.relowner)) x
         except select x.privilege_type from aclexplode(t.relacl) x where x.grantee = t.relowner)
  union all select 8, 'default privileges of new tables', null from t
    where exists (select from pg_default_acl d where d.defaclobjtype = 'r'
      and pg_get_userbyid(d.defaclrole) = current_user and d.defaclnamespace in (0, t.relnamespace))
  union all select 9, 'a comment', null from t where obj_description(t.oid, 'pg_class') is not null
  union all select 10, 'storage options', coalesce(t.reloptions::text, x.reloptions::text)
    from t left join pg_class x on x.oid = t.reltoastrelid
    where t.reloptions is not null or x.reloptions is not null
  union all select 11, 'a replica identity', null from t where relreplident <> 'd'
  union all select 12, 'identity columns', attname::text from pg_attribute, t
    where attrelid = t.oid and attidentity <> '' and not attisdropped
  union all select 13, 'partitions', null from t where relkind = 'p'
  union all select 14, 'a parent table', inhparent::regclass::text from pg_inherits, t where inhrelid = t.oid
  union all select 15, 'child tables', inhrelid::regclass::text from pg_inherits, t where inhparent = t.oid and relkind <> 'p'
  union all select 16, 'foreign keys of other tables', conrelid::regclass::text || '.' || conname from pg_constraint, t
    where confrelid = t.oid and contype = 'f' and conrelid <> t.oid and conparentid = 0
  union all select 17, 'foreign keys', conname::text from pg_constraint, t where conrelid = t.oid and contype = 'f'
  union all select 18, 'constraints that are not validated', conname::text from pg_constraint, t
    where conrelid = t.oid and not convalidated
  union all select 19, 'that it is unlogged', null from t where relpersistence = 'u'
  union all select 20, 'a tablespace', spcname::text from pg_tablespace s, t where s.oid = t.reltablespace
  union all select 21, 'an access method', amname::text from pg_am m, t
    where m.oid = t.relam and amname <> current_setting('default_table_access_method')
  union all select 22, 'a composite type', reloftype::regtype::text from t where reloftype <> 0
  union all select 23, 'statistics targets and options of columns', attname::text from pg_attribute, t
    where attrelid = t.oid and attnum > 0 and not attisdropped and (attstattarget >= 0 or attoptions is not null)
  union all select 24, 'extended statistics', stxname::text from pg_statistic_ext, t where stxrelid = t.oid
  union all select 25, 'security labels', provider from pg_seclabel, t
    where classoid = 'pg_class'::regclass and objoid = t.oid
  union all select 26, 'a clustering index', indexrelid::regclass::text from pg_index, t
    where indrelid = t.oid and indisclustered
  union all select 27, 'an extension', pg_describe_object(d.refclassid, d.refobjid, 0) from pg_depend d, t
    where d.classid = 'pg_class'::regclass and d.objid = t.oid and d.deptype = 'e'
  union all select 28, 'dependent objects',
    coalesce((select pg_describe_object('pg_class'::regclass, r.ev_class, 0) from pg_rewrite r
              where d.classid = 'pg_rewrite'::regclass and r.oid = d.objid),
             pg_describe_object(d.classid, d.objid, d.objsubid))
    from t join pg_depend d on d.deptype = 'n' and (
      d.refclassid = 'pg_class'::regclass and d.refobjid = t.oid
      or d.refclassid = 'pg_type'::regclass and d.refobjid in (
        select y.oid from pg_type y where y.typrelid = t.oid
        union all select y.typarray from pg_type y where y.typrelid = t.oid))
    where not (d.classid = 'pg_constraint'::regclass and exists (
        select from pg_constraint c where c.oid = d.objid and (c.conrelid = t.oid or c.confrelid = t.oid)))
      and not (d.classid = 'pg_attrdef'::regclass and exists (
        select from pg_attrdef a where a.oid = d.objid and a.adrelid = t.oid))
      and not (d.classid = 'pg_class'::regclass and (d.objid = t.oid or exists (
        select from pg_index i where i.indexrelid = d.objid and i.indrelid = t.oid)))
      and not (d.classid = 'pg_trigger'::regclass and exists (
        select from pg_trigger g where g.oid = d.objid and g.tgrelid = t.oid))
      and not (d.classid = 'pg_policy'::regclass and exists (
        select from pg_policy p where p.oid = d.objid and p.polrelid = t.oid))
      and not (d.classid = 'pg_rewrite'::regclass and exists (
        select from pg_rewrite r where r.oid = d.objid and r.ev_class = t.oid))
      and not (d.classid = 'pg_statistic_ext'::regclass)
      and not (d.classid = 'pg_publication_rel'::regclass)
)
select kind, name from losses group by rank, kind, name order by rank, name";

/// Key of the rows that foreign keys of other tables refer to (unless it leaves out a column that only the
/// server assigns, which no UPDATE can set), whether the table is published with all
/// tables of its schema or database, the columns that are always generated as identities, and whether
/// it is partitioned.
const FACTS: &str = "
with t as (select * from pg_class where oid = $1::regclass)
select (select array_agg(a.attname::text order by k.ord)
        from (select indkey, indnkeyatts from pg_index
              where indrelid = t.oid and indisunique and indpred is null and indexprs is null
                and indisvalid and indimmediate
                and exists (select from pg_constraint f where f.contype = 'f' and f.confrelid = t.oid
                              and f.conrelid <> t.oid)
              order by exists (select from pg_attribute a where a.attrelid = t.oid and a.attidentity = 'a'
                               and not a.attisdropped and a.attnum <> all (indkey)),
                       exists (select from pg_constraint f where f.contype = 'f' and f.confrelid = t.oid
                               and f.conrelid <> t.oid and f.conindid = indexrelid) desc,
                       indisprimary desc, indexrelid limit 1) i,
             unnest(i.indkey::int2[]) with ordinality k(att, ord)
        join pg_attribute a on a.attrelid = t.oid and a.attnum = k.att
        where k.ord <= i.indnkeyatts),
       exists (select from pg_publication_tables p
               where (p.schemaname, p.tablename) = ((select nspname from pg_namespace where oid = t.relnamespace), t.relname)
                 and not exists (select from pg_publication_rel r join pg_publication q on q.oid = r.prpubid
                                 where r.prrelid = t.oid and q.pubname = p.pubname)),
       (select coalesce(array_agg(attname::text), '{}') from pg_attribute where attrelid = t.oid and attidentity = 'a'),
       relkind = 'p'
from t";

impl Kept {
    /// Looks up what a swap of a table would lose.
    pub(super) async fn of(client: &Client, name: &TableName) -> Result<Self> {
        let regclass = literal(&name.sql());
        let (reasons, facts) = (REASONS.replace("$1", &regclass), FACTS.replace("$1", &regclass));
        let asked = futures_util::future::try_join(
            client.query_typed(&reasons, &[]),
            client.query_typed_opt(&facts, &[]),
        );
        let (rows, facts) =
            asked.await.map_err(|error| refused(format!("look up {name}"), error))?;
        let mut kept = Self::default();
        for row in rows {
            let (kind, name): (String, Option<String>) = (row.get(0), row.get(1));
            match kept.reasons.last_mut() {
                Some((last, names)) if *last == kind => names.extend(name),
                _ => kept.reasons.push((kind, name.into_iter().collect())),
            }
        }
        if let Some(facts) = facts {
            kept.key = facts.get(0);
            kept.is_published_with_all = facts.get(1);
            kept.assigned = facts.get(2);
            kept.is_partitioned = facts.get(3);
        }
        Ok(kept)
    }

    /// Whether a swap would lose something.
    pub(super) fn forbids_swap(&self) -> bool {
        !self.reasons.is_empty()
    }

    /// What a swap would lose, in words.
    pub(super) fn reasons(&self) -> String {
        let shown = self.reasons.iter().map(|(kind, names)| {
            let more = names.len().saturating_sub(NAMES_MAX);
            let listed = names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
            match (names.is_empty(), more) {
                (true, _) => kind.clone(),
                (false, 0) => format!("{kind} ({listed})"),
                (false, more) => format!("{kind} ({listed} and {more} more)"),
            }
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    /// The lock under which the rows are replaced: readers need not wait where rows with the same key
    /// stay.
    pub(super) fn lock(&self) -> &'static str {
        if self.key.is_some() { "share row exclusive" } else { "access exclusive" }
    }

    /// The statements that remove rows: those whose key is gone, or all.
    pub(super) fn empty(
        &self,
        name: &TableName,
        staged: &TableName,
        written: &[&str],
    ) -> Vec<String> {
        let (table, aside, only) = (name.sql(), staged.sql(), self.only());
        let Some(key) = self.key_of(written) else {
            return vec![format!("truncate {only}{table}")];
        };
        vec![format!(
            "delete from {only}{table} t where not exists (select from {aside} s where {})",
            same(&key)
        )]
    }

    /// The UPDATE of rows with the same key that have changed; `None` if rows do not stay.
    pub(super) fn update(
        &self,
        name: &TableName,
        staged: &TableName,
        written: &[&str],
    ) -> Option<String> {
        let (table, aside, only) = (name.sql(), staged.sql(), self.only());
        let key = self.key_of(written)?;
        let is_set =
            |name: &&&str| !(self.assigned.iter().any(|of| of == **name) && key.contains(name));
        let set: Vec<&str> = written.iter().filter(is_set).copied().collect();
        if set.is_empty() {
            return None;
        }
        let list = |of: &str| {
            let names = set.iter().map(|name| format!("{of}.{}", ident(name)));
            names.collect::<Vec<_>>().join(", ")
        };
        let (old, new) = (list("t"), list("s"));
        let pairs: Vec<String> =
            set.iter().map(|name| format!("{0} = s.{0}", ident(name))).collect();
        // By their bytes: not every type can be compared for equality.
        Some(format!(
            "update {only}{table} t set {} from {aside} s where {} \
             and row({old})::record *<> row({new})::record",
            pairs.join(", "),
            same(&key)
        ))
    }

    /// The INSERT of the rows of the staging table.
    pub(super) fn insert(&self, name: &TableName, staged: &TableName, written: &[&str]) -> String {
        let names = idents(written.iter().copied());
        let mut insert = format!(
            "insert into {} ({names}) overriding system value select {names} from {} s",
            name.sql(),
            staged.sql()
        );
        if let Some(key) = self.key_of(written) {
            insert.push_str(&format!(
                " where not exists (select from {}{} t where {})",
                self.only(),
                name.sql(),
                same(&key)
            ));
        }
        insert
    }

    /// The query for the number of rows of the table.
    pub(super) fn count(&self, name: &TableName) -> String {
        format!("select count(*) from {}{}", self.only(), name.sql())
    }

    /// Rows of tables that inherit from this one are not its own; those of partitions are.
    fn only(&self) -> &'static str {
        if self.is_partitioned { "" } else { "only " }
    }

    /// The key by which rows stay, if all its columns are written.
    fn key_of<'a>(&'a self, written: &[&str]) -> Option<Vec<&'a str>> {
        let key = self.key.as_ref()?;
        key.iter()
            .all(|name| written.contains(&name.as_str()))
            .then(|| key.iter().map(String::as_str).collect())
    }

    /// Whether rows with the same key stay.
    pub(super) fn keeps_rows(&self) -> bool {
        self.key.is_some()
    }

    /// The key that other tables refer to and that is not written, so that no row would be
    /// recognised.
    pub(super) fn missing_key(&self, written: &[&str]) -> Option<&[String]> {
        self.key.as_deref().filter(|_| self.key_of(written).is_none())
    }
}

/// Whether rows of `s` and `t` have the same key.
fn same(key: &[&str]) -> String {
    let pairs = key.iter().map(|name| format!("s.{0} = t.{0}", ident(name)));
    pairs.collect::<Vec<_>>().join(" and ")
}

/// Renames the indexes of the staging table to those of the table, once that is dropped. `None` if they
/// do not correspond.
pub(super) async fn index_names(
    client: &Client,
    name: &TableName,
    staged: &TableName,
) -> Result<Option<Vec<String>>> {
    let (table, aside) = (literal(&name.sql()), literal(&staged.sql()));
    let parts: Vec<String> =
        INDEX_NAMES.split("$2").map(|part| part.replace("$1", &table)).collect();
    let query = parts.join(&aside);
    let rows = client.query_typed(&query, &[]).await;
    let rows = rows.map_err(|error| refused(format!("look up the indexes of {name}"), error))?;
    let mut renames = Vec::with_capacity(rows.len());
    for row in rows {
        let (old, new): (String, Option<String>) = (row.get(0), row.get(1));
        let Some(new) = new else { return Ok(None) };
        renames.push(format!(
            "alter index {}.{} rename to {}",
            ident(&name.schema),
            ident(&new),
            ident(&old)
        ));
    }
    Ok(Some(renames))
}

/// Each index of the table and the one of the staging table with the same definition.
const INDEX_NAMES: &str = "
with x as (
  select i.indrelid, c.relname, i.indisunique, i.indisprimary, i.indisexclusion,
         substr(pg_get_indexdef(c.oid), length(format('CREATE %sINDEX %I ON %I.%I ',
           case when i.indisunique then 'UNIQUE ' else '' end, c.relname, n.nspname, t.relname)) + 1) as def,
         exists (select from pg_constraint k where k.conindid = c.oid and k.contype in ('p', 'u', 'x')) as of_constraint
  from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
  join pg_namespace n on n.oid = t.relnamespace
  where i.indrelid in ($1::regclass, $2::regclass)
), numbered as (
  select *, row_number() over (partition by indrelid, def, indisunique, indisprimary, indisexclusion, of_constraint
                               order by relname) as nth from x
)
select o.relname::text, n.relname::text
from numbered o left join numbered n on n.indrelid = $2::regclass
  and (n.def, n.indisunique, n.indisprimary, n.indisexclusion, n.of_constraint, n.nth)
    = (o.def, o.indisunique, o.indisprimary, o.indisexclusion, o.of_constraint, o.nth)
where o.indrelid = $1::regclass order by 1";

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(reasons: &[(&str, &[&str])]) -> Kept {
        let named = |(kind, names): &(&str, &[&str])| {
            ((*kind).to_owned(), names.iter().map(|name| (*name).to_owned()).collect())
        };
        Kept { reasons: reasons.iter().map(named).collect(), ..Kept::default() }
    }

    #[test]
    fn reasons_name_a_few_objects_of_each_kind() {
        assert!(!kept(&[]).forbids_swap());
        let kept = kept(&[
            ("a comment", &[]),
            ("triggers", &["a", "b"]),
            ("rules", &["1", "2", "3", "4"]),
        ]);
        assert_eq!(kept.reasons(), "a comment, triggers (a, b), rules (1, 2, 3 and 1 more)");
    }

    #[test]
    fn rows_with_the_same_key_stay_where_others_refer_to_them() {
        let (name, staged) = (TableName::new("public", "t"), TableName::new("public", "s"));
        let mut kept = Kept { key: Some(vec!["id".into()]), ..Kept::default() };
        kept.assigned = vec!["id".into()];
        let mut statements = kept.empty(&name, &staged, &["id", "v"]);
        statements.extend(kept.update(&name, &staged, &["id", "v"]));
        assert_eq!(
            statements,
            [
                "delete from only \"public\".\"t\" t where not exists (select from \"public\".\"s\" s where \
                 s.\"id\" = t.\"id\")",
                "update only \"public\".\"t\" t set \"v\" = s.\"v\" from \"public\".\"s\" s where \
                 s.\"id\" = t.\"id\" and row(t.\"v\")::record *<> row(s.\"v\")::record",
            ]
        );
        // Without the key among the columns there is nothing to recognise them by.
        assert_eq!(kept.empty(&name, &staged, &["v"]), ["truncate only \"public\".\"t\""]);
        assert_eq!(kept.update(&name, &staged, &["v"]), None);
    }
}
