//! Other programs that write the same table.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use forebay_sdk::settings::{NewColumn, WriteMode};
use object_store::ObjectStoreExt as _;
use object_store::path::Path as Key;
use serde_json::{Value, json};

use super::chain;
use super::faults::Fault;
use super::interrupted::Trial;

/// Writes the next version of the log, as another program does.
pub(super) async fn commit(trial: &Trial, actions: &[Value]) {
    let version = trial.names("lake/t/_delta_log/").await;
    let version = version.iter().filter(|name| name.ends_with(".json")).count();
    let mut text = String::new();
    for action in actions {
        text += &format!("{action}\n");
    }
    let key = Key::from(format!("lake/t/_delta_log/{version:020}.json"));
    trial.store.put(&key, text.into()).await.unwrap();
}

/// Actions and paths of the newest state, by reading the log from the start.
pub(super) async fn actions(trial: &Trial, kind: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut names = trial.names("lake/t/_delta_log/").await;
    names.sort();
    for name in names.iter().filter(|name| name.ends_with(".json")) {
        let got = trial.store.get(&name.as_str().into()).await.unwrap();
        let text = String::from_utf8(got.bytes().await.unwrap().to_vec()).unwrap();
        for line in text.lines() {
            let action: Value = serde_json::from_str(line).unwrap();
            found.extend(action.get(kind).cloned());
        }
    }
    found
}

/// A file of another program with one row of the plain columns' key.
pub(super) async fn foreign_file(trial: &Trial, path: &str, id: i64) -> Value {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![id]));
    let notes: ArrayRef = Arc::new(StringArray::from(vec!["foreign"]));
    let batch = RecordBatch::try_from_iter([("id", ids), ("note", notes)]).unwrap();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let bytes = writer.into_inner().unwrap();
    let size = bytes.len();
    trial.store.put(&Key::from(format!("lake/t/{path}")), bytes.into()).await.unwrap();
    json!({ "add": {
        "path": path, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": true,
        "stats": "{\"numRecords\":1}",
    } })
}

pub(super) fn trial(write_mode: WriteMode) -> Trial {
    let mut trial = Trial::new(write_mode);
    // Names that need no mapping, so that another program's file has them.
    for column in &mut trial.columns {
        column.name = column.name.replace(' ', "_");
    }
    trial
}

/// The plain columns with other names have no generated values: these are the ids of a trial.
async fn rows(trial: &Trial) -> u64 {
    trial.content().await.rows
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_meets_commits_of_other_programs_and_is_made_on_top_of_them() {
    let trial = trial(WriteMode::Append);
    let target = trial.open(&Fault::never()).await.unwrap();
    target.prepare(&trial.load("first")).await.unwrap();
    for number in 0..3 {
        let file = foreign_file(&trial, &format!("other-{number}.parquet"), 1000 + number).await;
        commit(&trial, &[json!({ "commitInfo": { "operation": "WRITE" } }), file]).await;
        trial.unit(&target, "first", usize::try_from(number).unwrap()).await.unwrap();
    }
    target.finish(&trial.load("first")).await.unwrap();
    assert_eq!(rows(&trial).await, 23);
    // Both kinds of transactions stay apart.
    let versions: Vec<i64> =
        actions(&trial, "txn").await.iter().map(|txn| txn["version"].as_i64().unwrap()).collect();
    assert_eq!(versions, [1, 2, 3, 4, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_removes_what_other_programs_added_before_its_commit() {
    let trial = trial(WriteMode::Replace);
    trial.run("first", &Fault::never(), 0).await.unwrap();
    let target = trial.open(&Fault::never()).await.unwrap();
    target.prepare(&trial.load("second")).await.unwrap();
    for number in 0..3 {
        trial.unit(&target, "second", number).await.unwrap();
    }
    let file = foreign_file(&trial, "other.parquet", 1000).await;
    commit(&trial, &[file]).await;
    assert_eq!(rows(&trial).await, 21);
    target.finish(&trial.load("second")).await.unwrap();
    assert_eq!(trial.content().await, trial.hash(&["second"]));
    let removed = actions(&trial, "remove").await;
    assert_eq!(removed.len(), 3);
    assert!(removed.iter().any(|file| file["path"] == "other.parquet"));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_another_program_compacted_are_not_missed_by_a_continued_load() {
    let trial = trial(WriteMode::Append);
    let target = trial.open(&Fault::never()).await.unwrap();
    target.prepare(&trial.load("first")).await.unwrap();
    trial.unit(&target, "first", 0).await.unwrap();
    let before = rows(&trial).await;
    // OPTIMIZE: the file is replaced by another with the same rows.
    let added = actions(&trial, "add").await;
    let path = added[0]["path"].as_str().unwrap().to_owned();
    let bytes = trial.store.get(&Key::from(format!("lake/t/{path}"))).await.unwrap();
    let bytes = bytes.bytes().await.unwrap();
    let size = bytes.len();
    trial.store.put(&Key::from("lake/t/compacted.parquet"), bytes.into()).await.unwrap();
    let remove = json!({ "remove": {
        "path": path, "deletionTimestamp": 1, "dataChange": false, "size": size,
    } });
    let mut add = added[0].clone();
    add["path"] = "compacted.parquet".into();
    add["dataChange"] = false.into();
    commit(&trial, &[remove, json!({ "add": add })]).await;
    assert_eq!(rows(&trial).await, before);
    // Another run continues: the unit is known, and the file that VACUUM will remove stays until then.
    trial.run("first", &Fault::never(), 0).await.unwrap();
    assert_eq!(trial.content().await, trial.hash(&["first"]));
    trial.run("second", &Fault::never(), 0).await.unwrap();
    assert_eq!(trial.content().await, trial.hash(&["first", "second"]));
    let names = trial.names("lake/t/part-").await;
    assert!(names.iter().any(|name| name.ends_with(&path)), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_another_program_adds_in_between_are_reported_and_the_next_run_goes_on() {
    let trial = trial(WriteMode::Append);
    let target = trial.open(&Fault::never()).await.unwrap();
    target.prepare(&trial.load("first")).await.unwrap();
    let mut metadata = actions(&trial, "metaData").await.pop().unwrap();
    let mut schema: Value =
        serde_json::from_str(metadata["schemaString"].as_str().unwrap()).unwrap();
    schema["fields"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "more", "type": "string", "nullable": true, "metadata": {} }));
    metadata["schemaString"] = schema.to_string().into();
    commit(&trial, &[json!({ "metaData": metadata })]).await;
    let refused = trial.unit(&target, "first", 0).await.unwrap_err();
    assert!(chain(&refused).contains("changed its columns"), "{}", chain(&refused));
    trial.run("first", &Fault::never(), 0).await.unwrap();
    assert_eq!(trial.content().await, trial.hash(&["first"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_files_that_vacuum_removed_end_the_load_with_the_reason() {
    let trial = trial(WriteMode::Replace);
    let target = trial.open(&Fault::never()).await.unwrap();
    target.prepare(&trial.load("first")).await.unwrap();
    for number in 0..3 {
        trial.unit(&target, "first", number).await.unwrap();
    }
    let names = trial.names("lake/t/part-").await;
    trial.store.delete(&names[0].as_str().into()).await.unwrap();
    let refused = target.finish(&trial.load("first")).await.unwrap_err();
    assert!(chain(&refused).contains("perhaps by VACUUM"), "{}", chain(&refused));
    assert_eq!(rows(&trial).await, 0);
    // The way out that it names.
    let destination = trial.destination(&Fault::never());
    assert_eq!(destination.forget(&trial.settings).await.unwrap(), 1);
    assert_eq!(destination.forget(&trial.settings).await.unwrap(), 0);
    assert_eq!(destination.last_load(&trial.settings).await.unwrap(), None);
    trial.run("first", &Fault::never(), 0).await.unwrap();
    assert_eq!(trial.content().await, trial.hash(&["first"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_found_in_a_checkpoint_after_the_log_was_cleaned() {
    let trial = trial(WriteMode::Append);
    let metadata = json!({
        "id": "x", "format": { "provider": "parquet", "options": {} },
        "schemaString": json!({ "type": "struct", "fields": [
            { "name": "id", "type": "long", "nullable": true, "metadata": {} },
            { "name": "note", "type": "string", "nullable": true, "metadata": {} },
            { "name": "amount", "type": "double", "nullable": true, "metadata": {} },
            { "name": "is_it", "type": "boolean", "nullable": true, "metadata": {} },
        ] }).to_string(),
        "partitionColumns": [], "configuration": { "delta.checkpointInterval": "3" }, "createdTime": 0,
    });
    let protocol = json!({ "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata"] });
    commit(&trial, &[json!({ "protocol": protocol }), json!({ "metaData": metadata })]).await;
    let target = trial.open(&Fault::never()).await.unwrap();
    target.prepare(&trial.load("first")).await.unwrap();
    for number in 0..3 {
        trial.unit(&target, "first", number).await.unwrap();
    }
    // Versions 0 to 4; the checkpoints come after three commits each.
    let is_checkpoint = |name: &&String| name.ends_with(".checkpoint.parquet");
    let log = trial.names("lake/t/_delta_log/").await;
    let checkpoints: Vec<&String> = log.iter().filter(is_checkpoint).collect();
    assert!(checkpoints.len() == 1 && checkpoints[0].ends_with("3.checkpoint.parquet"), "{log:?}");
    for version in 0..3 {
        let key = Key::from(format!("lake/t/_delta_log/{version:020}.json"));
        trial.store.delete(&key).await.unwrap();
    }
    let destination = trial.destination(&Fault::never());
    let (load, entries) = destination.last_load(&trial.settings).await.unwrap().unwrap();
    assert_eq!((load.id.as_str(), load.is_finished, entries.len()), ("first", false, 3));
    trial.run("first", &Fault::never(), 0).await.unwrap();
    trial.run("second", &Fault::never(), 0).await.unwrap();
    assert_eq!(trial.content().await, trial.hash(&["first", "second"]));
    let log = trial.names("lake/t/_delta_log/").await;
    assert_eq!(log.iter().filter(is_checkpoint).count(), 3, "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_cannot_be_written_are_refused_with_a_way_out() {
    for (protocol, configuration, partition, expected) in [
        (
            json!({ "minReaderVersion": 1, "minWriterVersion": 2 }),
            json!({}),
            json!([]),
            "'delta.feature.domainMetadata'",
        ),
        (
            json!({ "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata"] }),
            json!({}),
            json!(["note"]),
            "is partitioned",
        ),
        (
            json!({ "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata"] }),
            json!({ "delta.setTransactionRetentionDuration": "interval 1 day" }),
            json!([]),
            "unset the property",
        ),
        (
            json!({ "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata", "appendOnly"] }),
            json!({ "delta.appendOnly": "true" }),
            json!([]),
            "its rows cannot be replaced",
        ),
        (
            json!({ "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata", "checkConstraints"] }),
            json!({ "delta.constraints.c": "id > 0" }),
            json!([]),
            "write to",
        ),
    ] {
        let trial = trial(WriteMode::Replace);
        let schema = json!({ "type": "struct", "fields": [
            { "name": "id", "type": "long", "nullable": true, "metadata": {} },
            { "name": "note", "type": "string", "nullable": true, "metadata": {} },
        ] });
        let metadata = json!({
            "id": "x", "format": { "provider": "parquet", "options": {} }, "schemaString": schema.to_string(),
            "partitionColumns": partition, "configuration": configuration, "createdTime": 0,
        });
        commit(&trial, &[json!({ "protocol": protocol }), json!({ "metaData": metadata })]).await;
        let Err(refused) = trial.open(&Fault::never()).await else { panic!("{expected}") };
        assert!(chain(&refused).contains(expected), "{expected}: {}", chain(&refused));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_are_added_ignored_or_refused_and_types_are_compared() {
    let mut trial = trial(WriteMode::Append);
    trial.run("first", &Fault::never(), 0).await.unwrap();
    let old = trial.columns.clone();
    let more = forebay_sdk::values::types::column("more", "bigint").unwrap();
    trial.columns.push(more);
    trial.settings.schema_evolution.new_column = NewColumn::Fail;
    let Err(refused) = trial.open(&Fault::never()).await else { panic!("opened") };
    assert!(chain(&refused).contains("the table has no column \"more\""), "{}", chain(&refused));
    trial.settings.schema_evolution.new_column = NewColumn::Ignore;
    let target = trial.open(&Fault::never()).await.unwrap();
    assert_eq!(target.stored(), Some(old.clone()));
    trial.settings.schema_evolution.new_column = NewColumn::Add;
    let target = trial.open(&Fault::never()).await.unwrap();
    assert!(target.plan().iter().any(|note| note == "add the column \"more\" long"));
    trial.run("second", &Fault::never(), 0).await.unwrap();
    assert_eq!(rows(&trial).await, 40);
    // Rows from before have NULL, and so have those of a source that lost a column.
    trial.columns.remove(1);
    trial.run("third", &Fault::never(), 0).await.unwrap();
    assert_eq!(rows(&trial).await, 60);
    trial.columns = old;
    trial.columns[1] =
        forebay_sdk::values::types::column(&trial.columns[1].name, "integer").unwrap();
    let Err(refused) = trial.open(&Fault::never()).await else { panic!("opened") };
    assert!(chain(&refused).contains("is string in the table, but integer"), "{}", chain(&refused));
    trial.columns[1].name = "NOTE".into();
    let Err(refused) = trial.open(&Fault::never()).await else { panic!("opened") };
    assert!(chain(&refused).contains("Delta does not distinguish"), "{}", chain(&refused));
}
