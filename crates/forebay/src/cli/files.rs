//! `forebay files`: the files of a running server.

use forebay_base::ByteSize;
use forebay_intake::catalogue::FileOrder;
use forebay_intake::classify::Category;
use forebay_intake::names::Namespace;
use forebay_intake::search::SearchOrder;
use serde_json::Value;

use super::file_client::{Client, ClientArgs, Target, failed, namespace, pair, shown};
use super::server::encode;
use super::{files_change, files_copy, files_duplicates, files_stats};
use crate::exit::{Coded, Exit};
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay files ls docs/reports/
  forebay files put report.pdf docs/reports/2026.pdf
  forebay files get docs/reports/2026.pdf -o report.pdf
  forebay files search quarterly revenue --type application/pdf
  forebay files set docs/reports/2026.pdf --tag status=final
  forebay files mv docs/reports/2026.pdf archive/2026.pdf
  forebay files rm docs/reports/2026.pdf
  forebay files stats docs

A file is written as NAMESPACE/NAME; the name may contain slashes. To store whole directories, use
`forebay ingest`.

Exit codes: 0 success; 1 there is no such file, or the request failed; 2 invalid command line.";

const LS_AFTER_HELP: &str = "\
Examples:
  forebay files ls
  forebay files ls docs
  forebay files ls docs/reports/ --category document --json
  forebay files ls docs --sort largest --limit 10

In any order but by name the server reads the names of the whole selection for each 1,000 files.";

const SEARCH_AFTER_HELP: &str = "\
Examples:
  forebay files search report
  forebay files search '\"annual report\"' 2025 --namespace docs --snippet
  forebay files search 'invoi*' --sort newest --after 2026-01-01T00:00:00Z
  forebay files search --type 'image/*' --min-size 10MiB --sort largest

A file matches if its name, text, comment, metadata and tags together have every word, or if its
name contains every word.
Several words in one argument and between double quotation marks are a phrase. word* matches any
word that begins with it. Without words the other conditions alone select.";

#[derive(clap::Subcommand, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) enum Command {
    /// List files by namespace and name, or in another order.
    Ls(ListArgs),
    /// Fetch a file, and verify its SHA-256.
    Get(files_copy::GetArgs),
    /// Store a file.
    Put(files_copy::PutArgs),
    /// Remove files.
    Rm(RemoveArgs),
    /// Search files by words and properties.
    Search(SearchArgs),
    /// Print what is known of a file.
    Stat(StatArgs),
    /// Add up files by type, size and age.
    Stats(files_stats::StatsArgs),
    /// Change the comment, tags or metadata of files.
    Set(files_change::SetArgs),
    /// Give a file another name as well, without copying bytes.
    Cp(files_change::TransferArgs),
    /// Rename a file.
    Mv(files_change::TransferArgs),
    /// List the versions of a file, newest first.
    History(files_change::HistoryArgs),
    /// Make an earlier version of a file the current one again.
    Restore(files_change::RestoreArgs),
    /// Erase all but the newest versions of a file.
    Prune(files_change::PruneArgs),
    /// List contents that several files have, and the space that storing them once saves.
    Duplicates(files_duplicates::DuplicatesArgs),
}

/// Which files are listed, or counted.
#[derive(clap::Args, Debug)]
pub(super) struct Selection {
    /// Only this namespace, and only names that begin with PREFIX.
    #[arg(value_name = "NAMESPACE[/PREFIX]")]
    within: Option<String>,
    /// Only files of this category.
    #[arg(long, value_parser = categories())]
    category: Option<String>,
    /// Only this media type, or all of a kind as in image/*.
    #[arg(long = "type", value_name = "TYPE")]
    media_type: Option<String>,
}

#[derive(clap::Args, Debug)]
#[command(after_help = LS_AFTER_HELP)]
pub(super) struct ListArgs {
    #[command(flatten)]
    selection: Selection,
    /// Order of the files; -name is name in reverse [default: name].
    #[arg(long, value_parser = list_orders(), allow_hyphen_values = true)]
    sort: Option<String>,
    /// Maximum number of files [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    from: ClientArgs,
    /// Print one JSON object for each file, one per line.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct RemoveArgs {
    /// Files to remove.
    #[arg(value_name = "NAMESPACE/NAME", required = true, value_parser = Target::parse)]
    files: Vec<Target>,
    /// Ignore files that do not exist.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    from: ClientArgs,
}

#[derive(clap::Args, Debug)]
#[command(after_help = SEARCH_AFTER_HELP)]
pub(super) struct SearchArgs {
    /// Words that name, text, comment, metadata or tags have.
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// Only this namespace.
    #[arg(long, value_name = "NAME", value_parser = namespace)]
    namespace: Option<Namespace>,
    /// Only names that begin with this text.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only this media type, or all of a kind as in image/*.
    #[arg(long = "type", value_name = "TYPE")]
    media_type: Option<String>,
    /// Only files of this category.
    #[arg(long, value_parser = categories())]
    category: Option<String>,
    /// Only files of at least this size.
    #[arg(long, value_name = "SIZE")]
    min_size: Option<ByteSize>,
    /// Only files of at most this size.
    #[arg(long, value_name = "SIZE")]
    max_size: Option<ByteSize>,
    /// Only files named at or after this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
    /// Only files named before this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
    /// Only files with this tag. May be repeated.
    #[arg(long = "tag", value_name = "NAME[=VALUE]")]
    tags: Vec<String>,
    /// Only files with this metadata. May be repeated.
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Order of the results [default: relevance, or newest without words].
    #[arg(long, value_parser = orders())]
    sort: Option<String>,
    /// Maximum number of files.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Print the text around the first word found.
    #[arg(long)]
    snippet: bool,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct StatArgs {
    /// The file.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = Target::parse)]
    file: Target,
    #[command(flatten)]
    from: ClientArgs,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

fn categories() -> clap::builder::PossibleValuesParser {
    Category::ALL.map(Category::as_str).into()
}

fn list_orders() -> clap::builder::PossibleValuesParser {
    FileOrder::ALL.map(FileOrder::as_str).into()
}

fn orders() -> clap::builder::PossibleValuesParser {
    SearchOrder::ALL.map(SearchOrder::as_str).into()
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Ls(args) => list(args),
        Command::Get(args) => files_copy::get(args),
        Command::Put(args) => files_copy::put(args),
        Command::Rm(args) => remove(args),
        Command::Search(args) => search(args),
        Command::Stat(args) => stat(args),
        Command::Stats(args) => files_stats::stats(args),
        Command::Set(args) => files_change::set(args),
        Command::Cp(args) => files_change::copy(args),
        Command::Mv(args) => files_change::rename(args),
        Command::History(args) => files_change::history(args),
        Command::Restore(args) => files_change::restore(args),
        Command::Prune(args) => files_change::prune(args),
        Command::Duplicates(args) => files_duplicates::duplicates(args),
    }
}

/// A query string of the parameters that are given.
pub(super) fn query(parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| {
        let value = value.as_ref()?;
        Some(format!("{name}={}", encode(value)))
    });
    given.collect::<Vec<_>>().join("&")
}

impl Selection {
    /// The parameters of a request for these files.
    pub(super) fn parameters(&self) -> anyhow::Result<[(&'static str, Option<String>); 4]> {
        let within = self.within.as_deref();
        let (within, prefix) = match within.map(|within| (within, within.split_once('/'))) {
            Some((_, Some((namespace, prefix)))) => (Some(namespace), Some(prefix.to_owned())),
            Some((within, None)) => (Some(within), None),
            None => (None, None),
        };
        let within = within.map(namespace).transpose();
        let within = within.map_err(|message| Coded::error(Exit::Usage, message))?;
        Ok([
            ("namespace", within.map(|namespace| namespace.to_string())),
            ("prefix", prefix),
            ("category", self.category.clone()),
            ("mime", self.media_type.clone()),
        ])
    }
}

fn list(args: &ListArgs) -> anyhow::Result<Exit> {
    let client = Client::new(&args.from)?;
    let selected = args.selection.parameters()?;
    let (mut left, mut cursor) = (args.limit, None);
    loop {
        let page = left.map_or(1_000, |left| left.min(1_000));
        let mut parameters = selected.to_vec();
        parameters.extend([
            ("sort", args.sort.clone()),
            ("limit", Some(page.to_string())),
            ("cursor", cursor.take()),
        ]);
        let found = client.json(&format!("/v1/files?{}", query(&parameters)))?;
        let files = found["files"].as_array().map(Vec::as_slice).unwrap_or_default();
        for file in files {
            print(file, args.json)?;
        }
        left = left.map(|left| left.saturating_sub(files.len() as u64));
        cursor = found["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() || left == Some(0) {
            return Ok(Exit::Ok);
        }
    }
}

/// Prints a file on one line.
fn print(file: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return out::line(file);
    }
    let text = |name: &str| shown(file[name].as_str().unwrap_or_default());
    out::line(format!(
        "{:>12}  {}  {}/{}",
        file["size"].as_u64().unwrap_or(0),
        text("created"),
        text("namespace"),
        text("name")
    ))
}

fn remove(args: &RemoveArgs) -> anyhow::Result<Exit> {
    let client = Client::new(&args.from)?;
    let mut exit = Exit::Ok;
    for file in &args.files {
        match client.delete(file) {
            Ok(true) => {}
            Ok(false) if args.force => {}
            Ok(false) => {
                out::note(format_args!("there is no file {file}"));
                exit = Exit::Failed;
            }
            Err(failure) => return Err(failed(failure)),
        }
    }
    Ok(exit)
}

fn search(args: &SearchArgs) -> anyhow::Result<Exit> {
    let client = Client::new(&args.from)?;
    let words = Some(args.words.join(" ")).filter(|_| !args.words.is_empty());
    let mut query = query(&[
        ("q", words),
        ("namespace", args.namespace.as_ref().map(ToString::to_string)),
        ("prefix", args.prefix.clone()),
        ("mime", args.media_type.clone()),
        ("category", args.category.clone()),
        ("size_min", args.min_size.map(|size| size.bytes().to_string())),
        ("size_max", args.max_size.map(|size| size.bytes().to_string())),
        ("created_from", args.after.clone()),
        ("created_to", args.before.clone()),
        ("sort", args.sort.clone()),
        ("limit", Some(args.limit.to_string())),
        ("snippet", args.snippet.then(|| "true".to_owned())),
    ]);
    for tag in &args.tags {
        query.push_str(&format!("&tag={}", encode(tag)));
    }
    for (name, value) in &args.metadata {
        query.push_str(&format!("&meta.{}={}", encode(name), encode(value)));
    }
    let found = client.json(&format!("/v1/files/search?{query}"))?;
    if args.json {
        out::json(&found)?;
        return Ok(Exit::Ok);
    }
    for file in found["files"].as_array().into_iter().flatten() {
        print(file, false)?;
        if let Some(snippet) = file["snippet"].as_str() {
            out::line(format!("              {}", shown(snippet)))?;
        }
    }
    if found["index"]["lag_bytes"].as_u64() != Some(0) {
        let behind = found["index"]["lag_seconds"].as_f64().unwrap_or(0.0);
        out::note(format_args!(
            "the search index is up to {behind:.1} s behind: files stored since may be missing"
        ));
    }
    Ok(Exit::Ok)
}

fn stat(args: &StatArgs) -> anyhow::Result<Exit> {
    let client = Client::new(&args.from)?;
    let Target { namespace, name } = &args.file;
    // The name itself is the first of those that begin with it.
    let query = query(&[
        ("namespace", Some(namespace.to_string())),
        ("prefix", Some(name.to_string())),
        ("limit", Some("1".to_owned())),
    ]);
    let found = client.json(&format!("/v1/files?{query}"))?;
    let Some(file) = found["files"].get(0).filter(|file| file["name"] == name.as_str()) else {
        return Err(Coded::error(Exit::Failed, format!("there is no file {}", args.file)));
    };
    if args.json {
        out::json(file)?;
        return Ok(Exit::Ok);
    }
    for (property, value) in file.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), shown);
        out::line(format!("{property:<10} {value}"))?;
    }
    Ok(Exit::Ok)
}
