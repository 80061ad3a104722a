//! Entries are decoded as they were encoded, and invalid bytes are refused without a panic.

use proptest::prelude::*;

use super::*;
use crate::attributes::AttributeKind;
use crate::format::DecodeError;

fn record() -> IdempotencyRecord {
    IdempotencyRecord { key: Digest::of(b"key"), fingerprint: Digest::of(b"body") }
}

fn put(bytes: &[u8]) -> Vec<u8> {
    put_with(bytes, Attributes::default())
}

fn attributes() -> Attributes {
    let mut attributes = Attributes::default();
    attributes.set(AttributeKind::Tag, "colour", "blue").unwrap();
    attributes.set(AttributeKind::Header, "cache-control", "no-store").unwrap();
    attributes
}

fn moved() -> Vec<u8> {
    let encoded = put(b"");
    let Ok(Entry::FilePut(put)) = Entry::decode(&encoded) else { panic!("a put") };
    let put = FilePut { attributes: attributes(), place: BlobPlace::Existing, ..put };
    let from_namespace = Namespace::parse("old").unwrap();
    let from_name = FileName::parse("before").unwrap();
    let moved = FileMove { put, from_namespace, from_name, keeps: true };
    let encoded = moved.encode();
    assert_eq!(Entry::decode(&encoded), Ok(Entry::FileMove(moved)));
    encoded
}

fn namespace_change(attributes: Option<Attributes>) -> Vec<u8> {
    let namespace = Namespace::parse("n").unwrap();
    let change = NamespaceChange { changed_ms: 3, namespace, attributes };
    let encoded = change.encode();
    assert_eq!(Entry::decode(&encoded), Ok(Entry::Namespace(change)));
    encoded
}

fn put_with(bytes: &[u8], attributes: Attributes) -> Vec<u8> {
    let put = FilePut {
        created_ms: -5,
        digest: Digest::of(bytes),
        size: bytes.len() as u64,
        category: Category::Json,
        namespace: Namespace::parse("ns").unwrap(),
        name: FileName::parse("a/b.json").unwrap(),
        mime: "application/json",
        comment: "hello",
        attributes,
        duplicate: false,
        replaced: true,
        created: false,
        keeps: false,
        derived: false,
        idempotency: Some(record()),
        place: BlobPlace::Inline(bytes),
    };
    let mut encoded = put.encode_header();
    encoded.extend_from_slice(bytes);
    assert_eq!(Entry::decode(&encoded), Ok(Entry::FilePut(put)));
    encoded
}

fn commit() -> Vec<u8> {
    let mut run = Vec::new();
    for document in [&b"{}"[..], b"{\"a\":1}"] {
        encode_documents(&mut run, document);
    }
    let commit = DocumentCommit {
        request: [7; 16],
        received_ms: 9,
        namespace: Namespace::parse("n").unwrap(),
        target: TargetCode::Table,
        first_id: 3,
        count: 12,
        columns: vec![AddedColumn { path: "a.b".into(), type_code: 2 }],
        flags: CommitFlags::default(),
        chunks: vec![64, 1 << 40],
        idempotency: Some(record()),
        status: 201,
        answer: b"{}",
        documents: Documents { count: 2, bytes: &run },
    };
    let mut encoded = commit.encode_header(2);
    encoded.extend_from_slice(&run);
    assert_eq!(Entry::decode(&encoded), Ok(Entry::DocumentCommit(commit)));
    encoded
}

#[test]
fn a_commit_has_flags_only_where_it_says_something() {
    let plain = commit();
    assert_eq!(plain[..3], [KIND_COMMIT, VERSION, 1]);
    for bits in 1..=3 {
        let mut encoded = plain.clone();
        encoded[1] = VERSION_FLAGS;
        encoded.insert(3, bits);
        let Ok(Entry::DocumentCommit(commit)) = Entry::decode(&encoded) else { panic!("{bits}") };
        let expected = CommitFlags { reshapes: bits & 1 != 0, undecided: bits & 2 != 0 };
        assert_eq!(commit.flags, expected);
        assert_eq!(commit.encode_header(2), encoded[..encoded.len() - 17]);
    }
    for bits in [0, 4, 255] {
        let mut encoded = plain.clone();
        encoded[1] = VERSION_FLAGS;
        encoded.insert(3, bits);
        let refused = DecodeError::Value { field: "flags", offset: 3, found: bits.into() };
        assert_eq!(Entry::decode(&encoded), Err(refused));
    }
}

fn extents() -> DocumentExtents {
    let extent = |name, count| NamespaceExtent {
        namespace: Namespace::parse(name).unwrap(),
        count,
        digest: u64::MAX,
        last_id: count,
    };
    DocumentExtents { position: 900, erased: 400, namespaces: vec![extent("a", 1), extent("b", 7)] }
}

#[test]
fn extents_that_were_erased_before_they_were_held_are_refused() {
    let encoded = DocumentExtents { erased: 901, ..extents() }.encode();
    let refused = DecodeError::Value { field: "erased", offset: 10, found: 901 };
    assert_eq!(Entry::decode(&encoded), Err(refused));
}

fn change(is_replaced: bool) -> Vec<u8> {
    let change = DocumentChange {
        changed_ms: 9,
        namespace: Namespace::parse("n").unwrap(),
        id: 1 << 40,
        action: match is_replaced {
            false => ChangeAction::Delete,
            true => ChangeAction::Replace {
                target: TargetCode::Table,
                flags: CommitFlags { reshapes: true, undecided: false },
                columns: vec![AddedColumn { path: "a.b".into(), type_code: 2 }],
                document: b"{\"a\":1}",
            },
        },
        idempotency: Some(record()),
        status: 200,
        answer: b"{}",
    };
    let mut encoded = change.encode_header();
    encoded.extend_from_slice(change.document());
    assert_eq!(Entry::decode(&encoded), Ok(Entry::DocumentChange(change)));
    encoded
}

fn dropped() -> Vec<u8> {
    let dropped = DocumentsDropped {
        dropped_ms: 3,
        namespace: Namespace::parse("n").unwrap(),
        last_id: 12,
        idempotency: None,
    };
    let encoded = dropped.encode();
    assert_eq!(Entry::decode(&encoded), Ok(Entry::DocumentsDropped(dropped)));
    encoded
}

#[test]
fn an_unknown_action_or_flag_of_a_change_is_refused() {
    for action in [0, 3, 255] {
        let mut encoded = change(false);
        encoded[2] = action;
        let refused = DecodeError::Value { field: "action", offset: 2, found: action.into() };
        assert_eq!(Entry::decode(&encoded), Err(refused));
    }
    let mut trailing = change(false);
    trailing.push(0);
    assert!(Entry::decode(&trailing).is_err());
}

#[test]
fn every_kind_of_entry_reads_back() {
    change(true);
    change(false);
    dropped();
    put(b"");
    put(b"{\"a\":1}");
    put_with(b"{}", attributes());
    moved();
    namespace_change(None);
    namespace_change(Some(Attributes::default()));
    namespace_change(Some(attributes()));
    commit();
    let delete = Delete {
        deleted_ms: 1,
        namespace: Namespace::parse("n").unwrap(),
        name: FileName::parse("x").unwrap(),
        keeps: false,
        idempotency: None,
    };
    let keeping = Delete { keeps: true, ..delete.clone() };
    assert_eq!(Entry::decode(&delete.encode()), Ok(Entry::Delete(delete)));
    assert_eq!(Entry::decode(&keeping.encode()), Ok(Entry::Delete(keeping)));
    let erased = VersionsErased {
        erased_ms: 8,
        namespace: Namespace::parse("n").unwrap(),
        name: FileName::parse("x").unwrap(),
        ids: vec![64, 1 << 40],
    };
    let VersionsErased { namespace, name, .. } = erased.clone();
    assert_eq!(Entry::decode(&erased.encode()), Ok(Entry::VersionsErased(erased)));
    let (of, called) = (namespace.clone(), name.clone());
    let newest = NewestErased { erased_ms: 9, namespace, name, id: 70, current: Some(64) };
    let last = NewestErased { current: None, ..newest.clone() };
    assert_eq!(Entry::decode(&newest.encode()), Ok(Entry::NewestErased(newest)));
    assert_eq!(Entry::decode(&last.encode()), Ok(Entry::NewestErased(last)));
    let mut attributes = Attributes::default();
    attributes.set(AttributeKind::Tag, "a", "1").unwrap();
    for attributes in [attributes, Attributes::default()] {
        let (namespace, name) = (of.clone(), called.clone());
        let amended = Amended { amended_ms: 9, namespace, name, id: 70, attributes };
        assert_eq!(Entry::decode(&amended.encode()), Ok(Entry::Amended(amended)));
    }
    let outcome =
        Outcome { created_ms: 1, status: 207, idempotency: record(), answer: b"{\"parts\":[]}" };
    assert_eq!(Entry::decode(&outcome.encode()), Ok(Entry::Outcome(outcome)));
    let extents = extents();
    assert_eq!(Entry::decode(&extents.encode()), Ok(Entry::DocumentExtents(extents)));
    let mut chunk = encode_chunk_header([1; 16], 1);
    encode_documents(&mut chunk, b"{\"x\":2}");
    let Ok(Entry::DocumentChunk(read)) = Entry::decode(&chunk) else { panic!("a chunk") };
    assert_eq!(read.documents.iter().collect::<Vec<_>>(), [b"{\"x\":2}"]);
}

#[test]
fn a_flag_that_means_nothing_yet_is_refused() {
    let mut encoded = put(b"hello");
    encoded[4] |= 16;
    let Ok(Entry::FilePut(put)) = Entry::decode(&encoded) else { panic!("a put") };
    assert!(put.derived);
    encoded[4] |= 32;
    let refused = DecodeError::Value { field: "flags", offset: 4, found: 50 };
    assert_eq!(Entry::decode(&encoded), Err(refused));
}

#[test]
fn a_put_of_the_second_version_without_attributes_is_refused() {
    let with = put_with(b"hello", attributes());
    let size = attributes().to_bytes().len();
    let at = with.windows(size).position(|window| window == attributes().to_bytes()).unwrap();
    let mut without = with[..at - 4].to_vec();
    without.extend_from_slice(&0u32.to_le_bytes());
    without.extend_from_slice(&with[at + size..]);
    let refused = DecodeError::Value { field: "attributes", offset: at - 4, found: 0 };
    assert_eq!(Entry::decode(&without), Err(refused));
}

#[test]
fn a_move_holds_a_put_without_bytes_and_nothing_else() {
    let moved = moved();
    let head = moved.len() - put_with(b"", attributes()).len();
    for inner in [put(b""), moved.clone(), namespace_change(None), Vec::new()] {
        let mut wrong = moved[..head].to_vec();
        wrong.extend_from_slice(&inner);
        assert!(Entry::decode(&wrong).is_err(), "{inner:?}");
    }
}

#[test]
fn every_truncation_of_an_entry_is_refused() {
    let with_attributes = put_with(b"", attributes());
    let change = namespace_change(Some(attributes()));
    for whole in [
        put(b"0123456789"),
        with_attributes,
        moved(),
        change,
        commit(),
        extents().encode(),
        self::change(false),
        dropped(),
    ] {
        for size in 0..whole.len() {
            assert!(Entry::decode(&whole[..size]).is_err(), "cut at {size}");
        }
    }
}

#[test]
fn a_count_larger_than_the_payload_is_refused_without_allocating() {
    let chunk = encode_chunk_header([0; 16], u32::MAX);
    assert!(matches!(Entry::decode(&chunk), Err(DecodeError::Short { .. })));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        drop(Entry::decode(&bytes).map(|entry| format!("{entry:?}")));
    }

    #[test]
    fn flipped_bits_never_panic(at in 0usize..100, bit in 0u8..8) {
        for mut whole in [put(b"some bytes"), moved(), commit(), extents().encode(), change(true), dropped()] {
            let at = at % whole.len();
            whole[at] ^= 1 << bit;
            drop(Entry::decode(&whole).map(|entry| format!("{entry:?}")));
        }
    }
}
