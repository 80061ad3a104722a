//! How long the codecs take: nanoseconds a row of seven columns, and a cell of each type.
//!
//! ```text
//! cargo run --release -p forebay-pgcopy --example codec_rate [part of a name]
//! ```
#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use forebay_pgcopy::{Column, ContentHash, Decoder, Encoder, HEADER, Splitter, Wire};

/// Rows of a stream.
const ROWS: u32 = 100_000;
/// Rows of a batch.
const BATCH_ROWS: usize = 8192;
/// Bytes of a read.
const PIECE_SIZE: usize = 64 * 1024;
/// Number of rounds, of which the best counts.
const ROUNDS: u32 = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let columns = table();
    let tuples: Vec<_> = (0..ROWS).map(|row| tuple(&fields(row))).collect();
    let mut stream = HEADER.to_vec();
    tuples.iter().for_each(|tuple| stream.extend_from_slice(tuple));
    println!("{} bytes a row, {} columns", stream.len() / tuples.len(), columns.len());
    measure("hash alone", || {
        let mut hash = ContentHash::default();
        tuples.iter().for_each(|tuple| hash.add(tuple));
        black_box(hash);
        Ok(())
    })?;
    measure("split, 64 KiB a piece", || split(stream.chunks(PIECE_SIZE)))?;
    let messages = || std::iter::once(HEADER).chain(tuples.iter().map(Vec::as_slice));
    measure("split, a row a piece", || split(messages()))?;
    measure("decode, 64 KiB a piece", || decode(&columns, stream.chunks(PIECE_SIZE)))?;
    measure("decode, a row a piece", || decode(&columns, messages()))?;
    encode("encode", &columns, &stream)?;
    for (name, wire, field) in types() {
        let columns = vec![column(name, wire); 8];
        let row = tuple(&vec![Some(field); columns.len()]);
        let stream = [HEADER, &row.repeat(ROWS as usize)].concat();
        println!("8 of {name}");
        measure("  decode", || decode(&columns, stream.chunks(PIECE_SIZE)))?;
        encode("  encode", &columns, &stream)?;
    }
    Ok(())
}

/// The least of some rounds, in nanoseconds a row.
fn measure(
    name: &str,
    mut round: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).is_some_and(|part| !name.contains(&part)) {
        return Ok(());
    }
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round()?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    println!("{name:26} {:7.1} ns a row", least * 1e9 / f64::from(ROWS));
    Ok(())
}

fn split<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<(), Box<dyn Error>> {
    let (mut splitter, mut out) = (Splitter::new(), Vec::with_capacity(2 * PIECE_SIZE));
    for piece in pieces {
        splitter.push(piece, &mut out)?;
        if out.len() > PIECE_SIZE {
            black_box(&out);
            out.clear();
        }
    }
    black_box(splitter.take_hash());
    Ok(())
}

fn decode<'a>(
    columns: &[Column],
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Box<dyn Error>> {
    let mut decoder = Decoder::new(columns);
    for piece in pieces {
        decoder.push(piece)?;
        if decoder.rows() >= BATCH_ROWS {
            black_box(decoder.take()?);
        }
    }
    Ok(())
}

fn encode(name: &str, columns: &[Column], stream: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut decoder = Decoder::new(columns);
    decoder.push(stream)?;
    let (batch, _) = decoder.take()?;
    let encoder = Encoder::new(&batch.schema(), columns)?;
    let mut out = Vec::new();
    measure(name, || {
        for start in (0..batch.num_rows()).step_by(BATCH_ROWS) {
            out.clear();
            let end = batch.num_rows().min(start + BATCH_ROWS);
            black_box(encoder.encode(&batch, start..end, &mut out)?);
        }
        Ok(())
    })
}

fn column(name: &str, wire: Wire) -> Column {
    Column { name: name.into(), sql_type: String::new(), wire, nullable: true }
}

/// The table that pipelines are measured with.
fn table() -> Vec<Column> {
    vec![
        column("id", Wire::Int8),
        column("customer", Wire::Int4),
        column("name", Wire::Text),
        column("email", Wire::Text),
        column("amount", Wire::Float8),
        column("is_active", Wire::Bool),
        column("created", Wire::Timestamp),
    ]
}

fn fields(row: u32) -> Vec<Option<Vec<u8>>> {
    let number = i64::from(row);
    let email = format!("customer-{row}@example.org");
    vec![
        Some(number.to_be_bytes().to_vec()),
        Some((row % 1000).to_be_bytes().to_vec()),
        Some(format!("name {row}").into_bytes()),
        (!row.is_multiple_of(10)).then(|| email.into_bytes()),
        Some((f64::from(row) / 7.0).to_be_bytes().to_vec()),
        Some(vec![u8::from(row.is_multiple_of(3))]),
        Some((number * 1_000_000).to_be_bytes().to_vec()),
    ]
}

fn types() -> Vec<(&'static str, Wire, Vec<u8>)> {
    let decimal = vec![0, 3, 0, 1, 0, 0, 0, 2, 0, 12, 13, 128, 19, 136];
    let time_tz = [&49_506_789_000_i64.to_be_bytes()[..], &(-7200_i32).to_be_bytes()].concat();
    let words = [1, 0, 23, 3, 1, 4, 1, 4, 2, 4, 3_i32];
    let array = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    vec![
        ("int4", Wire::Int4, vec![0, 0, 1, 2]),
        ("text of 8 bytes", Wire::Text, b"a value.".to_vec()),
        ("text of 40 bytes", Wire::Text, vec![b'x'; 40]),
        ("timestamp", Wire::Timestamp, vec![0, 1, 2, 3, 4, 5, 6, 7]),
        ("uuid", Wire::Uuid, vec![7; 16]),
        ("interval", Wire::Interval, vec![0; 16]),
        ("numeric(12,2)", Wire::Decimal { precision: 12, scale: 2 }, decimal.clone()),
        ("numeric(40,2)", Wire::Decimal { precision: 40, scale: 2 }, decimal.clone()),
        ("numeric", Wire::Numeric, decimal),
        ("timetz", Wire::TimeTz, time_tz),
        ("inet", Wire::Inet, vec![2, 32, 0, 4, 10, 0, 0, 255]),
        ("int4[3]", Wire::Array { element: Box::new(Wire::Int4), element_oid: 23 }, array),
    ]
}

fn tuple(fields: &[Option<Vec<u8>>]) -> Vec<u8> {
    let size = |size: usize| u32::try_from(size).unwrap_or_default().to_be_bytes();
    let mut tuple = size(fields.len())[2..].to_vec();
    for field in fields {
        match field {
            Some(bytes) => {
                tuple.extend_from_slice(&size(bytes.len()));
                tuple.extend_from_slice(bytes);
            }
            None => tuple.extend_from_slice(&[0xff; 4]),
        }
    }
    tuple
}
