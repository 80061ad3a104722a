//! Units that are encoded and decoded are the same, and damaged ones are errors.

use proptest::prelude::*;

use super::super::row::Field;
use super::*;

fn column(name: &str, is_key: bool) -> FeedColumn {
    feed_column(name.to_owned(), "integer".to_owned(), is_key, 1, Some("int4")).unwrap()
}

/// A stream with a key, and one without.
fn streams() -> Vec<FeedStream> {
    let stream = |name: &str, has_key: bool| FeedStream {
        stream: name.to_owned(),
        columns: vec![column("id", has_key), column("large", false), column("n", false)],
        from: None,
        known_by: Vec::new(),
    };
    vec![stream("keyed", true), stream("keyless", false)]
}

fn row(id: u8, large: Option<&[u8]>, seed: u8) -> ChangedRow {
    let last: &[u8] = &[seed];
    let large = large.map_or(Field::Unchanged, Field::Value);
    let last = if seed == 0 { Field::Null } else { Field::Value(last) };
    ChangedRow::new([Field::Value(&[id]), large, last]).unwrap()
}

type Step = (u8, u8, u8, u8);

/// Adds what can follow; what cannot is left out.
fn net(mut net: NetChanges, steps: &[Step]) -> NetChanges {
    for (at, &(what, id, to, seed)) in steps.iter().enumerate() {
        let at_us = i64::try_from(at).unwrap() - 3;
        let key = |id| row(id, Some(b""), 1).key(&[0]).unwrap();
        // Whether it can is for the tests of these changes.
        match what % 8 {
            0 => net.truncate(at_us),
            1 | 2 => drop(net.insert(row(id, Some(&[seed; 3]), seed))),
            3 | 4 => drop(net.update(None, row(id, (seed > 9).then_some(&[7; 40]), seed))),
            5 => drop(net.update(Some(key(id)), row(to, None, seed))),
            _ => drop(net.delete(key(id), at_us)),
        }
    }
    net
}

fn bag(steps: &[Step]) -> BagChanges {
    let mut bag = BagChanges::default();
    for &(what, id, to, seed) in steps {
        let one = |id| row(id, Some(&[id; 2]), seed % 3);
        match what % 8 {
            0 => bag.truncate(),
            1..4 => bag.insert(one(id)).unwrap(),
            4..6 => bag.update(one(id), one(to)).unwrap(),
            _ => bag.delete(one(id)).unwrap(),
        }
    }
    bag
}

fn log(steps: &[Step], key: &[usize]) -> ChangeLog {
    let mut log = ChangeLog::default();
    let mut commit = Arc::new(Commit { position: "0/0".to_owned(), at_us: 0 });
    for (number, &(what, id, to, seed)) in (0..).zip(steps) {
        if seed % 4 == 0 {
            let (position, at_us) = (format!("0/{number}"), -7);
            commit = Arc::new(Commit { position, at_us });
        }
        let whole = row(id, Some(&[seed; 3]), seed);
        let before = row(to, Some(b"x"), 1);
        let key = if key.is_empty() { before.whole_key() } else { before.key(key) };
        let (operation, key_before, row) = match what % 4 {
            0 => (Operation::Insert, None, Some(whole)),
            1 => (Operation::Update, (seed > 9).then(|| key.unwrap()), Some(row(id, None, seed))),
            2 => (Operation::Delete, None, Some(whole)),
            _ => (Operation::Truncate, None, None),
        };
        log.push(LoggedChange { operation, commit: Arc::clone(&commit), number, key_before, row });
    }
    log
}

/// A unit in one of the forms, and the form.
fn unit(form: u8, keyed: &[Step], keyless: &[Step]) -> (ChangeUnit, FeedForm) {
    let (form, changes) = match form % 3 {
        0 => (
            FeedForm::Apply,
            [Changes::Net(net(NetChanges::new([0]), keyed)), Changes::Bag(bag(keyless))],
        ),
        1 => (
            FeedForm::Mark,
            [Changes::Net(net(NetChanges::keeping([0]), keyed)), Changes::Bag(bag(keyless))],
        ),
        _ => (FeedForm::Log, [Changes::Log(log(keyed, &[0])), Changes::Log(log(keyless, &[]))]),
    };
    let streams = changes.into_iter().enumerate();
    let streams = streams.map(|(stream, changes)| StreamChanges { stream, changes }).collect();
    let position = (!keyed.len().is_multiple_of(3)).then(|| "0/16B3748".to_owned());
    let committed_us = position.as_ref().map(|_| 1_234_567);
    (ChangeUnit { position, commits: 3, committed_us, redefined: Vec::new(), streams }, form)
}

/// What a destination sees of a unit.
fn seen(unit: ChangeUnit) -> Vec<String> {
    let ChangeUnit { position, commits, committed_us, redefined, streams } = unit;
    let mut seen = vec![format!("{position:?} {commits} {committed_us:?} {redefined:?}")];
    for StreamChanges { stream, changes } in streams {
        let count = changes.count();
        seen.push(match changes {
            Changes::Net(net) => {
                let (at, keeps) = (net.truncated_us(), net.keeps_deleted());
                format!("{stream} {count} {at:?} {keeps} {:?}", net.into_effects())
            }
            Changes::Bag(bag) => {
                let is = bag.is_truncated();
                format!("{stream} {count} {is} {:?}", bag.into_effects())
            }
            Changes::Log(log) => format!("{stream} {count} {:?}", log.changes()),
        });
    }
    seen
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec((any::<u8>(), 0_u8..6, 0_u8..6, 0_u8..20), 0..30)
}

proptest! {
    #[test]
    fn a_unit_is_the_same_after_it_crossed(form: u8, keyed in steps(), keyless in steps()) {
        let (sent, form) = unit(form, &keyed, &keyless);
        let bytes = encode(&sent).unwrap();
        let received = decode(&bytes, &streams(), form).unwrap();
        // A component may pass on what it was given.
        prop_assert_eq!(&encode(&received).unwrap(), &bytes);
        prop_assert_eq!(seen(received), seen(sent));
    }

    #[test]
    fn bytes_that_are_damaged_or_cut_off_are_an_error_or_another_unit(
        form: u8, keyed in steps(), keyless in steps(), at: proptest::sample::Index, with: u8, rest: bool,
    ) {
        let (sent, form) = unit(form, &keyed, &keyless);
        let mut bytes = encode(&sent).unwrap();
        let at = at.index(bytes.len());
        if rest {
            bytes[at] = with;
        } else {
            bytes.truncate(at);
            prop_assert!(decode(&bytes, &streams(), form).is_err());
        }
        if let Ok(unit) = decode(&bytes, &streams(), form) {
            prop_assert!(unit.streams.len() <= 2);
            seen(unit);
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_a_unit(bytes: Vec<u8>) {
        let bytes = [&[VERSION, 0][..], &bytes].concat();
        drop(decode(&bytes, &streams(), FeedForm::Apply));
    }
}

#[test]
fn other_columns_of_a_stream_count_from_their_unit_on() {
    let mut wider = streams().remove(0);
    wider.columns.push(column("added", false));
    let steps = vec![
        ColumnStep::Add {
            name: "added".to_owned(),
            sql_type: "text".to_owned(),
            existing: Some("it's".to_owned()),
        },
        ColumnStep::Rename { from: "a".to_owned(), to: "b".to_owned() },
        ColumnStep::Retype { name: "n".to_owned(), sql_type: "numeric(10,2)".to_owned() },
        ColumnStep::Drop { name: "gone".to_owned() },
    ];
    let value = Field::Value(b"x");
    let wide = ChangedRow::new([value, value, Field::Null, value]).unwrap();
    let mut net = NetChanges::new([0]);
    net.insert(wide).unwrap();
    let redefinition = Redefinition { columns: wider.columns, steps };
    let sent = ChangeUnit {
        position: None,
        commits: 0,
        committed_us: None,
        redefined: vec![(0, redefinition)],
        streams: vec![StreamChanges { stream: 0, changes: Changes::Net(net) }],
    };
    let bytes = encode(&sent).unwrap();
    let received = decode(&bytes, &streams(), FeedForm::Apply).unwrap();
    assert_eq!(seen(received), seen(sent));
}

/// Bytes of a unit of one stream, written by a component that follows no rules.
fn lie(stream: u32, kind: u8, changes: u64, rest: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![VERSION, 0];
    bytes.extend_from_slice(&1_u64.to_le_bytes());
    bytes.push(0);
    bytes.extend_from_slice(&0_u32.to_le_bytes());
    bytes.extend_from_slice(&1_u32.to_le_bytes());
    bytes.extend_from_slice(&stream.to_le_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(&changes.to_le_bytes());
    rest.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

#[test]
fn what_a_component_invents_is_refused_with_the_reason() {
    let one = 1_u32.to_le_bytes();
    let short = row(1, Some(b"x"), 1).as_bytes()[..9].to_vec();
    let few = ChangedRow::new([Field::Null]).unwrap();
    let sized =
        |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_le_bytes()[..], bytes].concat();
    let refused = |bytes: &[u8], form, expected: &str| {
        let error = decode(bytes, &streams(), form).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(expected), "{text}");
    };
    let apply = FeedForm::Apply;
    refused(&lie(7, NET, 0, &[&[0]]), apply, "stream 7 is not one of the feed");
    refused(&lie(0, BAG, 0, &[&[0], &[0; 4]]), apply, "another form than the feed");
    refused(&lie(0, NET, 0, &[&[0], &[0; 4]]), FeedForm::Log, "another form than the feed");
    refused(&lie(0, NET, 9, &[&[0], &u32::MAX.to_le_bytes()]), apply, "a list is cut off");
    refused(&lie(0, NET, 0, &[&[0], &one, &[2], &sized(few.as_bytes()), &[0]]), apply, "0 changes");
    let insert = |row: &[u8]| lie(0, NET, 1, &[&[0], &one, &[0], &sized(row), &[0]]);
    refused(&insert(&short), apply, "a field is cut off");
    refused(&insert(few.as_bytes()), apply, "1 fields instead of 3");
    refused(&insert(row(1, None, 1).as_bytes()), apply, "a row misses a value");
    let delete = lie(0, NET, 1, &[&[0], &one, &[2], &sized(few.as_bytes()), &[0]]);
    refused(&delete, apply, "a value of a key is missing");
    let huge = lie(0, NET, 1, &[&[0], &one, &[0], &u32::MAX.to_le_bytes(), &[0; 8]]);
    refused(&huge, apply, "it is cut off");
    refused(&[VERSION, 1, 0, 0, 0, 0], apply, "a position is not a line");
    refused(&[2], apply, "another version");
    refused(&[&encode(&unit(0, &[], &[]).0).unwrap()[..], &[0]].concat(), apply, "bytes are left");
}
