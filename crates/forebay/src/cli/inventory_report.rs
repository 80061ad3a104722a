//! `forebay inventory cost`, `diff` and `small-files`.

use std::path::PathBuf;

use anyhow::Context as _;
use forebay_base::bytes::ByteSize;
use forebay_inventory::cost::{AWS_US_EAST_1, Pricer, Prices};
use forebay_inventory::diff::{self, Change, DiffOptions, Rank, Status};
use forebay_inventory::index::Index;
use forebay_inventory::{render, small};

use super::inventory::{PrefixArgs, SortArg, json_line, open, shown};
use crate::exit::{Coded, Exit};
use crate::out;

const COST_HELP: &str = "\
Examples:
  forebay inventory cost --index ./index
  forebay inventory cost --index ./index logs/ --children
  forebay inventory cost --index ./index --prices my-prices.toml --json

Minimum billed sizes, overhead bytes billed for each object and monitoring are computed for each
object, from the size histogram. Where a price depends on the amount stored, a prefix is priced at
the average that the whole index pays for a byte of that class. Requests, retrieval and transfer are
not included.";

#[derive(clap::Args, Debug)]
#[command(after_help = COST_HELP)]
pub(super) struct CostArgs {
    #[command(flatten)]
    of: PrefixArgs,
    /// TOML file with prices [default: Amazon S3 in us-east-1, as `forebay inventory prices`
    /// prints].
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Print the cost of each prefix one level below too, the most expensive first.
    #[arg(long)]
    children: bool,
}

pub(super) fn cost(args: &CostArgs) -> anyhow::Result<Exit> {
    let prices = prices(args.prices.as_deref())?;
    let index = args.of.index.open()?;
    let node = args.of.node(&index)?;
    let pricer = Pricer::new(&index, &prices)?;
    let prefix = args.of.bytes();
    let cost = pricer.cost(&node)?;
    let mut below = Vec::new();
    if args.children {
        for child in node.children() {
            let child = child?;
            let prefix = child.prefix(prefix);
            below.push((prefix, pricer.cost(&child)?));
        }
        below.sort_by(|a, b| b.1.total.total_cmp(&a.1.total).then_with(|| a.0.cmp(&b.0)));
    }
    if args.of.index.json {
        json_line(&render::cost(prefix, &cost, &prices))?;
        for (prefix, cost) in &below {
            json_line(&render::cost(prefix, cost, &prices))?;
        }
        return Ok(Exit::Ok);
    }
    let currency = &prices.currency;
    out::line(format_args!("{:.2} {currency} a month for {}", cost.total, shown(prefix)))?;
    for (class, of) in &cost.classes {
        out::line(format_args!(
            "{class:>44} {:>14.2}  {} objects, {} billed for {}",
            of.storage + of.index + of.monitoring,
            of.objects,
            out::size(of.billed_bytes),
            out::size(of.bytes),
        ))?;
    }
    for (class, bytes) in &cost.unpriced {
        let bytes = out::size(*bytes);
        out::line(format_args!("{class:>44} {:>14}  {bytes} not in the price table", "no price"))?;
    }
    for (prefix, cost) in &below {
        out::line(format_args!("{:>14.2}  {}", cost.total, shown(prefix)))?;
    }
    out::note(format_args!("prices: {}, {}, {}", prices.region, prices.date, prices.source));
    Ok(Exit::Ok)
}

/// Prints the built-in price table.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn print_prices() -> anyhow::Result<Exit> {
    out::line(AWS_US_EAST_1.trim_end())?;
    Ok(Exit::Ok)
}

/// Returns the price table of a file, or the built-in one.
///
/// # Errors
/// The file does not exist, or is not a price table (exit code 2).
pub(crate) fn prices(file: Option<&std::path::Path>) -> anyhow::Result<Prices> {
    let Some(path) = file else {
        return Prices::aws_us_east_1().context("cannot read the built-in price table");
    };
    let wrong = |error: anyhow::Error| {
        Coded::wrap(Exit::Usage, format!("cannot use the prices of {}", path.display()), error)
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.into()))?;
    Prices::parse(&text).map_err(|error| wrong(error.into()))
}

/// Which changes come first.
#[derive(clap::ValueEnum, Debug, Clone, Copy, Default)]
enum RankArg {
    /// By change, up or down.
    #[default]
    Change,
    /// By growth.
    Growth,
    /// By shrinkage.
    Shrinkage,
}

const DIFF_HELP: &str = "\
Examples:
  forebay inventory diff ./index-monday ./index-tuesday
  forebay inventory diff ./old ./new --rank growth --depth 2 --top 20 --json
  forebay inventory diff ./old ./new --by cost

All versions are compared, in every storage class. By billed bytes, what moved to another class or
became noncurrent has changed too, although the sum is the same.";

#[derive(clap::Args, Debug)]
#[command(after_help = DIFF_HELP)]
pub(super) struct DiffArgs {
    /// The earlier index.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The later index.
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Print at most COUNT prefixes.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    top: usize,
    /// Only prefixes exactly COUNT levels deep.
    #[arg(long, value_name = "COUNT")]
    depth: Option<u64>,
    /// Which changes come first.
    #[arg(long, value_enum, default_value_t)]
    rank: RankArg,
    /// Figure whose changes are ranked.
    #[arg(long, value_enum, value_name = "FIGURE", default_value_t)]
    by: SortArg,
    /// Only changes of objects of this storage class.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// TOML file with prices [default: Amazon S3 in us-east-1].
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

pub(super) fn diff(args: &DiffArgs) -> anyhow::Result<Exit> {
    let (old, new) = (open(&args.old)?, open(&args.new)?);
    refuse_other_delimiter(&old, &new)?;
    let rank = match args.rank {
        RankArg::Change => Rank::Change,
        RankArg::Growth => Rank::Growth,
        RankArg::Shrinkage => Rank::Shrinkage,
    };
    let prices = prices(args.prices.as_deref())?;
    let options = DiffOptions {
        rank,
        by: args.by.into(),
        top: args.top,
        depth: args.depth,
        class: args.class.as_deref(),
        prices: Some(&prices),
    };
    let changes = diff::diff(&old, &new, &options)?;
    if args.json {
        changes.iter().try_for_each(|change| json_line(&render::change(change)))?;
        return Ok(Exit::Ok);
    }
    if changes.is_empty() {
        out::line("no changes")?;
        return Ok(Exit::Ok);
    }
    out::line(format_args!(
        "{:>13} {:>13} {:>12} {:>12}            PREFIX",
        "BILLED", "BYTES", "OBJECTS", "COST"
    ))?;
    changes.iter().try_for_each(print_change)?;
    Ok(Exit::Ok)
}

fn print_change(change: &Change) -> anyhow::Result<()> {
    let status = match change.status {
        Status::Added => "added",
        Status::Removed => "removed",
        Status::Changed => "",
    };
    let cost = change.cost.map_or("?".to_owned(), |(old, new)| format!("{:+.2}", new - old));
    out::line(format_args!(
        "{:>13} {:>13} {:>+12} {cost:>12} {status:>9}  {}{}",
        signed(change.billed()),
        signed(change.bytes()),
        change.objects(),
        shown(&change.prefix),
        details(change),
    ))
}

/// Returns a difference in bytes with its sign.
fn signed(bytes: i128) -> String {
    let sign = if bytes < 0 { '-' } else { '+' };
    let size = u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", out::size(size))
}

/// Returns what the columns do not show: the classes if several changed or only noncurrent versions
/// did, and the delete markers.
fn details(change: &Change) -> String {
    let mut parts = Vec::new();
    let is_plain = matches!(&*change.classes, [class] if !class.noncurrent);
    if !is_plain {
        for class in &change.classes {
            let version = if class.noncurrent { " noncurrent" } else { "" };
            parts.push(format!("{}{version} {}", class.class, signed(class.bytes())));
        }
    }
    if change.delete_markers() != 0 {
        parts.push(format!("{:+} delete markers", change.delete_markers()));
    }
    if parts.is_empty() { String::new() } else { format!("  ({})", parts.join(", ")) }
}

/// Refuses indexes with different delimiters, which have no prefixes in common.
fn refuse_other_delimiter(old: &Index, new: &Index) -> anyhow::Result<()> {
    if old.delimiter() == new.delimiter() {
        return Ok(());
    }
    let [old, new] = [old, new].map(|index| char::from(index.delimiter()));
    let text = format!("the indexes have different delimiters: {old:?} and {new:?}");
    Err(Coded::error(Exit::Usage, text))
}

#[derive(clap::Args, Debug)]
pub(super) struct SmallArgs {
    #[command(flatten)]
    of: PrefixArgs,
    /// Size below which an object is small; a power of two.
    #[arg(long, value_name = "SIZE", default_value = "128KiB")]
    under: ByteSize,
    /// Print at most COUNT prefixes.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    top: usize,
    /// Only prefixes at most COUNT levels below the prefix.
    #[arg(long, value_name = "COUNT")]
    depth: Option<u64>,
}

pub(super) fn small_files(args: &SmallArgs) -> anyhow::Result<Exit> {
    let index = args.of.index.open()?;
    let node = args.of.node(&index)?;
    let prefix = args.of.bytes();
    let found = small::most_small(&node, prefix, args.under.0, args.top, args.depth);
    let found = found.map_err(|error| match error {
        small::SmallError::Between(_) => Coded::wrap(Exit::Usage, "--under", error.into()),
        error => error.into(),
    })?;
    if !args.of.index.json {
        out::line(format_args!("{:>12} {:>12} {:>7}  PREFIX", "SMALL", "OF OBJECTS", "BYTES"))?;
    }
    for small in &found {
        if args.of.index.json {
            json_line(&render::small(&small.found.prefix, &small.small))?;
        } else {
            let numbers = &small.small;
            out::line(format_args!(
                "{:>12} {:>12} {:>7}  {}",
                numbers.small.objects,
                numbers.all.objects,
                out::size(numbers.small.bytes),
                shown(&small.found.prefix)
            ))?;
        }
    }
    Ok(Exit::Ok)
}
