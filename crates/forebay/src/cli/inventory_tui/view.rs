//! Reads from the index what is drawn, before drawing: drawing itself cannot fail.

use forebay_inventory::format::cells;
use forebay_inventory::format::histogram::{Amount, Sizes};
use forebay_inventory::index::{Node, Order, Stats};

use super::list::Sort;
use super::state::{Browser, Panel};
use crate::cli::inventory::shown;
use crate::out;

/// A line of the list.
pub(super) struct Row {
    pub(super) name: String,
    /// Bytes of all versions, of the current objects and of the noncurrent versions.
    pub(super) billed: String,
    pub(super) bytes: String,
    pub(super) noncurrent: String,
    pub(super) objects: u64,
    /// Its share of the prefix, by the measure of the order: 0 to 1.
    pub(super) share: f64,
    pub(super) cost: Option<String>,
}

/// The content of the screen.
pub(super) struct View {
    pub(super) title: String,
    pub(super) path: String,
    pub(super) totals: String,
    pub(super) sort: Sort,
    pub(super) has_costs: bool,
    /// Whether the index has noncurrent versions.
    pub(super) has_versions: bool,
    pub(super) rows: Vec<Row>,
    pub(super) selected: usize,
    pub(super) footer: String,
    pub(super) panel: PanelView,
}

/// What covers the list.
pub(super) enum PanelView {
    Nothing,
    Text { title: String, lines: Vec<String>, first: u16 },
    Find { text: String, offered: Vec<String> },
}

const KEYS: &str = "up/down enter left  b v x o n c sort  / find  i info  ? help  q quit";

const HELP: [&str; 13] = [
    "up, down, k, j         the previous, next prefix",
    "page up, page down     a screen up, down",
    "home, end, g, G        the first, last prefix",
    "enter, right, l        open the prefix",
    "left, backspace, h     return to the prefix above",
    "b, v, x                sort by billed, current, noncurrent bytes",
    "o, n                   sort by objects, name",
    "c                      sort by cost, if there are few prefixes",
    "/                      find a prefix by typing; tab completes",
    "i                      classes, sizes, ages and cost of the prefix",
    "?                      this help",
    "q, ctrl-c              quit",
    "Costs are per month.",
];

impl View {
    /// Reads the content of the screen.
    ///
    /// # Errors
    /// The index is damaged.
    pub(super) fn of(browser: &mut Browser<'_>) -> anyhow::Result<Self> {
        let (nodes, selected) = browser.shown()?;
        let totals = browser.here.node.totals()?;
        let order = order(browser);
        let whole = browser.here.node.figure(order)?;
        let cost = browser.pricer.as_ref().map(|pricer| pricer.cost(&browser.here.node));
        let cost = cost.transpose()?.map(|cost| cost.total);
        let rows = nodes.iter().map(|node| row(browser, node, order, whole));
        let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
        let panel = panel(browser)?;
        let place = if browser.list.len() == 0 { 0 } else { browser.here.selected + 1 };
        let cost = cost.map(|cost| format!(", {} a month", money(browser, cost)));
        Ok(Self {
            title: format!(
                "forebay inventory  {}  {place} of {} prefixes, by {}",
                browser.index.dir().display(),
                browser.list.len(),
                browser.sort.name()
            ),
            path: shown(&browser.here.prefix),
            totals: format!(
                "{}, {} objects{}{}",
                out::size(totals.billed().bytes),
                totals.current.objects,
                if totals.noncurrent.objects > 0 {
                    format!(", {} noncurrent", out::size(totals.noncurrent.bytes))
                } else {
                    String::new()
                },
                cost.unwrap_or_default()
            ),
            sort: browser.sort,
            has_costs: browser.pricer.is_some(),
            has_versions: !browser.index.current_only(),
            rows,
            selected,
            footer: browser.message.clone().unwrap_or_else(|| KEYS.to_owned()),
            panel,
        })
    }
}

/// Returns the order of the list; one by cost only if there are costs.
fn order<'b>(browser: &'b Browser<'_>) -> Order<'b> {
    Order::from(browser.sort.of_index()).priced(browser.pricer.as_ref())
}

/// `whole`: the figure of the open prefix by which its children are sorted.
fn row(
    browser: &Browser<'_>,
    node: &Node<'_>,
    order: Order<'_>,
    whole: f64,
) -> anyhow::Result<Row> {
    let totals = node.totals()?;
    let cost = browser.pricer.as_ref().map(|pricer| pricer.cost(node)).transpose()?;
    let share = if whole > 0.0 { node.figure(order)? / whole } else { 0.0 };
    Ok(Row {
        name: shown(&node.prefix(b"")),
        billed: out::size(totals.billed().bytes),
        bytes: out::size(totals.current.bytes),
        noncurrent: out::size(totals.noncurrent.bytes),
        objects: totals.current.objects,
        share: share.clamp(0.0, 1.0),
        cost: cost.map(|cost| format!("{:.2}", cost.total)),
    })
}

fn money(browser: &Browser<'_>, amount: f64) -> String {
    let currency = browser.pricer.as_ref().map(|pricer| pricer.prices().currency.as_str());
    format!("{amount:.2} {}", currency.unwrap_or_default())
}

fn panel(browser: &mut Browser<'_>) -> anyhow::Result<PanelView> {
    Ok(match &browser.panel {
        Panel::Nothing => PanelView::Nothing,
        Panel::Help => PanelView::Text {
            title: "Keys".to_owned(),
            lines: HELP.iter().map(|&line| line.to_owned()).collect(),
            first: 0,
        },
        &Panel::Info(first) => {
            let here = (browser.here.prefix.clone(), browser.here.node);
            let (prefix, node) = browser.selected()?.unwrap_or(here);
            PanelView::Text { title: shown(&prefix), lines: info(browser, &node)?, first }
        }
        Panel::Find(find) => PanelView::Find {
            text: find.text.clone(),
            offered: find.offered.iter().map(|offered| shown(offered)).collect(),
        },
    })
}

/// Returns all figures of a prefix.
fn info(browser: &Browser<'_>, node: &Node<'_>) -> anyhow::Result<Vec<String>> {
    let stats = node.stats()?;
    let mut lines = vec![
        format!("objects   {}", stats.total.objects),
        format!("bytes     {} ({})", stats.total.bytes, out::size(stats.total.bytes)),
        format!("billed    {} ({})", stats.billed().bytes, out::size(stats.billed().bytes)),
        format!("prefixes  {}, {} right below", node.descendants(), node.child_count()),
    ];
    if stats.noncurrent.objects > 0 || stats.delete_markers > 0 {
        lines.push(format!(
            "versions  {} noncurrent, {}; {} delete markers",
            stats.noncurrent.objects,
            out::size(stats.noncurrent.bytes),
            stats.delete_markers
        ));
    }
    lines.push(String::new());
    for class in node.classes(&stats) {
        let version = if class.noncurrent { " (noncurrent)" } else { "" };
        let (bytes, objects) = (out::size(class.total.bytes), class.total.objects);
        lines.push(format!("{bytes:>12} {objects:>12}  {}{version}", class.name));
    }
    if let Some(pricer) = &browser.pricer {
        let cost = pricer.cost(node)?;
        lines.extend([String::new(), format!("COST      {} a month", money(browser, cost.total))]);
        for (class, of) in &cost.classes {
            let sum = of.storage + of.index + of.monitoring;
            lines.push(format!("{sum:>12.2} {:>12}  {class}", out::size(of.billed_bytes)));
        }
        for (class, bytes) in &cost.unpriced {
            lines.push(format!("{:>12} {:>12}  {class}", "no price", out::size(*bytes)));
        }
    }
    histograms(node, &stats, &mut lines)?;
    Ok(lines)
}

fn histograms(node: &Node<'_>, stats: &Stats, lines: &mut Vec<String>) -> anyhow::Result<()> {
    let Some((classes, months)) = node.histograms(stats)? else { return Ok(()) };
    let mut all = Sizes::default();
    for sizes in classes.iter().filter_map(|class| class.sizes.as_ref()) {
        sizes.iter().for_each(|(cell, amount)| all.add(cell, amount));
    }
    let most = all.iter().map(|(_, amount)| amount.objects).max().unwrap_or(0);
    lines.extend([String::new(), "SIZE".to_owned()]);
    for (cell, amount) in all.iter() {
        let label = format!("below {}", out::size(cells::ceiling(cell)));
        lines.push(bar(&label, amount, most));
    }
    let most = months.iter().map(|(_, amount)| amount.objects).max().unwrap_or(0);
    lines.extend([String::new(), "LAST MODIFIED".to_owned()]);
    for (month, amount) in &months {
        lines.push(bar(&month.to_string(), *amount, most));
    }
    Ok(())
}

fn bar(label: &str, amount: Amount, most: u64) -> String {
    let share = amount.objects as f64 / most.max(1) as f64;
    let (objects, bytes) = (amount.objects, out::size(amount.bytes));
    format!("{label:>17} {objects:>12} {bytes:>12} {}", filled(share, 20))
}

/// Returns a bar of at most `width` characters; a share above zero is always visible.
pub(super) fn filled(share: f64, width: u16) -> String {
    let part = share * f64::from(width);
    let cells = (0..width).take_while(|&cell| f64::from(cell) < part).count();
    "#".repeat(cells)
}
