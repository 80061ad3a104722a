//! Monthly cost of the objects below a prefix.
//!
//! Minimum sizes, overhead bytes and monitoring are computed from the exact counts of the size
//! histogram, not from averages. If a price falls with the amount stored, a prefix is priced at the
//! whole index's average price of a byte of that class: so the costs of the children of a prefix,
//! and of its direct objects, add up to its own.

use std::collections::BTreeMap;

use serde::Serialize;
use smallvec::SmallVec;

use crate::format::cells;
use crate::format::histogram::Sizes;
use crate::index::{Index, IndexError, Node};

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
    /// A sum does not fit 64 bits.
    #[error("the billed bytes of a class exceed {}", u64::MAX)]
    TooLarge,
}

/// Prices the prefixes of one index.
#[derive(Debug)]
pub struct Pricer<'a> {
    prices: &'a Prices,
    /// The classes with a price, in the order of their names.
    classes: Vec<Priced<'a>>,
    /// The classes of the index, and which of `classes` each is, if it has a price.
    slots: Vec<(String, Option<usize>)>,
    /// The price of a byte of `STANDARD`.
    standard: f64,
}

/// A class with a price.
#[derive(Debug)]
struct Priced<'a> {
    name: &'a str,
    prices: &'a ClassPrices,
    /// The price of a byte.
    rate: f64,
}

/// The cost of each of a pricer's classes that is not empty; `index` is in bytes.
type Billed = SmallVec<[(usize, ClassCost); 4]>;

impl ClassCost {
    fn total(&self) -> f64 {
        self.storage + self.index + self.monitoring
    }

    /// Adds the objects of a class; `None` if a sum does not fit 64 bits.
    fn add(&mut self, prices: &ClassPrices, sizes: &Sizes) -> Option<()> {
        let minimum = prices.minimum.map_or(0, |size| size.0);
        let overhead = prices.overhead.map_or(0, |size| size.0);
        let index = prices.index.map_or(0, |size| size.0);
        let monitored = prices.monitored.map_or(0, |size| size.0);
        for (cell, amount) in sizes.iter() {
            // Cells end at powers of two, and so do both sizes: a cell is entirely below them or
            // not.
            let billed = if cells::ceiling(cell) <= minimum {
                amount.objects.checked_mul(minimum)?
            } else {
                amount.bytes
            };
            let billed = billed.checked_add(amount.objects.checked_mul(overhead)?)?;
            self.objects = self.objects.checked_add(amount.objects)?;
            self.bytes = self.bytes.checked_add(amount.bytes)?;
            self.billed_bytes = self.billed_bytes.checked_add(billed)?;
            self.index += amount.objects as f64 * index as f64;
            if cells::floor(cell) >= monitored {
                self.monitoring += amount.objects as f64 / 1000.0 * prices.monitoring;
            }
        }
        Some(())
    }
}

impl<'a> Pricer<'a> {
    /// Reads the totals of the whole index.
    ///
    /// # Errors
    /// The index has no histograms, or is damaged.
    pub fn new(index: &Index, prices: &'a Prices) -> Result<Self, CostError> {
        let classes = prices.class.iter();
        let classes: Vec<_> =
            classes.map(|(name, prices)| Priced { name, prices, rate: 0.0 }).collect();
        let priced = |class: &str| classes.binary_search_by_key(&class, |of| of.name).ok();
        let slots = index.slots().iter();
        let slots = slots.map(|slot| (slot.class.clone(), priced(&slot.class))).collect();
        let mut pricer = Self { prices, classes, slots, standard: 0.0 };
        let (billed, _) = pricer.billed(&index.root()?, u64::MAX)?;
        for (at, class) in pricer.classes.iter_mut().enumerate() {
            let found = billed.iter().find(|(of, _)| *of == at);
            let bytes = found.map_or(0, |(_, cost)| cost.billed_bytes);
            // If nothing is stored, the first byte is priced.
            let bytes = if bytes == 0 { 1.0 } else { bytes as f64 };
            class.rate = class.prices.storage(bytes) / bytes;
            if class.name == "STANDARD" {
                pricer.standard = class.rate;
            }
        }
        Ok(pricer)
    }

    /// The billed bytes in some slots, by class, in the order of the classes; and the bytes of
    /// classes without a price.
    fn billed(
        &self,
        node: &Node<'_>,
        wanted: u64,
    ) -> Result<(Billed, BTreeMap<String, u64>), CostError> {
        let sizes = node.sizes()?.ok_or(CostError::NoHistograms)?;
        let (mut billed, mut unpriced) = (Billed::new(), BTreeMap::<String, u64>::new());
        for (slot, total, sizes) in &sizes {
            if wanted.checked_shr(u32::try_from(*slot).unwrap_or(64)).unwrap_or(0) & 1 == 0 {
                continue;
            }
            let Some((name, at)) = self.slots.get(*slot) else { continue };
            match at.and_then(|at| Some((at, self.classes.get(at)?))) {
                Some((at, class)) => {
                    let place = billed.binary_search_by_key(&at, |(at, _)| *at);
                    let place = place.unwrap_or_else(|place| {
                        billed.insert(place, (at, ClassCost::default()));
                        place
                    });
                    let cost = billed.get_mut(place).map(|(_, cost)| cost);
                    cost.and_then(|cost| cost.add(class.prices, sizes))
                        .ok_or(CostError::TooLarge)?;
                }
                None => {
                    let sum = unpriced.entry(name.clone()).or_default();
                    *sum = sum.checked_add(total.bytes).ok_or(CostError::TooLarge)?;
                }
            }
        }
        for (at, cost) in &mut billed {
            let rate = self.classes.get(*at).map_or(0.0, |class| class.rate);
            cost.storage = cost.billed_bytes as f64 * rate;
            cost.index *= self.standard;
        }
        Ok((billed, unpriced))
    }

    /// The monthly cost of a prefix.
    ///
    /// # Errors
    /// As for [`Pricer::new`]; or a sum does not fit 64 bits.
    pub fn cost(&self, node: &Node<'_>) -> Result<Cost, CostError> {
        let (billed, unpriced) = self.billed(node, u64::MAX)?;
        let total = sum(&billed);
        let name = |at: usize| self.classes.get(at).map_or("", |class| class.name).to_owned();
        let classes = billed.into_iter().map(|(at, cost)| (name(at), cost)).collect();
        Ok(Cost { total, classes, unpriced })
    }

    /// The total of the monthly cost of what a prefix has in some slots. That of a prefix is never
    /// less than that of one below it: every term of its sums is at least as large, in the same
    /// order, and rounding does not change which of two sums is larger.
    pub(crate) fn total(&self, node: &Node<'_>, wanted: u64) -> Result<f64, CostError> {
        Ok(sum(&self.billed(node, wanted)?.0))
    }

    /// The price table.
    #[must_use]
    pub fn prices(&self) -> &'a Prices {
        self.prices
    }
}

fn sum(billed: &Billed) -> f64 {
    // The sum of none is -0.0 otherwise.
    billed.iter().fold(0.0, |sum, (_, cost)| sum + cost.total())
}
