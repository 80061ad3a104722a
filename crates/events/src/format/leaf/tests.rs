//! One event, one encoding.

use proptest::prelude::*;

use super::*;

fn draft() -> impl Strategy<Value = Draft<'static>> {
    let text = || "[a-z0-9 äö.:-]{0,20}".prop_map(Cow::<'static, str>::Owned);
    let value = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<i64>().prop_map(Value::Integer),
        any::<i32>().prop_map(|number| Value::Real(f64::from(number) / 3.0)),
        text().prop_map(Value::Text),
        proptest::collection::vec(any::<u8>(), 0..200)
            .prop_map(|bytes| Value::Bytes(Cow::Owned(bytes))),
    ];
    let attributes =
        proptest::collection::vec(("[a-z]{1,9}".prop_map(Cow::<'static, str>::Owned), value), 0..5);
    (
        ("[a-z]{1,12}".prop_map(Cow::<'static, str>::Owned), text(), text(), text(), text()),
        proptest::option::of(any::<u128>().prop_map(|bits| IpAddr::V6(bits.into()))),
        (0u8..=6, 0u8..=3),
        proptest::collection::vec(any::<u8>(), 0..300),
        attributes,
    )
        .prop_map(
            |((stream, kind, host, collector, format), ip, (severity, source), raw, attributes)| {
                Draft {
                    id: None,
                    timestamp_ns: None,
                    time_source: TimeSource::from_code(source).unwrap_or_default(),
                    stream,
                    kind,
                    host,
                    ip,
                    collector,
                    format,
                    severity: Severity::from_code(severity).unwrap(),
                    raw: Cow::Owned(raw),
                    attributes,
                }
            },
        )
}

fn bytes_of(draft: &Draft<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(draft, EventId(7 << 90 | 3), -5_000_000_001, "", &mut out).unwrap();
    out
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded_and_encodes_to_the_same_bytes(draft in draft()) {
        let bytes = bytes_of(&draft);
        let event = decode(&bytes).unwrap();
        prop_assert_eq!(event.id, EventId(7 << 90 | 3));
        prop_assert_eq!(event.timestamp_ns, -5_000_000_001);
        prop_assert_eq!(event.tags.stream, draft.stream.as_ref());
        prop_assert_eq!(event.tags.host, draft.host.as_ref());
        prop_assert_eq!(event.tags.ip, draft.ip);
        prop_assert_eq!(event.tags.time_source, draft.time_source);
        prop_assert_eq!(event.raw, draft.raw.as_ref());
        let attributes: Vec<_> =
            event.attributes.iter().map(|(key, value)| (Cow::Borrowed(key), value)).collect();
        prop_assert_eq!(&attributes, &draft.attributes);
        let mut joined = Vec::new();
        join(&split(&bytes).unwrap(), &mut joined);
        prop_assert_eq!(joined, bytes);
    }

    #[test]
    fn bytes_that_decode_are_the_only_encoding_of_their_event(
        draft in draft(), place in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        let mut bytes = bytes_of(&draft);
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        if let Ok(event) = decode(&bytes) {
            let again = Draft {
                stream: event.tags.stream.into(),
                kind: event.tags.kind.into(),
                host: event.tags.host.into(),
                ip: event.tags.ip,
                collector: event.tags.collector.into(),
                format: event.tags.format.into(),
                severity: event.tags.severity,
                time_source: event.tags.time_source,
                raw: event.raw.into(),
                attributes: event.attributes.iter().map(|(k, v)| (k.into(), v)).collect(),
                ..Draft::default()
            };
            let mut out = Vec::new();
            encode(&again, event.id, event.timestamp_ns, "", &mut out).unwrap();
            prop_assert_eq!(out, bytes);
        }
    }

    #[test]
    fn a_cut_leaf_never_passes_for_a_whole_one_with_its_raw_bytes(draft in draft()) {
        let bytes = bytes_of(&draft);
        let attributes = decode(&bytes).unwrap().attributes.bytes.len();
        for end in 0..bytes.len() - attributes {
            prop_assert!(decode(&bytes[..end]).is_err());
        }
    }
}

#[test]
fn drafts_that_do_not_fit_are_refused_and_leave_nothing_behind() {
    let mut out = vec![9];
    let id = EventId(1);
    let long = Draft { host: "h".repeat(256).into(), stream: "s".into(), ..Draft::default() };
    let error = encode(&long, id, 0, "", &mut out).unwrap_err();
    assert_eq!(error, LeafError::TextTooLong { field: "host", size: 256 });
    assert_eq!(encode(&Draft::default(), id, 0, "", &mut out), Err(LeafError::NoStream));
    let control = Draft { kind: "a\nb".into(), ..Draft::default() };
    assert_eq!(encode(&control, id, 0, "s", &mut out), Err(LeafError::Control { field: "type" }));
    let large = Draft { raw: vec![0; LEAF_SIZE_MAX].into(), ..Draft::default() };
    assert!(matches!(encode(&large, id, 0, "s", &mut out), Err(LeafError::TooLarge { .. })));
    assert_eq!(out, [9]);
}

#[test]
fn a_leaf_of_earlier_versions_has_no_source_and_an_undefined_one_is_refused() {
    let draft = Draft { stream: "s".into(), raw: b"raw"[..].into(), ..Draft::default() };
    let old = bytes_of(&draft);
    // The layout that 0.1.0 first wrote: severity, and six texts.
    assert_eq!(&old[FIXED_SIZE..], b"\x08\x00\x01s\x00\x00\x00\x00\x00\x03raw");
    assert_eq!(decode(&old).unwrap().tags.time_source, TimeSource::Unknown);
    let new = bytes_of(&Draft { time_source: TimeSource::Received, ..draft });
    assert_eq!(&new[FIXED_SIZE..], b"\x09\x00\x01s\x00\x00\x00\x00\x00\x03\x03raw");
    assert_eq!(decode(&new).unwrap().tags.time_source, TimeSource::Received);
    for code in [0, 4, 255] {
        let mut bad = new.clone();
        bad[FIXED_SIZE + 9] = code;
        assert!(decode(&bad).is_err(), "{code}");
    }
}
