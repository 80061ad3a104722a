//! Messages as a server would send them.

use proptest::prelude::*;

use super::*;

/// A message as the server would send it.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn of(tag: u8) -> Self {
        Self(vec![tag])
    }
    fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }
    fn short(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }
    fn int(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }
    fn long(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }
    fn text(mut self, value: &str) -> Self {
        self.0.extend_from_slice(value.as_bytes());
        self.byte(0)
    }
    fn value(self, kind: u8, value: &[u8]) -> Self {
        let mut with = self.byte(kind).int(u32::try_from(value.len()).unwrap());
        with.0.extend_from_slice(value);
        with
    }
}

fn update() -> Bytes {
    Bytes::of(b'U')
        .int(5)
        .byte(b'K')
        .short(3)
        .value(b'b', b"key")
        .byte(b'n')
        .byte(b'n')
        .byte(b'N')
        .short(3)
        .value(b'b', b"new")
        .byte(b'u')
        .value(b't', b"")
}

fn samples() -> Vec<Vec<u8>> {
    let relation = Bytes::of(b'R').int(5).text("public").text("t").byte(b'd').short(2);
    let relation = relation.byte(1).text("id").int(20).int(u32::MAX);
    let relation = relation.byte(0).text("v").int(25).int(u32::MAX);
    let samples = [
        Bytes::of(b'B').long(1).long(2).int(3),
        Bytes::of(b'C').byte(0).long(1).long(2).long(3),
        Bytes::of(b'O').long(1).text("other"),
        relation,
        Bytes::of(b'Y').int(9).text("public").text("mood"),
        Bytes::of(b'I').int(5).byte(b'N').short(2).byte(b'n').value(b'b', b"abc"),
        update(),
        Bytes::of(b'D').int(5).byte(b'O').short(1).value(b't', b"1"),
        Bytes::of(b'T').int(2).byte(3).int(5).int(6),
        Bytes::of(b'M').byte(1).long(8).text("prefix").int(2).byte(7).byte(8),
        Bytes::of(b'S').int(3).byte(1),
        Bytes::of(b'c').int(3).byte(0).long(1).long(2).long(3),
        Bytes::of(b'A').int(3).int(4),
    ];
    samples.into_iter().map(|sample| sample.0).collect()
}

#[test]
fn an_update_has_its_key_and_the_mask_of_what_it_left_unchanged() {
    let bytes = update().0;
    let decoded = Decoder::default().decode(&bytes).unwrap();
    let Message::Update { relation, old: Some(Old::Key(key)), new } = decoded.message else {
        panic!("{decoded:?}")
    };
    assert_eq!((decoded.xid, relation), (None, Oid(5)));
    let key: Vec<_> = key.values().collect();
    assert_eq!(key, [Value::Binary(b"key"), Value::Null, Value::Null]);
    let new: Vec<_> = new.values().collect();
    assert_eq!(new, [Value::Binary(b"new"), Value::Unchanged, Value::Text(b"")]);
}

#[test]
fn a_table_has_its_columns_in_order() {
    let bytes = samples().remove(3);
    let decoded = Decoder::default().decode(&bytes).unwrap();
    let Message::Relation(relation) = decoded.message else { panic!("{decoded:?}") };
    assert_eq!((relation.schema.as_str(), relation.name.as_str()), ("public", "t"));
    let columns: Vec<_> = relation
        .columns
        .iter()
        .map(|column| {
            (column.name.as_str(), column.is_identity, column.type_oid, column.type_modifier)
        })
        .collect();
    assert_eq!(columns, [("id", true, Oid(20), -1), ("v", false, Oid(25), -1)]);
}

#[test]
fn changes_inside_a_block_have_the_number_of_their_transaction_first() {
    let mut decoder = Decoder::default();
    decoder.decode(&Bytes::of(b'S').int(3).byte(1).0).unwrap();
    let change = Bytes::of(b'T').int(4).int(1).byte(0).int(5).0;
    let decoded = decoder.decode(&change).unwrap();
    assert_eq!(decoded.xid, Some(Xid(4)));
    // No transaction begins or ends inside a block.
    for sample in samples() {
        if matches!(sample[0], b'B' | b'C' | b'S' | b'c' | b'A') {
            assert!(decoder.decode(&sample).is_err(), "{}", char::from(sample[0]));
        }
    }
    assert_eq!(decoder.decode(b"E").unwrap().message, Message::StreamStop);
    assert!(decoder.decode(b"E").is_err());
    assert!(decoder.decode(&change).is_err());
    assert!(decoder.decode(&samples()[8]).unwrap().xid.is_none());
}

#[test]
fn a_message_that_is_cut_or_too_long_is_refused() {
    for sample in samples() {
        Decoder::default().decode(&sample).unwrap();
        for size in 0..sample.len() {
            let cut = Decoder::default().decode(&sample[..size]).map(|_| ());
            assert!(cut.is_err(), "{:?} cut to {size}", char::from(sample[0]));
        }
        let long = [&*sample, &[0]].concat();
        assert!(Decoder::default().decode(&long).is_err(), "{:?}", char::from(sample[0]));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        sample in any::<prop::sample::Index>(),
    ) {
        let mut decoder = Decoder::default();
        for message in &messages {
            let _refused = decoder.decode(message).is_err();
        }
        let samples = samples();
        let mut flipped = sample.get(&samples).clone();
        for (at, value) in flips {
            *at.get_mut(&mut flipped) = value;
        }
        if let Ok(Decoded { message: Message::Insert { new, .. }, .. }) =
            Decoder::default().decode(&flipped)
        {
            prop_assert_eq!(new.values().count(), new.len());
        }
    }
}
