//! A price table, from TOML.

use std::collections::BTreeMap;

use forebay_base::bytes::ByteSize;
use serde::Deserialize;

/// The default price table, as TOML.
pub const AWS_US_EAST_1: &str = include_str!("aws-us-east-1.toml");

/// Prices of storage.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Region of the prices.
    pub region: String,
    /// Currency of the prices.
    pub currency: String,
    /// Date of the prices.
    pub date: String,
    /// Source of the prices.
    pub source: String,
    /// By class.
    pub class: BTreeMap<String, ClassPrices>,
}

/// The prices of a class.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassPrices {
    /// Per gibibyte and month, by amount stored.
    pub storage: Vec<PriceStep>,
    /// Minimum billed size of an object in bytes; a power of two.
    #[serde(default)]
    pub minimum: Option<ByteSize>,
    /// Overhead bytes billed for each object, at the price of its class.
    #[serde(default)]
    pub overhead: Option<ByteSize>,
    /// Overhead bytes billed for each object, at the price of `STANDARD`.
    #[serde(default)]
    pub index: Option<ByteSize>,
    /// Monitoring per thousand objects and month.
    #[serde(default)]
    pub monitoring: f64,
    /// Minimum size of a monitored object in bytes; a power of two.
    #[serde(default)]
    pub monitored: Option<ByteSize>,
}

/// A price up to some amount stored.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceStep {
    /// Upper limit in gibibytes; the last price has none.
    #[serde(default)]
    pub up_to: Option<f64>,
    /// Per gibibyte and month.
    pub price: f64,
}

/// Why a price table cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PricesError {
    /// It is not TOML, or not a price table.
    #[error("it is not a price table")]
    Toml(#[source] toml::de::Error),
    /// A class has invalid prices.
    #[error("class {class}: {reason}")]
    Class {
        /// The class.
        class: String,
        /// The fault.
        reason: &'static str,
    },
}

impl Prices {
    /// Parses a price table.
    ///
    /// # Errors
    /// It is not valid.
    pub fn parse(text: &str) -> Result<Self, PricesError> {
        let prices: Self = toml::from_str(text).map_err(PricesError::Toml)?;
        for (class, of_class) in &prices.class {
            if let Some(reason) = of_class.fault() {
                return Err(PricesError::Class { class: class.clone(), reason });
            }
        }
        if prices.class.values().any(|class| class.index.is_some())
            && !prices.class.contains_key("STANDARD")
        {
            let reason = "the class is missing, but others need its price";
            return Err(PricesError::Class { class: "STANDARD".to_owned(), reason });
        }
        Ok(prices)
    }

    /// The prices of Amazon S3 in us-east-1, at the date they contain.
    ///
    /// # Errors
    /// None: a test checks the built-in table.
    pub fn aws_us_east_1() -> Result<Self, PricesError> {
        Self::parse(AWS_US_EAST_1)
    }
}

impl ClassPrices {
    fn fault(&self) -> Option<&'static str> {
        let is_cell = |size: Option<ByteSize>| size.is_none_or(|size| size.0.is_power_of_two());
        let is_price = |price: f64| price.is_finite() && price >= 0.0;
        let (last, before) = self.storage.split_last()?;
        let ends: Option<Vec<f64>> = before.iter().map(|step| step.up_to).collect();
        if last.up_to.is_some() || ends.is_none_or(|ends| !ends.is_sorted()) {
            return Some(
                "its price steps must increase, and the last one must have no upper limit",
            );
        }
        if !self.storage.iter().all(|step| is_price(step.price)) || !is_price(self.monitoring) {
            return Some("a price is negative");
        }
        if !is_cell(self.minimum) || !is_cell(self.monitored) {
            return Some(
                "a size is not a power of two, so smaller objects cannot be counted separately",
            );
        }
        None
    }

    /// The monthly price of this many bytes, without anything else.
    #[must_use]
    pub(super) fn storage(&self, bytes: f64) -> f64 {
        let mut left = bytes / GIBIBYTE;
        let (mut cost, mut start) = (0.0, 0.0);
        for step in &self.storage {
            let end = step.up_to.unwrap_or(f64::INFINITY);
            let here = left.min(end - start);
            cost += here * step.price;
            left -= here;
            start = end;
        }
        cost
    }
}

const GIBIBYTE: f64 = (1_u64 << 30) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_that_is_shipped_can_be_used_and_has_every_class_of_s3() {
        let prices = Prices::aws_us_east_1().unwrap();
        let known = crate::object::Classes::new().names();
        let without = ["OUTPOSTS", "SNOW", "FSX_OPENZFS", "FSX_ONTAP"];
        for class in known.iter().filter(|name| !without.contains(&name.as_str())) {
            assert!(prices.class.contains_key(class), "{class}");
        }
    }

    #[test]
    fn a_price_with_steps_is_that_of_each_step() {
        let prices = Prices::aws_us_east_1().unwrap();
        let tib = (1_u64 << 40) as f64;
        let cost = prices.class["STANDARD"].storage(600.0 * tib);
        let expected = 51_200.0 * 0.023 + 460_800.0 * 0.022 + 102_400.0 * 0.021;
        assert!((cost - expected).abs() < 1e-6, "{cost} {expected}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let head = "region = 'r'\ncurrency = 'c'\ndate = 'd'\nsource = 's'\n[class.A]\n";
        for class in [
            "storage = [{ up_to = 5, price = 1 }]",
            "storage = [{ price = -1 }]",
            "storage = [{ price = 1 }]\nminimum = '100KB'",
            "storage = [{ price = 1 }]\nindex = '8KiB'",
            "storage = [{ price = 1 }]\nfree = true",
        ] {
            assert!(Prices::parse(&format!("{head}{class}")).is_err(), "{class}");
        }
        assert!(Prices::parse(&format!("{head}storage = [{{ price = 1 }}]")).is_ok());
    }
}
