//! What components keep between runs and count in them, and the limits of both.

use std::sync::{Arc, Mutex};

use forebay_sdk::ConnectorError;
use forebay_sdk::connector::Result;
use forebay_sdk::run::Context;
use forebay_sdk::run::kept::{Kept, KeptBy, KeptValues};
use forebay_sdk::run::measures::MeasureValue;
use forebay_wasm::Grants;
use serde_json::json;

use crate::components::{context, opening, runtime, source, stream};

#[derive(Debug, Default)]
struct InMemory(Mutex<Vec<(KeptBy, String, Vec<u8>)>>);

impl KeptValues for InMemory {
    fn all(&self, of: &KeptBy) -> Result<Vec<(String, Vec<u8>)>> {
        let all = self.0.lock().unwrap();
        let own = all.iter().filter(|(by, ..)| by == of);
        Ok(own.map(|(_, key, value)| (key.clone(), value.clone())).collect())
    }

    fn put(&self, of: &KeptBy, key: &str, value: Option<&[u8]>) -> Result<()> {
        let mut all = self.0.lock().unwrap();
        all.retain(|(by, known, _)| by != of || known != key);
        all.extend(value.map(|value| (of.clone(), key.to_owned(), value.to_vec())));
        Ok(())
    }
}

fn grants() -> Grants {
    Grants { memory: 256 << 20, ..Grants::default() }
}

/// Opens a stream of the misbehaving source.
fn opened(mode: &str, name: &str, context: &Context) -> Option<Result<(), ConnectorError>> {
    let source = source("trials", &json!({ "mode": mode }), grants())?;
    let open = runtime().block_on(source.open(&stream(name), &opening(), context));
    Some(open.map(drop))
}

#[test]
fn a_value_is_there_in_the_next_run_of_the_same_stream() {
    let values = Arc::<InMemory>::default();
    for (name, before) in [("t", 0.0), ("t", 1.0), ("u", 0.0), ("t", 2.0)] {
        let (context, _cancel) = context();
        let context = context.keeping(Kept::new(Arc::<InMemory>::clone(&values), "p"));
        let Some(opened) = opened("keep", name, &context) else { return };
        opened.unwrap();
        let found = context.measures.all();
        let found: Vec<_> = found.iter().map(|of| (&*of.connector, &*of.name, of.value)).collect();
        let expected = [
            ("trials", "opened", MeasureValue::Count(6)),
            ("trials", "runs_before", MeasureValue::Gauge(before)),
        ];
        assert_eq!(found, expected);
    }
    let all = values.0.lock().unwrap();
    assert!(all.iter().all(|(by, ..)| by.pipeline == "p" && by.connector == "source trials"));
}

#[test]
fn what_exceeds_the_limits_is_an_error_of_the_component() {
    for (mode, expected) in [
        ("keep-large", "71680 bytes, of at most 65536 in all"),
        ("keep-huge", "bytes"),
        ("keep-many", "more than 64 values"),
        ("keep-more", "more than 65536 bytes"),
        ("keep-no-key", "a key has not 1 to 256 bytes"),
        ("count-names", "more than 32 names"),
        ("count-odd-name", "is not a name"),
        ("count-nan", "is set to NaN"),
        ("count-both", "is a counter and a gauge"),
    ] {
        let (context, _cancel) = context();
        let values = Arc::<InMemory>::default();
        let context = context.keeping(Kept::new(Arc::<InMemory>::clone(&values), "p"));
        let Some(opened) = opened(mode, "t", &context) else { return };
        let error = forebay_base::error_chain::chain(&opened.expect_err(mode)).to_string();
        assert!(error.contains(expected), "{mode}: {error}");
        let kept: usize =
            values.0.lock().unwrap().iter().map(|(_, key, value)| key.len() + value.len()).sum();
        assert!(kept <= 64 << 10, "{mode}: {kept}");
        assert!(context.measures.all().len() <= 32, "{mode}");
    }
}

#[test]
fn nothing_is_kept_where_no_run_keeps_it_or_no_stream_is_open() {
    let (context, _cancel) = context();
    let Some(opened) = opened("keep", "t", &context) else { return };
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("keeps no values of connectors"), "{error}");
    let early = source("trials", &json!({ "mode": "keep-early" }), grants()).unwrap();
    let error = runtime().block_on(early.check()).unwrap_err().to_string();
    assert!(error.contains("the calls of the component"), "{error}");
}
