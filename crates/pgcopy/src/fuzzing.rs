//! The decoder as a fuzz target sees it: any bytes in, no panic out, and no way to cut them makes a
//! difference.

use arrow::array::RecordBatch;

use crate::column::{Column, Wire};
use crate::error::DecodeError;
use crate::hash::ContentHash;
use crate::{Decoder, Encoder, Splitter};

/// A column of every form.
#[must_use]
pub fn columns() -> Vec<Column> {
    let array = |element, element_oid| Wire::Array { element: Box::new(element), element_oid };
    let decimal = |precision, scale| Wire::Decimal { precision, scale };
    let wires = [
        Wire::Bool,
        Wire::Int2,
        Wire::Int4,
        Wire::Int8,
        Wire::Oid,
        Wire::Float4,
        Wire::Float8,
        Wire::Money,
        decimal(12, 2),
        decimal(38, 38),
        decimal(38, 0),
        decimal(76, 20),
        Wire::Numeric,
        Wire::Text,
        Wire::Jsonb,
        Wire::Bytes,
        Wire::Date,
        Wire::Time,
        Wire::TimeTz,
        Wire::Timestamp,
        Wire::TimestampTz,
        Wire::Interval,
        Wire::Uuid,
        Wire::Inet,
        Wire::Cidr,
        Wire::MacAddr { bytes: 6 },
        Wire::MacAddr { bytes: 8 },
        Wire::Bits,
        Wire::Opaque,
        array(Wire::Int4, 23),
        array(Wire::Text, 25),
        array(decimal(10, 2), 1700),
        array(Wire::Numeric, 1700),
    ];
    let column = |(index, wire): (usize, &Wire)| Column {
        name: format!("c{index}"),
        sql_type: String::new(),
        wire: wire.clone(),
        nullable: index % 7 != 6,
    };
    wires.iter().enumerate().map(column).collect()
}

type Decoded = Option<(RecordBatch, ContentHash)>;

fn decode<'a>(
    columns: &[Column],
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder::new(columns);
    for piece in pieces {
        decoder.push(piece)?;
    }
    decoder.finish()
}

fn split<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<(Vec<u8>, ContentHash), DecodeError> {
    let (mut splitter, mut out) = (Splitter::new(), Vec::new());
    for piece in pieces {
        splitter.push(piece, &mut out)?;
    }
    let hash = splitter.take_hash();
    splitter.finish()?;
    Ok((out, hash))
}

/// Any bytes as a stream: how many columns of [`columns`] and from where, how it is cut, and the rest.
///
/// # Panics
/// If a cut makes a difference, or rows change when they are encoded and decoded again: a mistake.
pub fn stream(data: &[u8]) {
    let [from, count, size, stream @ ..] = data else { return };
    let all = columns();
    let chosen =
        all.iter().cycle().skip(usize::from(*from)).take(usize::from(*count) % (all.len() + 1));
    let columns: Vec<_> = chosen.cloned().collect();
    let size = usize::from(*size).max(1);
    let error = |error: DecodeError| error.to_string();
    let whole = decode(&columns, std::iter::once(stream)).map_err(error);
    let cut = decode(&columns, stream.chunks(size)).map_err(error);
    assert_eq!(whole, cut, "a cut makes no difference to the decoder");
    let split_whole = split(std::iter::once(stream)).map_err(error);
    let split_cut = split(stream.chunks(size)).map_err(error);
    assert_eq!(split_whole, split_cut, "a cut makes no difference to the splitter");
    let Ok(Some((batch, hash))) = whole else { return };
    assert_eq!(split_whole.map(|(_, hash)| hash), Ok(hash), "both hash the same tuples");
    again(&columns, &batch);
}

/// What was decoded is the same when it is encoded and decoded again.
fn again(columns: &[Column], batch: &RecordBatch) {
    let encoder = match Encoder::new(&batch.schema(), columns) {
        Ok(encoder) => encoder,
        Err(error) => panic!("its own schema fits: {error}"),
    };
    let mut tuples = Vec::new();
    let hash = match encoder.encode(batch, 0..batch.num_rows(), &mut tuples) {
        Ok(hash) => hash,
        Err(error) => panic!("what was decoded can be encoded: {}", chain(&error)),
    };
    let mut decoder = Decoder::without_header(columns);
    match decoder.push(&tuples).and_then(|()| decoder.finish()) {
        Ok(Some((decoded, again))) => {
            assert!(hash == again, "the bytes are their own encoding");
            assert_eq!(*batch, decoded, "the rows are the same");
        }
        other => panic!("what was encoded can be decoded: {other:?}"),
    }
}

/// An error and what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{HEADER, TRAILER};

    /// A field of each of `columns`, in its order.
    fn fields() -> Vec<Vec<u8>> {
        let numeric = |scale: u8| vec![0, 1, 255, 255, 0, 0, 0, scale, 19, 136];
        let half = [&[0, 0, 0, 10][..], &numeric(2)].concat();
        let array = |oid: u16, element: &[u8]| {
            let [high, low] = oid.to_be_bytes();
            let head = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, high, low, 0, 0, 0, 1, 0, 0, 0, 1];
            [&head, element].concat()
        };
        vec![
            vec![1],
            vec![0, 7],
            vec![0, 0, 1, 2],
            vec![0; 8],
            vec![9; 4],
            vec![0x7f, 0xc0, 0, 1],
            vec![0x7f, 0xf0, 0, 0, 0, 0, 0, 0],
            vec![255; 8],
            vec![0, 2, 0, 0, 64, 0, 0, 2, 0, 12, 13, 72],
            numeric(38),
            vec![0, 1, 0, 3, 0, 0, 0, 0, 0, 9],
            vec![0, 2, 0, 9, 64, 0, 0, 20, 0, 9, 0, 1],
            vec![0, 0, 0, 0, 192, 0, 0, 0],
            "tête".into(),
            b"\x01{}".to_vec(),
            vec![0, 255],
            vec![0, 0, 35, 41],
            vec![0, 0, 0, 1, 0, 0, 0, 0],
            vec![0, 0, 0, 1, 0, 0, 0, 0, 255, 255, 227, 224],
            vec![127, 255, 255, 255, 255, 255, 255, 255],
            vec![0, 0, 0, 1, 0, 0, 0, 0],
            vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3],
            vec![7; 16],
            vec![2, 24, 0, 4, 10, 0, 0, 1],
            vec![2, 8, 1, 4, 10, 0, 0, 0],
            vec![1, 2, 3, 4, 5, 6],
            vec![1, 2, 3, 4, 5, 6, 7, 8],
            vec![0, 0, 0, 9, 1, 128],
            vec![1, 2, 3],
            array(23, &[0, 0, 0, 4, 0, 0, 0, 5]),
            array(25, &[0, 0, 0, 1, b'x']),
            array(1700, &half),
            array(1700, &half),
        ]
    }

    /// A stream of a row of `fields` and a row of NULLs where they may be, each as often as wanted.
    fn valid(from: usize, count: usize, rows: usize) -> Vec<u8> {
        let (columns, fields) = (columns(), fields());
        assert_eq!(columns.len(), fields.len());
        let [high, low] = u16::try_from(count).unwrap().to_be_bytes();
        let mut out = HEADER.to_vec();
        for row in 0..rows {
            out.extend_from_slice(&[high, low]);
            for (column, field) in columns.iter().zip(&fields).cycle().skip(from).take(count) {
                if row % 2 == 1 && column.nullable {
                    out.extend_from_slice(&[255; 4]);
                } else {
                    out.extend_from_slice(&u32::try_from(field.len()).unwrap().to_be_bytes());
                    out.extend_from_slice(field);
                }
            }
        }
        out.extend_from_slice(TRAILER);
        out
    }

    #[test]
    fn a_row_of_every_form_is_encoded_to_its_own_bytes() {
        let columns = columns();
        let bytes = valid(0, columns.len(), 3);
        let (batch, hash) = decode(&columns, bytes.chunks(5)).unwrap().unwrap();
        let encoder = Encoder::new(&batch.schema(), &columns).unwrap();
        let mut tuples = Vec::new();
        assert_eq!(encoder.encode(&batch, 0..3, &mut tuples).unwrap(), hash);
        assert_eq!([HEADER, &tuples, TRAILER].concat(), bytes);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_an_error_or_rows_that_stay_the_same(
            data in proptest::collection::vec(any::<u8>(), 0..200),
            has_header in any::<bool>(),
        ) {
            let header = if has_header { HEADER } else { &[] };
            let (head, rest) = data.split_at(data.len().min(3));
            stream(&[head, header, rest].concat());
        }

        #[test]
        fn damaged_streams_are_an_error_or_rows_that_stay_the_same(
            (from, count, rows) in (0..33_u8, 1..34_u8, 1..4_usize),
            size in 1..64_u8,
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let mut bytes = valid(from.into(), count.into(), rows);
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            stream(&[&[from, count, size], bytes.as_slice()].concat());
        }
    }
}
