//! Pipeline files as other tools write them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use forebay_pipeline::config::{self, LoadError, PipelineFile};
use forebay_sdk::settings::LoadMethod;

fn load(text: &str) -> Result<PipelineFile, LoadError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.yaml");
    std::fs::write(&path, text).unwrap();
    config::load(&path, &forebay_connectors::registry(), &|name| Ok(format!("value of {name}")))
}

const REST: &str = "
pipeline: p
source:
  use: postgres
  config: { user: reader }
  streams: [{ name: t }]
destination:
  use: postgres
  config: { user: writer }
";

#[test]
fn the_version_may_be_a_number_or_a_text() {
    for version in ["1", "1.0", "\"1\"", "\"1.0\"", "'1.0'"] {
        load(&format!("version: {version}{REST}"))
            .unwrap_or_else(|error| panic!("{version}: {error}"));
    }
    for version in ["2", "\"1.1\"", "1.5", "-1", "\"\"", "true", "[1]", "\"one\""] {
        let error = load(&format!("version: {version}{REST}")).unwrap_err().to_string();
        assert!(error.contains("p.yaml:1:"), "{version}: {error}");
    }
    let error = load(&format!("version: \"2.0\"{REST}")).unwrap_err().to_string();
    assert!(error.contains("reads version 1, but the file has version 2.0"), "{error}");
}

#[test]
fn keys_may_be_in_any_order() {
    let file = load(
        "destination:
  load_method: insert
  config: { schema: sales, user: writer }
  write_mode: upsert
  primary_key: [id]
  use: postgres
source:
  streams: [{ cursor_field: id, name: t, sync_mode: incremental }]
  permissions: { env: { allowed_vars: [USER] } }
  config: { user: '${USER}' }
  use: postgres
resources: { parallelism: 2 }
pipeline: p
version: 1
",
    );
    let file = file.unwrap();
    assert_eq!(
        (file.source.uses.as_str(), file.destination.uses.as_str()),
        ("postgres", "postgres")
    );
    assert_eq!(file.destination.load_method, LoadMethod::Insert);
    assert!(format!("{:?}", file.destination.connector).contains("sales"));
    assert!(format!("{:?}", file.source.connector).contains("value of USER"));
}

#[test]
fn errors_in_config_have_their_line_wherever_it_is() {
    for (text, found) in [
        ("config:\n    usr: x\n  use: postgres", "p.yaml:4:"),
        ("use: postgres\n  config:\n    usr: x", "p.yaml:5:"),
        ("config:\n    port: none\n  use: postgres", "p.yaml:4:"),
    ] {
        let text = format!(
            "version: 1\ndestination:\n  {text}\npipeline: p\nsource: {{ use: postgres, streams: [{{ name: t }}] }}\n"
        );
        let error = load(&text).unwrap_err().to_string();
        assert!(error.contains(found), "{error}");
    }
    for (text, found) in [
        ("config: { user: x }", "missing field `use`"),
        ("config: { user: x }\n  use: oracle", "unknown destination \"oracle\""),
        ("use: postgres\n  config: { user: x }\n  config: { user: y }", "duplicate"),
    ] {
        let text = format!(
            "version: 1\ndestination:\n  {text}\npipeline: p\nsource: {{ use: postgres, streams: [{{ name: t }}] }}\n"
        );
        let error = load(&text).unwrap_err().to_string();
        assert!(error.contains(found), "{error}");
    }
}

#[test]
fn the_load_method_may_be_in_config() {
    let with = |destination: &str| {
        load(&format!(
            "version: '1.0'\npipeline: p\nsource: {{ use: postgres, streams: [{{ name: t }}] }}\ndestination:\n  use: postgres\n{destination}"
        ))
    };
    for text in [
        "  config: { user: x, load_method: insert, schema: s }\n",
        "  config:\n    load_method: insert\n    user: x\n",
        "  load_method: insert\n",
    ] {
        assert_eq!(with(text).unwrap().destination.load_method, LoadMethod::Insert, "{text}");
    }
    assert_eq!(with("  config: { user: x }\n").unwrap().destination.load_method, LoadMethod::Copy);
    for (text, found) in [
        (
            "  config: { load_method: insert }\n  load_method: copy\n",
            "set in `config` and beside it",
        ),
        ("  config: { load_method: fast }\n", "load_method: "),
        ("  config: { load_method: copy, load_method: copy }\n", "duplicate"),
        ("  config: { write_mode: append }\n", "write_mode"),
    ] {
        let error = with(text).unwrap_err().to_string();
        assert!(error.contains(found), "{text}: {error}");
    }
    // A source has none.
    let source = "version: 1\npipeline: p\nsource:\n  use: postgres\n  config: { load_method: copy }\n  streams: [{ name: t }]\ndestination: { use: postgres }\n";
    assert!(load(source).unwrap_err().to_string().contains("load_method"));
}
