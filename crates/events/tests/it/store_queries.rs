//! Any appends, flushes, joins, prunings and reopenings: every way of reading gives the same as a
//! plain list of the events.

use std::path::Path;
use std::sync::Arc;

use forebay_base::clock::ManualClock;
use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::{Rng, SimFs};
use forebay_base::waiting::Waiting;
use forebay_events::query::{Cursor, Order, Query};
use forebay_events::{Batch, Draft, EventId, Options, ReadError, Severity, Store};
use proptest::prelude::*;

use crate::store_model::{DIR, Model, START_MS, now_ns, open};
use crate::store_tamper::damage_first_block;

#[derive(Debug, Clone)]
enum Op {
    Append(usize),
    Flush,
    Compact,
    Prune,
    Reopen,
    Ask(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (1usize..40).prop_map(Op::Append),
        2 => Just(Op::Flush),
        1 => Just(Op::Compact),
        1 => Just(Op::Prune),
        1 => Just(Op::Reopen),
        4 => any::<u64>().prop_map(Op::Ask),
    ];
    proptest::collection::vec(op, 5..40)
}

/// Some of all conditions.
fn query(rng: &mut Rng, now_ns: i64) -> Query {
    let time = |rng: &mut Rng| now_ns - i64::try_from(rng.below(6_000)).unwrap() * 1_000_000_000;
    let mut query = Query::default();
    if rng.one_in(2) {
        query.order = Order::NewestFirst;
    }
    if rng.one_in(3) {
        query.from_ns = Some(time(rng));
    }
    if rng.one_in(3) {
        query.to_ns = Some(time(rng));
    }
    match rng.below(11) {
        0 => query.stream = Some("short".to_owned()),
        1 => query.stream = Some("main".to_owned()),
        2 => query.kind = Some(format!("kind{}", rng.below(5))),
        3 => query.host = Some(format!("host{}", rng.below(6))),
        4 => query.contains = vec![format!("user{} ", rng.below(9)).into_bytes()],
        5 => query.contains = vec![b" did 1".to_vec(), b"xxxx".to_vec()],
        6 => query.contains = vec![format!(" did {} ", rng.next_u64()).into_bytes()],
        7 => query.words = vec![format!("user{}", rng.below(9)).into_bytes()],
        8 => query.words = vec![b"did".to_vec(), rng.below(90).to_string().into_bytes()],
        9 => query.regex = Some(regex::bytes::Regex::new("^user[3-5] .*7 ").unwrap()),
        _ => query.severity_min = Some([Severity::Unknown, Severity::Low][rng.below(2)]),
    }
    if rng.one_in(4) {
        let subnets = ["10.1.2.3", "10.1.1.0/24", "10.1.2.2/31", "2001:db8:1::/48", "10.2.0.0/16"];
        query.ips = vec![subnets[rng.below(5)].parse().unwrap()];
        if rng.one_in(2) {
            query.ips.push("2001:db8::/32".parse().unwrap());
        }
    }
    query
}

/// All answers, as many at a time as a page has.
fn paged(store: &Store, query: &Query, page: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut query = query.clone();
    loop {
        let mut scan = store.scan(query.clone());
        let before = found.len();
        while found.len() < before + page {
            let Some(record) = scan.next().unwrap() else { return found };
            found.push(usize::try_from(record.seq()).unwrap());
            let timestamp_ns = record.event().timestamp_ns;
            query.after = Some(Cursor { timestamp_ns, seq: record.seq() });
        }
    }
}

fn ask(store: &Store, model: &Model, rng: &mut Rng, now_ns: i64) {
    for _ in 0..4 {
        let query = query(rng, now_ns);
        let expected = model.matching(&query);
        let page = if rng.one_in(2) { usize::MAX / 2 } else { 1 + rng.below(30) };
        assert_eq!(paged(store, &query, page), expected, "{query:?} by {page}");
    }
    let there = model.there();
    for _ in 0..20 {
        let seq = rng.below(model.events.len() + 2);
        let found = store.at(seq as u64).unwrap();
        assert_eq!(found.is_some(), there.contains(&seq), "{seq}");
        let Some(event) = model.events.get(seq) else { continue };
        if let Some(found) = found {
            assert!(found.leaf() == event.leaf && found.seq() == seq as u64);
        }
        let first = there.iter().find(|&&seq| model.events[seq].id == event.id);
        let found = store.get(event.id).unwrap();
        assert_eq!(found.map(|found| found.seq()), first.map(|&seq| seq as u64));
    }
    assert_eq!(store.get(EventId(u128::MAX - u128::from(rng.next_u64()))).unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_way_of_reading_gives_what_a_list_gives(ops in ops(), seed in any::<u64>()) {
        let disk = SimFs::new(seed);
        let clock = Arc::new(ManualClock::new(START_MS));
        let durability = "os".parse().unwrap();
        let mut model = Model::default();
        let mut rng = Rng::new(seed);
        let mut store = open(&disk, &clock, durability).unwrap();
        for op in ops {
            match op {
                Op::Append(count) => model.append(&store, &mut rng, &clock, count).unwrap(),
                Op::Flush => store.flush().unwrap(),
                Op::Compact | Op::Prune => {
                    clock.advance(std::time::Duration::from_secs(300));
                    store.flush().unwrap();
                    model.prune(&store, &clock);
                    if matches!(op, Op::Compact) {
                        store.compact().unwrap();
                    }
                }
                Op::Reopen => {
                    store.close().unwrap();
                    store = open(&disk, &clock, durability).unwrap();
                }
                Op::Ask(seed) => ask(&store, &model, &mut Rng::new(seed), now_ns(&clock)),
            }
        }
        ask(&store, &model, &mut rng, now_ns(&clock));
        model.checkpoint(&store);
        for seq in model.there().into_iter().step_by(9) {
            let record = store.at(seq as u64).unwrap().unwrap();
            let proof = store.prove_record(&record).unwrap();
            proof.verify(&store.verifier_key().unwrap()).unwrap();
        }
        store.close().unwrap();
        model.verify(&disk);
    }
}

#[test]
fn a_search_whose_asker_has_left_ends_whether_or_not_it_finds_anything() {
    let disk = SimFs::new(11);
    let clock = Arc::new(ManualClock::new(START_MS));
    let store = open(&disk, &clock, "os".parse().unwrap()).unwrap();
    let (mut model, mut rng) = (Model::default(), Rng::new(11));
    model.append(&store, &mut rng, &clock, 300).unwrap();
    store.flush().unwrap();
    model.append(&store, &mut rng, &clock, 300).unwrap();
    let waiting = Waiting::default();
    let query = Query { gone: waiting.gone(), ..Query::default() };
    let mut scan = store.scan(query.clone());
    assert!(scan.next().unwrap().is_some());
    drop(waiting);
    assert!(matches!(scan.next(), Err(ReadError::Gone)));
    let nothing = Query { contains: vec![b"in no event".to_vec()], ..query };
    assert!(matches!(store.scan(nothing).next(), Err(ReadError::Gone)));
    assert!(store.scan(Query::default()).next().unwrap().is_some(), "others go on");
    store.close().unwrap();
}

#[test]
fn a_search_for_random_needles_finds_what_a_scan_finds() {
    let disk = SimFs::new(12);
    let clock = Arc::new(ManualClock::new(START_MS));
    let store = open(&disk, &clock, "os".parse().unwrap()).unwrap();
    let mut rng = Rng::new(12);
    let words = ["rejected", "user7", "10", "1", "für", "a", "Timeout", "x9"];
    let between = [" ", "=", ".", "", ", ", "_"];
    let mut raws: Vec<Vec<u8>> = Vec::new();
    for _ in 0..40 {
        let mut batch = Batch::new("main");
        for _ in 0..20 {
            let mut raw = String::new();
            for _ in 0..1 + rng.below(6) {
                raw += words[rng.below(words.len())];
                raw += between[rng.below(between.len())];
            }
            raws.push(raw.into_bytes());
            let draft = Draft { raw: raws.last().unwrap().into(), ..Draft::default() };
            batch.push(&draft, now_ns(&clock)).unwrap();
        }
        store.append(batch).unwrap();
    }
    store.flush().unwrap();
    let find = |query: Query| {
        let mut scan = store.scan(query);
        let mut found = Vec::new();
        while let Some(record) = scan.next().unwrap() {
            found.push(record.event().raw.to_vec());
        }
        found.sort_unstable();
        found
    };
    let all = find(Query::default());
    for _ in 0..400 {
        let raw = &raws[rng.below(raws.len())];
        let start = rng.below(raw.len());
        let needle = raw[start..start + 1 + rng.below(raw.len() - start)].to_vec();
        let contains = Query { contains: vec![needle.clone()], ..Query::default() };
        let mut expected = all.clone();
        expected.retain(|raw| raw.windows(needle.len()).any(|part| part == needle));
        assert_eq!(find(contains), expected, "{needle:?}");
        let words = Query { words: vec![needle.clone()], ..Query::default() };
        expected.retain(|raw| has_words(&needle, raw));
        assert_eq!(find(words), expected, "{needle:?}");
    }
    store.close().unwrap();
}

#[test]
fn a_search_for_a_single_word_reads_only_blocks_whose_filter_has_it() {
    let disk = SimFs::new(13);
    let clock = Arc::new(ManualClock::new(START_MS));
    let options = Options {
        memory_table_events: 100_000,
        verified_reads: false,
        ..crate::store_model::options("os".parse().unwrap())
    };
    let open = || {
        let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
        Store::open_quiet(fs, clock.clone(), Path::new(DIR), options.clone()).unwrap().0
    };
    let store = open();
    let mut batch = Batch::new("main");
    for number in 0..400 {
        let what = if number == 300 { "rejected" } else { "accepted" };
        let raw = format!("{what} {number}").into_bytes().into();
        batch.push(&Draft { raw, ..Draft::default() }, now_ns(&clock) + number).unwrap();
    }
    store.append(batch).unwrap();
    store.flush().unwrap();
    store.close().unwrap();
    // The first block, which has none of the words, cannot be read.
    damage_first_block(&disk);
    let store = open();
    let count = |query: Query| {
        let mut scan = store.scan(query);
        let mut count = 0;
        while scan.next()?.is_some() {
            count += 1;
        }
        Ok::<_, ReadError>(count)
    };
    let words = vec![b"rejected".to_vec()];
    assert_eq!(count(Query { words, ..Query::default() }).unwrap(), 1);
    let contains = vec![b"rejected".to_vec()];
    assert!(count(Query { contains, ..Query::default() }).is_err(), "it may be part of a word");
}

/// Whether a needle is in `raw` without a word that continues over its ends.
pub(crate) fn has_words(needle: &[u8], raw: &[u8]) -> bool {
    let inside = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b >= 0x80);
    (0..raw.len()).any(|start| {
        raw[start..].strip_prefix(needle).is_some_and(|rest| {
            let joined = |left, right| inside(left) && inside(right);
            let before = joined(raw[..start].last(), needle.first());
            !before && !joined(needle.last(), rest.first())
        })
    })
}
