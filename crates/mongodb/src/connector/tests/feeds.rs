//! Changes of a feed: a unit is decided, and completed whatever is interrupted.

use std::collections::BTreeMap;

use forebay_base::fs::sim::Rng;
use forebay_pgcopy::Wire;
use forebay_sdk::changes::feed::{
    ChangeUnit, Changes, ColumnStep, Feed, FeedColumn, FeedOrigin, FeedStream, FeedWriter,
    Redefinition, StreamChanges,
};
use forebay_sdk::changes::{ChangedRow, Field, NetChanges, RowKey};
use forebay_sdk::settings::{
    FeedForm, LoadMethod, OnDataError, SchemaEvolution, TargetSettings, WriteMode,
};

use super::*;

fn column(name: &str, of: &str, wire: Wire, number: i16) -> FeedColumn {
    let (name, sql_type) = (name.into(), of.into());
    FeedColumn { name, sql_type, is_key: number == 1, number, wire: Some(wire) }
}

fn columns() -> Vec<FeedColumn> {
    vec![
        column("id", "integer", Wire::Int4, 1),
        column("large", "text", Wire::Text, 2),
        column("n", "integer", Wire::Int4, 3),
    ]
}

fn feed(form: FeedForm) -> Feed {
    let stream =
        FeedStream { stream: "s".into(), columns: columns(), from: None, known_by: Vec::new() };
    let position = Some("0/1".to_owned());
    Feed { origin: FeedOrigin::default(), position, streams: vec![stream], form }
}

fn target() -> TargetSettings {
    TargetSettings {
        pipeline: "p".into(),
        stream: "s".into(),
        into: "c".into(),
        write_mode: WriteMode::Replace,
        primary_key: Vec::new(),
        on_data_error: OnDataError::Fail,
        schema_evolution: SchemaEvolution::default(),
        load_method: LoadMethod::Copy,
        feed: FeedForm::Apply,
    }
}

fn row(id: i32, large: Option<&str>, n: i32) -> ChangedRow {
    let (id, n) = (id.to_be_bytes(), n.to_be_bytes());
    let large = large.map_or(Field::Unchanged, |large| Field::Value(large.as_bytes()));
    ChangedRow::new([Field::Value(&id), large, Field::Value(&n)]).unwrap()
}

fn key(id: i32) -> RowKey {
    row(id, None, 0).key(&[0]).unwrap()
}

fn unit(position: Option<&str>, net: NetChanges) -> ChangeUnit {
    ChangeUnit {
        position: position.map(str::to_owned),
        commits: 1,
        committed_us: Some(1_000),
        redefined: Vec::new(),
        streams: vec![StreamChanges { stream: 0, changes: Changes::Net(net) }],
    }
}

fn inserted(ids: &[i32]) -> NetChanges {
    let mut net = NetChanges::new(vec![0]);
    ids.iter().for_each(|id| net.insert(row(*id, Some("x"), *id)).unwrap());
    net
}

async fn open(destination: &Arc<dyn Destination>) -> Box<dyn FeedWriter> {
    let feeds = destination.feeds().unwrap();
    let feed = feeds.feed("p").await.unwrap().unwrap();
    feeds.open("p", &feed, &[target()]).await.unwrap()
}

/// The live documents: by their keys the other two fields, which may have another name.
async fn live(ferret: &Ferret, names: [&str; 3]) -> BTreeMap<i32, (String, i32)> {
    let there = database(ferret).await.collection::<Document>("c");
    let mut found = there.find(doc! { "_deleted_at": Bson::Null }).await.unwrap();
    let mut rows = BTreeMap::new();
    while found.advance().await.unwrap() {
        let document = found.deserialize_current().unwrap();
        let large = document.get_str(names[1]).unwrap().to_owned();
        let n = document.get_i32(names[2]).unwrap();
        let id = document.get_i32(names[0]).unwrap();
        assert!(rows.insert(id, (large, n)).is_none(), "{id} is there twice");
    }
    rows
}

const NAMES: [&str; 3] = ["id", "large", "n"];

#[tokio::test(flavor = "multi_thread")]
async fn units_have_the_result_of_their_changes_in_every_order_and_number_of_parts() {
    let Some(ferret) = Ferret::start() else { return };
    let destination = destination(&as_text(&ferret));
    for (seed, form, other_unique) in [
        (1, FeedForm::Apply, false),
        (2, FeedForm::Mark, false),
        (3, FeedForm::Apply, true),
        (4, FeedForm::Mark, true),
    ] {
        let feeds = destination.feeds().unwrap();
        let before = feeds.feed("p").await.unwrap();
        feeds.record("p", before.as_ref(), Some(&feed(form))).await.unwrap();
        let database = database(&ferret).await;
        database.collection::<Document>("c").drop().await.unwrap();
        if other_unique {
            let index = doc! { "key": { "large": 1, "id": 1 }, "name": "other", "unique": true };
            let create = doc! { "createIndexes": "c", "indexes": [index] };
            database.run_command(create).await.unwrap();
        }
        let mut random = Rng::new(seed);
        let mut writer = open(&destination).await;
        let mut rows = BTreeMap::new();
        for at in 2..40_u32 {
            let parts = 1 + random.below(3);
            let is_lost = random.below(4) == 0;
            let (begun, mut after) = (rows.clone(), rows.clone());
            for part in 1..=parts {
                let of_key = vec![0];
                let mut net = match form {
                    FeedForm::Mark => NetChanges::keeping(of_key),
                    _ => NetChanges::new(of_key),
                };
                for _ in 0..random.below(12) {
                    change(&mut random, &mut net, &mut after, i64::from(at) * 1_000_000);
                }
                let position = format!("0/{at}");
                let position = (part == parts && !is_lost).then_some(position.as_str());
                writer.apply(unit(position, net)).await.unwrap();
            }
            if is_lost {
                // The connection to the source was lost in the middle of a transaction.
                writer = open(&destination).await;
                rows = begun;
            } else {
                rows = after;
            }
            assert_eq!(live(&ferret, NAMES).await, rows, "{form:?}, unit {at} of {parts} parts");
        }
    }
}

/// Makes a random change.
fn change(
    random: &mut Rng,
    net: &mut NetChanges,
    rows: &mut BTreeMap<i32, (String, i32)>,
    at_us: i64,
) {
    let mut below = |limit: usize| i32::try_from(random.below(limit)).unwrap();
    let (id, to, n) = (below(8), below(8), below(1_000));
    match (random.below(20), rows.get(&id).cloned()) {
        (0, _) => {
            net.truncate(at_us);
            rows.clear();
        }
        (_, None) => {
            let large = format!("large {n}");
            net.insert(row(id, Some(&large), n)).unwrap();
            rows.insert(id, (large, n));
        }
        (1..5, Some(_)) => {
            net.delete(key(id), at_us).unwrap();
            rows.remove(&id);
        }
        (5..12, Some((large, _))) => {
            net.update(None, row(id, None, n)).unwrap();
            rows.insert(id, (large, n));
        }
        (_, Some((large, _))) if to == id || !rows.contains_key(&to) => {
            net.update(Some(key(id)), row(to, None, n)).unwrap();
            rows.remove(&id);
            rows.insert(to, (large, n));
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_made_by_the_newest_writer_alone() {
    let Some(ferret) = Ferret::start() else { return };
    let destination = destination(&as_text(&ferret));
    let feeds = destination.feeds().unwrap();
    feeds.record("p", None, Some(&feed(FeedForm::Apply))).await.unwrap();
    feeds.record("p", None, Some(&feed(FeedForm::Apply))).await.unwrap_err();
    let mut earlier = open(&destination).await;
    let mut newer = open(&destination).await;
    let error = earlier.apply(unit(Some("0/2"), inserted(&[1]))).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    // It has failed, and does nothing more.
    earlier.advance("0/2").await.unwrap_err();
    assert!(live(&ferret, NAMES).await.is_empty());
    newer.apply(unit(Some("0/2"), inserted(&[1]))).await.unwrap();
    assert_eq!(live(&ferret, NAMES).await.into_keys().collect::<Vec<_>>(), [1]);
    let mut missing = NetChanges::new(vec![0]);
    missing.update(None, row(1, None, 5)).unwrap();
    missing.delete(key(7), 0).unwrap();
    let error = newer.apply(unit(Some("0/3"), missing)).await.unwrap_err();
    assert!(chain(&error).contains("0 rows would be deleted, and the source has 1"), "{error}");
    assert_eq!(live(&ferret, NAMES).await[&1].1, 1, "nothing of the unit is applied");
    let known = feeds.feed("p").await.unwrap().unwrap();
    assert_eq!(known.position.as_deref(), Some("0/2"));
    feeds.record("p", Some(&known), None).await.unwrap();
    assert!(feeds.feed("p").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_decided_is_completed_by_the_next_writer_from_where_it_was_interrupted() {
    let Some(ferret) = Ferret::start() else { return };
    let destination = destination(&as_text(&ferret));
    let feeds = destination.feeds().unwrap();
    feeds.record("p", None, Some(&feed(FeedForm::Apply))).await.unwrap();
    let mut writer = open(&destination).await;
    writer.apply(unit(Some("0/2"), inserted(&[1, 2, 3]))).await.unwrap();
    let database = database(&ferret).await;
    let there = database.collection::<Document>("c");
    let id_of = async |id: i32| {
        let found = there.find_one(doc! { "id": id }).await.unwrap().unwrap();
        found.get("_id").unwrap().clone()
    };
    let (first, second) = (id_of(1).await, id_of(2).await);
    // A writer that was killed after the first step: `n` is `m`, and `n` was added.
    let feeds_of = database.collection::<Document>("_forebay_feeds");
    let change = doc! { "$rename": { "n": "m" } };
    there.update_many(doc! {}, change).await.unwrap();
    let staged = database.collection::<Document>("interrupted");
    let put = doc! { "_id": &first, "id": 9_i32, "large": "moved", "n": 4_i32 };
    let documents = vec![
        doc! { "_id": 0_i64, "part": 1_i64, "op": "gone", "i": &first },
        doc! { "_id": 1_i64, "part": 1_i64, "op": "put", "i": &first, "doc": put },
        doc! { "_id": 2_i64, "part": 2_i64, "op": "set", "i": &second, "doc": { "m": 8_i32 } },
    ];
    staged.insert_many(documents).await.unwrap();
    let steps = vec![
        doc! { "part": 2_i64, "rename": "n", "to": "m" },
        doc! { "part": 2_i64, "add": "n", "value": 5_i32 },
    ];
    let pending = doc! { "into": "c", "staged": "interrupted", "empties": false, "steps": steps };
    let decided = doc! { "pending": [pending], "done": 1_i64, "position": "0/3" };
    feeds_of.update_one(doc! {}, doc! { "$set": decided }).await.unwrap();
    for _ in 0..2 {
        let known = feeds.feed("p").await.unwrap().unwrap();
        assert_eq!(known.position.as_deref(), Some("0/3"), "it counts from its decision on");
        drop(open(&destination).await);
        let rows = live(&ferret, ["id", "large", "m"]).await;
        let expected = [(2, ("x".into(), 8)), (3, ("x".into(), 3)), (9, ("moved".into(), 4))];
        assert_eq!(rows, BTreeMap::from(expected));
        assert_eq!(there.count_documents(doc! { "n": 5_i32 }).await.unwrap(), 3);
        let left = feeds_of.count_documents(doc! { "pending": { "$exists": true } }).await;
        assert_eq!(left.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_change_before_a_unit_and_in_the_middle_of_one() {
    let Some(ferret) = Ferret::start() else { return };
    let destination = destination(&as_text(&ferret));
    let feeds = destination.feeds().unwrap();
    feeds.record("p", None, Some(&feed(FeedForm::Apply))).await.unwrap();
    let mut writer = open(&destination).await;
    writer.apply(unit(Some("0/2"), inserted(&[1, 2, 3, 4]))).await.unwrap();
    let renamed = |names: [(&str, i16); 3]| {
        names.map(|(name, number)| {
            let known = columns().into_iter().find(|known| known.number == number).unwrap();
            FeedColumn { name: name.into(), ..known }
        })
    };
    let rename = |from: &str, to: &str| ColumnStep::Rename { from: from.into(), to: to.into() };
    // The key has another name, and its index as well.
    let mut net = NetChanges::new(vec![0]);
    net.update(None, row(2, None, 20)).unwrap();
    let columns = renamed([("key", 1), ("large", 2), ("n", 3)]).to_vec();
    let steps = vec![rename("id", "key")];
    let mut of = unit(Some("0/3"), net);
    of.redefined.push((0, Redefinition { columns, steps }));
    writer.apply(of).await.unwrap();
    let rows = live(&ferret, ["key", "large", "n"]).await;
    assert_eq!(rows.values().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 20, 3, 4]);
    // In the middle of a transaction, whose earlier changes have the earlier names.
    let mut net = inserted(&[5]);
    net.update(None, row(3, None, 30)).unwrap();
    net.update(Some(key(4)), row(40, None, 40)).unwrap();
    writer.apply(unit(None, net)).await.unwrap();
    let mut net = NetChanges::new(vec![0]);
    net.update(None, row(5, None, 50)).unwrap();
    net.update(Some(key(1)), row(10, None, 10)).unwrap();
    let columns = renamed([("number", 1), ("wide", 2), ("m", 3)]).to_vec();
    let steps = vec![rename("key", "number"), rename("large", "wide"), rename("n", "m")];
    let mut of = unit(Some("0/4"), net);
    of.redefined.push((0, Redefinition { columns: columns.clone(), steps }));
    writer.apply(of).await.unwrap();
    let rows = live(&ferret, ["number", "wide", "m"]).await;
    let rows: Vec<(i32, i32)> = rows.into_iter().map(|(key, (_, n))| (key, n)).collect();
    assert_eq!(rows, [(2, 20), (3, 30), (5, 50), (10, 10), (40, 40)]);
    let known = feeds.feed("p").await.unwrap().unwrap();
    assert_eq!(known.streams[0].columns, columns);
    let indexes = database(&ferret).await.collection::<Document>("c").list_index_names().await;
    assert_eq!(indexes.unwrap().len(), 2, "that of the ids, and that of the key");
}
