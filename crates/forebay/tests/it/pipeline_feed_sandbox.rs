//! Changes that pass through components: the tests of the built-in connectors, with components in their place, and what
//! only components can do wrong. The oracle is psql.

use std::process::Stdio;

use super::pipeline_feed::{following, is_same};
use super::pipeline_pg::{Pipeline, Sandboxed, by_components, two_databases};
use super::pipeline_sandbox::component;
use super::support::{run, run_ok, stderr};
use super::{
    pipeline_feed as feed, pipeline_feed_forms as forms, pipeline_feed_keyless as keyless,
    pipeline_feed_kinds as kinds,
};

/// Tests that are those of another module with components at these ends.
macro_rules! with_components {
    ($($end:ident { $($name:ident = $module:ident::$test:ident;)* })*) => {$($(
        #[test]
        fn $name() {
            by_components(Sandboxed::$end, $module::$test);
        }
    )*)*};
}

with_components! {
    Source {
        a_component_reports_changes_as_the_source_committed_them =
            feed::changes_are_applied_as_the_source_committed_them;
        a_component_reports_a_log_of_every_change = forms::a_log_has_every_change_in_its_order;
    }
    Destination {
        a_component_applies_changes_as_the_source_committed_them =
            feed::changes_are_applied_as_the_source_committed_them;
        a_component_marks_deleted_rows =
            forms::deleted_rows_stay_as_they_were_with_the_time_of_their_deletion;
    }
    Both {
        components_pass_on_changes_as_the_source_committed_them =
            feed::changes_are_applied_as_the_source_committed_them;
        components_apply_a_transaction_that_is_larger_than_the_memory_as_one =
            feed::a_transaction_that_is_larger_than_the_memory_is_applied_as_one;
        components_that_are_killed_at_any_moment_lose_and_repeat_nothing =
            feed::a_run_that_is_killed_at_any_moment_loses_and_repeats_nothing;
        components_follow_columns_that_change = feed::columns_change_while_they_are_followed;
        components_refuse_changes_that_may_be_missing =
            feed::changes_that_may_be_missing_are_refused_and_copied_again_when_asked;
        components_keep_deleted_rows_with_the_time_of_their_deletion =
            forms::deleted_rows_stay_as_they_were_with_the_time_of_their_deletion;
        components_keep_a_log_in_its_order = forms::a_log_has_every_change_in_its_order;
        components_keep_a_log_once_though_they_are_killed =
            forms::a_log_has_every_change_once_though_its_run_is_killed;
        components_copy_again_what_is_lost =
            forms::tables_whose_changes_are_lost_are_copied_again_if_the_file_says_so;
        components_copy_and_follow_tables_that_are_added_later =
            forms::tables_that_are_added_later_are_copied_and_followed;
        components_follow_the_primary_of_several_hosts =
            forms::of_several_hosts_the_primary_is_followed;
        components_pass_on_values_of_every_type = kinds::values_of_every_type_arrive_as_they_are;
        components_follow_tables_of_every_kind = kinds::tables_of_every_kind_are_followed;
        components_keep_the_order_of_commits =
            kinds::transactions_are_applied_in_the_order_of_their_commits;
        components_outlive_a_server_that_is_killed =
            kinds::a_server_that_is_killed_loses_and_repeats_nothing;
        components_follow_what_pgbench_writes =
            kinds::what_pgbench_writes_is_followed_to_the_last_row;
        components_follow_until_they_are_stopped_also_in_the_server =
            kinds::a_run_follows_until_it_is_stopped_also_in_the_server;
        components_follow_a_table_without_a_key_row_by_row =
            keyless::a_table_without_a_key_is_followed_row_by_row;
        components_that_follow_a_table_without_a_key_may_be_killed =
            keyless::a_run_that_follows_a_table_without_a_key_may_be_killed;
        components_keep_a_log_of_a_table_without_a_key =
            keyless::a_log_of_a_table_without_a_key_has_all_values_before_a_change;
    }
}

/// A destination that is blocked for several times as long as the server waits for its receiver.
fn blocked_destination_keeps_its_feed() {
    let Some(pg) = two_databases() else { return };
    pg.query("postgres", "alter system set wal_sender_timeout = '4s'");
    pg.query("postgres", "select pg_reload_conf()");
    pg.query("src", "create table t (id int primary key, v text)");
    let pipeline = following(&pg, &["t"]);
    pipeline.run();
    let mut session = pg.session("dst");
    kinds::send(&mut session, "begin; lock table t in exclusive mode; select 1;\n");
    let held = "select count(*) from pg_locks where relation = 't'::regclass and mode = 'ExclusiveLock' and granted";
    while pg.query("dst", held) != "1" {}
    // More than one unit waits, so nothing more can be received.
    pg.query(
        "src",
        "insert into t select g, repeat(md5(g::text), 30) from generate_series(1, 30000) g",
    );
    pg.query("src", "update t set v = v || 'x'");
    let sender =
        "select coalesce(min(pid), 0) from pg_stat_replication where application_name = 'forebay'";
    let mut command = pipeline.command();
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let blocked = "select count(*) from pg_locks where relation = 't'::regclass and not granted";
    while pg.query("dst", blocked) == "0" {}
    let first = loop {
        let first = pg.query("src", sender);
        if first != "0" {
            break first;
        }
    };
    // The server's clock says when it would have given up three times.
    let begun = pg.query("src", "select clock_timestamp()");
    let later = format!("select clock_timestamp() > '{begun}'::timestamptz + interval '12 s'");
    while pg.query("src", &later) != "t" {
        assert_eq!(pg.query("src", sender), first, "the server ended the connection");
    }
    kinds::send(&mut session, "commit;\n");
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert!(!stderr(&ended).contains("following changes again"), "{}", stderr(&ended));
    is_same(&pg, "t");
    session.kill().unwrap();
    session.wait().unwrap();
}

#[test]
fn a_blocked_destination_does_not_cost_the_connection_to_the_source() {
    blocked_destination_keeps_its_feed();
}

#[test]
fn a_blocked_destination_does_not_cost_a_component_its_connection() {
    by_components(Sandboxed::Both, blocked_destination_keeps_its_feed);
}

#[test]
fn plan_feed_and_drop_slot_ask_the_component() {
    by_components(Sandboxed::Both, || {
        let Some(pg) = two_databases() else { return };
        pg.query("src", "create table t (id int primary key); insert into t values (1)");
        let pipeline = following(&pg, &["t"]);
        let answer = |args: &[&str]| run_ok(&pipeline.dir, args);
        assert!(answer(&["pipeline", "plan", "p.yaml"]).contains("a feed is begun"));
        answer(&["pipeline", "check", "p.yaml"]);
        pipeline.run();
        assert!(answer(&["pipeline", "plan", "p.yaml"]).contains("changes after"));
        let shown = answer(&["pipeline", "feed", "p.yaml", "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["health"]["is_complete"], true, "{shown}");
        // The built-in connectors continue what the components began, and the other way round.
        pg.query("src", "insert into t values (2)");
        pipeline.edit(|text| text.replace("sandbox: true", "sandbox: false"));
        assert_eq!(pipeline.run()["feed"]["changes"], 1);
        pg.query("src", "insert into t values (3)");
        pipeline.edit(|text| text.replace("sandbox: false", "sandbox: true"));
        assert_eq!(pipeline.run()["feed"]["changes"], 1);
        is_same(&pg, "t");
        answer(&["pipeline", "drop-slot", "p.yaml", "--yes"]);
        assert_eq!(pg.query("src", "select count(*) from pg_replication_slots"), "0");
    });
}

#[test]
fn a_component_without_changes_is_refused_for_them() {
    let Some(sequence) = component("sequence") else { return };
    let Some(pg) = two_databases() else { return };
    let pipeline = Pipeline::new(&pg, "[{name: t, sync_mode: cdc}]", "  write_mode: upsert", "");
    run_ok(&pipeline.dir, &["connector", "install", sequence.to_str().unwrap()]);
    pipeline.edit(|text| {
        let (before, after) = text.split_once("  use: postgres\n").unwrap();
        let (_, after) = after.split_once("\n  streams").unwrap();
        format!("{before}  use: wasm:sequence\n  config: {{rows: 10}}\n  streams{after}")
    });
    let refused = run(&pipeline.dir, &["pipeline", "run", "p.yaml"]);
    assert!(!refused.status.success());
    assert!(
        stderr(&refused).contains("wasm:sequence does not report changes"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn a_component_that_fails_ends_its_run_and_the_next_one_continues() {
    by_components(Sandboxed::Both, || {
        let Some(pg) = two_databases() else { return };
        pg.query("src", "create table t (id int primary key, v text)");
        let pipeline = following(&pg, &["t"]);
        pipeline.run();
        pg.query("src", "insert into t values (1, 'a')");
        pg.query(
            "src",
            "insert into t values (2, repeat('x', 40000000)); insert into t values (3, 'c')",
        );
        // Less than the value needs.
        pipeline.edit(|text| {
            text.replace("  sandbox: true\n", "  sandbox: true\n  limits: {max_memory: 32MiB}\n")
        });
        for _ in 0..2 {
            pipeline.fails("limits.max_memory");
        }
        pipeline.edit(|text| text.replace("max_memory: 32MiB", "max_memory: 512MiB"));
        pipeline.run();
        is_same(&pg, "t");
    });
}
