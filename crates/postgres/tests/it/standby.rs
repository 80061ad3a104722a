//! Standby servers: what can be read from one, and what a promotion may have lost.

use forebay_sdk::connector::{Destination as _, Division, Result};
use forebay_sdk::run::Context;
use serde_json::json;

use crate::copying::{self, Copy, Databases, chain};
use crate::pg::Postgres;
use crate::source::{Reader, TABLE, divided, incremental, read};

/// Stops the stream from a standby's primary: what that writes from now on is lost in a promotion.
fn cut(standby: &Postgres) {
    standby.query("alter system set primary_conninfo = ''");
    standby.query("select pg_reload_conf()");
    while standby.query("select count(*) from pg_stat_wal_receiver") != "0" {}
}

/// The rows of a stream, whose units are tried again as in a run.
fn rows(
    reader: &Reader,
    stream: &std::sync::Arc<dyn forebay_sdk::connector::SourceStream>,
) -> Result<u64> {
    loop {
        match reader.rows(stream) {
            Err(error) if error.is_retryable() => {}
            ended => return ended,
        }
    }
}

#[test]
fn a_standby_is_read_completely_in_one_snapshot_and_not_incrementally() {
    let Some(pg) = crate::pg::postgres() else { return };
    let (_, stream) = divided(&pg);
    pg.query("begin; insert into t values (-1, 'late'); prepare transaction 'late'");
    let standby = pg.standby();
    let reader = Reader::new(&standby, "1ms");
    for division in [Division::Any, Division::Stable] {
        let opened = reader.open_sized(&stream, None, division, 4 << 20).unwrap();
        assert!(opened.units().len() > 4);
        pg.query("insert into t select max(id) + 1, 'later' from t");
        standby.catch_up(&pg);
        assert_eq!(reader.rows(&opened).unwrap(), 30_000, "and no later rows");
        pg.query("delete from t where v = 'later'");
        standby.catch_up(&pg);
    }
    for field in ["id", "v"] {
        let stream = json!({ "name": "t", "sync_mode": "incremental", "cursor_field": field });
        let refused = reader.open(&stream, None, Division::Stable).err().unwrap().to_string();
        assert!(refused.contains("cannot be read incrementally from a standby"), "{refused}");
        assert!(refused.contains("sync_mode: full_refresh"), "{refused}");
    }
}

#[test]
fn what_a_standby_cancels_for_its_primary_is_read_again_or_refused() {
    let Some(pg) = crate::pg::postgres() else { return };
    let (_, stream) = divided(&pg);
    let standby = pg.standby();
    standby.query("alter system set max_standby_streaming_delay = 0");
    standby.query("select pg_reload_conf()");
    let reader = Reader::new(&standby, "5s");
    let stable = reader.open_sized(&stream, None, Division::Stable, 4 << 20).unwrap();
    let by_pages = reader.open_sized(&stream, None, Division::Any, 4 << 20).unwrap();
    let whole = reader.open(&stream, None, Division::Whole).unwrap();
    // Rows that the snapshots still see are removed.
    pg.query("delete from t where id = 1");
    pg.query("vacuum t");
    standby.catch_up(&pg);
    assert_eq!(rows(&reader, &stable).unwrap(), 29_999);
    assert_eq!(rows(&reader, &whole).unwrap(), 29_999);
    let error = rows(&reader, &by_pages).unwrap_err();
    assert!(error.to_string().contains("run again"), "{error}");
}

#[test]
fn a_promoted_standby_is_read_incrementally_and_what_is_prepared_there_is_waited_for() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(&format!("create table t {TABLE}; insert into t (v) values ('a')"));
    let (rows, first) = read(&Reader::new(&pg, "1ms"), &incremental("t"), None);
    assert_eq!(rows, 1);
    pg.query("begin; insert into t (v) values ('late'); prepare transaction 'late'");
    let standby = pg.standby();
    pg.query("insert into t (v) values ('early')");
    standby.catch_up(&pg);
    pg.kill();
    standby.promote();
    let reader = Reader::new(&standby, "1ms");
    for field in ["id", "at"] {
        let stream = json!({ "name": "t", "sync_mode": "incremental", "cursor_field": field });
        let error = reader.open(&stream, None, Division::Stable).err().unwrap();
        assert!(error.to_string().contains("a prepared transaction"), "{error}");
    }
    standby.query("commit prepared 'late'");
    let (rows, second) = read(&reader, &incremental("t"), first.as_ref());
    assert_eq!(rows, 2);
    assert_eq!(second.unwrap().timeline, Some(2));
}

#[test]
fn a_promoted_standby_that_lost_rows_which_were_read_is_refused() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(&format!(
        "create table t {TABLE}; create table tied (n int);
         insert into t (v) values ('a'); insert into tied values (1), (2)"
    ));
    let standby = pg.standby();
    standby.catch_up(&pg);
    let kept = read(&Reader::new(&pg, "5s"), &incremental("t"), None).1;
    cut(&standby);
    pg.query(
        "insert into t (v) select 'lost' from generate_series(1, 99); insert into tied values (2)",
    );
    let by_n = json!({ "name": "tied", "sync_mode": "incremental", "cursor_field": "n" });
    let (rows, lost) = read(&Reader::new(&pg, "5s"), &incremental("t"), None);
    let (_, tied) = read(&Reader::new(&pg, "5s"), &by_n, None);
    assert_eq!((rows, tied.as_ref().unwrap().rows_at), (100, Some(2)));
    pg.kill();
    standby.promote();
    // A row with a value that was read already.
    standby.query("insert into t (v) values ('other')");
    assert_eq!(standby.query("select max(id) < 100 from t"), "t");
    let reader = Reader::new(&standby, "5s");
    for (stream, since) in [(incremental("t"), &lost), (by_n, &tied)] {
        for division in [Division::Stable, Division::Any] {
            let refused = reader.open(&stream, since.as_ref(), division).err().unwrap();
            let refused = refused.to_string();
            assert!(refused.contains("promoted or restored since the last run"), "{refused}");
            assert!(refused.contains("forebay pipeline reset"), "{refused}");
        }
    }
    assert_eq!(read(&reader, &incremental("t"), kept.as_ref()).0, 1, "nothing of it was lost");
}

#[test]
fn a_destination_that_loses_a_unit_in_a_promotion_gets_it_again() {
    let Some(databases) = Databases::new() else { return };
    databases.src(
        "create table t (id int primary key, v text);
         insert into t select g, repeat('v', 1000) from generate_series(1, 30000) g; analyze t",
    );
    let mut copy = Copy::new(json!({ "name": "t" }), "t", json!({}));
    (copy.division, copy.unit_size) = (Division::Stable, 8 << 20);
    let (context, _cancel) = Context::new("test");
    let standby = databases.pg.standby();
    let write = async |databases: &Databases, copy: &Copy, units: std::ops::Range<usize>| {
        let (stream, target) = copy.open(databases, &context).await.unwrap();
        let load = copying::load("load-1", &*stream);
        target.prepare(&load).await.unwrap();
        for unit in units {
            let written = copying::unit(&stream, &target, &load, unit, &context).await.unwrap();
            written.commit(copy.entry(&load, unit)).await.unwrap();
        }
        (load, target)
    };
    let (load, _) = databases.runtime.block_on(write(&databases, &copy, 0..1));
    assert!(load.units.len() > 2);
    standby.catch_up(&databases.pg);
    // A standby is no destination: nothing can be written.
    let Databases { pg, runtime } = databases;
    let mut stands = Databases { pg: standby, runtime };
    let refused = stands.runtime.block_on(copy.run(&stands, "load-2")).unwrap_err();
    assert!(chain(&refused).contains("read-only"), "{}", chain(&refused));
    cut(&stands.pg);
    let primary = Databases { pg, runtime: stands.runtime };
    copy.division = Division::As(load.units.clone());
    primary.runtime.block_on(write(&primary, &copy, 1..2));
    assert_eq!(primary.dst("select count(*) from forebay.pipeline_ledger"), "2");
    primary.pg.kill();
    stands = Databases { pg: stands.pg, runtime: primary.runtime };
    stands.pg.promote();
    let destination = stands.destination("postgres");
    let last = stands.runtime.block_on(destination.last_load(&copy.settings())).unwrap();
    assert_eq!(last.unwrap().1.len(), 1, "the ledger has lost what the table has lost");
    stands.runtime.block_on(async {
        let (load, target) = write(&stands, &copy, 1..load.units.len()).await;
        target.finish(&load).await.unwrap();
    });
    assert_eq!(stands.dst("select count(*), count(distinct id) from t"), "30000|30000");
}
