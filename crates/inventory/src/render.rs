//! Answers as JSON, the same on the command line and over HTTP.
//!
//! A prefix is text. One that is not UTF-8 is shown approximately, with its bytes, percent-encoded,
//! beside it.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::cost::{Cost, Prices};
use crate::diff::Change;
use crate::format::cells;
use crate::format::histogram::Amount;
use crate::index::{Class, Index, IndexError, Node};
use crate::small::Small;

/// A prefix, or a name, as text, and its bytes if the text does not determine them.
fn put_text(object: &mut Map<String, Value>, field: &str, bytes: &[u8]) {
    object.insert(field.to_owned(), String::from_utf8_lossy(bytes).into());
    if std::str::from_utf8(bytes).is_err() {
        object.insert(format!("{field}_encoded"), percent_encoded(bytes).into());
    }
}

pub(crate) fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte));
            }
            // Writing to a string does not fail.
            _ => write!(text, "%{byte:02X}").unwrap_or_default(),
        }
    }
    text
}

fn amount(amount: Amount) -> Value {
    json!({ "objects": amount.objects, "bytes": amount.bytes })
}

fn classes(classes: &[Class<'_>], noncurrent: bool) -> Value {
    let wanted = classes.iter().filter(|class| class.noncurrent == noncurrent);
    wanted.map(|class| (class.name.to_owned(), amount(class.total))).collect::<Map<_, _>>().into()
}

/// A prefix as an item of a list.
///
/// # Errors
/// The node is damaged.
pub fn line(prefix: &[u8], node: &Node<'_>) -> Result<Value, IndexError> {
    let total = node.total()?;
    let mut object = Map::new();
    put_text(&mut object, "prefix", prefix);
    object.insert("objects".to_owned(), total.objects.into());
    object.insert("bytes".to_owned(), total.bytes.into());
    object.insert("depth".to_owned(), node.depth().into());
    object.insert("descendants".to_owned(), node.descendants().into());
    Ok(object.into())
}

/// Everything known of a prefix.
///
/// # Errors
/// The node is damaged.
pub fn node(prefix: &[u8], node: &Node<'_>) -> Result<Value, IndexError> {
    let stats = node.stats()?;
    let of_classes = node.classes(&stats);
    let mut object = Map::new();
    put_text(&mut object, "prefix", prefix);
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("objects", stats.total.objects.into());
    put("bytes", stats.total.bytes.into());
    put("depth", node.depth().into());
    put("descendants", node.descendants().into());
    put("children", node.child_count().into());
    put("classes", classes(&of_classes, false));
    put("delete_markers", stats.delete_markers.into());
    let mut noncurrent = Map::new();
    noncurrent.insert("objects".to_owned(), stats.noncurrent.objects.into());
    noncurrent.insert("bytes".to_owned(), stats.noncurrent.bytes.into());
    noncurrent.insert("classes".to_owned(), classes(&of_classes, true));
    put("noncurrent", noncurrent.into());
    if let Some(histograms) = histograms(node)? {
        put("histograms", histograms);
    }
    Ok(object.into())
}

/// The histograms of a prefix: sizes by class, and months; `None` if the index has none.
///
/// # Errors
/// The node is damaged.
pub fn histograms(node: &Node<'_>) -> Result<Option<Value>, IndexError> {
    let stats = node.stats()?;
    let Some((classes, months)) = node.histograms(&stats)? else { return Ok(None) };
    let mut by_class = Map::new();
    let mut all = crate::format::histogram::Sizes::default();
    for class in &classes {
        let Some(sizes) = &class.sizes else { continue };
        sizes.iter().for_each(|(cell, amount)| all.add(cell, amount));
        let name = if class.noncurrent {
            format!("{} (noncurrent)", class.name)
        } else {
            class.name.to_owned()
        };
        by_class.insert(name, cells_of(sizes));
    }
    let months: Vec<Value> = months
        .iter()
        .map(|(month, amount)| {
            json!({ "month": month, "objects": amount.objects, "bytes": amount.bytes })
        })
        .collect();
    Ok(Some(json!({ "sizes": cells_of(&all), "sizes_by_class": by_class, "months": months })))
}

fn cells_of(sizes: &crate::format::histogram::Sizes) -> Value {
    let cells = sizes.iter().map(|(cell, amount)| {
        json!({
            "from": cells::floor(cell),
            "below": cells::ceiling(cell),
            "objects": amount.objects,
            "bytes": amount.bytes,
        })
    });
    cells.collect::<Vec<_>>().into()
}

/// The cost of a prefix.
#[must_use]
pub fn cost(prefix: &[u8], cost: &Cost, prices: &Prices) -> Value {
    let mut object = Map::new();
    put_text(&mut object, "prefix", prefix);
    object.insert("currency".to_owned(), prices.currency.clone().into());
    object.insert("per".to_owned(), "month".into());
    if let Ok(Value::Object(numbers)) = serde_json::to_value(cost) {
        object.extend(numbers);
    }
    let Prices { region, date, source, .. } = prices;
    object.insert("prices".to_owned(), json!({ "region": region, "date": date, "source": source }));
    object.into()
}

/// A prefix that changed.
#[must_use]
pub fn change(change: &Change) -> Value {
    let mut object = Map::new();
    put_text(&mut object, "prefix", &change.prefix);
    let number = |number: i128| i64::try_from(number).map_or(Value::Null, Value::from);
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("status", json!(change.status));
    put("objects_old", change.old.objects.into());
    put("objects_new", change.new.objects.into());
    put("objects_delta", number(change.objects()));
    put("bytes_old", change.old.bytes.into());
    put("bytes_new", change.new.bytes.into());
    put("bytes_delta", number(change.bytes()));
    object.into()
}

/// The small objects of a prefix.
#[must_use]
pub fn small(prefix: &[u8], small: &Small) -> Value {
    let mut object = Map::new();
    put_text(&mut object, "prefix", prefix);
    object.insert("small".to_owned(), amount(small.small));
    object.insert("all".to_owned(), amount(small.all));
    object.into()
}

/// The description of an index.
///
/// # Errors
/// The description of its source is damaged.
pub fn index(index: &Index) -> Result<Value, IndexError> {
    let meta = index.meta();
    let size = [meta.files.nodes, meta.files.table, meta.files.order, meta.files.provenance]
        .iter()
        .map(|file| file.size)
        .sum::<u64>();
    Ok(json!({
        "objects": meta.objects,
        "bytes": meta.bytes,
        "prefixes": meta.prefixes,
        "bad_rows": meta.bad_rows,
        "complete": meta.bad_rows == 0,
        "delimiter": meta.delimiter,
        "histograms": meta.histograms,
        "built_at_ms": meta.built_at_ms,
        "index_bytes": size,
        "classes": meta.slots,
        "provenance": index.provenance()?,
    }))
}
