//! Following tables without a key: rows that are the same are not confused with others, and each counts.

use forebay_testing::Postgres;

use super::pipeline_feed::{kill_rounds, killed_after};
use super::pipeline_pg::{Pipeline, two_databases};
use super::support::{run, stderr};

const STREAMS: &str = "[{name: k, sync_mode: cdc}]";
const APPLY: &str = "  write_mode: upsert";

/// A table with rows that are the same, NULLs, values that are equal and differ, and types without equality.
const TABLE: &str = "
create table k (a int, t text, n numeric, j json, p point, large text);
alter table k replica identity full; alter table k alter large set storage external;
insert into k select g % 3, case when g % 4 = 0 then null when g % 4 = 1 then '' else 'v' end,
  case when g % 2 = 0 then 1.5 else 1.50 end, ('{\"a\": ' || g % 2 || '}')::json, point(g % 2, 0),
  case when g % 5 = 0 then repeat(md5('x'), 200) end from generate_series(1, 60) g";

fn is_same(pg: &Postgres) {
    let rows = "select coalesce(string_agg(r::text, '\n' order by r::text), '') from k r";
    assert_eq!(pg.query("dst", rows), pg.query("src", rows));
}

/// Changes of rows that are picked by their places, as a program can do it that has no key.
const PICKED: [&str; 9] = [
    "delete from k where ctid = (select min(ctid) from k where a = 1 and t = 'v')",
    "delete from k where ctid = (select max(ctid) from k where t is null)",
    "delete from k where ctid = (select min(ctid) from k where t = '')",
    "update k set n = 1.500 where ctid = (select min(ctid) from k where n::text = '1.50')",
    "update k set t = null where ctid = (select min(ctid) from k where t = 'v')",
    "update k set a = null, j = '{\"a\":1}' where ctid in (select ctid from k order by ctid limit 3)",
    "update k set a = coalesce(a, 0) + 1",
    "insert into k select * from k order by ctid limit 4; update k set p = point(p[1], p[0]) where ctid = (select max(ctid) from k)",
    "insert into k default values; insert into k default values; delete from k where ctid = (select max(ctid) from k)",
];

#[test]
pub(crate) fn a_table_without_a_key_is_followed_row_by_row() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", TABLE);
    let pipeline = Pipeline::new(&pg, STREAMS, APPLY, "resources: {max_memory: 1MiB}");
    pipeline.run();
    is_same(&pg);
    for changes in PICKED {
        pg.query("src", changes);
        pipeline.run();
        is_same(&pg);
    }
    for changes in [
        "begin; delete from k where ctid = (select min(ctid) from k where t = 'v'); insert into k (a) values (77), (77), (77); \
         update k set t = 'u' where ctid = (select min(ctid) from k where a = 77); delete from k where ctid = (select max(ctid) from k where a = 77); commit",
        "begin; insert into k (a) values (1); truncate k; insert into k (a, t) select g % 2, null from generate_series(1, 9) g; \
         delete from k where ctid = (select min(ctid) from k where a = 1); commit",
        "alter table k add extra int default 5; update k set extra = 6 where ctid = (select min(ctid) from k); insert into k (a) values (0)",
        "alter table k rename t to text; delete from k where ctid = (select max(ctid) from k where extra = 5)",
        // In several parts, of which later ones concern what earlier ones did.
        "begin; insert into k (a, large) select g % 50, repeat('w', 300) from generate_series(1, 4000) g; \
         update k set a = a + 1 where a % 2 = 0; delete from k where ctid in (select min(ctid) from k group by a); \
         update k set large = null where a = 7; commit",
    ] {
        pg.query("src", changes);
        pipeline.run();
        is_same(&pg);
    }
    // An index of the destination forbids rows on the way.
    pg.query("src", "truncate k; insert into k (a) values (1), (2), (3)");
    pipeline.run();
    pg.query("dst", "create unique index once on k (a)");
    pg.query("src", "update k set a = 4 - a; update k set a = 9 where a = 1");
    pipeline.run();
    is_same(&pg);
    let verified = run(&pipeline.dir, &["pipeline", "verify", "p.yaml"]);
    assert!(verified.status.success(), "{}", stderr(&verified));
    pg.query("dst", "delete from k where a = 9");
    pg.query("src", "delete from k where a = 9");
    pipeline.fails("0 rows would be updated or deleted, and the source has 1");
}

#[test]
pub(crate) fn a_run_that_follows_a_table_without_a_key_may_be_killed() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", TABLE);
    let pipeline = Pipeline::new(&pg, STREAMS, APPLY, "");
    pipeline.run();
    let mut random = forebay_base::fs::sim::Rng::new(11);
    for _ in 0..kill_rounds(8) {
        killed_after(&pipeline, || {
            for _ in 0..random.below(12) {
                let picked = PICKED[random.below(PICKED.len())];
                let other = PICKED[random.below(6)];
                pg.query("src", &format!("begin; {picked}; {other}; commit"));
            }
        });
    }
    pipeline.run();
    is_same(&pg);
}

#[test]
pub(crate) fn a_log_of_a_table_without_a_key_has_all_values_before_a_change() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table k (a int, t text); alter table k replica identity full; insert into k values (1, 'x'), (1, 'x'), (2, null)");
    let pipeline = Pipeline::new(&pg, STREAMS, "  write_mode: append", "");
    pipeline.run();
    pg.query("src", "update k set t = 'y' where ctid = (select min(ctid) from k where a = 1); update k set a = 3 where a = 2; delete from k where t = 'x'");
    pipeline.run();
    let log = "select string_agg(concat_ws('|', _operation, coalesce(a::text, '-'), coalesce(t, '-'),
                 coalesce(_before_a::text, '-'), coalesce(_before_t, '-')), ' ' order by _number) from k where _operation <> 'copy'";
    let position = "select count(distinct _position) from k where _operation <> 'copy'";
    assert_eq!(pg.query("dst", position), "1");
    assert_eq!(pg.query("dst", log), "update|1|y|1|x update|3|-|2|- delete|1|x|-|-");
}

#[test]
pub(crate) fn a_table_whose_changes_do_not_name_their_rows_is_refused() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table k (a int); insert into k values (1)");
    let pipeline = Pipeline::new(&pg, STREAMS, APPLY, "");
    pipeline.fails("set `replica identity using index` or `replica identity full`");
    pg.query("src", "alter table k replica identity full");
    pipeline.write(&pg, STREAMS, "  write_mode: upsert\n  deleted_rows: mark", "");
    pipeline.fails("has no key: a deleted row could not be found again");
    let path = pipeline.dir.path().join("dst.sqlite");
    let file = std::fs::read_to_string(pipeline.dir.path().join("p.yaml")).unwrap();
    let (source, _) = file.split_once("destination:").unwrap();
    let sqlite = format!(
        "{source}destination:\n  use: sqlite\n  config: {{path: '{}'}}\n{APPLY}\n",
        path.display()
    );
    std::fs::write(
        pipeline.dir.path().join("p.yaml"),
        sqlite.replace("pipeline: p", "pipeline: q"),
    )
    .unwrap();
    pipeline.fails("has no key, by which this destination could find its rows");
}
