//! Monthly cost of the objects below a prefix.
//!
//! Minimum sizes, overhead bytes and monitoring are computed from the exact counts of the size
//! histogram, not from averages. If a price falls with the amount stored, a prefix is priced at the
//! whole index's average price of a byte of that class: so the costs of the children of a prefix,
//! and of its direct objects, add up to its own.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::format::cells;
use crate::index::{Class, Index, IndexError, Node};

mod prices;

pub use prices::{AWS_US_EAST_1, ClassPrices, PriceStep, Prices, PricesError};

/// The monthly cost of a prefix.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Cost {
    /// The total.
    pub total: f64,
    /// By class. Each includes its noncurrent versions.
    pub classes: BTreeMap<String, ClassCost>,
    /// Classes without a price, with their bytes. They are not in the total.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unpriced: BTreeMap<String, u64>,
}

/// The monthly cost of a class.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, utoipa::ToSchema)]
#[schema(as = InventoryClassCost)]
pub struct ClassCost {
    /// Number of objects, including noncurrent versions.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Billed bytes: with minimum sizes and the overhead of each object at this class's price.
    pub billed_bytes: u64,
    /// For the billed bytes.
    pub storage: f64,
    /// For the overhead of each object at the price of `STANDARD`.
    pub index: f64,
    /// For monitoring.
    pub monitoring: f64,
}

/// Why a cost cannot be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// The index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The index has no histograms.
    #[error("the index has no histograms, which costs are computed from; build it with histograms")]
    NoHistograms,
}

/// Prices the prefixes of one index.
#[derive(Debug)]
pub struct Pricer<'a> {
    prices: &'a Prices,
    /// The price of a byte of each class.
    rates: BTreeMap<&'a str, f64>,
}

impl ClassCost {
    fn total(&self) -> f64 {
        self.storage + self.index + self.monitoring
    }

    fn add(&mut self, prices: &ClassPrices, class: &Class<'_>) {
        let Some(sizes) = &class.sizes else { return };
        let minimum = prices.minimum.map_or(0, |size| size.0);
        let overhead = prices.overhead.map_or(0, |size| size.0);
        let index = prices.index.map_or(0, |size| size.0);
        let monitored = prices.monitored.map_or(0, |size| size.0);
        for (cell, amount) in sizes.iter() {
            // Cells end at powers of two, and so do both sizes: a cell is entirely below them or
            // not.
            let billed = if cells::ceiling(cell) <= minimum {
                amount.objects.saturating_mul(minimum)
            } else {
                amount.bytes
            };
            let beside = amount.objects.saturating_mul(overhead);
            self.objects = self.objects.saturating_add(amount.objects);
            self.bytes = self.bytes.saturating_add(amount.bytes);
            self.billed_bytes = self.billed_bytes.saturating_add(billed).saturating_add(beside);
            self.index += amount.objects as f64 * index as f64;
            if cells::floor(cell) >= monitored {
                self.monitoring += amount.objects as f64 / 1000.0 * prices.monitoring;
            }
        }
    }
}

impl<'a> Pricer<'a> {
    /// Reads the totals of the whole index.
    ///
    /// # Errors
    /// The index has no histograms, or is damaged.
    pub fn new(index: &Index, prices: &'a Prices) -> Result<Self, CostError> {
        let root = index.root()?;
        let mut pricer = Self { prices, rates: BTreeMap::new() };
        let (billed, _) = pricer.billed(&root)?;
        let rate = |class: &str, prices: &ClassPrices| {
            let bytes = billed.get(class).map_or(0, |cost| cost.billed_bytes);
            // If nothing is stored, the first byte is priced.
            let bytes = if bytes == 0 { 1.0 } else { bytes as f64 };
            prices.storage(bytes) / bytes
        };
        let rates = prices.class.iter().map(|(class, of)| (class.as_str(), rate(class, of)));
        pricer.rates = rates.collect();
        Ok(pricer)
    }

    /// The billed bytes, by class; `index` is still in bytes. And the bytes of classes without a
    /// price.
    #[expect(clippy::type_complexity, reason = "two maps side by side")]
    fn billed(
        &self,
        node: &Node<'_>,
    ) -> Result<(BTreeMap<String, ClassCost>, BTreeMap<String, u64>), CostError> {
        let stats = node.stats()?;
        let (classes, _) = node.histograms(&stats)?.ok_or(CostError::NoHistograms)?;
        let (mut billed, mut unpriced) = (BTreeMap::new(), BTreeMap::new());
        for class in &classes {
            let name = class.name.to_owned();
            match self.prices.class.get(class.name) {
                Some(prices) => {
                    let cost: &mut ClassCost = billed.entry(name).or_default();
                    cost.add(prices, class);
                }
                None => *unpriced.entry(name).or_default() += class.total.bytes,
            }
        }
        Ok((billed, unpriced))
    }

    /// The monthly cost of a prefix.
    ///
    /// # Errors
    /// As for [`Pricer::new`].
    pub fn cost(&self, node: &Node<'_>) -> Result<Cost, CostError> {
        let (mut classes, unpriced) = self.billed(node)?;
        let rate = |class: &str| self.rates.get(class).copied().unwrap_or_default();
        for (class, cost) in &mut classes {
            cost.storage = cost.billed_bytes as f64 * rate(class);
            cost.index *= rate("STANDARD");
        }
        let total = classes.values().map(ClassCost::total).sum();
        Ok(Cost { total, classes, unpriced })
    }

    /// The price table.
    #[must_use]
    pub fn prices(&self) -> &'a Prices {
        self.prices
    }
}
