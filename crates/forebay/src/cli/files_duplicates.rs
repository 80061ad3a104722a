//! `forebay files duplicates`: contents of a running server that several files have.

use forebay_intake::names::Namespace;
use serde_json::Value;

use super::file_client::{Client, ClientArgs, namespace, shown};
use crate::exit::Exit;
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay files duplicates
  forebay files duplicates photos
  forebay files duplicates --limit 10 --json

Each content is stored once, so removing a duplicate frees no space. Earlier versions count as well.
Of one namespace, its names and versions alone are counted.
The server reads the whole list of contents, or all names of the namespace.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct DuplicatesArgs {
    /// Only files of this namespace.
    #[arg(value_name = "NAMESPACE", value_parser = namespace)]
    within: Option<Namespace>,
    /// Maximum number of contents, those that save the most space first.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    limit: u64,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

pub(super) fn duplicates(args: &DuplicatesArgs) -> anyhow::Result<Exit> {
    let mut path = format!("/v1/files/duplicates?limit={}", args.limit);
    if let Some(namespace) = &args.within {
        path.push_str(&format!("&namespace={namespace}"));
    }
    let found = Client::new(&args.from)?.json(&path)?;
    if args.json {
        out::json(&found)?;
    } else {
        lines(&found).iter().try_for_each(out::line)?;
        if !found["next_cursor"].is_null() {
            out::note("there are more contents; --limit lists up to 1000");
        }
    }
    Ok(Exit::Ok)
}

/// A line for each content, followed by its names.
fn lines(found: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for content in found["contents"].as_array().into_iter().flatten() {
        let number = |name: &str| content[name].as_u64().unwrap_or(0);
        let text = |value: &Value| shown(value.as_str().unwrap_or_default());
        lines.push(format!(
            "{:>12} saved  {:>12}  {} names  {}",
            out::size(number("saved_bytes")),
            out::size(number("size")),
            number("names"),
            text(&content["sha256"]),
        ));
        let files = content["files"].as_array().map_or(&[][..], Vec::as_slice);
        for file in files {
            lines.push(format!("  {}/{}", text(&file["namespace"]), text(&file["name"])));
        }
        let others = number("names").saturating_sub(files.len() as u64);
        if others > 0 {
            lines.push(format!("  and {others} more names or versions"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_content_has_its_names_and_counts_those_that_are_left_out() {
        let file = |name: &str| json!({"namespace": "n", "name": name});
        let found = json!({ "contents": [{
            "sha256": "cd", "size": 2048, "names": 4, "saved_bytes": 6144,
            "files": [file("a"), file("b\u{1b}")],
        }] });
        let expected = [
            format!("{:>12} saved  {:>12}  4 names  cd", "6KiB", "2KiB"),
            "  n/a".to_owned(),
            "  n/b\\u{1b}".to_owned(),
            "  and 2 more names or versions".to_owned(),
        ];
        assert_eq!(lines(&found), expected);
    }
}
