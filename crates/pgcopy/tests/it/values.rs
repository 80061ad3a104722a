//! Values of every type, from their bytes to Arrow and back.

use arrow::array::AsArray as _;
use arrow::datatypes::TimestampMicrosecondType;
use forebay_pgcopy::Wire;

use crate::support::{column, decode, encode, refused, shown, tuple};

fn numeric(weight: i16, sign: u16, scale: u16, digits: &[u16]) -> Vec<u8> {
    let count = u16::try_from(digits.len()).unwrap();
    let mut field = [count.to_be_bytes(), weight.to_be_bytes()].concat();
    for word in [sign, scale].iter().chain(digits) {
        field.extend_from_slice(&word.to_be_bytes());
    }
    field
}

#[test]
fn numbers_are_themselves() {
    assert_eq!(shown(Wire::Bool, &[1]), "true");
    assert_eq!(shown(Wire::Int2, &(-2_i16).to_be_bytes()), "-2");
    assert_eq!(shown(Wire::Int4, &i32::MIN.to_be_bytes()), "-2147483648");
    assert_eq!(shown(Wire::Int8, &i64::MAX.to_be_bytes()), "9223372036854775807");
    assert_eq!(shown(Wire::Money, &(-150_i64).to_be_bytes()), "-150");
    assert_eq!(shown(Wire::Oid, &u32::MAX.to_be_bytes()), "4294967295");
    assert_eq!(shown(Wire::Float4, &0.5_f32.to_be_bytes()), "0.5");
    assert_eq!(shown(Wire::Float8, &f64::NEG_INFINITY.to_be_bytes()), "-inf");
    assert_eq!(shown(Wire::Float8, &(-0.0_f64).to_be_bytes()), "-0.0");
    // A NaN that is not the usual one keeps its bits.
    assert_eq!(shown(Wire::Float8, &0xfff8_0000_0000_0001_u64.to_be_bytes()), "NaN");
    assert_eq!(refused(Wire::Int4, &[0; 3]), "the field has 3 bytes, expected 4 for its type");
    assert_eq!(refused(Wire::Bool, &[2]), "malformed boolean");
}

#[test]
fn texts_are_their_bytes() {
    assert_eq!(shown(Wire::Text, "grün".as_bytes()), "grün");
    assert_eq!(shown(Wire::Text, b""), "");
    assert_eq!(shown(Wire::Jsonb, b"\x01{\"a\": 1.0}"), "{\"a\": 1.0}");
    assert_eq!(refused(Wire::Jsonb, b"\x02{}"), "malformed jsonb");
    assert_eq!(refused(Wire::Text, b"\xff"), "the text is not UTF-8");
    assert_eq!(shown(Wire::Bytes, b"\x00\xff"), "00ff");
    assert_eq!(shown(Wire::Opaque, b"\x01"), "01");
    assert_eq!(shown(Wire::Uuid, &[0xab; 16]), "ab".repeat(16));
}

#[test]
fn times_count_from_1970() {
    assert_eq!(shown(Wire::Date, &0_i32.to_be_bytes()), "2000-01-01");
    assert_eq!(shown(Wire::Date, &(-10_957_i32).to_be_bytes()), "1970-01-01");
    shown(Wire::Date, &i32::MAX.to_be_bytes());
    shown(Wire::Date, &i32::MIN.to_be_bytes());
    assert_eq!(
        refused(Wire::Date, &(i32::MAX - 1).to_be_bytes()),
        "the value is out of range for dates"
    );
    assert_eq!(shown(Wire::Time, &1_500_000_i64.to_be_bytes()), "00:00:01.500");
    assert!(refused(Wire::Time, &86_400_000_001_i64.to_be_bytes()).contains("times of a day"));
    assert_eq!(shown(Wire::Timestamp, &1_i64.to_be_bytes()), "2000-01-01T00:00:00.000001");
    let tuple = tuple(&[Some(&[0; 8])]);
    let batch = decode(&[column(Wire::TimestampTz)], &tuple).unwrap();
    let instants = batch.column(0).as_primitive::<TimestampMicrosecondType>();
    assert_eq!((instants.value(0), instants.timezone()), (946_684_800_000_000, Some("UTC")));
    assert_eq!(encode(&[column(Wire::TimestampTz)], &batch), tuple);
    shown(Wire::Timestamp, &i64::MAX.to_be_bytes());
    shown(Wire::Timestamp, &i64::MIN.to_be_bytes());
    let last = 9_223_371_331_199_999_999_i64;
    assert!(refused(Wire::Timestamp, &last.to_be_bytes()).contains("294246"));
}

#[test]
fn intervals_keep_months_days_and_microseconds_apart() {
    let field = |us: i64, days: i32, months: i32| {
        [&us.to_be_bytes()[..], &days.to_be_bytes(), &months.to_be_bytes()].concat()
    };
    let text = shown(Wire::Interval, &field(1_000_001, -2, 14));
    assert_eq!(text, "14 mons -2 days 1.000001000 secs");
    shown(Wire::Interval, &field(i64::MAX, i32::MAX, i32::MAX));
    shown(Wire::Interval, &field(i64::MIN, i32::MIN, i32::MIN));
    assert!(refused(Wire::Interval, &field(i64::MAX, 0, 0)).contains("intervals"));
}

#[test]
fn decimals_keep_every_digit() {
    let decimal = |precision, scale| Wire::Decimal { precision, scale };
    assert_eq!(shown(decimal(10, 2), &numeric(0, 0, 2, &[12, 3400])), "12.34");
    assert_eq!(shown(decimal(10, 2), &numeric(0, 0x4000, 2, &[12])), "-12.00");
    assert_eq!(shown(decimal(10, 2), &numeric(0, 0, 2, &[])), "0.00");
    assert_eq!(shown(decimal(10, 6), &numeric(-2, 0, 6, &[100])), "0.000001");
    assert_eq!(shown(decimal(12, 0), &numeric(2, 0, 0, &[1])), "100000000");
    let nines = numeric(9, 0, 0, &[99, 9999, 9999, 9999, 9999, 9999, 9999, 9999, 9999, 9999]);
    assert_eq!(shown(decimal(38, 0), &nines), "9".repeat(38));
    let small = numeric(-1, 0, 38, &[[9999; 9].as_slice(), &[9900]].concat());
    assert_eq!(shown(decimal(38, 38), &small), format!("0.{}", "9".repeat(38)));
    let wide = numeric(18, 0x4000, 0, &[9999; 19]);
    assert_eq!(shown(decimal(76, 0), &wide), format!("-{}", "9".repeat(76)));
    let wide = numeric(-1, 0, 75, &[[9999; 18].as_slice(), &[9990]].concat());
    assert_eq!(shown(decimal(76, 75), &wide), format!("0.{}", "9".repeat(75)));
    assert!(refused(decimal(3, 0), &numeric(0, 0, 0, &[1000])).contains("precision"));
    assert!(refused(decimal(38, 0), &numeric(32000, 0, 0, &[1])).contains("precision"));
    assert!(refused(decimal(9, 2), &numeric(0, 0, 3, &[1, 10])).contains("precision"));
    assert!(refused(decimal(9, 2), &numeric(0, 0xc000, 0, &[])).contains("NaN"));
    assert_eq!(refused(decimal(9, 2), &numeric(0, 0, 2, &[10_000])), "malformed numeric");
    assert_eq!(refused(decimal(9, 2), &[0; 7]), "malformed numeric");
}

#[test]
fn zeros_in_front_of_a_numeric_are_no_digits_of_it() {
    let text = |field: &[u8]| {
        let mut out = Vec::new();
        forebay_pgcopy::text::numeric::to_text(field, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(text(&numeric(91, 0, 0, &[])), "0");
    assert_eq!(text(&numeric(3, 0x4000, 1, &[0, 0])), "0.0");
    assert_eq!(text(&numeric(2, 0, 0, &[0, 0, 7])), "7");
    assert_eq!(text(&numeric(2, 0x4000, 0, &[0, 12])), "-120000");
    assert_eq!(text(&numeric(0, 0, 4, &[0, 5])), "0.0005");
}

#[test]
fn numerics_of_any_size_are_what_postgresql_writes() {
    assert_eq!(shown(Wire::Numeric, &numeric(0, 0xc000, 0, &[])), "NaN");
    assert_eq!(shown(Wire::Numeric, &numeric(0, 0xd000, 32, &[])), "Infinity");
    assert_eq!(shown(Wire::Numeric, &numeric(0, 0xf000, 32, &[])), "-Infinity");
    assert_eq!(shown(Wire::Numeric, &numeric(1, 0x4000, 1, &[1, 2, 5000])), "-10002.5");
    assert_eq!(shown(Wire::Numeric, &numeric(0, 0, 3, &[])), "0.000");
    assert_eq!(shown(Wire::Numeric, &numeric(-3, 0, 11, &[1230])), "0.00000000123");
    let long = shown(Wire::Numeric, &numeric(32767, 0, 0, &[1]));
    assert_eq!((long.len(), &long[..2]), (131_069, "10"));
    assert_eq!(refused(Wire::Numeric, &numeric(0, 0, 0, &[1, 1])), "malformed numeric");
    assert_eq!(refused(Wire::Numeric, &numeric(0, 0x1234, 0, &[])), "malformed numeric");
}

#[test]
fn times_with_a_zone_are_what_postgresql_writes() {
    let field = |us: i64, zone: i32| [&us.to_be_bytes()[..], &zone.to_be_bytes()].concat();
    assert_eq!(shown(Wire::TimeTz, &field(49_506_789_000, -7200)), "13:45:06.789+02");
    assert_eq!(shown(Wire::TimeTz, &field(0, 0)), "00:00:00+00");
    assert_eq!(shown(Wire::TimeTz, &field(86_400_000_000, 19_800)), "24:00:00-05:30");
    assert_eq!(shown(Wire::TimeTz, &field(1, -57_599)), "00:00:00.000001+15:59:59");
    assert_eq!(refused(Wire::TimeTz, &field(-1, 0)), "malformed time with time zone");
    assert_eq!(refused(Wire::TimeTz, &field(0, i32::MIN)), "malformed time with time zone");
}

#[test]
fn addresses_are_what_postgresql_writes() {
    assert_eq!(shown(Wire::Inet, &[2, 32, 0, 4, 10, 0, 0, 255]), "10.0.0.255");
    assert_eq!(shown(Wire::Inet, &[2, 8, 0, 4, 10, 0, 0, 1]), "10.0.0.1/8");
    assert_eq!(shown(Wire::Cidr, &[2, 32, 1, 4, 10, 0, 0, 1]), "10.0.0.1/32");
    let v6 = |bits: u8, words: [u16; 8]| {
        let address = words.iter().flat_map(|word| word.to_be_bytes());
        [3, bits, 0, 16].into_iter().chain(address).collect::<Vec<_>>()
    };
    assert_eq!(shown(Wire::Inet, &v6(128, [0, 0, 0, 0, 0, 0, 0, 0])), "::");
    assert_eq!(shown(Wire::Inet, &v6(128, [0, 0, 0, 0, 0, 0, 0, 1])), "::1");
    assert_eq!(
        shown(Wire::Inet, &v6(64, [0x2001, 0xdb8, 0, 0, 1, 0, 0, 0])),
        "2001:db8:0:0:1::/64"
    );
    assert_eq!(shown(Wire::Inet, &v6(128, [1, 0, 0, 2, 3, 0, 0, 4])), "1::2:3:0:0:4");
    assert_eq!(shown(Wire::Inet, &v6(128, [1, 0, 2, 3, 4, 5, 6, 7])), "1:0:2:3:4:5:6:7");
    assert_eq!(
        shown(Wire::Inet, &v6(128, [0, 0, 0, 0, 0, 0xffff, 0x102, 0x304])),
        "::ffff:1.2.3.4"
    );
    assert_eq!(shown(Wire::Inet, &v6(128, [0, 0, 0, 0, 0, 0, 0x102, 0x304])), "::1.2.3.4");
    assert_eq!(refused(Wire::Inet, &[2, 33, 0, 4, 1, 2, 3, 4]), "malformed network address");
    assert_eq!(refused(Wire::Inet, &[2, 32, 1, 4, 1, 2, 3, 4]), "malformed network address");
    assert_eq!(refused(Wire::Inet, &[2, 32]), "malformed network address");
    assert_eq!(refused(Wire::Cidr, &[2, 9, 1, 4, 1, 0x40, 0, 0]), "malformed network address");
    assert_eq!(shown(Wire::Cidr, &[2, 9, 1, 4, 1, 0x80, 0, 0]), "1.128.0.0/9");
    assert_eq!(shown(Wire::MacAddr { bytes: 6 }, &[8, 0, 0x2b, 1, 2, 0xff]), "08:00:2b:01:02:ff");
    let eight = Wire::MacAddr { bytes: 8 };
    assert_eq!(shown(eight.clone(), &[1, 2, 3, 4, 5, 6, 7, 8]), "01:02:03:04:05:06:07:08");
    assert_eq!(refused(eight, &[0; 6]), "the field has 6 bytes, expected 8 for its type");
}

#[test]
fn bit_strings_are_ones_and_zeros() {
    assert_eq!(shown(Wire::Bits, &[0, 0, 0, 10, 0b1010_0001, 0b0100_0000]), "1010000101");
    assert_eq!(shown(Wire::Bits, &[0, 0, 0, 0]), "");
    assert_eq!(refused(Wire::Bits, &[0, 0, 0, 3, 0xff]), "malformed bit string");
    assert_eq!(refused(Wire::Bits, &[0xff, 0, 0, 3, 0xff]), "malformed bit string");
    assert_eq!(refused(Wire::Bits, &[0, 0, 0, 9, 0xff]), "malformed bit string");
}

fn array(words: &[i32], elements: &[Option<&[u8]>]) -> Vec<u8> {
    let mut field: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    for element in elements {
        let length = element.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap());
        field.extend_from_slice(&length.to_be_bytes());
        field.extend_from_slice(element.unwrap_or_default());
    }
    field
}

#[test]
fn arrays_are_lists() {
    let texts = || Wire::Array { element: Box::new(Wire::Text), element_oid: 25 };
    let elements = [Some(&b"a"[..]), None, Some(b"")];
    assert_eq!(shown(texts(), &array(&[1, 1, 25, 3, 1], &elements)), "[a, , ]");
    assert_eq!(shown(texts(), &array(&[1, 0, 25, 1, 1], &elements[..1])), "[a]");
    assert_eq!(shown(texts(), &array(&[0, 0, 25], &[])), "[]");
    assert!(refused(texts(), &array(&[1, 0, 23, 0, 1], &[])).contains("type 23"));
    assert!(refused(texts(), &array(&[1, 0, 25, 1, 0], &elements[..1])).contains("lower bound 0"));
    let matrix = array(&[2, 0, 25, 1, 1, 1, 1], &elements[..1]);
    assert!(refused(texts(), &matrix).contains("2 dimensions"));
    assert_eq!(refused(texts(), &array(&[1, 0, 25, 9, 1], &elements)), "malformed array");
    assert_eq!(refused(texts(), &array(&[1, 0, 25, 1, 1], &elements)), "malformed array");
    assert_eq!(refused(texts(), &array(&[1, 0, 25, -1, 1], &[])), "malformed array");
    assert_eq!(
        refused(texts(), &array(&[1, 0, 25, 1, 1], &[Some(b"\xff")])),
        "the text is not UTF-8"
    );
    let decimals = Wire::Array {
        element: Box::new(Wire::Decimal { precision: 5, scale: 2 }),
        element_oid: 1700,
    };
    let half = numeric(-1, 0, 2, &[5000]);
    assert_eq!(shown(decimals, &array(&[1, 0, 1700, 1, 1], &[Some(&half)])), "[0.50]");
}
