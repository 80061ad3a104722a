//! Random values of every type, as a server sends them: the same bytes after Arrow.

use forebay_pgcopy::{Encoder, Wire};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{decode, named, tuple};

type Field = BoxedStrategy<Vec<u8>>;

fn bytes(size: usize) -> Field {
    vec(any::<u8>(), size).boxed()
}

/// A number in a range, with this many bytes.
fn number(range: std::ops::RangeInclusive<i64>, size: usize) -> Field {
    range.prop_map(move |number| number.to_be_bytes()[8 - size..].to_vec()).boxed()
}

/// A number without digits of zero at its ends; its scale is the least there can be, or wider.
fn numeric() -> Field {
    let digits = prop_oneof![0..10_000_u16, Just(0), Just(9999), Just(10), Just(1000)];
    let made = (vec(digits, 0..30), -40..40_i16, any::<bool>(), 0..20_u16);
    let made = made.prop_map(|(mut digits, weight, negative, wider)| {
        let first = digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len());
        digits.drain(..first);
        digits.truncate(digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1));
        let (weight, negative) = if digits.is_empty() { (0, false) } else { (weight, negative) };
        let places = 4 * (i32::try_from(digits.len()).unwrap() - 1 - i32::from(weight));
        let scale = u16::try_from(places.max(0)).unwrap() + wider;
        let count = u16::try_from(digits.len()).unwrap();
        let sign = if negative { 0x4000 } else { 0 };
        let words = [count, weight.cast_unsigned(), sign, scale].into_iter().chain(digits);
        words.flat_map(u16::to_be_bytes).collect()
    });
    let special = |sign: u8, scale: u8| Just(vec![0, 0, 0, 0, sign, 0, 0, scale]);
    prop_oneof![20 => made, 1 => special(0xc0, 0), 1 => special(0xd0, 32), 1 => special(0xf0, 32)]
        .boxed()
}

/// A number with at most this many digits, in the form of a column with this scale.
fn decimal(precision: u8, scale: i8) -> Field {
    let digits = vec(0..10_u8, 1..=usize::from(precision));
    let made = (digits, any::<bool>()).prop_map(move |(digits, negative)| {
        let digits: String = digits.into_iter().map(|digit| char::from(b'0' + digit)).collect();
        let places = usize::try_from(scale).unwrap();
        let padded = format!("{digits:0>width$}", width = places + 1);
        let (integer, fraction) = padded.split_at(padded.len() - places);
        let sign = if negative { "-" } else { "" };
        let mut field = Vec::new();
        let text = format!("{sign}{integer}.{fraction}");
        forebay_pgcopy::text::numeric::from_text(&text, &mut field).unwrap();
        field
    });
    made.boxed()
}

fn network(is_cidr: bool) -> Field {
    let made = (any::<bool>(), any::<u128>(), 0..=128_u8, 0..8_u32).prop_map(
        move |(is_v4, address, bits, zeros)| {
            // Zeros in the middle, where IPv6 is shortened.
            let address = address & !(u128::MAX.checked_shr(16 * zeros).unwrap_or(0) << 16);
            let (family, size, bits) = if is_v4 { (2, 4, bits % 33) } else { (3, 16, bits) };
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            let address = if is_cidr { address & mask } else { address };
            let head = [family, bits, u8::from(is_cidr), size];
            [&head[..], &address.to_be_bytes()[..usize::from(size)]].concat()
        },
    );
    made.boxed()
}

fn bits() -> Field {
    let made = vec(any::<bool>(), 0..40).prop_map(|bits| {
        let mut field = u32::try_from(bits.len()).unwrap().to_be_bytes().to_vec();
        field.extend(bits.chunks(8).map(|eight| {
            let set = |(place, bit): (usize, &bool)| u8::from(*bit) << (7 - place);
            eight.iter().enumerate().map(set).sum::<u8>()
        }));
        field
    });
    made.boxed()
}

fn array(element: Field, oid: u32) -> Field {
    let made = vec(proptest::option::of(element), 0..5).prop_map(move |elements| {
        let has_nulls = u32::from(elements.iter().any(Option::is_none));
        let count = u32::try_from(elements.len()).unwrap();
        let words = if count == 0 { vec![0, 0, oid] } else { vec![1, has_nulls, oid, count, 1] };
        let mut field: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        let elements: Vec<_> = elements.iter().map(Option::as_deref).collect();
        field.extend_from_slice(&tuple(&elements)[2..]);
        field
    });
    made.boxed()
}

/// Days of PostgreSQL are 4714 BC to 5874897.
const DAYS: std::ops::RangeInclusive<i64> = -2_451_545..=2_145_031_948;
/// Timestamps of PostgreSQL begin in 4714 BC; those of Arrow end in 294246.
const TIMESTAMPS: std::ops::RangeInclusive<i64> =
    -211_813_488_000_000_000..=9_222_425_352_054_775_806;
const DAY: std::ops::RangeInclusive<i64> = 0..=86_400_000_000;

fn types() -> Vec<(Wire, Field)> {
    let text = || ".{0,12}".prop_map(String::into_bytes).boxed();
    let infinite = |ends: [Vec<u8>; 2], field: Field| {
        prop_oneof![9 => field, 1 => proptest::sample::select(ends.to_vec())].boxed()
    };
    let ends = [i64::MAX, i64::MIN].map(|end| end.to_be_bytes().to_vec());
    let timestamp = || infinite(ends.clone(), number(TIMESTAMPS, 8));
    let days = [i32::MAX, i32::MIN].map(|end| end.to_be_bytes().to_vec());
    let join = |parts: (Vec<u8>, Vec<u8>)| [parts.0, parts.1].concat();
    let hours = number(-9_223_372_036_854_775..=9_223_372_036_854_775, 8);
    let mac = |bytes| Wire::MacAddr { bytes };
    let places = |precision, scale| (Wire::Decimal { precision, scale }, decimal(precision, scale));
    let list = |wire, oid| Wire::Array { element: Box::new(wire), element_oid: oid };
    vec![
        (Wire::Bool, number(0..=1, 1)),
        (Wire::Int2, bytes(2)),
        (Wire::Int4, bytes(4)),
        (Wire::Int8, bytes(8)),
        (Wire::Oid, bytes(4)),
        (Wire::Float4, bytes(4)),
        (Wire::Float8, bytes(8)),
        (Wire::Money, bytes(8)),
        places(12, 2),
        places(19, 0),
        places(20, 7),
        places(38, 0),
        places(38, 38),
        places(38, 19),
        places(39, 3),
        places(76, 76),
        places(76, 0),
        (Wire::Numeric, numeric()),
        (Wire::Text, text()),
        (Wire::Jsonb, text().prop_map(|text| [vec![1], text].concat()).boxed()),
        (Wire::Bytes, vec(any::<u8>(), 0..20).boxed()),
        (Wire::Date, infinite(days, number(DAYS, 4))),
        (Wire::Time, number(DAY, 8)),
        (Wire::TimeTz, (number(DAY, 8), number(-57_599..=57_599, 4)).prop_map(join).boxed()),
        (Wire::Timestamp, timestamp()),
        (Wire::TimestampTz, timestamp()),
        (Wire::Interval, (hours, bytes(8)).prop_map(join).boxed()),
        (Wire::Uuid, bytes(16)),
        (Wire::Inet, network(false)),
        (Wire::Cidr, network(true)),
        (mac(6), bytes(6)),
        (mac(8), bytes(8)),
        (Wire::Bits, bits()),
        (Wire::Opaque, vec(any::<u8>(), 0..20).boxed()),
        (list(Wire::Int4, 23), array(bytes(4), 23)),
        (list(Wire::Text, 25), array(text(), 25)),
        (list(Wire::Numeric, 1700), array(numeric(), 1700)),
        (list(Wire::Bool, 16), array(number(0..=1, 1), 16)),
    ]
}

#[test]
fn random_values_of_every_type_have_the_same_bytes_after_arrow() {
    let cases = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) };
    for (wire, field) in types() {
        let columns = [named("a", wire.clone()), named("b", wire.clone())];
        let pair = (proptest::option::of(field.clone()), proptest::option::of(field));
        let mut runner = proptest::test_runner::TestRunner::new(cases.clone());
        let result = runner.run(&vec(pair, 1..20), |rows| {
            let tuples: Vec<u8> =
                rows.iter().flat_map(|(a, b)| tuple(&[a.as_deref(), b.as_deref()])).collect();
            let batch = decode(&columns, &tuples).unwrap();
            let encoder = Encoder::new(&batch.schema(), &columns).unwrap();
            let mut out = Vec::new();
            encoder.encode(&batch, 0..rows.len(), &mut out).unwrap();
            prop_assert_eq!(&out, &tuples);
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{wire:?}: {error}"));
    }
}
