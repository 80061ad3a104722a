//! The destination of pipelines: what columns and names from outside may do to a database.

use std::sync::Arc;

use forebay_pgcopy::{Column, Wire};
use forebay_postgres::connector::{PostgresDestination, Settings};
use forebay_sdk::acceptance::{self, Capabilities};
use forebay_sdk::connector::Destination;
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
    }
}

#[test]
fn postgres_keeps_the_promises_of_destinations() {
    let Some(databases) = crate::copying::Databases::new() else { return };
    let destination: Arc<dyn Destination> = Arc::new(databases.destination("postgres"));
    let capabilities = Capabilities { replace: true, upsert: true };
    let kept = databases.runtime.block_on(acceptance::destination(&destination, capabilities));
    kept.unwrap_or_else(|failure| panic!("{}", crate::copying::chain(&failure)));
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
