//! Following tables that are renamed, replaced by others of their name, taken out of the publication, or get partitions with
//! rows.

use std::process::Stdio;

use super::pipeline_feed::{following, is_same};
use super::pipeline_pg::{Pipeline, two_databases};
use super::support::{run, stderr};

const APPLY: &str = "  write_mode: upsert";

fn from_scratch(pipeline: &Pipeline) {
    let again = run(&pipeline.dir, &["pipeline", "run", "p.yaml", "--from-scratch"]);
    assert!(again.status.success(), "{}", stderr(&again));
}

#[test]
fn changes_of_a_table_are_followed_while_it_has_another_name() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key, v text); insert into t values (1, 'a')");
    let pipeline = following(&pg, &["t"]);
    pipeline.run();
    pg.query(
        "src",
        "insert into t values (2, 'b'); alter table t rename to u; insert into u values (3, 'c'); \
         update u set v = 'renamed' where id = 1; alter table u add w int; create schema s; \
         alter table u set schema s; insert into s.u values (4, 'd', 4); alter table s.u set schema public; \
         alter table u rename to t; insert into t values (5, 'e', 5)",
    );
    pipeline.run();
    is_same(&pg, "t");
    pg.query("src", "insert into t values (6, 'f'); alter table t rename to u");
    pipeline.fails("there is no table public.t");
    pg.query("src", "insert into u values (7, 'g'); alter table u rename to t");
    pipeline.run();
    is_same(&pg, "t");
}

#[test]
fn a_table_that_replaced_another_one_is_copied_again_and_not_followed() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key, v text); insert into t values (1, 'a')");
    let pipeline = following(&pg, &["t"]);
    pipeline.run();
    let replace = "drop table t; create table t (id int primary key, v text); insert into t values (2, 'unpublished')";
    let publish = "alter publication forebay_p add table t; insert into t values (3, 'c')";
    pg.query("src", replace);
    pipeline.fails("public.t was dropped and created again");
    pg.query("src", publish);
    pipeline.fails("public.t was dropped and created again");
    from_scratch(&pipeline);
    is_same(&pg, "t");
    // While it is followed: the first change of the other table ends the run.
    let mut command = pipeline.command();
    command.arg("--follow").stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    pg.query("src", "insert into t values (4, 'followed')");
    while pg.try_query("dst", "select count(*) from t where id = 4").as_deref() != Some("1") {}
    pg.query("src", replace);
    pg.query("src", publish);
    assert_eq!(running.wait().unwrap().code(), Some(1));
    let streams = "[{name: t, sync_mode: cdc}]\n  on_lost: copy_again";
    pipeline.write(&pg, streams, APPLY, "");
    let report = pipeline.run();
    assert!(report["warnings"].to_string().contains("copied again"), "{report}");
    is_same(&pg, "t");
}

#[test]
fn a_table_that_was_not_published_for_a_while_is_copied_again() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key, v text); insert into t values (1, 'a')");
    let pipeline = following(&pg, &["t"]);
    pipeline.run();
    pg.query("src", "alter publication forebay_p drop table t; insert into t values (2, 'b')");
    pipeline.fails("public.t was taken out of the publication");
    pg.query("src", "alter publication forebay_p add table t; insert into t values (3, 'c')");
    pipeline.fails("public.t was taken out of the publication and added again");
    from_scratch(&pipeline);
    is_same(&pg, "t");
}

#[test]
fn partitions_that_had_rows_before_are_noticed_and_new_ones_are_followed() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table parts (id int, at int, v text, primary key (id, at)) partition by range (at);
         create table early (id int not null, at int not null, v text);
         insert into early values (1, 1, 'early');
         alter table parts attach partition early for values from (0) to (100)",
    );
    let pipeline = following(&pg, &["parts"]);
    pipeline.run();
    is_same(&pg, "parts");
    pg.query(
        "src",
        "create table created partition of parts for values from (100) to (200);
         insert into parts values (2, 150, 'created');
         create table below partition of parts for values from (200) to (300) partition by range (at);
         create table leaf partition of below for values from (200) to (250);
         insert into parts values (3, 201, 'leaf')",
    );
    pipeline.run();
    is_same(&pg, "parts");
    // Each in its own transaction.
    for statement in [
        "create table filled (id int not null, at int not null, v text)",
        "insert into filled values (4, 260, 'filled')",
        "alter table below attach partition filled for values from (250) to (300)",
    ] {
        pg.query("src", statement);
    }
    pipeline.fails("a table was attached to public.parts as a partition");
    from_scratch(&pipeline);
    is_same(&pg, "parts");
    pg.query("src", "insert into parts values (5, 261, 'more')");
    pipeline.run();
    is_same(&pg, "parts");
}

#[test]
fn a_table_from_which_others_inherit_is_refused() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table base (id int primary key); create table heir () inherits (base);
         insert into heir values (1)",
    );
    let pipeline = following(&pg, &["base"]);
    pipeline.fails("other tables inherit from public.base");
    assert_eq!(pg.query("src", "select count(*) from pg_publication"), "0");
}
