//! Chooses JSON documents: given ones, or the output of cargo metadata for this workspace.
//!
//! Invariant: a document is the exact text that was found; it is never parsed and written again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Files;

/// Maximum size of a file of documents, which is held in memory.
const FILE_SIZE_MAX: u64 = 256 << 20;

/// Documents to send, by namespace.
#[derive(Debug, Default)]
pub(in crate::tour) struct Documents {
    /// A description of their source.
    pub(in crate::tour) source: String,
    pub(in crate::tour) sets: BTreeMap<String, Vec<Box<str>>>,
    /// Values that are not objects, and files that are not JSON.
    pub(in crate::tour) skipped: u64,
}

impl Documents {
    /// Returns the documents in `given`, or those found on this machine.
    ///
    /// # Errors
    /// `given` cannot be read, or has no document.
    pub(in crate::tour) fn choose(given: Option<&Path>, files: &Files) -> anyhow::Result<Self> {
        if let Some(given) = given {
            let found = Self::read(given)?;
            if found.sets.is_empty() {
                let given = given.display();
                bail!("{given} has no JSON object; --documents takes .json and .ndjson files");
            }
            return Ok(found);
        }
        match workspace().and_then(|dir| Some((metadata(&dir)?, dir))) {
            Some((text, dir)) => Self::of_metadata(&text, &dir),
            None => Ok(Self::in_tree(files)),
        }
    }

    fn read(given: &Path) -> anyhow::Result<Self> {
        let mut found = Self { source: given.display().to_string(), ..Self::default() };
        let about = || {
            format!("cannot read {}; give a file or directory with --documents", given.display())
        };
        let metadata = std::fs::metadata(given).with_context(about)?;
        if !metadata.is_dir() {
            let text = read_text(given)?;
            found
                .add(&namespace_of(given), &text)
                .with_context(|| format!("{} is not JSON", given.display()))?;
            return Ok(found);
        }
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(given).with_context(about)? {
            paths.push(entry.with_context(about)?.path());
        }
        paths.sort();
        for path in paths.iter().filter(|path| is_json(path) && path.is_file()) {
            let added = read_text(path).and_then(|text| found.add(&namespace_of(path), &text));
            found.skipped += u64::from(added.is_err());
        }
        Ok(found)
    }

    /// Returns the JSON files among those that are sent anyway.
    fn in_tree(files: &Files) -> Self {
        let source = format!("JSON files in {}", files.tree.display());
        let mut found = Self { source, ..Self::default() };
        for file in files.chosen.iter().filter(|file| is_json(&file.path) && file.size <= 1 << 20) {
            let added = read_text(&file.path).and_then(|text| found.add("documents", &text));
            found.skipped += u64::from(added.is_err());
        }
        found
    }

    /// Adds every object in `text`: values one after the other, and members of arrays.
    fn add(&mut self, namespace: &str, text: &str) -> anyhow::Result<()> {
        let mut objects: Vec<Box<str>> = Vec::new();
        let mut skipped = 0;
        let mut take = |value: &RawValue| {
            let text = value.get();
            match text.starts_with('{') {
                true => objects.push(text.into()),
                false => skipped += 1,
            }
        };
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        for value in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
            let value = value.context("malformed JSON")?;
            match value.get().starts_with('[') {
                true => serde_json::from_str::<Vec<&RawValue>>(value.get())
                    .context("malformed JSON")?
                    .into_iter()
                    .for_each(&mut take),
                false => take(value),
            }
        }
        self.skipped += skipped;
        if !objects.is_empty() {
            self.sets.entry(namespace.to_owned()).or_default().append(&mut objects);
        }
        Ok(())
    }

    /// Adds a document for each package, and a flat one for each dependency.
    fn of_metadata(text: &str, dir: &Path) -> anyhow::Result<Self> {
        let metadata: Metadata<'_> =
            serde_json::from_str(text).context("cannot parse the output of cargo metadata")?;
        let mut dependencies = Vec::new();
        for package in &metadata.packages {
            let about: Package = serde_json::from_str(package.get())
                .context("cannot parse a package in the output of cargo metadata")?;
            for dependency in &about.dependencies {
                let row = serde_json::json!({
                    "package": about.name,
                    "version": about.version,
                    "dependency": dependency.name,
                    "requirement": dependency.req,
                    "kind": dependency.kind.as_deref().unwrap_or("normal"),
                    "optional": dependency.optional,
                    "default_features": dependency.uses_default_features,
                    "features": dependency.features.len(),
                });
                dependencies.push(row.to_string().into_boxed_str());
            }
        }
        let packages = metadata.packages.iter().map(|package| package.get().into()).collect();
        let sets = [("packages".to_owned(), packages), ("dependencies".to_owned(), dependencies)];
        Ok(Self {
            source: format!("cargo metadata of {}", dir.display()),
            sets: sets.into_iter().filter(|(_, set): &(_, Vec<_>)| !set.is_empty()).collect(),
            skipped: 0,
        })
    }
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    packages: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    kind: Option<String>,
    optional: bool,
    uses_default_features: bool,
    features: Vec<String>,
}

/// Returns the innermost directory with a Cargo.toml, from the current one upwards.
fn workspace() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().find(|dir| dir.join("Cargo.toml").is_file()).map(Path::to_owned)
}

/// Returns the output of cargo metadata; the lock file is left unchanged if possible.
fn metadata(dir: &Path) -> Option<String> {
    let attempts: [&[&str]; 3] = [&["--locked", "--offline"], &["--offline"], &[]];
    attempts.into_iter().find_map(|options| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1"])
            .args(options)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        output.status.success().then(|| String::from_utf8(output.stdout).ok()).flatten()
    })
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    let about = || format!("cannot read {}", path.display());
    let size = std::fs::metadata(path).with_context(about)?.len();
    if size > FILE_SIZE_MAX {
        bail!("{} is larger than the limit of {FILE_SIZE_MAX} bytes; split it", path.display());
    }
    std::fs::read_to_string(path).with_context(about)
}

fn is_json(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    matches!(extension.to_ascii_lowercase().as_str(), "json" | "ndjson" | "jsonl")
}

/// Returns a file's stem as a namespace: lower case, other characters replaced by a hyphen.
fn namespace_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let name: String = stem
        .chars()
        .map(|c| if plain(c) || matches!(c, '.' | '_' | '-') { c } else { '-' })
        .skip_while(|c| !plain(*c))
        .take(64)
        .collect();
    if name.is_empty() { "documents".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> anyhow::Result<Documents> {
        let mut documents = Documents::default();
        documents.add("n", text)?;
        Ok(documents)
    }

    #[test]
    fn lines_arrays_and_single_values_give_their_exact_texts() {
        let documents = set("{\"a\": 1.0}\n[{\"b\":\n2}, 7]\n\"x\" {\"c\":1e400}").unwrap();
        let texts: Vec<&str> = documents.sets["n"].iter().map(|text| &**text).collect();
        assert_eq!(texts, ["{\"a\": 1.0}", "{\"b\":\n2}", "{\"c\":1e400}"]);
        assert_eq!(documents.skipped, 2);
    }

    #[test]
    fn what_is_not_json_is_an_error() {
        assert!(set("{\"a\":").is_err());
    }

    #[test]
    fn a_stem_becomes_a_namespace_the_server_takes() {
        for (path, namespace) in [
            ("Über Orders.2.json", "ber-orders.2"),
            ("__x.ndjson", "x"),
            ("日本.json", "documents"),
        ] {
            assert_eq!(namespace_of(Path::new(path)), namespace);
            assert!(forebay_intake::names::Namespace::parse(namespace).is_ok());
        }
    }

    #[test]
    fn packages_become_documents_and_their_dependencies_rows() {
        let text = r#"{"packages":[{"name":"a","version":"1.0.0","extra": [1, 2],"dependencies":[
            {"name":"b","req":"^1","kind":null,"optional":false,"uses_default_features":true,
             "features":["x"],"target":null}]}],"resolve":null}"#;
        let documents = Documents::of_metadata(text, Path::new("/w")).unwrap();
        assert!(documents.sets["packages"][0].contains("\"extra\": [1, 2]"));
        let row: serde_json::Value =
            serde_json::from_str(&documents.sets["dependencies"][0]).unwrap();
        assert_eq!((&row["dependency"], &row["kind"]), (&"b".into(), &"normal".into()));
    }
}
