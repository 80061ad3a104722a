//! Decoders for fuzz targets: any bytes go in, nothing panics, and what decodes is encoded to the
//! same bytes.

use super::format::{self, Entry};
use super::join::Joiner;
use super::ops::{Ops, OpsReader};
use super::snapshot::entry::{EntryReader, put_bytes, put_head};
use super::snapshot::format::{BLOCK_HEADER_SIZE, Block};
use super::snapshot::read::{Assembly, ReadValue, Sink};
use super::snapshot::value::{Building, put_elements};
use crate::store::{Key, Kind, Rules, Value};

/// Decodes any bytes as an entry of the command log.
///
/// # Panics
/// If the decoded entry is not encoded to the same bytes: a bug.
pub fn log_entry(data: &[u8]) {
    let mut joiner = Joiner::new(forebay_log::Lsn(0));
    joiner.take(forebay_log::Lsn(8), data).ok();
    let refers = data.get(1) == Some(&2);
    let bytes = match Entry::decode(data) {
        Ok(Entry::Ops { now_ms, bytes }) => {
            assert_eq!([&format::ops_header(now_ms, refers)[..], bytes].concat(), data);
            bytes
        }
        Ok(Entry::Part { now_ms, first, total, offset, bytes }) => {
            let header = format::part_header((now_ms, refers), first, total, offset);
            assert_eq!([&header[..], bytes].concat(), data);
            bytes
        }
        Ok(Entry::Opened) => return assert_eq!(format::opened(), data),
        Err(_) => return,
    };
    let (mut reader, mut ops) = (OpsReader::new(bytes), Ops::default());
    loop {
        match reader.next() {
            Ok(Some(op)) => ops.push(op.database, &op.words),
            Ok(None) => return assert_eq!(ops.as_bytes(), bytes),
            Err(_) => return assert!(bytes.starts_with(ops.as_bytes())),
        }
    }
}

struct Nothing;

impl Sink for Nothing {
    fn put(&mut self, _: usize, _: &Key<'_>, _: ReadValue<'_>, _: Option<u64>) {}
}

/// Decodes any bytes as the blocks of a snapshot, each: kind, size (2 bytes), payload. Checksums
/// are left out, because a fuzzer cannot find them.
///
/// # Panics
/// If a decoded block is not encoded to the same bytes: a bug.
pub fn snapshot_blocks(mut data: &[u8]) {
    let rules = Rules::new(1);
    let mut assembly = Assembly::default();
    while let [kind, low, high, rest @ ..] = data {
        let size = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (payload, after) = rest.split_at(size);
        data = after;
        let Ok(block) = Block::decode(*kind, payload) else { continue };
        let mut encoded = Vec::new();
        block.encode(1, 2, &mut encoded);
        assert_eq!(&encoded[BLOCK_HEADER_SIZE..], payload, "{block:?}");
        if let Block::Range { entries, .. } = block {
            range_entries(entries);
        }
        if !matches!(assembly.take(block, &rules, &mut Nothing), Ok(true)) {
            assembly = Assembly::default();
        }
    }
}

fn range_entries(bytes: &[u8]) {
    let (mut reader, mut encoded) = (EntryReader::new(bytes), Vec::new());
    while let Ok(Some(entry)) = reader.next() {
        put_head(&mut encoded, entry.kind, entry.deadline_ms, entry.key);
        put_bytes(&mut encoded, entry.value);
        assert!(bytes.starts_with(&encoded));
        let mut building = Building::new(entry.kind);
        if building.add(entry.value).is_err() {
            continue;
        }
        match building.finish() {
            None => assert!(entry.value.is_empty()),
            Some(Value::String(text)) => assert_eq!(text, entry.value),
            Some(Value::Text(_)) => panic!("a value that is read is shared with nothing"),
            Some(Value::Object(object)) => {
                let mut elements = Vec::new();
                put_elements(&object, 0, usize::MAX, &mut elements);
                // The other types have their own order, and a set encodes integers in its own way.
                if entry.kind == Kind::List {
                    assert_eq!(elements, entry.value);
                }
                assert_eq!(elements.len(), entry.value.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::fs::sim::Rng;
    use forebay_log::Lsn;

    /// Calls `run` with `data` and with many damaged copies of it.
    fn damage(data: &[u8], run: impl Fn(&[u8])) {
        run(data);
        let mut rng = Rng::new(data.len() as u64);
        for cut in 0..data.len() {
            run(&data[..cut]);
        }
        for _ in 0..4_000 {
            let mut damaged = data.to_vec();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(damaged.len());
                damaged[at] = match rng.below(4) {
                    0 => damaged[at].wrapping_add(1),
                    1 => 0xFF,
                    2 => 0,
                    _ => damaged[at] ^ 1 << rng.below(8),
                };
            }
            run(&damaged);
        }
    }

    #[test]
    fn damaged_entries_of_the_log_are_refused_or_encode_to_themselves() {
        let mut ops = Ops::default();
        ops.push(0, &[b"SET", b"key", &[b'v'; 200]]);
        ops.push(2, &[super::super::FLUSH]);
        ops.push(3, &[b"RPUSH", b"k", b"1", b"2"]);
        ops.push_reference(3, &[b"COPY", b"k", b"l", b"DB", b"4", b"REPLACE"]);
        damage(&[&format::ops_header(9, true)[..], ops.as_bytes()].concat(), log_entry);
        let part = format::part_header((9, true), Lsn(0), ops.as_bytes().len() as u64, 0);
        damage(&[&part[..], ops.as_bytes()].concat(), log_entry);
        damage(&format::opened(), log_entry);
    }

    #[test]
    fn damaged_blocks_of_a_snapshot_are_refused_or_encode_to_themselves() {
        let mut entries = Vec::new();
        for (kind, value) in [
            (Kind::String, &b"text"[..]),
            (Kind::List, b"\x01a\x02bc\x00"),
            (Kind::Hash, b"\x01f\x02vv\x01g\x00"),
            (Kind::Set, b"\x0212\x0213\x03abc"),
            (Kind::ZSet, b"\x00\x00\x00\x00\x00\x00\xf0\x3f\x01m"),
        ] {
            put_head(&mut entries, kind, (kind == Kind::List).then_some(77), b"key");
            put_bytes(&mut entries, value);
        }
        let (place, position) = ((0, 3), Lsn(64));
        let large =
            Block::Large { place, kind: Kind::List, deadline_ms: Some(5), key: b"a long one" };
        let mut data = Vec::new();
        for block in [
            Block::Unused { database: 4, position },
            Block::Range { place, hashes: (0, 99), position, entries: &entries },
            large,
            Block::Piece(b"\x01a\x01b"),
            Block::Abandoned,
            large,
            Block::Piece(b"\x01a\x01b"),
            Block::LargeEnd { hash: 100, position },
            Block::End(super::super::snapshot::format::End::default()),
        ] {
            let mut encoded = Vec::new();
            block.encode(1, 2, &mut encoded);
            let payload = &encoded[BLOCK_HEADER_SIZE..];
            data.push(encoded[4]);
            data.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_le_bytes());
            data.extend_from_slice(payload);
        }
        damage(&data, snapshot_blocks);
    }
}
