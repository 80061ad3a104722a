//! What a measurement printed.
//!
//! ```json
//! {
//!   "subsystem": "intake",
//!   "machine": { "cpus": 2, "memory": "8 GiB", "kernel": "6.1" },
//!   "figures": {
//!     "put_4k_sync_per_s": { "value": 21000.0, "unit": "1/s", "what": "durable 4 KiB PUTs" }
//!   }
//! }
//! ```
//!
//! `machine` holds whatever the measurement found worth saying; `unit` and `what` may be missing.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// One measured number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) value: f64,
    pub(super) unit: String,
    pub(super) what: String,
}

/// All numbers of one measurement.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) machine: Vec<(String, String)>,
    pub(super) figures: BTreeMap<String, Figure>,
}

impl Report {
    /// Takes the printed text apart.
    ///
    /// # Errors
    /// It is not the object above, or a value is not a finite number.
    pub(super) fn parse(json: &str) -> anyhow::Result<Self> {
        let value: Value = serde_json::from_str(json).context("the measurement is not JSON")?;
        let figures = value["figures"].as_object().context("the measurement has no \"figures\"")?;
        let machine = value["machine"].as_object();
        Ok(Self {
            machine: machine
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.clone(), plain(value)))
                .collect(),
            figures: figures
                .iter()
                .map(|(name, value)| Ok((name.clone(), figure(name, value)?)))
                .collect::<anyhow::Result<_>>()?,
        })
    }

    /// The value of the figure called `name`.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        self.figures.get(name).map(|figure| figure.value)
    }
}

fn figure(name: &str, value: &Value) -> anyhow::Result<Figure> {
    let number = value.as_f64().or_else(|| value["value"].as_f64());
    let Some(number) = number.filter(|number| number.is_finite()) else {
        bail!("figure {name}: {value} has no number");
    };
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    Ok(Figure { value: number, unit: text("unit"), what: text("what") })
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_may_be_numbers_or_objects() {
        let text =
            r#"{"machine":{"cpus":2},"figures":{"a":1.5,"b":{"value":2,"unit":"B","what":"w"}}}"#;
        let report = Report::parse(text).unwrap();
        assert_eq!(report.value("a"), Some(1.5));
        assert_eq!(report.figures["b"].unit, "B");
        assert_eq!(report.machine, [("cpus".to_owned(), "2".to_owned())]);
        assert_eq!(report.value("c"), None);
    }

    #[test]
    fn anything_else_is_an_error_that_says_what() {
        for (text, part) in [
            ("", "not JSON"),
            ("{}", "no \"figures\""),
            (r#"{"figures":{"a":"fast"}}"#, "figure a"),
            (r#"{"figures":{"a":{"value":null}}}"#, "figure a"),
        ] {
            let error = format!("{:#}", Report::parse(text).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }
}
