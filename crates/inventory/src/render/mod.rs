//! Answers as JSON, the same on the command line and over HTTP.
//!
//! A prefix is text. One that is not UTF-8 is shown approximately, with its bytes, percent-encoded,
//! beside it.
//!
//! Invariant: the fields of what is sent as lines are in the order of their names.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::cost::{ClassCost, Cost, Prices};
use crate::format::cells;
use crate::format::histogram::{Amount, Sizes};
use crate::format::meta::Slot;
use crate::index::{Class, Index, IndexError, Node};
use crate::small::Small;
use crate::source::Provenance;

mod changes;
mod lines;

pub use changes::{ChangeAnswer, ClassChangeAnswer, TotalsAnswer, change};
pub use lines::{Line, line, ordered_line};

/// Objects and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InventoryAmount)]
pub struct Amounts {
    /// Size of the objects in bytes.
    pub bytes: u64,
    /// Number of objects.
    pub objects: u64,
}

impl From<Amount> for Amounts {
    fn from(amount: Amount) -> Self {
        Self { bytes: amount.bytes, objects: amount.objects }
    }
}

/// The figures of a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InventoryFigures)]
pub struct Figures {
    /// Size of all versions below it in bytes, current and noncurrent.
    pub billed_bytes: u64,
    /// Size of the current objects below it in bytes.
    pub bytes: u64,
    /// Number of prefixes one level below it.
    pub children: u64,
    /// Current objects by storage class.
    pub classes: BTreeMap<String, Amounts>,
    /// Number of delete markers.
    pub delete_markers: u64,
    /// Number of components of the prefix.
    pub depth: u64,
    /// Number of prefixes below it, on all levels.
    pub descendants: u64,
    /// Sizes and ages; absent if the index has no histograms.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub histograms: Option<Histograms>,
    /// Noncurrent versions.
    pub noncurrent: Noncurrent,
    /// Number of current objects below it.
    pub objects: u64,
    /// The prefix, with the delimiter at its end.
    pub prefix: String,
    /// Its bytes, percent-encoded; absent if the prefix is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub prefix_encoded: Option<String>,
}

/// Noncurrent versions below a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InventoryNoncurrent)]
pub struct Noncurrent {
    /// Their size in bytes.
    pub bytes: u64,
    /// By storage class.
    pub classes: BTreeMap<String, Amounts>,
    /// Number of versions.
    pub objects: u64,
}

/// Sizes and ages of the objects below a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InventoryHistograms)]
pub struct Histograms {
    /// By month of the last change, in order.
    pub months: Vec<OfMonth>,
    /// By size, in order, including noncurrent versions.
    pub sizes: Vec<OfSize>,
    /// By size for each storage class; names of noncurrent ones end in ` (noncurrent)`.
    pub sizes_by_class: BTreeMap<String, Vec<OfSize>>,
}

/// Objects that were last changed in a month.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InventoryMonth)]
pub struct OfMonth {
    /// Size of the objects in bytes.
    pub bytes: u64,
    /// The month as `2026-11`, or `unknown`.
    pub month: String,
    /// Number of objects.
    pub objects: u64,
}

/// Objects of about the same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InventorySize)]
pub struct OfSize {
    /// All are smaller than this many bytes.
    pub below: u64,
    /// Size of the objects in bytes.
    pub bytes: u64,
    /// All have at least this many bytes.
    pub from: u64,
    /// Number of objects.
    pub objects: u64,
}

/// The monthly cost of a prefix.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = InventoryCost)]
pub struct CostAnswer {
    /// By storage class. Each includes its noncurrent versions.
    pub classes: BTreeMap<String, ClassCost>,
    /// Currency of all amounts.
    pub currency: String,
    /// The time the amounts are for: `month`.
    pub per: &'static str,
    /// The prefix, with the delimiter at its end.
    pub prefix: String,
    /// Its bytes, percent-encoded; absent if the prefix is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub prefix_encoded: Option<String>,
    /// The prices used.
    pub prices: PriceList,
    /// The total.
    pub total: f64,
    /// Classes without a price, with their bytes. They are not in the total. Absent if there are
    /// none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unpriced: BTreeMap<String, u64>,
}

/// The prices that a cost was computed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InventoryPrices)]
pub struct PriceList {
    /// Date of the prices.
    pub date: String,
    /// Region of the prices.
    pub region: String,
    /// Source of the prices.
    pub source: String,
}

/// The small objects of a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InventorySmallFiles)]
pub struct SmallAnswer {
    /// All objects, including noncurrent versions.
    pub all: Amounts,
    /// The prefix, with the delimiter at its end.
    pub prefix: String,
    /// Its bytes, percent-encoded; absent if the prefix is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub prefix_encoded: Option<String>,
    /// Those smaller than the limit.
    pub small: Amounts,
}

/// An inventory: its totals, and where it is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Inventory)]
pub struct Description {
    /// Number of rows that were skipped because they were not valid.
    pub bad_rows: u64,
    /// Size of all versions in bytes, current and noncurrent.
    pub billed_bytes: u64,
    /// When it was built, in milliseconds since 1970.
    pub built_at_ms: u64,
    /// Size of the current objects in bytes.
    pub bytes: u64,
    /// The storage classes, of current objects and of noncurrent versions.
    pub classes: Vec<Slot>,
    /// Whether no row was skipped.
    pub complete: bool,
    /// Number of delete markers.
    pub delete_markers: u64,
    /// The character that separates the components of a key.
    pub delimiter: char,
    /// Whether it has histograms of sizes and ages.
    pub histograms: bool,
    /// Size of the index itself in bytes.
    pub index_bytes: u64,
    /// Size of the noncurrent versions in bytes.
    pub noncurrent_bytes: u64,
    /// Number of noncurrent versions.
    pub noncurrent_objects: u64,
    /// Number of current objects.
    pub objects: u64,
    /// Number of prefixes, the empty one included.
    pub prefixes: u64,
    /// What it was built from.
    pub provenance: Provenance,
}

/// A prefix, or a name, as text, and its bytes if the text does not determine them.
fn text(bytes: &[u8]) -> (String, Option<String>) {
    let encoded = std::str::from_utf8(bytes).is_err().then(|| percent_encoded(bytes));
    (String::from_utf8_lossy(bytes).into_owned(), encoded)
}

/// What stays as it is: the unreserved characters of RFC 3986, and the delimiter of prefixes.
const PREFIX: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

pub(crate) fn percent_encoded(bytes: &[u8]) -> String {
    percent_encode(bytes, PREFIX).to_string()
}

fn classes(classes: &[Class<'_>], noncurrent: bool) -> BTreeMap<String, Amounts> {
    let wanted = classes.iter().filter(|class| class.noncurrent == noncurrent);
    wanted.map(|class| (class.name.to_owned(), class.total.into())).collect()
}

/// Everything known of a prefix.
///
/// # Errors
/// The node is damaged.
pub fn node(prefix: &[u8], node: &Node<'_>) -> Result<Figures, IndexError> {
    let stats = node.stats()?;
    let of_classes = node.classes(&stats);
    let (prefix, prefix_encoded) = text(prefix);
    Ok(Figures {
        billed_bytes: stats.billed().bytes,
        bytes: stats.total.bytes,
        children: node.child_count(),
        classes: classes(&of_classes, false),
        delete_markers: stats.delete_markers,
        depth: node.depth(),
        descendants: node.descendants(),
        histograms: histograms(node)?,
        noncurrent: Noncurrent {
            bytes: stats.noncurrent.bytes,
            classes: classes(&of_classes, true),
            objects: stats.noncurrent.objects,
        },
        objects: stats.total.objects,
        prefix,
        prefix_encoded,
    })
}

/// The histograms of a prefix: sizes by class, and months; `None` if the index has none.
///
/// # Errors
/// The node is damaged.
pub fn histograms(node: &Node<'_>) -> Result<Option<Histograms>, IndexError> {
    let stats = node.stats()?;
    let Some((classes, months)) = node.histograms(&stats)? else { return Ok(None) };
    let mut sizes_by_class = BTreeMap::new();
    let mut all = Sizes::default();
    for class in &classes {
        let Some(sizes) = &class.sizes else { continue };
        sizes.iter().for_each(|(cell, amount)| all.add(cell, amount));
        let name = if class.noncurrent {
            format!("{} (noncurrent)", class.name)
        } else {
            class.name.to_owned()
        };
        sizes_by_class.insert(name, cells_of(sizes));
    }
    let months = months.iter().map(|(month, amount)| OfMonth {
        bytes: amount.bytes,
        month: month.to_string(),
        objects: amount.objects,
    });
    Ok(Some(Histograms { months: months.collect(), sizes: cells_of(&all), sizes_by_class }))
}

fn cells_of(sizes: &Sizes) -> Vec<OfSize> {
    let cells = sizes.iter().map(|(cell, amount)| OfSize {
        below: cells::ceiling(cell),
        bytes: amount.bytes,
        from: cells::floor(cell),
        objects: amount.objects,
    });
    cells.collect()
}

/// The cost of a prefix.
#[must_use]
pub fn cost(prefix: &[u8], cost: &Cost, prices: &Prices) -> CostAnswer {
    let (prefix, prefix_encoded) = text(prefix);
    CostAnswer {
        classes: cost.classes.clone(),
        currency: prices.currency.clone(),
        per: "month",
        prefix,
        prefix_encoded,
        prices: PriceList {
            date: prices.date.clone(),
            region: prices.region.clone(),
            source: prices.source.clone(),
        },
        total: cost.total,
        unpriced: cost.unpriced.clone(),
    }
}

/// The small objects of a prefix.
#[must_use]
pub fn small(prefix: &[u8], small: &Small) -> SmallAnswer {
    let (prefix, prefix_encoded) = text(prefix);
    SmallAnswer { all: small.all.into(), prefix, prefix_encoded, small: small.small.into() }
}

/// The description of an index.
///
/// # Errors
/// The description of its source is damaged.
pub fn index(index: &Index) -> Result<Description, IndexError> {
    let meta = index.meta();
    let totals = index.root()?.totals()?;
    let size = [meta.files.nodes, meta.files.table, meta.files.order, meta.files.provenance]
        .iter()
        .map(|file| file.size)
        .sum::<u64>();
    Ok(Description {
        bad_rows: meta.bad_rows,
        billed_bytes: totals.billed().bytes,
        built_at_ms: meta.built_at_ms,
        bytes: meta.bytes,
        classes: meta.slots.clone(),
        complete: meta.bad_rows == 0,
        delete_markers: totals.delete_markers,
        delimiter: meta.delimiter,
        histograms: meta.histograms,
        index_bytes: size,
        noncurrent_bytes: totals.noncurrent.bytes,
        noncurrent_objects: totals.noncurrent.objects,
        objects: meta.objects,
        prefixes: meta.prefixes,
        provenance: index.provenance()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{Change, ClassChange, Status};
    use crate::index::Totals;

    /// Asserts that serialising has the order of names at all depths.
    fn is_ordered(answer: &impl Serialize) -> String {
        let text = serde_json::to_string(answer).unwrap();
        let sorted: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text, sorted.to_string());
        text
    }

    #[test]
    fn lines_have_their_fields_in_the_order_of_names() {
        let amount = Amount { objects: 2, bytes: 10 };
        let line = Line {
            billed_bytes: 6,
            bytes: 1,
            class_bytes: Some(7),
            class_objects: Some(8),
            cost: Some(0.5),
            delete_markers: 9,
            depth: 2,
            descendants: 3,
            noncurrent_bytes: 5,
            noncurrent_objects: 1,
            objects: 4,
            prefix: "a/".to_owned(),
            prefix_encoded: None,
        };
        is_ordered(&line);
        let line = Line { class_bytes: None, class_objects: None, cost: None, ..line };
        let expected =
            r#"{"billed_bytes":6,"bytes":1,"delete_markers":9,"depth":2,"descendants":3,"#;
        let rest = r#""noncurrent_bytes":5,"noncurrent_objects":1,"objects":4,"prefix":"a/"}"#;
        assert_eq!(is_ordered(&line), format!("{expected}{rest}"));
        is_ordered(&small(b"a\xff/", &Small { small: amount, all: amount }));
        let of = |bytes| Totals {
            current: Amount { objects: 1, bytes },
            noncurrent: amount,
            delete_markers: 3,
        };
        is_ordered(&TotalsAnswer::from(of(1)));
        let changed = Change {
            prefix: b"a\xff/".to_vec(),
            status: Status::Added,
            old: Totals::default(),
            new: of(1),
            classes: vec![ClassChange {
                class: "GLACIER".to_owned(),
                noncurrent: true,
                old: Amount::default(),
                new: amount,
            }],
            cost: Some((0.25, 1.0)),
        };
        let text = is_ordered(&change(&changed));
        assert!(text.contains(r#""billed_delta":11,"billed_new":11,"billed_old":0"#), "{text}");
        assert!(text.contains(r#""cost_delta":0.75"#), "{text}");
        assert!(text.contains(r#""prefix_encoded":"a%FF/","status":"added""#), "{text}");
    }
}
