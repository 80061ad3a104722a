//! The destination of pipelines: what columns and names from outside may do to a database.

use forebay_pgcopy::{Column, Wire};
use forebay_postgres::connector::{PostgresDestination, Settings};
use forebay_sdk::connector::{Cursor, Destination as _, Load};
use forebay_sdk::run::Context;
use forebay_sdk::settings::TargetSettings;

fn settings(into: &str) -> TargetSettings {
    let evolution = serde_json::json!({ "type_change": "alter" });
    TargetSettings {
        pipeline: "p".into(),
        stream: into.into(),
        into: into.into(),
        write_mode: forebay_sdk::settings::WriteMode::Append,
        primary_key: Vec::new(),
        on_data_error: forebay_sdk::settings::OnDataError::Fail,
        schema_evolution: serde_json::from_value(evolution).unwrap(),
        load_method: forebay_sdk::settings::LoadMethod::Copy,
        feed: forebay_sdk::settings::FeedForm::Apply,
    }
}

#[test]
fn the_end_of_a_load_stores_its_cursor() {
    let Some(databases) = crate::copying::Databases::new() else { return };
    databases.src("create table t (id int); insert into t values (1)");
    let copy =
        crate::copying::Copy::new(serde_json::json!({ "name": "t" }), "t", serde_json::json!({}));
    let cursor = Cursor { rows_at: Some(3), ..Cursor::new("57".into(), Some("x'y".into())) };
    let stored = databases.runtime.block_on(async {
        let (context, _cancel) = Context::new("test");
        let (stream, target) = copy.open(&databases, &context).await.unwrap();
        let load = crate::copying::load("load-1", &*stream);
        target.prepare(&load).await.unwrap();
        let ended = Load { cursor: Some(cursor.clone()), ..load };
        target.finish(&ended).await.unwrap();
        let destination = databases.destination("postgres");
        destination.last_load(&copy.settings()).await.unwrap().unwrap().0
    });
    assert!(stored.is_finished);
    assert_eq!(stored.cursor, Some(cursor));
}

#[test]
fn a_type_that_is_more_than_a_type_is_refused_and_changes_nothing() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query("create table kept (id int); create table t (c int, d int); create table u (d text)");
    let found: Settings =
        serde_json::from_value(serde_json::json!({ "port": pg.port(), "database": "postgres" }))
            .unwrap();
    let destination = PostgresDestination::new(found);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for sql_type in [
        "text using ''; drop table kept; --",
        "text); drop table kept; --",
        "text default (select 1)",
        "text collate \"C\"",
        "",
    ] {
        let column = Column {
            name: "c".into(),
            sql_type: sql_type.into(),
            wire: Wire::Text,
            nullable: true,
        };
        // It is changed, added, or created with its table.
        for into in ["t", "u", "new"] {
            let (context, _cancel) = Context::new("test");
            let settings = settings(into);
            let opened = destination.open(&settings, std::slice::from_ref(&column), &context);
            let refused = runtime.block_on(opened).err();
            let refused = refused.unwrap_or_else(|| panic!("{sql_type:?} into {into}"));
            assert!(refused.to_string().contains("not the name of a type"), "{refused}");
        }
    }
    assert_eq!(pg.query("select count(*) from kept"), "0");
    // What is a type is used as one.
    let column = Column {
        name: "c".into(),
        sql_type: "\"char\"[]".into(),
        wire: Wire::Text,
        nullable: true,
    };
    let (context, _cancel) = Context::new("test");
    let (settings, columns) = (settings("new"), [column]);
    let opened = destination.open(&settings, &columns, &context);
    let plan = runtime.block_on(opened).unwrap().plan();
    assert!(plan.iter().any(|sql| sql.contains("\"c\" \"char\"[]")), "{plan:?}");
}
