//! Components in a directory, and their settings.

use forebay_sdk::registry::Registry;
use forebay_wasm::installed::{Connectors, InstallError};
use serde::de::DeserializeSeed as _;
use serde_json::json;

use crate::components::dir;

#[test]
fn a_component_is_installed_listed_used_replaced_and_removed() {
    let file = dir().join("trials.wasm");
    if crate::components::component("trials").is_none() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let connectors = Connectors::new(data.path().join("connectors"));
    assert!(connectors.list().is_empty());
    for name in ["", "../x", "a/b", "A", "cache", "-x", "x.y", &"x".repeat(65)] {
        let refused = connectors.install(name, &file, None);
        assert!(matches!(refused, Err(InstallError::Name { .. })), "{name:?}");
    }
    let wrong = connectors.install("trials", &file, Some("00"));
    assert!(matches!(wrong, Err(InstallError::Hash { .. })), "{wrong:?}");
    let manifest = connectors.install("trials", &file, None).unwrap();
    assert_eq!(manifest.roles.names().collect::<Vec<_>>(), ["source", "destination"]);
    connectors.install("trials", &file, Some(&manifest.sha256.to_uppercase())).unwrap();
    assert_eq!(connectors.list().len(), 1);

    let registry = Registry::default().with(connectors.found());
    assert_eq!(registry.source_names().collect::<Vec<_>>(), ["wasm:trials"]);
    let entry = &registry.sources()[0];
    let read = |config: serde_json::Value| entry.deserialize(config).map(drop);
    read(json!({ "mode": "good" })).unwrap();
    let refused = read(json!({ "mode": "refuse" })).unwrap_err().to_string();
    assert!(refused.starts_with("mode: it is refused, as asked"), "{refused}");
    assert!(!refused.contains(['\n', '\u{1b}']), "{refused:?}");
    let trapped = read(json!({ "mode": "trap-validate" })).unwrap_err().to_string();
    assert!(trapped.contains("which failed"), "{trapped}");

    // Another component in its place is not run.
    let component = data.path().join("connectors/trials/component.wasm");
    let mut bytes = std::fs::read(&component).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&component, &bytes).unwrap();
    let refused = read(json!({ "mode": "good" })).unwrap_err().to_string();
    assert!(refused.contains("expected"), "{refused}");
    // A record of another file does not make it the one that was installed.
    let record = component.with_extension("seen");
    let of = |path: &std::path::Path| {
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::metadata(path).unwrap();
        json!({
            "hash": manifest.sha256,
            "stamp": {
                "device": found.dev(),
                "inode": found.ino(),
                "size": found.len(),
                "modified": [found.mtime(), found.mtime_nsec()],
                "changed": [found.ctime(), found.ctime_nsec()],
            },
        })
    };
    std::fs::write(&record, of(&record.with_file_name("connector.json")).to_string()).unwrap();
    assert!(read(json!({ "mode": "good" })).is_err());
    // One of this file does, and it is not read again: what runs is what was compiled at the installation.
    std::fs::write(&record, of(&component).to_string()).unwrap();
    read(json!({ "mode": "good" })).unwrap();
    std::fs::write(&component, &bytes).unwrap();
    assert!(read(json!({ "mode": "good" })).is_err(), "it was written again since");
    connectors.remove("trials").unwrap();
    assert!(matches!(connectors.remove("trials"), Err(InstallError::Missing { .. })));
}

#[test]
fn a_manifest_that_is_damaged_is_left_out_of_the_list() {
    if crate::components::component("trials").is_none() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let connectors = Connectors::new(data.path().join("connectors"));
    connectors.install("good", &dir().join("trials.wasm"), None).unwrap();
    connectors.install("bad", &dir().join("trials.wasm"), None).unwrap();
    let manifest = data.path().join("connectors/bad/connector.json");
    for text in ["", "{}", "[", "{\"name\":\"good\",\"sha256\":\"\",\"size\":0}"] {
        std::fs::write(&manifest, text).unwrap();
        let names: Vec<_> = connectors.list().into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["good"], "{text:?}");
    }
}
