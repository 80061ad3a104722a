//! `forebay inventory get`, `children`, `top`, `descendants`, `histogram`, `stats` and `verify`.

use std::path::PathBuf;
use std::time::Instant;

use clap::builder::RangedU64ValueParser;
use forebay_base::bytes::ByteSize;
use forebay_inventory::format::cells;
use forebay_inventory::format::histogram::{Amount, Sizes};
use forebay_inventory::index::{Filter, IndexError, Order, SortBy};
use forebay_inventory::render;
use serde_json::json;

use super::inventory::{
    IndexArgs, OrderArgs, PrefixArgs, class_slots, json_line, pricer, print, shown,
};
use super::inventory_report::prices;
use crate::exit::Exit;
use crate::out;

const GET_HELP: &str = "\
Example: forebay inventory get --index ./index logs/2026/

Exit codes: 0 printed; 3 the prefix does not exist.";

#[derive(clap::Args, Debug)]
#[command(after_help = GET_HELP)]
pub(super) struct GetArgs {
    #[command(flatten)]
    of: PrefixArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct ChildrenArgs {
    #[command(flatten)]
    of: PrefixArgs,
    #[command(flatten)]
    order: OrderArgs,
    /// Print at most COUNT prefixes.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = at_least_one())]
    limit: usize,
    /// Skip the first COUNT prefixes.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    offset: u64,
}

#[derive(clap::Args, Debug)]
pub(super) struct TopArgs {
    #[command(flatten)]
    of: PrefixArgs,
    #[command(flatten)]
    order: OrderArgs,
    /// Print at most COUNT prefixes.
    #[arg(short = 'k', long = "count", value_name = "COUNT", default_value_t = 100)]
    #[arg(value_parser = at_least_one())]
    count: usize,
    /// Only prefixes exactly COUNT levels below the prefix [default: any level].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    depth: Option<u64>,
    /// The same as --sort objects.
    #[arg(long, conflicts_with = "sort")]
    objects: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct DescendantsArgs {
    #[command(flatten)]
    of: PrefixArgs,
    /// Only prefixes at most COUNT levels below the prefix.
    #[arg(long, value_name = "COUNT")]
    depth: Option<u64>,
    /// Only prefixes with at least SIZE bytes of all versions, such as 10GiB.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    min_billed: ByteSize,
    /// Only prefixes with at least SIZE bytes of current objects.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    min_bytes: ByteSize,
    /// Only prefixes with at least COUNT current objects.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    min_objects: u64,
    /// Only prefixes with at least SIZE bytes of noncurrent versions.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    min_noncurrent: ByteSize,
    /// Only prefixes with at least COUNT delete markers.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    min_delete_markers: u64,
    /// Only prefixes that cost at least AMOUNT a month.
    #[arg(long, value_name = "AMOUNT")]
    min_cost: Option<f64>,
    /// Only objects of this storage class count, and prefixes that have some.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// TOML file with prices for --min-cost [default: Amazon S3 in us-east-1].
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Print at most COUNT prefixes.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one())]
    limit: Option<usize>,
}

/// Reads a number that must not be 0.
fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

#[derive(clap::Args, Debug)]
pub(super) struct HistogramArgs {
    #[command(flatten)]
    of: PrefixArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    index: IndexArgs,
}

pub(super) fn get(args: &GetArgs) -> anyhow::Result<Exit> {
    let index = args.of.index.open()?;
    let node = args.of.node(&index)?;
    let prefix = args.of.bytes();
    if args.of.index.json {
        json_line(&render::node(prefix, &node)?)?;
        return Ok(Exit::Ok);
    }
    let stats = node.stats()?;
    out::line(format_args!(
        "prefix      {}\nobjects     {}\nbytes       {} ({})\nprefixes    {} below, {} of them right below",
        shown(prefix),
        stats.total.objects,
        stats.total.bytes,
        out::size(stats.total.bytes),
        node.descendants(),
        node.child_count(),
    ))?;
    if stats.noncurrent.objects > 0 || stats.delete_markers > 0 {
        out::line(format_args!(
            "noncurrent  {} versions, {}; {} delete markers",
            stats.noncurrent.objects,
            out::size(stats.noncurrent.bytes),
            stats.delete_markers
        ))?;
    }
    let billed = stats.billed();
    out::line(format_args!(
        "billed      {} versions, {} ({})",
        billed.objects,
        billed.bytes,
        out::size(billed.bytes)
    ))?;
    for class in node.classes(&stats) {
        out::line(format_args!(
            "class       {}{}: {} objects, {}",
            class.name,
            if class.noncurrent { " (noncurrent)" } else { "" },
            class.total.objects,
            out::size(class.total.bytes)
        ))?;
    }
    Ok(Exit::Ok)
}

pub(super) fn children(args: &ChildrenArgs) -> anyhow::Result<Exit> {
    let index = args.of.index.open()?;
    let node = args.of.node(&index)?;
    let prices = args.order.prices()?;
    let pricer = pricer(&index, prices.as_ref())?;
    let order = args.order.order(&index, pricer.as_ref())?;
    let page = node.page(order, args.offset, args.limit)?;
    let prefix = args.of.bytes();
    let shown = page.nodes.len() as u64;
    print(
        args.of.index.json,
        order,
        page.nodes.into_iter().map(|child| Ok((child.prefix(prefix), child))),
    )?;
    let left = page.total.saturating_sub(args.offset.saturating_add(shown));
    if left > 0 && !args.of.index.json {
        let next = args.offset.saturating_add(shown);
        out::note(format_args!("{left} more; continue with --offset {next}"));
    }
    Ok(Exit::Ok)
}

pub(super) fn top(args: &TopArgs) -> anyhow::Result<Exit> {
    let index = args.of.index.open()?;
    let node = args.of.node(&index)?;
    let prices = args.order.prices()?;
    let pricer = pricer(&index, prices.as_ref())?;
    let mut order = args.order.order(&index, pricer.as_ref())?;
    if args.objects {
        order = order.sorted_by(SortBy::Objects);
    }
    let found = node.top(args.of.bytes(), order, args.count, args.depth)?;
    print(
        args.of.index.json,
        order,
        found.into_iter().map(|found| Ok((found.prefix, found.node))),
    )?;
    Ok(Exit::Ok)
}

pub(super) fn descendants(args: &DescendantsArgs) -> anyhow::Result<Exit> {
    let index = args.of.index.open()?;
    let node = args.of.node(&index)?;
    let prices = args.min_cost.map(|_| prices(args.prices.as_deref())).transpose()?;
    let pricer = pricer(&index, prices.as_ref())?;
    let filter = Filter {
        depth: args.depth,
        min_billed: args.min_billed.0,
        min_bytes: args.min_bytes.0,
        min_objects: args.min_objects,
        min_noncurrent: args.min_noncurrent.0,
        min_delete_markers: args.min_delete_markers,
        min_cost: args.min_cost.zip(pricer.as_ref()),
        class: class_slots(&index, args.class.as_deref())?,
    };
    // A line has what the filter compares: the cost, and the totals of a class.
    let by = if pricer.is_some() { SortBy::Cost } else { SortBy::default() };
    let order = Order::from(by).priced(pricer.as_ref());
    let order = filter.class.map_or(order, |class| order.in_class(class));
    let mut below = node.below_where(args.of.bytes(), filter);
    // The prefix itself is not counted. What it reports is the damage of its own children.
    below.next().transpose()?;
    let below = below.take(args.limit.unwrap_or(usize::MAX));
    let found =
        below.map(|found| found.map(|found| (found.prefix, found.node)).map_err(Into::into));
    print(args.of.index.json, order, found)?;
    Ok(Exit::Ok)
}

pub(super) fn histogram(args: &HistogramArgs) -> anyhow::Result<Exit> {
    let index = args.of.index.open()?;
    let node = args.of.node(&index)?;
    let stats = node.stats()?;
    let Some((classes, months)) = node.histograms(&stats)? else {
        anyhow::bail!("the index has no histograms; rebuild it without --no-histograms");
    };
    if args.of.index.json {
        if let Some(histograms) = render::histograms(&node)? {
            json_line(&histograms)?;
        }
        return Ok(Exit::Ok);
    }
    let mut all = Sizes::default();
    for sizes in classes.iter().filter_map(|class| class.sizes.as_ref()) {
        sizes.iter().for_each(|(cell, amount)| all.add(cell, amount));
    }
    let most = all.iter().map(|(_, amount)| amount.objects).max().unwrap_or(1);
    out::line("SIZE")?;
    for (cell, amount) in all.iter() {
        let range =
            format!("{} to {}", out::size(cells::floor(cell)), out::size(cells::ceiling(cell)));
        out::line(bar(&range, amount, most))?;
    }
    let most = months.iter().map(|(_, amount)| amount.objects).max().unwrap_or(1);
    out::line("\nLAST MODIFIED")?;
    for (month, amount) in &months {
        out::line(bar(&month.to_string(), *amount, most))?;
    }
    Ok(Exit::Ok)
}

/// Formats a line of a histogram.
fn bar(label: &str, amount: Amount, most: u64) -> String {
    const WIDTH: f64 = 30.0;
    let part = amount.objects as f64 / most.max(1) as f64 * WIDTH;
    let filled = (0..30).take_while(|&place| f64::from(place) < part).count();
    let bytes = out::size(amount.bytes);
    format!("{label:>22} {:>12} {bytes:>12}  {}", amount.objects, "#".repeat(filled))
}

pub(super) fn stats(args: &StatsArgs) -> anyhow::Result<Exit> {
    let index = args.index.open()?;
    if args.index.json {
        json_line(&render::index(&index)?)?;
        return Ok(Exit::Ok);
    }
    let meta = index.meta();
    let provenance = index.provenance()?;
    let of = meta.files;
    let size = of.nodes.size + of.table.size + of.order.size + of.provenance.size;
    let complete = if meta.bad_rows == 0 {
        "complete".to_owned()
    } else {
        format!("{} rows could not be read and were skipped", meta.bad_rows)
    };
    let files = match provenance.files.len() {
        0 => String::new(),
        count => format!(", {count} files"),
    };
    let totals = index.root()?.totals()?;
    out::line(format_args!(
        "objects   {}, {}\nbilled    {} versions, {}; {} delete markers\nprefixes  {}\nindex     {}, {:.1} bytes a prefix\nsource    {} ({}{files})\nrows      {complete}",
        meta.objects,
        out::size(meta.bytes),
        totals.billed().objects,
        out::size(totals.billed().bytes),
        totals.delete_markers,
        meta.prefixes,
        out::size(size),
        size as f64 / meta.prefixes.max(1) as f64,
        shown(provenance.source.as_bytes()),
        provenance.format,
    ))?;
    for note in &provenance.notes {
        out::line(format_args!("note      {note}"))?;
    }
    Ok(Exit::Ok)
}

pub(super) fn verify(args: &StatsArgs) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let verified = args.index.open().and_then(|index| Ok(index.verify()?));
    let damage = |error: &anyhow::Error| {
        error.downcast_ref::<IndexError>().is_some_and(IndexError::is_damage)
    };
    let verified = match verified {
        Err(error) if args.index.json && damage(&error) => {
            json_line(&json!({ "damaged": true, "reason": format!("{error:#}") }))?;
            return Ok(Exit::Failed);
        }
        verified => verified?,
    };
    let seconds = started.elapsed().as_secs_f64();
    if args.index.json {
        json_line(&json!({
            "prefixes": verified.prefixes,
            "bytes": verified.bytes,
            "seconds": seconds,
            "damaged": false,
        }))?;
    } else {
        out::line(format_args!(
            "{} prefixes, {}: no damage found ({seconds:.2} s)",
            verified.prefixes,
            out::size(verified.bytes)
        ))?;
    }
    Ok(Exit::Ok)
}
