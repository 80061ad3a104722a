//! What connectors count in a run: counters and gauges by name.
//!
//! Invariants: names are fit for labels, and a connector has at most [`MEASURES_MAX`]; a name is a counter or a gauge.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use crate::connector::Result;
use crate::error::ConnectorError;

/// Maximum number of names of a connector.
pub const MEASURES_MAX: usize = 32;
/// Maximum size of a name in bytes.
pub const MEASURE_SIZE_MAX: usize = 64;

/// A value that a connector reports.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasureValue {
    /// How many there were in this run.
    Count(u64),
    /// How much there was last.
    Gauge(f64),
}

/// What a connector reports of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measure {
    /// The connector.
    pub connector: String,
    /// What was measured.
    pub name: String,
    /// The value.
    #[serde(flatten)]
    pub value: MeasureValue,
}

/// What a connector reports of a run.
// As generated clients understand it: some of them cannot read an object of which one part is one of two.
#[derive(utoipa::ToSchema)]
#[schema(as = PipelineMeasure)]
#[expect(dead_code, reason = "only its schema is used")]
struct Described {
    /// The connector.
    connector: String,
    /// What was measured.
    name: String,
    /// How many there were in this run; absent for a gauge.
    #[schema(nullable = false)]
    count: Option<u64>,
    /// How much there was last; absent for a counter.
    #[schema(nullable = false)]
    gauge: Option<f64>,
}

impl PartialSchema for Measure {
    fn schema() -> RefOr<Schema> {
        Described::schema()
    }
}

impl ToSchema for Measure {
    fn name() -> Cow<'static, str> {
        Described::name()
    }
}

/// What the connectors of a run report.
#[derive(Debug, Default)]
pub struct Measures(Mutex<BTreeMap<(String, String), MeasureValue>>);

/// The error of a name or value that is refused.
fn refused(connector: &str, found: String) -> ConnectorError {
    ConnectorError::data(format!("the metrics of {connector}"), found)
}

impl Measures {
    /// Adds to a counter.
    ///
    /// # Errors
    /// The name is not one, is that of a gauge, or there are too many.
    pub fn add(&self, connector: &str, name: &str, by: u64) -> Result<()> {
        self.change(connector, name, MeasureValue::Count(by))
    }

    /// Sets a gauge.
    ///
    /// # Errors
    /// The name is not one, is that of a counter, there are too many, or the value is not a number.
    pub fn set(&self, connector: &str, name: &str, to: f64) -> Result<()> {
        if !to.is_finite() {
            return Err(refused(connector, format!("{name:?} is set to {to}")));
        }
        self.change(connector, name, MeasureValue::Gauge(to))
    }

    fn change(&self, connector: &str, name: &str, value: MeasureValue) -> Result<()> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let is_name = (1..=MEASURE_SIZE_MAX).contains(&name.len())
            && name.bytes().all(fits)
            && name.starts_with(|first: char| first.is_ascii_lowercase());
        if !is_name {
            let shown: String = name.chars().take(MEASURE_SIZE_MAX).collect();
            let wanted = "lower-case letters, digits and '_', a letter first";
            return Err(refused(
                connector,
                format!("{shown:?} is not a name: use 1 to {MEASURE_SIZE_MAX} {wanted}"),
            ));
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = (connector.to_owned(), name.to_owned());
        match (all.get_mut(&own), value) {
            (Some(MeasureValue::Count(count)), MeasureValue::Count(by)) => {
                *count = count.saturating_add(by);
            }
            (Some(MeasureValue::Gauge(gauge)), MeasureValue::Gauge(to)) => *gauge = to,
            (Some(_), _) => {
                let found = format!("{name:?} is a counter and a gauge");
                return Err(refused(connector, found));
            }
            (None, value) => {
                if all.keys().filter(|(of, _)| of == connector).count() >= MEASURES_MAX {
                    let found = format!("more than {MEASURES_MAX} names");
                    return Err(refused(connector, found));
                }
                all.insert(own, value);
            }
        }
        Ok(())
    }

    /// All of them, by connector and name.
    #[must_use]
    pub fn all(&self) -> Vec<Measure> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |((connector, name), value): (&(String, String), &MeasureValue)| Measure {
            connector: connector.clone(),
            name: name.clone(),
            value: *value,
        };
        all.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_and_gauges_are_replaced() {
        let measures = Measures::default();
        measures.add("a", "pages", 2).unwrap();
        measures.add("a", "pages", 3).unwrap();
        measures.add("a", "pages", u64::MAX).unwrap();
        measures.set("a", "left", 2.5).unwrap();
        measures.set("a", "left", -1.0).unwrap();
        measures.add("b", "left", 1).unwrap();
        let values: Vec<_> = measures.all().into_iter().map(|of| of.value).collect();
        let expected =
            [MeasureValue::Gauge(-1.0), MeasureValue::Count(u64::MAX), MeasureValue::Count(1)];
        assert_eq!(values, expected);
    }

    #[test]
    fn names_that_cannot_be_labels_and_too_many_are_refused() {
        let measures = Measures::default();
        for name in ["", "A", "1a", "a-b", "a b", "é", "a\n", &"a".repeat(65)] {
            measures.add("a", name, 1).unwrap_err();
        }
        measures.set("a", "g", f64::NAN).unwrap_err();
        measures.set("a", "g", f64::INFINITY).unwrap_err();
        for number in 0..MEASURES_MAX {
            measures.add("a", &format!("n{number}"), 1).unwrap();
        }
        measures.add("a", "more", 1).unwrap_err();
        measures.set("a", "n1", 1.0).unwrap_err();
        measures.add("a", "n1", 1).unwrap();
        measures.add("b", "more", 1).unwrap();
    }
}
