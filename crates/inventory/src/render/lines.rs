//! Prefixes as items of lists, or as lines.

use serde::Serialize;
use utoipa::ToSchema;

use super::text;
use crate::index::{IndexError, Node, Order, SortBy};

/// A prefix as an item of a list.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = InventoryPrefix)]
pub struct Line {
    /// Size of all versions below it in bytes, current and noncurrent: what is stored and billed,
    /// before minimum sizes and overhead, which only a cost includes.
    pub billed_bytes: u64,
    /// Size of the current objects below it in bytes.
    pub bytes: u64,
    /// Size in bytes of all versions of the storage class of the request; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub class_bytes: Option<u64>,
    /// Number of all versions of the storage class of the request; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub class_objects: Option<u64>,
    /// Its monthly cost, only of the storage class of the request if there is one; absent unless
    /// the prefixes are sorted or filtered by cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cost: Option<f64>,
    /// Number of delete markers below it.
    pub delete_markers: u64,
    /// Number of components of the prefix.
    pub depth: u64,
    /// Number of prefixes below it, on all levels.
    pub descendants: u64,
    /// Size of the noncurrent versions below it in bytes.
    pub noncurrent_bytes: u64,
    /// Number of noncurrent versions below it.
    pub noncurrent_objects: u64,
    /// Number of current objects below it.
    pub objects: u64,
    /// The prefix, with the delimiter at its end.
    pub prefix: String,
    /// Its bytes, percent-encoded; absent if the prefix is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub prefix_encoded: Option<String>,
}

/// A prefix as an item of a list.
///
/// # Errors
/// The node is damaged.
pub fn line(prefix: &[u8], node: &Node<'_>) -> Result<Line, IndexError> {
    let totals = node.totals()?;
    let (prefix, prefix_encoded) = text(prefix);
    Ok(Line {
        billed_bytes: totals.billed().bytes,
        bytes: totals.current.bytes,
        class_bytes: None,
        class_objects: None,
        cost: None,
        delete_markers: totals.delete_markers,
        depth: node.depth(),
        descendants: node.descendants(),
        noncurrent_bytes: totals.noncurrent.bytes,
        noncurrent_objects: totals.noncurrent.objects,
        objects: totals.current.objects,
        prefix,
        prefix_encoded,
    })
}

/// A prefix as an item of a list in some order: with its cost if that is the key, and the totals of
/// a class if the order is restricted to one.
///
/// # Errors
/// The node is damaged, or has no cost.
pub fn ordered_line(prefix: &[u8], node: &Node<'_>, order: Order<'_>) -> Result<Line, IndexError> {
    let mut line = line(prefix, node)?;
    if order.is_in_class() {
        let of_class = node.billed_in(order)?;
        line.class_bytes = Some(of_class.bytes);
        line.class_objects = Some(of_class.objects);
    }
    if order.by() == SortBy::Cost {
        line.cost = Some(node.figure(order)?);
    }
    Ok(line)
}
