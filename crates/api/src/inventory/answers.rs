//! The JSON of answers about several inventories, builds and pages; answers about one prefix are in
//! `render` of the inventory's crate.

use forebay_inventory::builder::Stage;
use forebay_inventory::render::{ChangeAnswer, Line, SmallAnswer, TotalsAnswer};
use forebay_inventory::source::BadRow;
use serde::Serialize;
use utoipa::ToSchema;

/// The inventories.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InventoryList {
    /// Each inventory, by name.
    pub(super) inventories: Vec<ListedInventory>,
}

/// An inventory in the list. An inventory that is being built for the first time, or cannot be
/// opened, has no figures.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(super) struct ListedInventory {
    /// Size of all versions in bytes, current and noncurrent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) billed_bytes: Option<u64>,
    /// Whether it is being built; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) building: Option<bool>,
    /// When it was built, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) built_at_ms: Option<u64>,
    /// Size of the current objects in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) bytes: Option<u64>,
    /// Whether no row was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) complete: Option<bool>,
    /// Why it cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<String>)]
    pub(super) error: Option<&'static str>,
    /// Whether it has histograms of sizes and ages.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) histograms: Option<bool>,
    /// Its name.
    pub(super) name: String,
    /// Number of current objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) objects: Option<u64>,
    /// Number of prefixes, the empty one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) prefixes: Option<u64>,
}

/// A page of the prefixes one level below a prefix.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InventoryPrefixPage)]
pub(super) struct PrefixPage {
    /// The prefixes, in the requested order.
    pub(super) items: Vec<Line>,
    /// `offset` of the next page; null after the last.
    #[schema(required)]
    pub(super) next: Option<u64>,
    /// Number of prefixes on all pages.
    pub(super) total: u64,
}

/// The largest prefixes below a prefix.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InventoryPrefixList)]
pub(super) struct PrefixList {
    /// The prefixes, the largest first.
    pub(super) items: Vec<Line>,
}

/// The prefixes with the most small objects.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InventorySmallFilesList)]
pub(super) struct SmallList {
    /// The prefixes, the one with the most small objects first.
    pub(super) items: Vec<SmallAnswer>,
    /// All objects below the prefix of the request.
    pub(super) total: SmallAnswer,
    /// Size in bytes below which an object is small.
    pub(super) under: u64,
}

/// What changed between two inventories.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InventoryChangeList)]
pub(super) struct ChangeList {
    /// The prefixes that changed, the most changed first.
    pub(super) items: Vec<ChangeAnswer>,
    /// All objects of the new inventory.
    pub(super) new: TotalsAnswer,
    /// All objects of the old inventory.
    pub(super) old: TotalsAnswer,
}

/// A build of an inventory: its progress or its result.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InventoryBuild)]
pub(super) struct BuildAnswer {
    /// Number of rows that were skipped because they were not valid; only after a build.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) bad_rows: Option<u64>,
    /// The first of these rows; only after a build.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) bad_rows_shown: Option<Vec<BadRow>>,
    /// Size of all versions in bytes, current and noncurrent; only after a build.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) billed_bytes: Option<u64>,
    /// Size of the current objects in bytes; only after a build.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) bytes: Option<u64>,
    /// Number of bytes read from the source.
    pub(super) bytes_read: u64,
    /// Size of the source in bytes; null if it is not known.
    #[schema(required)]
    pub(super) bytes_total: Option<u64>,
    /// Why the build failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) error: Option<String>,
    /// The sources.
    pub(super) from: Vec<String>,
    /// Size of the index in bytes; only after a build.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) index_bytes: Option<u64>,
    /// Name of the inventory.
    pub(super) inventory: String,
    /// Number of current objects; only after a build.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) objects: Option<u64>,
    /// Number of prefixes, the empty one included; only after a build.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) prefixes: Option<u64>,
    /// Number of rows read.
    pub(super) rows: u64,
    /// Number of rows merged.
    pub(super) rows_merged: u64,
    /// Duration in seconds, until now or until the end.
    pub(super) seconds: f64,
    /// What a running build does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) stage: Option<BuildStage>,
    /// When it started, in milliseconds since 1970.
    pub(super) started_at_ms: u64,
    /// The state of the build.
    pub(super) state: BuildState,
}

/// State of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = InventoryBuildState)]
pub(super) enum BuildState {
    /// It is in progress.
    Running,
    /// It ends soon.
    Cancelling,
    /// It is complete.
    Built,
    /// It failed; an earlier index is unchanged.
    Failed,
    /// It was cancelled; an earlier index is unchanged.
    Cancelled,
}

/// What a running build does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = InventoryBuildStage)]
pub(super) enum BuildStage {
    /// It reads the source.
    Reading,
    /// It merges sorted runs.
    Merging,
    /// It writes the table and the lists.
    Finishing,
}

impl From<Stage> for BuildStage {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Reading => Self::Reading,
            Stage::Merging => Self::Merging,
            Stage::Finishing => Self::Finishing,
        }
    }
}
