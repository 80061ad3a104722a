//! What is particular to writing.

use super::*;
use arrow::array::RecordBatch;
use forebay_pgcopy::Column;
use forebay_sdk::acceptance::{self, Capabilities, Lacks};
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::connector::{LedgerEntry, Load, Round, Target, Unit};
use forebay_sdk::run::Context;
use forebay_sdk::settings::{LoadMethod, OnDataError, SchemaEvolution, TargetSettings, WriteMode};
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::types;

fn target(into: &str, write_mode: WriteMode) -> TargetSettings {
    TargetSettings {
        pipeline: "p".into(),
        stream: "s".into(),
        into: into.into(),
        write_mode,
        primary_key: match write_mode {
            WriteMode::Upsert => vec!["id".into()],
            _ => Vec::new(),
        },
        on_data_error: OnDataError::Fail,
        schema_evolution: SchemaEvolution::default(),
        load_method: LoadMethod::Copy,
        feed: forebay_sdk::settings::FeedForm::Apply,
    }
}

fn unit(name: &str) -> Unit {
    Unit { name: name.into(), from: None, to: None, rows: None, bytes: None }
}

fn load(id: &str, units: &[&str]) -> Load {
    Load {
        id: id.into(),
        fingerprint: "f".into(),
        units: units.iter().map(|name| unit(name)).collect(),
        since: None,
        is_stable: true,
        round: Round::default(),
        is_finished: false,
        cursor: None,
    }
}

fn columns(named: &[(&str, &str)]) -> Vec<Column> {
    named.iter().map(|(name, of)| types::column(name, of).unwrap()).collect()
}

/// Rows of texts; an empty one is NULL.
fn batch(columns: &[Column], rows: &[&[&str]]) -> RecordBatch {
    let array = |at: usize| {
        let mut builder = Builder::new(&columns[at]);
        for row in rows {
            match row[at] {
                "" => builder.null(),
                text => builder.text(text).unwrap(),
            }
        }
        builder.finish()
    };
    let arrays = (0..columns.len()).map(array).collect();
    RecordBatch::try_new(forebay_pgcopy::column::schema(columns).into(), arrays).unwrap()
}

fn entry(settings: &TargetSettings, load: &Load, unit: &str) -> LedgerEntry {
    LedgerEntry {
        pipeline: settings.pipeline.clone(),
        stream: settings.stream.clone(),
        load: load.id.clone(),
        run: "run".into(),
        unit: unit.into(),
        rows: 0,
        dead: 0,
        hash: String::new(),
    }
}

async fn open(
    destination: &Arc<dyn Destination>,
    settings: &TargetSettings,
    columns: &[Column],
) -> Arc<dyn Target> {
    let (context, _cancel) = Context::new("test");
    destination.open(settings, columns, &context).await.unwrap()
}

/// Writes a unit of one batch.
async fn write(
    target: &Arc<dyn Target>,
    settings: &TargetSettings,
    load: &Load,
    name: &str,
    batch: &RecordBatch,
) -> forebay_sdk::connector::Result<LedgerEntry> {
    let mut writer = target.writer(load, &unit(name)).await?;
    writer.write(Batch::unbounded(Rows::Records(batch.clone()))).await?;
    writer.commit(entry(settings, load, name)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mongodb_is_a_destination() {
    let Some(ferret) = Ferret::start() else { return };
    let destination = destination(&as_text(&ferret));
    let capabilities = Capabilities { replace: true, upsert: true };
    let lacks = Lacks { not_finite: true, quotes_in_names: true, ..Lacks::default() };
    let passed = acceptance::destination_lacking(&destination, capabilities, lacks).await;
    if let Err(failure) = passed {
        panic!("{}", chain(&failure));
    }
    let left = collections(&ferret).await;
    assert!(!left.iter().any(|name| name.starts_with("_forebay_staged")), "{left:?}");
}

/// Settings for the tests below: as a server without decimals needs it.
fn natural(ferret: &Ferret, other: Value) -> Settings {
    let mut all = json!({ "decimals": "text" });
    all.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    settings(ferret, all)
}

#[tokio::test(flavor = "multi_thread")]
async fn values_become_those_of_bson_and_are_hashed_as_they_are_there() {
    let Some(ferret) = Ferret::start() else { return };
    let columns = columns(&[
        ("id", "bigint"),
        ("oid", "text"),
        ("at", "timestamptz"),
        ("j", "jsonb"),
        ("a", "int[]"),
    ]);
    let row = [
        "1",
        "507f1f77bcf86cd799439011",
        "2024-05-06T07:08:09.123Z",
        r#"{"k": [1, 2.50]}"#,
        "[1,null]",
    ];
    let rows = batch(&columns, &[&row, &["2", "", "", "", ""]]);
    let destination = destination(&natural(&ferret, json!({ "object_ids": ["oid"] })));
    let settings = target("c", WriteMode::Append);
    let target = open(&destination, &settings, &columns).await;
    let load = load("l", &["u"]);
    target.prepare(&load).await.unwrap();
    let entry = write(&target, &settings, &load, "u", &rows).await.unwrap();
    assert_eq!(target.content().await.unwrap().to_string(), entry.hash);
    let there = database(&ferret).await.collection::<Document>("c");
    let found = there.find_one(doc! { "id": 1_i64 }).await.unwrap().unwrap();
    assert_eq!(found.get_object_id("oid").unwrap().to_string(), row[1]);
    assert_eq!(found.get_datetime("at").unwrap().timestamp_millis(), 1_714_979_289_123);
    assert_eq!(found.get_document("j").unwrap(), &doc! { "k": [1, 2.5] });
    assert_eq!(found.get_array("a").unwrap(), &[Bson::Int32(1), Bson::Null]);
}

#[tokio::test(flavor = "multi_thread")]
async fn microseconds_are_refused_or_cut_as_the_settings_say() {
    let Some(ferret) = Ferret::start() else { return };
    let columns = columns(&[("id", "bigint"), ("at", "timestamptz")]);
    let rows = batch(&columns, &[&["1", "2024-05-06T07:08:09.123456Z"]]);
    let settings = target("c", WriteMode::Replace);
    let load = load("l", &["u"]);
    let strict = destination(&natural(&ferret, json!({})));
    let target = open(&strict, &settings, &columns).await;
    target.prepare(&load).await.unwrap();
    let error = write(&target, &settings, &load, "u", &rows).await.unwrap_err().to_string();
    assert!(
        error.starts_with("s u row 1: column \"at\"") && error.contains("`moments`"),
        "{error}"
    );
    let cutting = destination(&natural(&ferret, json!({ "moments": "milliseconds" })));
    let target = open(&cutting, &settings, &columns).await;
    assert!(target.plan().iter().any(|line| line.contains("truncated to milliseconds")));
    target.prepare(&load).await.unwrap();
    let entry = write(&target, &settings, &load, "u", &rows).await.unwrap();
    target.finish(&load).await.unwrap();
    assert_eq!((entry.rows, target.content().await.unwrap().to_string()), (1, entry.hash));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_interrupted_commit_left_is_removed_and_written_once() {
    let Some(ferret) = Ferret::start() else { return };
    let columns = columns(&[("id", "bigint"), ("v", "text")]);
    let rows = batch(&columns, &[&["1", "a"], &["2", "b"], &["3", "c"]]);
    let server = super::super::connect::Server::new(&natural(&ferret, json!({})));
    for mode in [WriteMode::Append, WriteMode::Replace] {
        let into = format!("{mode:?}");
        let settings = target(&into, mode);
        let load = load("l", &["u", "w"]);
        let destination = destination(&natural(&ferret, json!({})));
        let opened = open(&destination, &settings, &columns).await;
        opened.prepare(&load).await.unwrap();
        // A run that was killed in the middle of the commit of `u`.
        let ledger = super::super::ledger::Ledger::new(&server, &settings);
        assert!(!ledger.begin(&load, "u").await.unwrap());
        let ids = super::super::ledger::Ids::of(&settings, "l", "u");
        let left = |number| {
            let bytes = ids.row(number).to_vec();
            let id = mongodb::bson::Binary {
                subtype: mongodb::bson::spec::BinarySubtype::Generic,
                bytes,
            };
            doc! { "_id": id, "id": 100_i64, "v": "left" }
        };
        let target_collection = match mode {
            WriteMode::Append => into.clone(),
            _ => collections(&ferret).await.into_iter().find(|it| it.starts_with("_f")).unwrap(),
        };
        fill(&ferret, &target_collection, vec![left(0), left(7)]).await;
        // The next run continues the load.
        let opened = open(&destination, &settings, &columns).await;
        assert_eq!(destination.last_load(&settings).await.unwrap().unwrap().1, []);
        opened.prepare(&load).await.unwrap();
        assert_eq!(count(&ferret, &target_collection).await, 0, "what was left is gone");
        let mut writer = opened.writer(&load, &unit("u")).await.unwrap();
        writer.write(Batch::unbounded(Rows::Records(rows.clone()))).await.unwrap();
        // A command of the killed run that comes even later.
        fill(&ferret, &target_collection, vec![left(1)]).await;
        let written = writer.commit(entry(&settings, &load, "u")).await.unwrap();
        write(&opened, &settings, &load, "w", &rows).await.unwrap();
        opened.finish(&load).await.unwrap();
        let content = opened.content().await.unwrap();
        assert_eq!((written.rows, content.rows, count(&ferret, &into).await), (3, 6, 6));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_that_was_interrupted_is_finished() {
    let Some(ferret) = Ferret::start() else { return };
    let columns = columns(&[("id", "bigint"), ("v", "text")]);
    let rows = batch(&columns, &[&["1", "a"]]);
    let settings = target("c", WriteMode::Replace);
    let destination = destination(&natural(&ferret, json!({})));
    let opened = open(&destination, &settings, &columns).await;
    let load = load("l", &["u"]);
    opened.prepare(&load).await.unwrap();
    write(&opened, &settings, &load, "u", &rows).await.unwrap();
    // As far as a run gets that is killed after the rename.
    let server = super::super::connect::Server::new(&natural(&ferret, json!({})));
    let ledger = super::super::ledger::Ledger::new(&server, &settings);
    ledger.put(&load, true).await.unwrap();
    let next = collections(&ferret).await.into_iter().find(|it| it.starts_with("_forebay_next"));
    let admin = database(&ferret).await.client().database("admin");
    let renamed = doc! { "renameCollection": format!("t.{}", next.unwrap()), "to": "t.c" };
    admin.run_command(renamed).await.unwrap();
    let opened = open(&destination, &settings, &columns).await;
    opened.prepare(&load).await.unwrap();
    opened.finish(&load).await.unwrap();
    assert_eq!(opened.content().await.unwrap().rows, 1);
    assert!(destination.last_load(&settings).await.unwrap().unwrap().0.is_finished);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_a_server_does_not_take_are_put_aside_and_the_others_go_through() {
    let Some(ferret) = Ferret::start() else { return };
    let columns = columns(&[("id", "bigint"), ("v", "text")]);
    let index = mongodb::IndexModel::builder()
        .keys(doc! { "v": 1 })
        .options(mongodb::options::IndexOptions::builder().unique(true).build())
        .build();
    database(&ferret).await.collection::<Document>("c").create_index(index).await.unwrap();
    let rows = batch(&columns, &[&["1", "a"], &["2", "b"], &["3", "a"], &["4", "c"]]);
    let settings =
        TargetSettings { on_data_error: OnDataError::Dlq, ..target("c", WriteMode::Append) };
    let destination = destination(&natural(&ferret, json!({})));
    let opened = open(&destination, &settings, &columns).await;
    let load = load("l", &["u"]);
    opened.prepare(&load).await.unwrap();
    let entry = write(&opened, &settings, &load, "u", &rows).await.unwrap();
    assert_eq!((entry.rows, entry.dead, count(&ferret, "c").await), (3, 1, 3));
    assert_eq!(opened.content().await.unwrap().to_string(), entry.hash);
    let dead = database(&ferret).await.collection::<Document>("_forebay_dead_letters");
    let dead = dead.find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(dead.get_str("row").unwrap(), r#"{"id":3,"v":"a"}"#);
    // With `fail` nothing of a unit with such a row stays.
    let settings = TargetSettings { on_data_error: OnDataError::Fail, ..settings };
    let opened = open(&destination, &settings, &columns).await;
    let load = self::load("m", &["u"]);
    opened.prepare(&load).await.unwrap();
    let error = write(&opened, &settings, &load, "u", &rows).await.unwrap_err().to_string();
    assert!(error.contains("refuses the row"), "{error}");
    assert_eq!(count(&ferret, "c").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_larger_than_memory_waits_beside_and_then_is_there() {
    let Some(ferret) = Ferret::start() else { return };
    let columns = columns(&[("id", "bigint"), ("v", "text")]);
    let long = "x".repeat(3 << 20);
    let texts: Vec<[String; 2]> = (0..7).map(|n: i32| [n.to_string(), long.clone()]).collect();
    let texts: Vec<[&str; 2]> = texts.iter().map(|row| [&*row[0], &*row[1]]).collect();
    let texts: Vec<&[&str]> = texts.iter().map(|row| &row[..]).collect();
    let rows = batch(&columns, &texts);
    for mode in [WriteMode::Append, WriteMode::Upsert] {
        let settings = target(&format!("{mode:?}"), mode);
        let destination = destination(&natural(&ferret, json!({})));
        let opened = open(&destination, &settings, &columns).await;
        let load = load("l", &["u"]);
        opened.prepare(&load).await.unwrap();
        let mut writer = opened.writer(&load, &unit("u")).await.unwrap();
        writer.write(Batch::unbounded(Rows::Records(rows.clone()))).await.unwrap();
        let staged = |names: Vec<String>| names.iter().any(|it| it.starts_with("_forebay_staged"));
        assert!(staged(collections(&ferret).await));
        assert_eq!(count(&ferret, &format!("{mode:?}")).await, 0);
        let entry = writer.commit(entry(&settings, &load, "u")).await.unwrap();
        opened.finish(&load).await.unwrap();
        assert_eq!((entry.rows, opened.content().await.unwrap().to_string()), (7, entry.hash));
        assert!(!staged(collections(&ferret).await));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_is_one_runs_alone_until_it_is_gone() {
    let Some(ferret) = Ferret::start() else { return };
    let settings = target("c", WriteMode::Append);
    let (one, other) =
        (destination(&natural(&ferret, json!({}))), destination(&natural(&ferret, json!({}))));
    let claim = one.claim(&settings).await.unwrap();
    let refused = other.claim(&settings).await.map(drop).unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    // Another run takes it, as if this one had stood still: it commits nothing more.
    let columns = columns(&[("id", "bigint"), ("v", "text")]);
    let opened = open(&one, &settings, &columns).await;
    let load = load("l", &["u"]);
    opened.prepare(&load).await.unwrap();
    let claims = database(&ferret).await.collection::<Document>("_forebay_claims");
    let stolen = doc! { "$set": { "holder": "another", "process": "" } };
    claims.update_one(doc! { "_id": "c" }, stolen).await.unwrap();
    let rows = batch(&columns, &[&["1", "a"]]);
    let mut attempts = 0;
    let lost = loop {
        attempts += 1;
        match write(&opened, &settings, &load, &format!("u{attempts}"), &rows).await {
            Ok(_) => assert!(attempts < 10_000, "the loss is never noticed"),
            Err(error) => break error,
        }
    };
    assert!(chain(&lost).contains("another run may be writing"), "{}", chain(&lost));
    drop(claim);
    // The counter of the other's claim does not change: it is taken over.
    drop(other.claim(&settings).await.unwrap());
    drop(one.claim(&settings).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_without_a_url_and_what_is_wrong_with_them() {
    let Some(ferret) = Ferret::start() else { return };
    let fields = json!({ "port": ferret.port(), "database": "t", "compression": "zstd", "pool": { "max": 10 } });
    let fields: Settings = serde_json::from_value(fields).unwrap();
    let answer = destination(&fields).check().await.unwrap();
    assert!(answer.contains("(FerretDB): MongoDB t at 127.0.0.1"), "{answer}");
    let wrong = |settings: Value| destination(&serde_json::from_value(settings).unwrap());
    let nameless = wrong(json!({ "port": ferret.port() })).check().await.unwrap_err();
    assert!(nameless.to_string().starts_with("no database is named"), "{nameless}");
    let secret = wrong(json!({ "url": "mongo://ann:hunter2@x" })).check().await.unwrap_err();
    assert!(!chain(&secret).contains("hunter2"), "{}", chain(&secret));
    let columns = columns(&[("_id", "text"), ("v", "text")]);
    let settings = target("c", WriteMode::Append);
    let (context, _cancel) = Context::new("test");
    let refused = destination(&fields).open(&settings, &columns, &context).await.map(drop);
    assert!(refused.unwrap_err().to_string().contains("`_id` cannot be appended"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_late_of_a_load_that_was_given_up_is_removed_when_the_next_is_finished() {
    let Some(ferret) = Ferret::start() else { return };
    let columns = columns(&[("id", "bigint"), ("v", "text")]);
    let rows = batch(&columns, &[&["1", "a"], &["2", "b"]]);
    let server = super::super::connect::Server::new(&natural(&ferret, json!({})));
    for mode in [WriteMode::Append, WriteMode::Replace] {
        let settings = target(&format!("{mode:?}"), mode);
        let destination = destination(&natural(&ferret, json!({})));
        let opened = open(&destination, &settings, &columns).await;
        let killed = load("killed", &["u"]);
        opened.prepare(&killed).await.unwrap();
        let ledger = super::super::ledger::Ledger::new(&server, &settings);
        ledger.begin(&killed, "u").await.unwrap();
        let before = collections(&ferret).await;
        let target_collection = before.into_iter().find(|name| match mode {
            WriteMode::Replace => name.starts_with("_forebay_next"),
            _ => *name == settings.into,
        });
        let target_collection = target_collection.unwrap();
        let next = load("next", &["u"]);
        opened.prepare(&next).await.unwrap();
        write(&opened, &settings, &next, "u", &rows).await.unwrap();
        // The killed run's last command comes about only now.
        let ids = super::super::ledger::Ids::of(&settings, "killed", "u");
        let bytes = ids.row(0).to_vec();
        let subtype = mongodb::bson::spec::BinarySubtype::Generic;
        let late = doc! { "_id": mongodb::bson::Binary { subtype, bytes }, "id": 1_i64, "v": "a" };
        fill(&ferret, &target_collection, vec![late]).await;
        opened.finish(&next).await.unwrap();
        assert_eq!(count(&ferret, &settings.into).await, 2);
        // And the load after that leaves nothing beside.
        let third = load("third", &["u"]);
        opened.prepare(&third).await.unwrap();
        write(&opened, &settings, &third, "u", &rows).await.unwrap();
        opened.finish(&third).await.unwrap();
        let left = collections(&ferret).await;
        assert!(!left.iter().any(|name| name.starts_with("_forebay")), "{left:?}");
        assert_eq!(count(&ferret, "_forebay_undone").await, 0);
    }
}
