//! `forebay inventory ...`: the inventory index on the command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use forebay_inventory::cost::{Pricer, Prices};
use forebay_inventory::index::{ClassSlots, Index, Node, Order, SortBy};
use forebay_inventory::render;
use serde::Serialize;

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
    /// Print the figures of a prefix.
    Get(inventory_read::GetArgs),
    /// Print the prefixes one level below a prefix.
    Children(inventory_read::ChildrenArgs),
    /// Print the largest prefixes below a prefix, with exact figures.
    Top(inventory_read::TopArgs),
    /// Print all prefixes below a prefix, in order of name.
    Descendants(inventory_read::DescendantsArgs),
    /// Print the distribution of sizes and ages below a prefix.
    Histogram(inventory_read::HistogramArgs),
    /// Print the monthly cost of a prefix, by storage class.
    Cost(inventory_report::CostArgs),
    /// Print the default price table as TOML, as a template for your own.
    Prices,
    /// Print the changes from one index to another, by prefix.
    Diff(inventory_report::DiffArgs),
    /// Print the prefixes with the most small objects.
    SmallFiles(inventory_report::SmallArgs),
    /// Write the prefixes to a file: Parquet, CSV, or a tree for ncdu.
    Export(inventory_export::Args),
    /// Browse an index in the terminal.
    Tui(inventory_tui::Args),
    /// Print the figures and the source of an index.
    Stats(inventory_read::StatsArgs),
    /// Read every byte of an index, and check its checksums and its consistency.
    Verify(inventory_read::StatsArgs),
    /// Generate an inventory in the form S3 delivers, for trials and measurements.
    Generate(inventory_generate::Args),
    /// Measure the index (`forebay bench inventory`).
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

/// The index and one of its prefixes.
#[derive(clap::Args, Debug)]
pub(super) struct PrefixArgs {
    #[command(flatten)]
    pub(super) index: IndexArgs,
    /// Prefix, with the delimiter at its end; empty for the whole index.
    #[arg(value_name = "PREFIX", default_value = "")]
    prefix: OsString,
}

/// The index.
#[derive(clap::Args, Debug)]
pub(super) struct IndexArgs {
    /// Directory of the index.
    #[arg(long = "index", value_name = "DIR")]
    pub(super) dir: PathBuf,
    /// Print JSON: one object, or one per line.
    #[arg(long)]
    pub(super) json: bool,
}

/// The order of prefixes.
#[derive(clap::ValueEnum, Debug, Clone, Copy, Default)]
pub(super) enum SortArg {
    /// By bytes of all versions, current and noncurrent, the most first.
    #[default]
    Billed,
    /// By bytes of the current objects, the most first.
    Bytes,
    /// By current objects, the most first.
    Objects,
    /// By bytes of the noncurrent versions, the most first.
    Noncurrent,
    /// By delete markers, the most first.
    DeleteMarkers,
    /// By monthly cost, the most expensive first.
    Cost,
    /// By name.
    Name,
}

impl From<SortArg> for SortBy {
    fn from(sort: SortArg) -> Self {
        match sort {
            SortArg::Billed => Self::Billed,
            SortArg::Bytes => Self::Bytes,
            SortArg::Objects => Self::Objects,
            SortArg::Noncurrent => Self::Noncurrent,
            SortArg::DeleteMarkers => Self::DeleteMarkers,
            SortArg::Cost => Self::Cost,
            SortArg::Name => Self::Name,
        }
    }
}

/// What prefixes are ranked by.
#[derive(clap::Args, Debug)]
pub(super) struct OrderArgs {
    /// Order of the prefixes.
    #[arg(long, value_enum, default_value_t)]
    pub(super) sort: SortArg,
    /// Only objects of this storage class count.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// TOML file with prices for --sort cost [default: Amazon S3 in us-east-1].
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

impl OrderArgs {
    /// Returns the price table, if the order needs one.
    ///
    /// # Errors
    /// The file is not a price table (exit code 2).
    pub(super) fn prices(&self) -> anyhow::Result<Option<Prices>> {
        let is_needed = matches!(self.sort, SortArg::Cost);
        is_needed.then(|| inventory_report::prices(self.prices.as_deref())).transpose()
    }

    /// Returns the order.
    ///
    /// # Errors
    /// The index has no objects of the class (exit code 2).
    pub(super) fn order<'p>(
        &self,
        index: &Index,
        pricer: Option<&'p Pricer<'p>>,
    ) -> anyhow::Result<Order<'p>> {
        let order = Order::from(SortBy::from(self.sort)).priced(pricer);
        Ok(class_slots(index, self.class.as_deref())?.map_or(order, |class| order.in_class(class)))
    }
}

/// Returns the pricer of an index, if there are prices.
///
/// # Errors
/// The index has no histograms, or is damaged.
pub(super) fn pricer<'p>(
    index: &Index,
    prices: Option<&'p Prices>,
) -> anyhow::Result<Option<Pricer<'p>>> {
    Ok(prices.map(|prices| Pricer::new(index, prices)).transpose()?)
}

/// Returns the slots of a storage class, if one is requested.
///
/// # Errors
/// The index has no objects of the class (exit code 2).
pub(super) fn class_slots(
    index: &Index,
    class: Option<&str>,
) -> anyhow::Result<Option<ClassSlots>> {
    let Some(name) = class else { return Ok(None) };
    let slots = index.class(name);
    if slots.is_none() {
        let known = index.class_names().join(", ");
        let text = format!("no object has the storage class {name:?}; there are {known}");
        return Err(Coded::error(Exit::Usage, text));
    }
    Ok(slots)
}

impl IndexArgs {
    /// Opens the index.
    ///
    /// # Errors
    /// It does not exist or is damaged.
    pub(super) fn open(&self) -> anyhow::Result<Index> {
        open(&self.dir)
    }
}

/// Opens an index.
///
/// # Errors
/// It does not exist or is damaged.
pub(super) fn open(dir: &std::path::Path) -> anyhow::Result<Index> {
    Index::open(dir).context("cannot open the index")
}

impl PrefixArgs {
    /// Returns the bytes of the prefix, which need not be UTF-8.
    pub(super) fn bytes(&self) -> &[u8] {
        self.prefix.as_bytes()
    }

    /// Returns the node of the prefix.
    ///
    /// # Errors
    /// It does not exist (exit code 3), or the index is damaged.
    pub(super) fn node<'a>(&self, index: &'a Index) -> anyhow::Result<Node<'a>> {
        if let Some(node) = index.get(self.bytes())? {
            return Ok(node);
        }
        Err(no_prefix(index, self.bytes())?)
    }
}

/// Returns the error that a prefix does not exist (exit code 3), which names the one that was
/// probably meant.
///
/// # Errors
/// The index is damaged.
pub(super) fn no_prefix(index: &Index, prefix: &[u8]) -> anyhow::Result<anyhow::Error> {
    let text = |prefix: &[u8]| String::from_utf8_lossy(prefix).into_owned();
    let longer = [prefix, &[index.delimiter()]].concat();
    let mut message = format!("there is no prefix {:?} in the index", text(prefix));
    if index.get(&longer)?.is_some() {
        message = format!("{message}; did you mean {:?}?", text(&longer));
    }
    Ok(Coded::error(Exit::Absent, message))
}

/// Prints one JSON object on one line, its fields in the order of their names.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn json_line(value: &impl Serialize) -> anyhow::Result<()> {
    out::line(serde_json::to_value(value)?)
}

/// Returns a prefix in printable form: control characters and bytes that are not UTF-8 are escaped.
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

/// Prints prefixes as a table, or as JSON, one object per line.
///
/// # Errors
/// A node is damaged, or standard output cannot be written.
pub(super) fn print<'a>(
    json: bool,
    order: Order<'_>,
    found: impl Iterator<Item = anyhow::Result<(Vec<u8>, Node<'a>)>>,
) -> anyhow::Result<()> {
    let (by_cost, in_class) = (order.by() == SortBy::Cost, order.is_in_class());
    let column = |is_shown: bool, text: &dyn std::fmt::Display| {
        if is_shown { format!(" {text:>12}") } else { String::new() }
    };
    if !json {
        let class = column(in_class, &"OF CLASS") + &column(in_class, &"VERSIONS");
        let cost = column(by_cost, &"COST");
        out::line(format_args!(
            "{:>12} {:>12} {:>12} {:>12} {:>10}{class}{cost}  PREFIX",
            "BILLED", "BYTES", "OBJECTS", "NONCURRENT", "PREFIXES"
        ))?;
    }
    for found in found {
        let (prefix, node) = found?;
        if json {
            json_line(&render::ordered_line(&prefix, &node, order)?)?;
            continue;
        }
        let totals = node.totals()?;
        let class = if in_class {
            let of_class = node.billed_in(order)?;
            column(true, &out::size(of_class.bytes)) + &column(true, &of_class.objects)
        } else {
            String::new()
        };
        let cost = if by_cost { format!(" {:>12.2}", node.figure(order)?) } else { String::new() };
        out::line(format_args!(
            "{:>12} {:>12} {:>12} {:>12} {:>10}{class}{cost}  {}",
            out::size(totals.billed().bytes),
            out::size(totals.current.bytes),
            totals.current.objects,
            out::size(totals.noncurrent.bytes),
            node.descendants(),
            shown(&prefix)
        ))?;
    }
    Ok(())
}
