//! Databases in other encodings than UTF8: values are converted, or refused by the name of their column,
//! and never altered.

use forebay_sdk::connector::Division;
use serde_json::json;

use crate::copying::{Copy, Databases, chain};

/// Creates a database in an encoding.
fn database(databases: &Databases, name: &str, encoding: &str) {
    databases.pg.query(&format!(
        "create database {name} encoding '{encoding}' template template0 lc_collate 'C' lc_ctype 'C'"
    ));
}

fn from(database: &'static str, stream: serde_json::Value, into: &str) -> Copy {
    Copy { from: (database, "postgres"), ..Copy::new(stream, into, json!({})) }
}

#[test]
fn texts_of_a_latin1_database_arrive_as_the_same_characters() {
    let Some(databases) = Databases::new() else { return };
    database(&databases, "latin", "LATIN1");
    // The encoding in which psql sends the statements below.
    databases.pg.query("alter database latin set client_encoding = 'UTF8'");
    let ask = |sql: &str| forebay_testing::Postgres::query(&databases.pg, "latin", sql);
    let e = "convert_from('\\xe4f6', 'LATIN1')";
    ask(&format!(
        "create type pair as (n int, t text); create type word as range (subtype = text);
         create table t (\"gr\u{f6}\u{df}e\" text primary key, v varchar(2), c char(4), a text[], p pair, j jsonb, x xml,
                         r word, s tsvector, k name, \"raw\" bytea);
         insert into t values ({e}, {e}, {e}, array[{e}, null], row(1, {e}), to_jsonb({e}), xmlparse(content {e}),
                         word({e}, null), {e}::tsvector, {e}::name, '\\xe4')"
    ));
    databases
        .dst("create type pair as (n int, t text); create type word as range (subtype = text)");
    let copy = from("latin", json!({ "name": "t" }), "t");
    databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap();
    let found = databases.dst("select * from t");
    assert_eq!(found, "äö|äö|äö  |{äö,NULL}|(1,äö)|\"äö\"|äö|[äö,)|'äö'|äö|\\xe4",);
    // By its key, whose values are sent back.
    let stream = json!({ "name": "t", "sync_mode": "incremental", "cursor_field": "gr\u{f6}\u{df}e",
                         "columns": ["gr\u{f6}\u{df}e"] });
    let mut copy = from("latin", stream, "k");
    copy.division = Division::Stable;
    let cursor = databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap();
    assert_eq!(cursor.as_ref().unwrap().value, "äö");
    copy.since = cursor;
    ask("insert into t values (convert_from('\\xfc', 'LATIN1'))");
    databases.runtime.block_on(copy.run(&databases, "load-2")).unwrap();
    assert_eq!(
        databases.dst("select string_agg(v, ' ' order by v) from (select * from k) as k(v)"),
        "äö ü"
    );
}

#[test]
fn bytes_of_an_sql_ascii_database_are_refused_with_their_column_unless_they_are_utf8() {
    let Some(databases) = Databases::new() else { return };
    database(&databases, "ascii", "SQL_ASCII");
    let ask = |sql: &str| forebay_testing::Postgres::query(&databases.pg, "ascii", sql);
    ask("create table t (id int primary key, word text); insert into t values (1, 'plain'), (2, 'gr\u{f6}\u{df}er');
         create table latin (id int primary key, word text);
         insert into latin values (1, 'plain'), (2, convert_from('\\xe4', 'SQL_ASCII'));
         create view of_latin as select *, 0 as n from latin");
    let copy = from("ascii", json!({ "name": "t" }), "t");
    databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap();
    assert_eq!(databases.dst("select string_agg(word, ' ' order by id) from t"), "plain größer");
    databases
        .dst("create table records (id int, word text, n int generated always as (id + 1) stored)");
    for (name, into) in [("latin", "latin"), ("of_latin", "records")] {
        let copy = from("ascii", json!({ "name": name }), into);
        let refused = databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap_err();
        let refused = chain(&refused);
        assert!(refused.contains("row 2") && refused.contains("columns word: "), "{refused}");
        assert_eq!(databases.dst(&format!("select count(*) from {into}")), "0");
    }
}

#[test]
fn a_cursor_a_key_or_a_name_that_is_no_utf8_is_an_error() {
    let Some(databases) = Databases::new() else { return };
    database(&databases, "ascii", "SQL_ASCII");
    let ask = |sql: &str| forebay_testing::Postgres::query(&databases.pg, "ascii", sql);
    ask("create table t (word text primary key); insert into t values (convert_from('\\xe4', 'SQL_ASCII'));
         create table wide (word text primary key, v text);
         insert into wide select convert_from('\\xe4', 'SQL_ASCII') || g, repeat('x', 1000) from generate_series(1, 20000) g;
         alter table wide alter v set storage plain; analyze wide;
         do $$ begin execute 'create table named (' || quote_ident(convert_from('\\xe4', 'SQL_ASCII')) || ' int)'; end $$");
    let streams = [
        json!({ "name": "t", "sync_mode": "incremental", "cursor_field": "word" }),
        json!({ "name": "wide", "partition_key": "word" }),
        json!({ "name": "named" }),
    ];
    for stream in streams {
        let mut copy = from("ascii", stream.clone(), "into_it");
        copy.unit_size = 1 << 20;
        let refused = databases.runtime.block_on(copy.run(&databases, "load-1")).unwrap_err();
        let refused = chain(&refused);
        assert!(refused.contains("utf-8") || refused.contains("UTF"), "{stream}: {refused}");
    }
}
