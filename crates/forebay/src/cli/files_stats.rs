//! `forebay files stats`: how many files a running server has, of which types, sizes and ages.

use serde_json::Value;

use super::file_client::{Client, ClientArgs, shown};
use super::files::{Selection, query};
use crate::exit::Exit;
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay files stats
  forebay files stats docs
  forebay files stats docs/reports/ --type application/pdf --json

Contents that several files have are counted once as different contents. The server reads the names
of the whole selection.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

pub(super) fn stats(args: &StatsArgs) -> anyhow::Result<Exit> {
    let query = query(&args.selection.parameters()?);
    let found = Client::new(&args.from)?.json(&format!("/v1/files/statistics?{query}"))?;
    if args.json {
        out::json(&found)?;
    } else {
        lines(&found).iter().try_for_each(out::line)?;
    }
    Ok(Exit::Ok)
}

/// A number of files and their size, in columns.
fn sums(files: &Value, bytes: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    format!("{:>12}  {:>12}", number(files), out::size(number(bytes)))
}

/// The lines of a table.
fn lines(found: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |name: &str, sums: String| lines.push(format!("{name:<36} {sums}"));
    add("", format!("{:>12}  {:>12}", "files", "size"));
    add("all", sums(&found["files"], &found["bytes"]));
    add("different contents", sums(&found["different_files"], &found["different_bytes"]));
    if found["versions"].as_u64() != Some(0) {
        add("earlier versions", sums(&found["versions"], &found["version_bytes"]));
    }
    for (category, of) in found["categories"].as_object().into_iter().flatten() {
        add(&format!("category {}", shown(category)), sums(&of["files"], &of["bytes"]));
    }
    for of in found["media_types"].as_array().into_iter().flatten() {
        let mime = shown(of["mime"].as_str().unwrap_or_default());
        add(&format!("type {mime}"), sums(&of["files"], &of["bytes"]));
    }
    let others = &found["other_media_types"];
    if others["files"].as_u64() != Some(0) {
        add("other types", sums(&others["files"], &others["bytes"]));
    }
    let namespaces = found["namespaces"].as_array().map_or(&[][..], Vec::as_slice);
    let others = &found["other_namespaces"];
    // A selection in one namespace is the first line.
    if namespaces.len() > 1 {
        for of in namespaces {
            let namespace = shown(of["namespace"].as_str().unwrap_or_default());
            add(&format!("namespace {namespace}"), sums(&of["files"], &of["bytes"]));
        }
        if others["files"].as_u64() != Some(0) {
            add("other namespaces", sums(&others["files"], &others["bytes"]));
        }
    }
    for of in found["sizes"].as_array().into_iter().flatten() {
        let most = of["size_max"].as_u64().unwrap_or(0);
        let name = match most.checked_add(1) {
            Some(_) if most == 0 => "empty".to_owned(),
            Some(end) => format!("smaller than {}", out::size(end)),
            None => "larger".to_owned(),
        };
        add(&name, sums(&of["files"], &of["bytes"]));
    }
    for (name, time) in [("oldest", &found["oldest"]), ("newest", &found["newest"])] {
        if let Some(time) = time.as_str() {
            lines.push(format!("{name:<8} {}", shown(time)));
        }
    }
    for file in found["largest"].as_array().into_iter().flatten() {
        let size = out::size(file["size"].as_u64().unwrap_or(0));
        let text = |name: &str| shown(file[name].as_str().unwrap_or_default());
        lines.push(format!("largest  {size:>12}  {}/{}", text("namespace"), text("name")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_has_sums_by_type_and_size_and_escapes_names() {
        let of = |files: u64, bytes: u64| json!({"files": files, "bytes": bytes});
        let mut class = of(1, 3_145_728);
        class["size_min"] = json!(1_048_576);
        class["size_max"] = json!(4_194_303);
        let mut pdf = of(1, 3_145_728);
        pdf["mime"] = json!("application/pdf");
        let named =
            |namespace: &str| json!({"namespace": namespace, "files": 1, "bytes": 3_145_728});
        let found = json!({
            "files": 1, "bytes": 3_145_728, "different_files": 1, "different_bytes": 3_145_728,
            "versions": 0, "version_bytes": 0, "categories": {"document": of(1, 3_145_728)},
            "media_types": [pdf], "other_media_types": of(0, 0), "sizes": [class],
            "namespaces": [named("m"), named("n")], "other_namespaces": of(0, 0),
            "oldest": "2026-01-01T00:00:00Z", "newest": null,
            "largest": [{"namespace": "n", "name": "a\u{1b}b", "size": 3_145_728}],
        });
        let row = |name: &str| format!("{name:<36} {:>12}  {:>12}", 1, "3.0MiB");
        let expected = [
            format!("{:<36} {:>12}  {:>12}", "", "files", "size"),
            row("all"),
            row("different contents"),
            row("category document"),
            row("type application/pdf"),
            row("namespace m"),
            row("namespace n"),
            row("smaller than 4.0MiB"),
            "oldest   2026-01-01T00:00:00Z".to_owned(),
            format!("largest  {:>12}  n/a\\u{{1b}}b", "3.0MiB"),
        ];
        assert_eq!(lines(&found), expected);
    }
}
