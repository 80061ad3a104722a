//! A changed byte, anywhere, is an error or does not matter; it is never another number.

use forebay_inventory::index::{Index, IndexError};
use forebay_inventory::object::{Classes, Kind, Month, Object};

use crate::oracle::{Counted, Listed, build_at, counted, naive, options};

fn small_tree(classes: &Classes) -> Listed {
    let keys = (0..400_u32).map(|i| match i % 4 {
        0 | 2 => format!("wide/{i:03}/x"),
        1 => format!("deep/{}/{}/{i}", i % 7, i % 3),
        _ => format!("files/{i}"),
    });
    let rows = keys.zip(0_u64..).map(|(key, i)| {
        let object = Object {
            size: i * i * 31,
            version: 0,
            modified: Month::from_number(u16::try_from(600 + i % 30).unwrap()),
            class: classes
                .id(["STANDARD", "GLACIER", "COLD"][usize::try_from(i % 3).unwrap()])
                .unwrap(),
            kind: if i % 11 == 0 { Kind::Noncurrent } else { Kind::Current },
        };
        (key.into_bytes(), object)
    });
    Listed(vec![rows.collect()])
}

/// Asks everything; an error is fine, another number is not.
fn ask_all(
    index: &Index,
    expected: &std::collections::BTreeMap<Vec<u8>, Counted>,
) -> Result<(), IndexError> {
    let mut outcome = Ok(());
    for (prefix, numbers) in expected {
        match index.get(prefix) {
            Ok(Some(node)) => {
                let stats = node.stats();
                let readable = stats.as_ref().is_ok_and(|stats| node.histograms(stats).is_ok());
                if readable {
                    assert_eq!(&counted(&node), numbers);
                } else if let Err(error) = stats.and_then(|stats| node.histograms(&stats)) {
                    outcome = Err(error);
                }
                match node.page(forebay_inventory::index::SortBy::Bytes, 0, 20) {
                    Ok(page) => assert_eq!(page.total, node.child_count()),
                    Err(error) => outcome = Err(error),
                }
            }
            Ok(None) => panic!("a prefix that is there was not found"),
            Err(error) => outcome = Err(error),
        }
    }
    assert!(!matches!(index.get(b"wide/absent/"), Ok(Some(_))));
    outcome
}

#[test]
fn a_changed_byte_is_never_another_number_and_verify_finds_every_one() {
    let classes = Classes::new();
    let source = small_tree(&classes);
    let expected = naive(&source, &classes);
    let dir = tempfile::tempdir().unwrap();
    build_at(dir.path(), &source, &classes, &options()).unwrap();
    for name in ["nodes.1", "table.1", "order.1", "provenance.json.1", "index.json"] {
        let path = dir.path().join(name);
        let good = std::fs::read(&path).unwrap();
        // Every byte of small files; of larger ones one in seven, at another place for each bit.
        let step = if good.len() > 4000 { 7 } else { 1 };
        for at in (0..good.len()).step_by(step) {
            let mut changed = good.clone();
            changed[at] ^= 1 << (at % 8);
            // A new file, as an index never changes one that may be mapped.
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, &changed).unwrap();
            let Ok(index) = Index::open(dir.path()) else { continue };
            assert!(index.verify().is_err(), "byte {at} of {name}");
            if at % (step * 5) == 0 {
                // Most questions do not meet it; none may be answered wrongly.
                drop(ask_all(&index, &expected));
            }
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, &good).unwrap();
        let index = Index::open(dir.path()).unwrap();
        index.verify().unwrap();
        ask_all(&index, &expected).unwrap();
    }
}

#[test]
fn a_truncated_file_is_refused_when_the_index_is_opened() {
    let classes = Classes::new();
    let dir = tempfile::tempdir().unwrap();
    build_at(dir.path(), &small_tree(&classes), &classes, &options()).unwrap();
    for name in ["nodes.1", "table.1", "order.1", "index.json"] {
        let path = dir.path().join(name);
        let good = std::fs::read(&path).unwrap();
        for len in [0, 1, good.len() / 2, good.len() - 1] {
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, &good[..len]).unwrap();
            assert!(Index::open(dir.path()).is_err(), "{len} bytes of {name}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(Index::open(dir.path()).is_err(), "without {name}");
        std::fs::write(&path, &good).unwrap();
    }
    let missing = Index::open(&dir.path().join("elsewhere")).unwrap_err();
    assert!(matches!(missing, IndexError::Missing(_)), "{missing}");
}
