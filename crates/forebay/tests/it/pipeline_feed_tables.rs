//! Following tables that are renamed, replaced by others of their name, taken out of the publication, get partitions with
//! rows, or get columns whose values the log does not have.

use std::process::Stdio;

use serde_json::{Value, json};

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

#[test]
fn a_publication_that_left_out_operations_for_a_while_is_noticed() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key, v text); insert into t values (1, 'a')");
    let pipeline = following(&pg, &["t"]);
    pipeline.run();
    pg.query("src", "alter publication forebay_p set (publish = 'insert, update')");
    pg.query("src", "delete from t; insert into t values (2, 'b')");
    pipeline.fails("the publication of public.t was altered");
    pg.query(
        "src",
        "alter publication forebay_p set (publish = 'insert, update, delete, truncate')",
    );
    pipeline.fails("the publication of public.t was altered");
    from_scratch(&pipeline);
    is_same(&pg, "t");
    // Further tables do not alter it.
    pg.query("src", "create table u (id int primary key); insert into t values (3, 'c')");
    pipeline.write(&pg, "[{name: t, sync_mode: cdc}, {name: u, sync_mode: cdc}]", APPLY, "");
    pipeline.run();
    pg.query("src", "insert into u values (1); insert into t values (4, 'd')");
    pipeline.run();
    is_same(&pg, "t");
    is_same(&pg, "u");
}

#[test]
fn a_schema_that_was_not_published_for_a_while_is_noticed() {
    let Some(pg) = two_databases() else { return };
    if pg.query("src", "show server_version_num").parse::<u32>().unwrap() < 150_000 {
        return;
    }
    pg.query(
        "src",
        "create table t (id int primary key, v text); insert into t values (1, 'a');
         create publication given for tables in schema public",
    );
    let pipeline = following(&pg, &["t"]);
    pipeline
        .edit(|text| text.replacen("user: postgres}", "user: postgres, publication: given}", 1));
    pipeline.run();
    pg.query("src", "insert into t values (2, 'b')");
    pipeline.run();
    is_same(&pg, "t");
    for (alter, found) in [
        ("drop", "public.t was taken out of the publication;"),
        ("add", "public.t was taken out of the publication and added again"),
    ] {
        pg.query("src", &format!("alter publication given {alter} tables in schema public"));
        pg.query("src", "update t set v = v || 'x'");
        pipeline.fails(found);
    }
    from_scratch(&pipeline);
    is_same(&pg, "t");
}

#[test]
fn columns_whose_values_the_log_does_not_have_are_refused() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table t (id int primary key, v text, twice int generated always as (id * 2) stored);
         insert into t select g, 'v' from generate_series(1, 9) g",
    );
    let pipeline = following(&pg, &["t"]);
    pipeline.run();
    for (at, changes, found) in [
        // Each text is one transaction.
        (
            10,
            &["alter table t alter twice drop expression"][..],
            "\"twice\" of public.t was computed",
        ),
        (
            11,
            &[
                "alter table t add a timestamptz default clock_timestamp()",
                "alter table t alter a drop default",
            ],
            "\"a\" of public.t was added, and the table was rewritten",
        ),
        (
            12,
            &["alter table t add b int default random() * 9; alter table t alter b drop default"],
            "\"b\" of public.t was added, and the table was rewritten",
        ),
        (
            13,
            &[
                "alter table t add c int default 5",
                "alter table t alter c drop default",
                "vacuum full t",
            ],
            "\"c\" of public.t was added, and the table was rewritten",
        ),
    ] {
        for change in changes {
            pg.query("src", change);
        }
        pg.query("src", &format!("insert into t (id) values ({at})"));
        for _ in 0..2 {
            pipeline.fails(found);
        }
        from_scratch(&pipeline);
        is_same(&pg, "t");
    }
    // What is added later as a generated column.
    pg.query("src", "alter table t add d int generated always as (id * 3) stored; insert into t (id) values (20)");
    pipeline.run();
    pg.query("src", "alter table t alter d drop expression; insert into t (id) values (21)");
    pipeline.fails("\"d\" of public.t was added, and the table was rewritten");
    from_scratch(&pipeline);
    is_same(&pg, "t");
}

#[test]
fn columns_that_are_added_to_a_table_that_was_rewritten_are_followed() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table t (id int primary key, v text) partition by range (id);
         create table low partition of t for values from (0) to (100);
         create table high partition of t for values from (100) to (200);
         create table u (id int primary key, v text)",
    );
    let pipeline = following(&pg, &["t", "u"]);
    pipeline.run();
    for name in ["t", "u"] {
        for statement in [
            "insert into {t} values (1, 'a'), (101, 'b')",
            "vacuum full {t}",
            "truncate {t}",
            "insert into {t} values (2, 'a'), (102, 'b')",
            "alter table {t} add w int",
            "update {t} set w = 7 where id = 2",
            "insert into {t} values (3, 'c', 8)",
            "alter table {t} add x int default 5",
            "delete from {t} where id = 102",
            // In one transaction.
            "truncate {t}; alter table {t} add y int; insert into {t} (id, y) values (4, 9), (104, 9)",
        ] {
            pg.query("src", &statement.replace("{t}", name));
        }
        pipeline.run();
        is_same(&pg, name);
    }
}

#[test]
fn what_a_feed_waits_for_before_it_begins_is_named() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key, v text)");
    pg.query("src", "begin; insert into t values (1, 'held'); prepare transaction 'forgotten'");
    let pipeline = following(&pg, &["t"]);
    pipeline.edit(|text| {
        let waits = "user: postgres, wait_for_late_commits: 200ms}";
        let text = text.replacen("user: postgres}", waits, 1);
        format!("{text}resources: {{max_retries: 0}}\n")
    });
    pipeline.fails("did not end within 200ms: the prepared transaction forgotten");
    pg.query("src", "commit prepared 'forgotten'");
    pipeline.run();
    is_same(&pg, "t");
}

#[test]
fn a_plan_copies_only_tables_that_are_not_followed_yet() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key); create table u (id int primary key)");
    let pipeline = following(&pg, &["t"]);
    let copied = || {
        let output = run(&pipeline.dir, &["pipeline", "plan", "p.yaml", "--json"]);
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
        let streams = plan["streams"].as_array().unwrap().iter();
        let copied = streams.filter(|stream| stream["units"] != 0);
        let copied = copied.inspect(|stream| assert_ne!(stream["destination"], json!([])));
        copied.map(|stream| stream["stream"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(copied(), ["t"]);
    pipeline.run();
    assert_eq!(copied(), [""; 0]);
    pipeline.write(&pg, "[{name: t, sync_mode: cdc}, {name: u, sync_mode: cdc}]", APPLY, "");
    assert_eq!(copied(), ["u"]);
}
