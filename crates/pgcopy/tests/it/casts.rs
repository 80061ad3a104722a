//! Arrow's other forms on their way to PostgreSQL: kept exactly, or refused with the row.

use std::sync::Arc;

use arrow::array::types::{Int32Type, Int64Type};
use arrow::array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Date64Array, Decimal128Array, DictionaryArray,
    DurationSecondArray, FixedSizeListArray, Float16Array, Float64Array, Int8Array, Int32Array,
    Int64Array, LargeBinaryArray, LargeListArray, LargeStringArray, ListArray, NullArray,
    RecordBatch, StringArray, StringViewArray, Time32SecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, UInt16Array, UInt64Array,
};
use arrow::compute::{can_cast_types, cast};
use arrow::datatypes::{DataType, Field, Schema};
use forebay_pgcopy::{Column, Encoder, Wire, column};

use crate::support::{column as of, decode, encode};

/// A batch of one column called `c`.
pub(crate) fn batch(array: ArrayRef) -> RecordBatch {
    let field = Field::new("c", array.data_type().clone(), true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![array]).unwrap()
}

/// Arrays of every form that PostgreSQL has a type for.
pub(crate) fn forms() -> Vec<ArrayRef> {
    let words = ["a", "b", "a"];
    let item = || Arc::new(Field::new("element", DataType::Int64, true));
    let numbers = || Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    vec![
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        Arc::new(Int8Array::from(vec![Some(-128), None, Some(127)])),
        Arc::new(UInt16Array::from(vec![0, 1, 65_535])),
        Arc::new(UInt64Array::from(vec![0, 1, u64::MAX])),
        Arc::new(Float16Array::from(vec![half(0.5), half(-2.0), half(0.0)])),
        Arc::new(Decimal128Array::from(vec![1, -2, 3]).with_precision_and_scale(9, 4).unwrap()),
        Arc::new(LargeStringArray::from(vec![Some(""), None, Some("x")])),
        Arc::new(StringViewArray::from(vec![Some("short"), None, Some("longer than twelve")])),
        Arc::new(LargeBinaryArray::from(vec![Some(&b"\0"[..]), None, Some(b"")])),
        Arc::new(BinaryViewArray::from(vec![Some(&b"\0"[..]), None, Some(b"")])),
        Arc::new(words.into_iter().collect::<DictionaryArray<Int32Type>>()),
        Arc::new(Date64Array::from(vec![0, 86_400_000, -86_400_000])),
        Arc::new(Time32SecondArray::from(vec![0, 1, 86_399])),
        Arc::new(TimestampMillisecondArray::from(vec![Some(0), None, Some(-1)])),
        Arc::new(TimestampNanosecondArray::from(vec![0, 1000, -1000]).with_timezone("+02:00")),
        Arc::new(DurationSecondArray::from(vec![0, 1, -1])),
        Arc::new(NullArray::new(3)),
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ])),
        Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ])),
        Arc::new(FixedSizeListArray::new(item(), 1, numbers(), None)),
    ]
}

fn half(value: f32) -> <arrow::datatypes::Float16Type as arrow::array::ArrowPrimitiveType>::Native {
    let array =
        arrow::compute::cast(&arrow::array::Float32Array::from(vec![value]), &DataType::Float16);
    arrow::array::AsArray::as_primitive::<arrow::datatypes::Float16Type>(&array.unwrap()).value(0)
}

#[test]
fn every_form_keeps_its_values() {
    for array in forms() {
        let batch = batch(array);
        let columns = column::columns(&batch.schema()).unwrap();
        let decoded = decode(&columns, &encode(&columns, &batch)).unwrap();
        let found = batch.column(0);
        let nulls = |array: &ArrayRef| array.logical_nulls().map_or(0, |nulls| nulls.null_count());
        assert_eq!(nulls(found), nulls(decoded.column(0)), "{}", found.data_type());
        // Arrow makes no durations of intervals; the server's tests look at those.
        if can_cast_types(decoded.column(0).data_type(), found.data_type()) {
            let back = cast(decoded.column(0), found.data_type()).unwrap();
            assert_eq!(back.as_ref(), found.as_ref(), "{}", found.data_type());
        }
    }
}

#[test]
fn a_part_of_a_batch_is_its_rows() {
    for array in forms() {
        let batch = batch(array);
        let columns = column::columns(&batch.schema()).unwrap();
        let encoder = Encoder::new(&batch.schema(), &columns).unwrap();
        let (mut out, mut whole) = (Vec::new(), encoder.hash(&batch).unwrap());
        for row in 0..3 {
            let part = encoder.encode(&batch, row..row + 1, &mut out).unwrap();
            assert_eq!(part, encoder.hash(&batch.slice(row, 1)).unwrap());
            whole.sum = whole.sum.wrapping_sub(part.sum);
        }
        assert_eq!((whole.sum, out), (0, encode(&columns, &batch)));
    }
}

/// What is wrong with an array as a column.
fn refused(array: impl Array + 'static, wire: Wire) -> String {
    let batch = batch(Arc::new(array));
    let columns = [of(wire)];
    let encoder = Encoder::new(&batch.schema(), &columns).unwrap();
    let mut out = b"before".to_vec();
    let error = encoder.encode(&batch, 1..batch.num_rows(), &mut out).unwrap_err();
    assert_eq!(out, b"before", "nothing is appended");
    error.to_string()
}

#[test]
fn values_that_would_change_are_refused_with_their_row() {
    let lossy = |from: &str, to: &str| {
        format!(
            "row 2 of the batch, column \"c\": converting the value from {from} to {to} would \
             change it"
        )
    };
    let nanoseconds = TimestampNanosecondArray::from(vec![1000, 2000, 1]);
    assert_eq!(refused(nanoseconds, Wire::Timestamp), lossy("Timestamp(ns)", "Timestamp(µs)"));
    assert_eq!(refused(Int64Array::from(vec![1, 2, 1 << 31]), Wire::Int4), lossy("Int64", "Int32"));
    let halves = Float64Array::from(vec![1.0, -1.0, 0.1]);
    assert_eq!(refused(halves, Wire::Float4), lossy("Float64", "Float32"));
    let dates = Date64Array::from(vec![0, 0, 1]);
    assert_eq!(refused(dates, Wire::Date), lossy("Date64", "Date32"));
    let cents = Decimal128Array::from(vec![100, 200, 101]).with_precision_and_scale(9, 2).unwrap();
    let whole = Wire::Decimal { precision: 9, scale: 0 };
    assert_eq!(refused(cents, whole), lossy("Decimal128(9, 2)", "Decimal128(9, 0)"));
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(1)]),
        None,
        Some(vec![Some(1 << 40)]),
    ]);
    let narrow = Wire::Array { element: Box::new(Wire::Int4), element_oid: 23 };
    assert!(
        refused(list, narrow)
            .starts_with("row 2 of the batch, column \"c\": converting the value from")
    );
}

#[test]
fn texts_that_are_no_value_are_refused_with_their_row() {
    let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    for (wire, good) in [
        (Wire::Uuid, uuid),
        (Wire::Numeric, "-1.50"),
        (Wire::TimeTz, "01:02:03+01"),
        (Wire::Inet, "::1"),
        (Wire::Cidr, "10.0.0.0/8"),
        (Wire::MacAddr { bytes: 6 }, "01:02:03:04:05:06"),
        (Wire::Bits, "101"),
    ] {
        for bad in ["x", "", "1-1", "é", "1e", "10.0.0.1/8x", "1:2:3", "+", "{"] {
            if wire == Wire::Bits && bad.is_empty() {
                continue;
            }
            let array = StringArray::from(vec![good, good, bad]);
            assert_eq!(refused(array, wire.clone()), "row 2 of the batch, column \"c\"", "{bad}");
        }
    }
    assert_eq!(
        encode(&[of(Wire::Uuid)], &batch(Arc::new(StringArray::from(vec![uuid]))))[6..],
        *b"\xa0\xee\xbc\x99\x9c\x0b\x4e\xf8\xbb\x6d\x6b\xb9\xbd\x38\x0a\x11"
    );
}

#[test]
fn texts_people_write_are_understood() {
    let field = |wire: Wire, text: &str| {
        encode(&[of(wire)], &batch(Arc::new(StringArray::from(vec![text]))))[6..].to_vec()
    };
    let same = |wire: Wire, texts: &[&str]| {
        let fields: Vec<_> = texts.iter().map(|text| field(wire.clone(), text)).collect();
        assert!(fields.windows(2).all(|pair| pair[0] == pair[1]), "{texts:?}");
    };
    same(Wire::Numeric, &["1200", "+1200", "0001200", "1.2e3", "12E+2"]);
    same(Wire::Numeric, &["0.0012", ".0012", "1.2e-3", "00.0012"]);
    same(Wire::Numeric, &["0", "-0", "0e5", "000"]);
    same(Wire::Numeric, &["Infinity", "inf", "+INFINITY"]);
    same(Wire::Numeric, &["1.", "1"]);
    same(Wire::TimeTz, &["13:45+02", "13:45:00.000+02:00", "13:45:00+02:00:00"]);
    same(Wire::TimeTz, &["13:45:06Z", "13:45:06+00", "13:45:06-00"]);
    same(Wire::Inet, &["10.0.0.1", "10.0.0.1/32"]);
    same(Wire::Inet, &["::ffff:1.2.3.4", "0:0:0:0:0:FFFF:102:304"]);
    same(Wire::MacAddr { bytes: 6 }, &["01:02:03:04:05:0a", "01-02-03-04-05-0A"]);
}

#[test]
fn values_become_text_where_a_column_is_text() {
    let text = |array: ArrayRef| {
        let batch = batch(array);
        let columns = [of(Wire::Text)];
        let decoded = decode(&columns, &encode(&columns, &batch)).unwrap();
        arrow::util::display::array_value_to_string(decoded.column(0), 0).unwrap()
    };
    assert_eq!(text(Arc::new(Int64Array::from(vec![-5]))), "-5");
    assert_eq!(text(Arc::new(BooleanArray::from(vec![true]))), "true");
    let cents = Decimal128Array::from(vec![150]).with_precision_and_scale(9, 2).unwrap();
    assert_eq!(text(Arc::new(cents)), "1.50");
    let instant = TimestampNanosecondArray::from(vec![1]).with_timezone("Europe/Berlin");
    assert_eq!(text(Arc::new(instant)), "1970-01-01T00:00:00.000000001Z");
}

#[test]
fn columns_that_do_not_fit_are_refused_before_any_row() {
    let unfit = |array: ArrayRef, wire: Wire| {
        let column = Column { sql_type: "integer".into(), ..of(wire) };
        Encoder::new(&batch(array).schema(), &[column]).unwrap_err().to_string()
    };
    let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    assert_eq!(
        unfit(text.clone(), Wire::Int4),
        "column \"c\" is Utf8, which is not converted to integer implicitly; cast it in a transform"
    );
    unfit(text.clone(), Wire::Timestamp);
    unfit(text.clone(), Wire::Array { element: Box::new(Wire::Text), element_oid: 25 });
    unfit(Arc::new(TimestampNanosecondArray::from(vec![0])), Wire::TimestampTz);
    unfit(Arc::new(Int32Array::from(vec![0])), Wire::Bool);
    unfit(Arc::new(Int32Array::from(vec![0])), Wire::Money);
    let two = [of(Wire::Text), of(Wire::Text)];
    Encoder::new(&batch(text.clone()).schema(), &two).unwrap_err();
    let error = Encoder::new(&batch(text.clone()).schema(), &[]).unwrap_err();
    assert!(error.to_string().contains("is not converted to any column"));
    let encoder = Encoder::new(&batch(text).schema(), &[of(Wire::Text)]).unwrap();
    let other = batch(Arc::new(Int32Array::from(vec![0])));
    let error = encoder.hash(&other).unwrap_err().to_string();
    assert_eq!(error, "the batch's column 0 is Int32, expected Utf8");
}
