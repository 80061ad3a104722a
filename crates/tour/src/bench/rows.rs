//! Documents for the benchmark: flat objects of eight fields, about 200 bytes each, all different.

use std::fmt::Write as _;

/// A document and its values.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) price: f64,
    pub(super) stock: i64,
    pub(super) city: &'static str,
    pub(super) note: String,
    pub(super) active: bool,
    pub(super) text: String,
}

const CITIES: [&str; 6] = ["Reykjavik", "Lagos", "Osaka", "Lima", "Tallinn", "Nairobi"];

/// Returns `count` documents, the first numbered `first`.
pub(super) fn make(first: i64, count: i64) -> Vec<Row> {
    (first..first + count).map(row).collect()
}

fn row(id: i64) -> Row {
    let mixed = id.wrapping_mul(0x9E37_79B9).rem_euclid(1_000_003);
    let name = format!("article {id} of lot {mixed}");
    let price = f64::from(i32::try_from(mixed).unwrap_or(0)) / 100.0 + 0.25;
    let stock = mixed % 977;
    let city = CITIES[usize::try_from(mixed % 6).unwrap_or(0)];
    let note = format!("kept in row {} on shelf {}", mixed % 61, mixed % 17);
    let active = mixed % 3 == 0;
    let mut text = String::with_capacity(220);
    // Writing to a String cannot fail.
    write!(
        text,
        "{{\"id\":{id},\"name\":\"{name}\",\"price\":{price},\"stock\":{stock},\
         \"city\":\"{city}\",\"note\":\"{note}\",\"active\":{active}}}"
    )
    .unwrap_or_default();
    Row { id, name, price, stock, city, note, active, text }
}

/// Returns the documents, one per line.
pub(super) fn lines(rows: &[Row]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rows.len() * 220);
    for row in rows {
        out.extend_from_slice(row.text.as_bytes());
        out.push(b'\n');
    }
    out
}
