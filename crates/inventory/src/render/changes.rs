//! Changes between two inventories as JSON.

use serde::Serialize;
use utoipa::ToSchema;

use super::text;
use crate::diff::{Change, ClassChange, Status};
use crate::index::Totals;

/// All objects of a prefix or an inventory: current, noncurrent and deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InventoryTotals)]
pub struct TotalsAnswer {
    /// Size of all versions in bytes, current and noncurrent.
    pub billed_bytes: u64,
    /// Size of the current objects in bytes.
    pub bytes: u64,
    /// Number of delete markers.
    pub delete_markers: u64,
    /// Size of the noncurrent versions in bytes.
    pub noncurrent_bytes: u64,
    /// Number of noncurrent versions.
    pub noncurrent_objects: u64,
    /// Number of current objects.
    pub objects: u64,
}

impl From<Totals> for TotalsAnswer {
    fn from(totals: Totals) -> Self {
        Self {
            billed_bytes: totals.billed().bytes,
            bytes: totals.current.bytes,
            delete_markers: totals.delete_markers,
            noncurrent_bytes: totals.noncurrent.bytes,
            noncurrent_objects: totals.noncurrent.objects,
            objects: totals.current.objects,
        }
    }
}

/// A prefix that changed between two inventories.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = InventoryChange)]
pub struct ChangeAnswer {
    /// Change of the bytes of all versions; null if it does not fit 64 bits.
    #[schema(required)]
    pub billed_delta: Option<i64>,
    /// Bytes of all versions in the new inventory, current and noncurrent.
    pub billed_new: u64,
    /// Bytes of all versions in the old inventory, current and noncurrent.
    pub billed_old: u64,
    /// Change of the bytes; null if it does not fit 64 bits.
    #[schema(required)]
    pub bytes_delta: Option<i64>,
    /// Bytes of the current objects in the new inventory.
    pub bytes_new: u64,
    /// Bytes of the current objects in the old inventory.
    pub bytes_old: u64,
    /// The storage classes that changed, by name.
    pub classes: Vec<ClassChangeAnswer>,
    /// Change of the monthly cost; absent without prices or histograms.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cost_delta: Option<f64>,
    /// Monthly cost in the new inventory; absent without prices or histograms.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cost_new: Option<f64>,
    /// Monthly cost in the old inventory; absent without prices or histograms.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cost_old: Option<f64>,
    /// Delete markers in the new inventory.
    pub delete_markers_new: u64,
    /// Delete markers in the old inventory.
    pub delete_markers_old: u64,
    /// Bytes of the noncurrent versions in the new inventory.
    pub noncurrent_bytes_new: u64,
    /// Bytes of the noncurrent versions in the old inventory.
    pub noncurrent_bytes_old: u64,
    /// Noncurrent versions in the new inventory.
    pub noncurrent_objects_new: u64,
    /// Noncurrent versions in the old inventory.
    pub noncurrent_objects_old: u64,
    /// Change of the objects; null if it does not fit 64 bits.
    #[schema(required)]
    pub objects_delta: Option<i64>,
    /// Current objects in the new inventory.
    pub objects_new: u64,
    /// Current objects in the old inventory.
    pub objects_old: u64,
    /// The prefix, with the delimiter at its end.
    pub prefix: String,
    /// Its bytes, percent-encoded; absent if the prefix is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub prefix_encoded: Option<String>,
    /// The kind of the change.
    pub status: Status,
}

/// A storage class that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InventoryClassChange)]
pub struct ClassChangeAnswer {
    /// Bytes in the new inventory.
    pub bytes_new: u64,
    /// Bytes in the old inventory.
    pub bytes_old: u64,
    /// The name of the class.
    pub class: String,
    /// Whether these are noncurrent versions.
    pub noncurrent: bool,
    /// Objects in the new inventory.
    pub objects_new: u64,
    /// Objects in the old inventory.
    pub objects_old: u64,
}

impl From<&ClassChange> for ClassChangeAnswer {
    fn from(change: &ClassChange) -> Self {
        Self {
            bytes_new: change.new.bytes,
            bytes_old: change.old.bytes,
            class: change.class.clone(),
            noncurrent: change.noncurrent,
            objects_new: change.new.objects,
            objects_old: change.old.objects,
        }
    }
}

/// A prefix that changed.
#[must_use]
pub fn change(change: &Change) -> ChangeAnswer {
    let (prefix, prefix_encoded) = text(&change.prefix);
    let Change { old, new, .. } = change;
    ChangeAnswer {
        billed_delta: i64::try_from(change.billed()).ok(),
        billed_new: new.billed().bytes,
        billed_old: old.billed().bytes,
        bytes_delta: i64::try_from(change.bytes()).ok(),
        bytes_new: new.current.bytes,
        bytes_old: old.current.bytes,
        classes: change.classes.iter().map(ClassChangeAnswer::from).collect(),
        cost_delta: change.cost.map(|(old, new)| new - old),
        cost_new: change.cost.map(|(_, new)| new),
        cost_old: change.cost.map(|(old, _)| old),
        delete_markers_new: new.delete_markers,
        delete_markers_old: old.delete_markers,
        noncurrent_bytes_new: new.noncurrent.bytes,
        noncurrent_bytes_old: old.noncurrent.bytes,
        noncurrent_objects_new: new.noncurrent.objects,
        noncurrent_objects_old: old.noncurrent.objects,
        objects_delta: i64::try_from(change.objects()).ok(),
        objects_new: new.current.objects,
        objects_old: old.current.objects,
        prefix,
        prefix_encoded,
        status: change.status,
    }
}
