//! Tuples and columns made by hand.

use arrow::array::RecordBatch;
use forebay_pgcopy::{Column, DecodeError, Decoder, Encoder, HEADER, TRAILER, Wire};

/// A column called `c` that may be NULL.
pub(crate) fn column(wire: Wire) -> Column {
    named("c", wire)
}

pub(crate) fn named(name: &str, wire: Wire) -> Column {
    Column { name: name.into(), sql_type: String::new(), wire, nullable: true }
}

/// A tuple of fields.
pub(crate) fn tuple(fields: &[Option<&[u8]>]) -> Vec<u8> {
    let mut tuple = u16::try_from(fields.len()).unwrap().to_be_bytes().to_vec();
    for field in fields {
        match field {
            Some(bytes) => {
                tuple.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
                tuple.extend_from_slice(bytes);
            }
            None => tuple.extend_from_slice(&[0xff; 4]),
        }
    }
    tuple
}

/// A stream of tuples with header and trailer.
pub(crate) fn stream(tuples: &[u8]) -> Vec<u8> {
    [HEADER, tuples, TRAILER].concat()
}

/// Decodes tuples.
pub(crate) fn decode(columns: &[Column], tuples: &[u8]) -> Result<RecordBatch, DecodeError> {
    let mut decoder = Decoder::without_header(columns);
    decoder.push(tuples)?;
    let (batch, hash) = decoder.take()?;
    assert_eq!(batch.num_rows() as u64, hash.rows);
    decoder.finish()?;
    Ok(batch)
}

/// Encodes a batch for columns.
pub(crate) fn encode(columns: &[Column], batch: &RecordBatch) -> Vec<u8> {
    let encoder = Encoder::new(&batch.schema(), columns).unwrap();
    let mut out = Vec::new();
    let hash = encoder.encode(batch, 0..batch.num_rows(), &mut out).unwrap();
    assert_eq!(hash, encoder.hash(batch).unwrap(), "both ways hash the same");
    out
}

/// Decodes one value of one column; gives what it is in Arrow, shown as text, having checked that it is
/// encoded to the same bytes.
pub(crate) fn shown(wire: Wire, field: &[u8]) -> String {
    let columns = [column(wire)];
    let tuple = tuple(&[Some(field)]);
    let batch = decode(&columns, &tuple).unwrap();
    assert_eq!(encode(&columns, &batch), tuple, "what is decoded is encoded the same");
    arrow::util::display::array_value_to_string(batch.column(0), 0).unwrap()
}

/// What is wrong with a value of a column.
pub(crate) fn refused(wire: Wire, field: &[u8]) -> String {
    let error = decode(&[column(wire)], &tuple(&[Some(field)])).unwrap_err();
    let DecodeError::Cell { row: 1, column, reason } = error else {
        panic!("{error}");
    };
    assert_eq!(column, "c");
    reason.to_string()
}
