//! `forebay inventory ...`: the inventory index from the command line.

use std::path::PathBuf;

use anyhow::Context as _;
use forebay_inventory::index::{Index, Node, SortBy};
use forebay_inventory::render;
use serde_json::Value;

use super::{
    inventory_build, inventory_export, inventory_generate, inventory_read, inventory_report,
    inventory_tui,
};
use crate::exit::{Coded, Exit};
use crate::out;

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Read an inventory, a listing or a directory tree, and build an index of it.
    Build(Box<inventory_build::Args>),
    /// Print all that is known of a prefix.
    Get(inventory_read::GetArgs),
    /// Print the prefixes right below one.
    Children(inventory_read::ChildrenArgs),
    /// Print the largest prefixes below one, exactly.
    Top(inventory_read::TopArgs),
    /// Print the prefixes below one, in the order of their names.
    Descendants(inventory_read::DescendantsArgs),
    /// Print how sizes and ages are distributed below a prefix.
    Histogram(inventory_read::HistogramArgs),
    /// Print what a prefix costs in a month, by storage class.
    Cost(inventory_report::CostArgs),
    /// Print the table of prices that is used when no other is given, as TOML to begin one's own with.
    Prices,
    /// Print what changed from one index to another, prefix by prefix.
    Diff(inventory_report::DiffArgs),
    /// Print the prefixes with the most small objects.
    SmallFiles(inventory_report::SmallArgs),
    /// Write the prefixes to a file: Parquet, CSV, or a tree for ncdu.
    Export(inventory_export::Args),
    /// Browse an index in the terminal.
    Tui(inventory_tui::Args),
    /// Print what an index is of and what it was built from.
    Stats(inventory_read::StatsArgs),
    /// Read every byte of an index and compare it with its checksums and with itself.
    Verify(inventory_read::StatsArgs),
    /// Make an inventory up, as S3 would deliver it, to try or to measure with.
    Generate(inventory_generate::Args),
    /// Measure the index, beside DuckDB if it is there; the same as `forebay bench inventory`.
    Bench(super::bench::InventoryArgs),
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Build(args) => inventory_build::run(args),
        Command::Get(args) => inventory_read::get(args),
        Command::Children(args) => inventory_read::children(args),
        Command::Top(args) => inventory_read::top(args),
        Command::Descendants(args) => inventory_read::descendants(args),
        Command::Histogram(args) => inventory_read::histogram(args),
        Command::Cost(args) => inventory_report::cost(args),
        Command::Prices => inventory_report::print_prices(),
        Command::Diff(args) => inventory_report::diff(args),
        Command::SmallFiles(args) => inventory_report::small_files(args),
        Command::Export(args) => inventory_export::run(args),
        Command::Tui(args) => inventory_tui::run(args),
        Command::Stats(args) => inventory_read::stats(args),
        Command::Verify(args) => inventory_read::verify(args),
        Command::Generate(args) => inventory_generate::run(args),
        Command::Bench(args) => super::bench::inventory(args),
    }
}

/// Which index, and which of its prefixes.
#[derive(clap::Args, Debug)]
pub(super) struct PrefixArgs {
    #[command(flatten)]
    pub(super) index: IndexArgs,
    /// The prefix, with the delimiter at its end; empty for all of it.
    #[arg(value_name = "PREFIX", default_value = "")]
    pub(super) prefix: String,
}

/// Which index.
#[derive(clap::Args, Debug)]
pub(super) struct IndexArgs {
    /// The directory of the index.
    #[arg(long = "index", value_name = "DIR")]
    pub(super) dir: PathBuf,
    /// Print JSON: one object, or one a line.
    #[arg(long)]
    pub(super) json: bool,
}

/// By what prefixes are sorted.
#[derive(clap::ValueEnum, Debug, Clone, Copy, Default)]
pub(super) enum SortArg {
    /// The most bytes first.
    #[default]
    Bytes,
    /// The most objects first.
    Objects,
    /// By name.
    Name,
}

impl From<SortArg> for SortBy {
    fn from(sort: SortArg) -> Self {
        match sort {
            SortArg::Bytes => Self::Bytes,
            SortArg::Objects => Self::Objects,
            SortArg::Name => Self::Name,
        }
    }
}

impl IndexArgs {
    /// Opens the index.
    ///
    /// # Errors
    /// It is not there or damaged.
    pub(super) fn open(&self) -> anyhow::Result<Index> {
        open(&self.dir)
    }
}

/// Opens an index.
///
/// # Errors
/// It is not there or damaged.
pub(super) fn open(dir: &std::path::Path) -> anyhow::Result<Index> {
    Index::open(dir).context("cannot open the index")
}

impl PrefixArgs {
    /// The node of the prefix.
    ///
    /// # Errors
    /// It is not there (exit code 3), or the index is damaged.
    pub(super) fn node<'a>(&self, index: &'a Index) -> anyhow::Result<Node<'a>> {
        if let Some(node) = index.get(self.prefix.as_bytes())? {
            return Ok(node);
        }
        let delimiter = char::from(index.delimiter());
        let with_delimiter = format!("{}{delimiter}", self.prefix);
        let told = if index.get(with_delimiter.as_bytes())?.is_some() {
            format!(
                "there is no prefix {:?} in the index; there is {with_delimiter:?}",
                self.prefix
            )
        } else {
            format!("there is no prefix {:?} in the index", self.prefix)
        };
        Err(Coded::error(Exit::Absent, told))
    }
}

/// Prints one JSON object on one line.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn json_line(value: &Value) -> anyhow::Result<()> {
    out::line(value)
}

/// A prefix for a person: control characters and what is not text are escaped.
pub(super) fn shown(prefix: &[u8]) -> String {
    let text = String::from_utf8_lossy(prefix);
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    if shown.is_empty() { "(all)".to_owned() } else { shown }
}

/// Prints prefixes as a table, or as JSON, one a line.
///
/// # Errors
/// A node is damaged, or standard output cannot be written.
pub(super) fn print<'a>(
    json: bool,
    found: impl Iterator<Item = anyhow::Result<(Vec<u8>, Node<'a>)>>,
) -> anyhow::Result<()> {
    if !json {
        out::line(format_args!("{:>14} {:>12} {:>10}  PREFIX", "BYTES", "OBJECTS", "PREFIXES"))?;
    }
    for found in found {
        let (prefix, node) = found?;
        if json {
            json_line(&render::line(&prefix, &node)?)?;
        } else {
            let total = node.total()?;
            out::line(format_args!(
                "{:>14} {:>12} {:>10}  {}",
                out::size(total.bytes),
                total.objects,
                node.descendants(),
                shown(&prefix)
            ))?;
        }
    }
    Ok(())
}
