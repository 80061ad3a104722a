//! `forebay inventory cost`, `diff` and `small-files`.

use std::path::PathBuf;

use anyhow::Context as _;
use forebay_base::bytes::ByteSize;
use forebay_inventory::cost::{AWS_US_EAST_1, Pricer, Prices};
use forebay_inventory::diff::{self, Question, Rank, Status};
use forebay_inventory::index::Index;
use forebay_inventory::{render, small};

use super::inventory::{PrefixArgs, json_line, open, shown};
use crate::exit::{Coded, Exit};
use crate::out;

const COST_HELP: &str = "\
Examples:
  forebay inventory cost --index ./index
  forebay inventory cost --index ./index logs/ --children
  forebay inventory cost --index ./index --prices my-prices.toml --json

Least billed sizes, bytes billed beside each object and monitoring are counted object by object, from
the size histogram. Where a price falls with the amount stored, a prefix is priced at what the whole
index pays for a byte of that class. Requests, retrieval and transfer are not in it.";

#[derive(clap::Args, Debug)]
#[command(after_help = COST_HELP)]
pub(super) struct CostArgs {
    #[command(flatten)]
    of: PrefixArgs,
    /// Prices, as TOML; without it those of Amazon S3 in us-east-1 (`forebay inventory prices` prints them).
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Also the cost of each prefix right below, the dearest first.
    #[arg(long)]
    children: bool,
}

pub(super) fn cost(args: &CostArgs) -> anyhow::Result<Exit> {
    let prices = prices(args.prices.as_deref())?;
    let index = args.of.index.open()?;
    let node = args.of.node(&index)?;
    let pricer = Pricer::new(&index, &prices)?;
    let prefix = args.of.prefix.as_bytes();
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
        out::line(format_args!("{class:>44} {:>14}  {bytes} not in the table", "no price"))?;
    }
    for (prefix, cost) in &below {
        out::line(format_args!("{:>14.2}  {}", cost.total, shown(prefix)))?;
    }
    out::note(format_args!("prices: {}, {}, {}", prices.region, prices.date, prices.source));
    Ok(Exit::Ok)
}

/// Prints the table of prices that is shipped.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn print_prices() -> anyhow::Result<Exit> {
    out::line(AWS_US_EAST_1.trim_end())?;
    Ok(Exit::Ok)
}

/// The table of prices of a file, or the one that is shipped.
///
/// # Errors
/// The file is not there, or is no such table (exit code 2).
pub(crate) fn prices(file: Option<&std::path::Path>) -> anyhow::Result<Prices> {
    let Some(path) = file else {
        return Prices::aws_us_east_1().context("cannot read the table of prices that is shipped");
    };
    let wrong = |error: anyhow::Error| {
        Coded::wrap(Exit::Usage, format!("cannot use the prices of {}", path.display()), error)
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.into()))?;
    Prices::parse(&text).map_err(|error| wrong(error.into()))
}

/// By what changes are ranked.
#[derive(clap::ValueEnum, Debug, Clone, Copy, Default)]
enum RankArg {
    /// The largest change of bytes, up or down.
    #[default]
    Change,
    /// What grew most.
    Growth,
    /// What shrank most.
    Shrinkage,
}

const DIFF_HELP: &str = "\
Examples:
  forebay inventory diff ./index-monday ./index-tuesday
  forebay inventory diff ./old ./new --rank growth --depth 2 --top 20 --json";

#[derive(clap::Args, Debug)]
#[command(after_help = DIFF_HELP)]
pub(super) struct DiffArgs {
    /// The index before.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The index after.
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Print so many.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    top: usize,
    /// Only prefixes so many components deep.
    #[arg(long, value_name = "COUNT")]
    depth: Option<u64>,
    /// By what they are ranked.
    #[arg(long, value_enum, default_value_t)]
    rank: RankArg,
    /// Print one JSON object a line.
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
    let changes = diff::diff(&old, &new, &Question { rank, top: args.top, depth: args.depth })?;
    if args.json {
        changes.iter().try_for_each(|change| json_line(&render::change(change)))?;
        return Ok(Exit::Ok);
    }
    if changes.is_empty() {
        out::line("nothing changed")?;
        return Ok(Exit::Ok);
    }
    out::line(format_args!("{:>16} {:>14}            PREFIX", "BYTES", "OBJECTS"))?;
    for change in &changes {
        let sign = if change.bytes() < 0 { '-' } else { '+' };
        let size = u64::try_from(change.bytes().unsigned_abs()).unwrap_or(u64::MAX);
        let status = match change.status {
            Status::Added => "added",
            Status::Removed => "removed",
            Status::Changed => "",
        };
        out::line(format_args!(
            "{:>16} {:>+14} {status:>9}  {}",
            format!("{sign}{}", out::size(size)),
            change.objects(),
            shown(&change.prefix)
        ))?;
    }
    Ok(Exit::Ok)
}

/// Two indexes with other delimiters have no prefixes in common.
fn refuse_other_delimiter(old: &Index, new: &Index) -> anyhow::Result<()> {
    if old.delimiter() == new.delimiter() {
        return Ok(());
    }
    let [old, new] = [old, new].map(|index| char::from(index.delimiter()));
    let told = format!("the indexes have other delimiters: {old:?} and {new:?}");
    Err(Coded::error(Exit::Usage, told))
}

#[derive(clap::Args, Debug)]
pub(super) struct SmallArgs {
    #[command(flatten)]
    of: PrefixArgs,
    /// Smaller than this; a power of two.
    #[arg(long, value_name = "SIZE", default_value = "128KiB")]
    under: ByteSize,
    /// Print so many.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    top: usize,
    /// At most so many components deeper.
    #[arg(long, value_name = "COUNT")]
    depth: Option<u64>,
}

pub(super) fn small_files(args: &SmallArgs) -> anyhow::Result<Exit> {
    let index = args.of.index.open()?;
    let node = args.of.node(&index)?;
    let prefix = args.of.prefix.as_bytes();
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
