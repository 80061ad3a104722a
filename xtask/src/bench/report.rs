//! The printed result of a measurement.
//!
//! ```json
//! { "put_4k_sync_per_s": 21000.0, "upload_1g_peak_growth_mib": 3.5, "put_4k_sync_p99_us": 2100 }
//! ```
//!
//! One flat object: numbers are figures whose name ends in their unit, texts are facts about the
//! machine. A figure may also be an object `{"value": 1.0, "unit": "1/s", "what": "durable PUTs"}`.

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
    /// Parses the printed text.
    ///
    /// # Errors
    /// It is not the object above, or a value is not a finite number.
    pub(super) fn parse(json: &str) -> anyhow::Result<Self> {
        let value: Value = serde_json::from_str(json).context("the measurement is not JSON")?;
        let entries = value.as_object().context("the measurement is not a JSON object")?;
        let mut report = Self::default();
        for (name, value) in entries {
            match value.as_str() {
                Some(fact) => report.machine.push((name.clone(), fact.to_owned())),
                None => {
                    report.figures.insert(name.clone(), figure(name, value)?);
                }
            }
        }
        Ok(report)
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
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let unit = text("unit").unwrap_or_else(|| unit_of(name).to_owned());
    Ok(Figure { value: number, unit, what: text("what").unwrap_or_default() })
}

/// The unit at the end of a figure's name; empty when it is a plain number.
fn unit_of(name: &str) -> &'static str {
    const UNITS: [(&str, &str); 8] = [
        ("_mib_per_s", "MiB/s"),
        ("_mb_per_s", "MB/s"),
        ("_per_s", "1/s"),
        ("_mib", "MiB"),
        ("_bytes", "B"),
        ("_ns", "ns"),
        ("_us", "µs"),
        ("_ms", "ms"),
    ];
    UNITS.iter().find(|(end, _)| name.ends_with(end)).map_or("", |(_, unit)| unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_figures_with_the_unit_of_their_name_and_texts_are_facts() {
        let text = r#"{"kernel":"6.1","a_per_s":1.5,"b":{"value":2,"unit":"B","what":"w"},"c_mib_per_s":3}"#;
        let report = Report::parse(text).unwrap();
        assert_eq!(report.value("a_per_s"), Some(1.5));
        assert_eq!(report.figures["a_per_s"].unit, "1/s");
        assert_eq!(report.figures["b"].unit, "B");
        assert_eq!(report.figures["c_mib_per_s"].unit, "MiB/s");
        assert_eq!(report.machine, [("kernel".to_owned(), "6.1".to_owned())]);
        assert_eq!(report.value("missing"), None);
    }

    #[test]
    fn anything_else_is_an_error_that_says_what() {
        for (text, part) in [
            ("", "not JSON"),
            ("[1]", "not a JSON object"),
            (r#"{"a":null}"#, "figure a"),
            (r#"{"a":{"value":"fast"}}"#, "figure a"),
        ] {
            let error = format!("{:#}", Report::parse(text).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }
}
