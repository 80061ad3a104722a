//! The pages at `/v1/inventories/page` and `/v1/inventories/{name}/page`: the list of indexes, and
//! one prefix of an index with the prefixes below it.

use forebay_base::bytes::size;
use maud::{Markup, html};

use super::layout::page;

/// An inventory in the list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// Current objects, bytes of all versions, and prefixes; `None` if it is not built yet, or cannot be opened.
    pub(crate) totals: Option<(u64, u64, u64)>,
    /// Its state, if there is more to report.
    pub(crate) state: &'static str,
}

/// A link and its text.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) text: String,
    pub(crate) address: String,
}

/// The figures of a prefix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Bytes of all versions.
    pub(crate) billed: u64,
    /// Bytes of the current objects.
    pub(crate) bytes: u64,
    /// Number of current objects.
    pub(crate) objects: u64,
    pub(crate) noncurrent_bytes: u64,
    pub(crate) noncurrent_objects: u64,
    pub(crate) delete_markers: u64,
}

impl Figures {
    /// Whether there is more than current objects.
    fn has_versions(&self) -> bool {
        self.noncurrent_objects > 0 || self.delete_markers > 0
    }
}

/// A prefix one level below the one shown.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) link: Link,
    /// Its part of the prefix shown, by the figure that the table is sorted by: 0 to 1.
    pub(crate) share: f64,
    pub(crate) figures: Figures,
    pub(crate) cost: Option<f64>,
}

/// A cell of a histogram.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

/// A prefix, its figures and its children.
#[derive(Debug)]
pub(crate) struct Browsed {
    /// The prefixes above it, the root first, and the prefix itself last.
    pub(crate) path: Vec<Link>,
    pub(crate) figures: Figures,
    /// What the table is sorted by.
    pub(crate) sorted_by: &'static str,
    /// Number of prefixes below it at any depth.
    pub(crate) descendants: u64,
    /// Its monthly cost, and the currency.
    pub(crate) cost: Option<(f64, String)>,
    /// The orders of the table.
    pub(crate) orders: Vec<Link>,
    pub(crate) children: Vec<Child>,
    /// Number of children.
    pub(crate) child_count: u64,
    /// The previous and the next page of children.
    pub(crate) turn: Vec<Link>,
    /// Of all versions.
    pub(crate) sizes: Vec<Cell>,
    pub(crate) months: Vec<Cell>,
}

/// The page of all inventories.
pub(crate) fn inventories_page(found: &Result<Vec<Listed>, String>) -> String {
    page(
        "Inventories - Forebay",
        None,
        &html! {
            h1 { "Inventories" }
            @match found {
                Err(why) => p { span.bad { (why) } },
                Ok(listed) if listed.is_empty() => {
                    p { "There are no inventories. To build one of the server's own files:" }
                    pre { "curl -d '{\"from\":\"forebay:blobs\"}' SERVER/v1/inventories/own" }
                }
                Ok(listed) => table {
                    tr { th { "Name" } th { "Objects" } th { "Billed" } th { "Prefixes" } th {} }
                    @for one in listed { tr {
                        @match one.totals {
                            Some((objects, billed, prefixes)) => {
                                td { a href={ "/v1/inventories/" (one.name) "/page" } { (one.name) } }
                                td { (objects) } td { (size(billed)) } td { (prefixes) }
                            }
                            None => { td { (one.name) } td {} td {} td {} }
                        }
                        td { (one.state) }
                    } }
                },
            }
        },
    )
}

/// The page of a prefix.
pub(crate) fn inventory_page(name: &str, found: &Result<Browsed, String>) -> String {
    page(
        &format!("{name} - Forebay"),
        None,
        &html! {
            h1 { a href="/v1/inventories/page" { "Inventories" } " / " (name) }
            @match found {
                Err(why) => p { span.bad { (why) } },
                Ok(found) => (browsed(found)),
            }
        },
    )
}

fn browsed(found: &Browsed) -> Markup {
    let figures = &found.figures;
    html! {
        p { @for part in &found.path { a href=(part.address) { code { (part.text) } } " " } }
        table.facts {
            tr { th { "Objects" } td { (figures.objects) } }
            tr { th { "Bytes" } td { (size(figures.bytes)) " (" (figures.bytes) ")" } }
            @if figures.has_versions() {
                tr { th { "Noncurrent versions" }
                     td { (figures.noncurrent_objects) ", " (size(figures.noncurrent_bytes)) } }
                tr { th { "Delete markers" } td { (figures.delete_markers) } }
            }
            tr { th { "Billed, all versions" }
                 td { (size(figures.billed)) " (" (figures.billed) ")" } }
            tr { th { "Prefixes below" } td { (found.descendants) } }
            @if let Some((cost, currency)) = &found.cost {
                tr { th { "Cost per month" } td { (money(*cost)) " " (currency) } }
            }
        }
        @if found.children.is_empty() {
            p { "There are no prefixes below it." }
        } @else {
            (children(found))
        }
        @if !found.sizes.is_empty() {
            h2 { "All versions by size" }
            (histogram(&found.sizes, figures.billed))
        }
        @if !found.months.is_empty() {
            h2 { "All versions by month of last modification" }
            (histogram(&found.months, figures.billed))
        }
    }
}

fn children(found: &Browsed) -> Markup {
    let versions = found.figures.has_versions();
    html! {
        h2 { (found.child_count) " prefixes one level below, by " (found.sorted_by) }
        p { "Sort by " @for order in &found.orders { a href=(order.address) { (order.text) } " " } }
        table {
            tr { th { "Prefix" } th { "Share" } th { "Billed" } th { "Bytes" } th { "Objects" }
                 @if versions { th { "Noncurrent" } th { "Delete markers" } }
                 @if found.cost.is_some() { th { "Per month" } } }
            @for child in &found.children { tr {
                td { a href=(child.link.address) { code { (child.link.text) } } }
                td { (bar(child.share)) }
                td { (size(child.figures.billed)) }
                td { (size(child.figures.bytes)) }
                td { (child.figures.objects) }
                @if versions {
                    td { (size(child.figures.noncurrent_bytes)) }
                    td { (child.figures.delete_markers) }
                }
                @if let Some(cost) = child.cost { td { (money(cost)) } }
            } }
        }
        p { @for turn in &found.turn { a href=(turn.address) { (turn.text) } " " } }
    }
}

fn histogram(cells: &[Cell], of: u64) -> Markup {
    html! {
        table {
            tr { th {} th { "Share" } th { "Bytes" } th { "Objects" } }
            @for cell in cells { tr {
                td { (cell.text) } td { (bar(share(cell.bytes, of))) }
                td { (size(cell.bytes)) } td { (cell.objects) }
            } }
        }
    }
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// A bar with the length of a share.
fn bar(share: f64) -> Markup {
    let text = format!("{:.1}%", 100.0 * share);
    html! { meter min="0" max="1" value=(format!("{share:.4}")) title=(text) { (text) } }
}

fn money(amount: f64) -> String {
    format!("{amount:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(bytes: u64, noncurrent_bytes: u64) -> Figures {
        Figures {
            billed: bytes + noncurrent_bytes,
            bytes,
            objects: 1,
            noncurrent_bytes,
            noncurrent_objects: 1,
            delete_markers: 7,
        }
    }

    /// All shares on a page, in percent.
    fn shares(page: &str) -> Vec<f64> {
        let titles = page.split("title=\"").skip(1).filter_map(|rest| rest.split('"').next());
        titles.filter_map(|title| title.strip_suffix('%')?.parse().ok()).collect()
    }

    #[test]
    fn no_share_exceeds_the_whole_when_most_bytes_are_noncurrent() {
        let link = || Link { text: "a/".to_owned(), address: String::new() };
        let cell = |bytes| Cell { text: "2026-11".to_owned(), objects: 2, bytes };
        let figures = figures(1, 100 << 30);
        let found = Browsed {
            path: vec![link()],
            figures,
            sorted_by: "billed",
            descendants: 1,
            cost: None,
            orders: vec![link()],
            children: vec![Child { link: link(), share: 1.0, figures, cost: None }],
            child_count: 1,
            turn: Vec::new(),
            sizes: vec![cell(1), cell(100 << 30)],
            months: vec![cell((100 << 30) + 1)],
        };
        let page = inventory_page("versions", &Ok(found));
        assert_eq!(shares(&page), [100.0, 0.0, 100.0, 100.0]);
        for shown in ["100.00GiB", "Noncurrent versions", "Delete markers", "Billed"] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
    }

    #[test]
    fn what_an_inventory_has_cannot_become_markup() {
        let evil = "<script>alert(1)</script>\"><b>".to_owned();
        let link = || Link { text: evil.clone(), address: evil.clone() };
        let cell = || Cell { text: evil.clone(), objects: 1, bytes: 2 };
        let figures = figures(1, 2);
        let found = Browsed {
            path: vec![link()],
            figures,
            sorted_by: "billed",
            descendants: 3,
            cost: Some((0.5, evil.clone())),
            orders: vec![link()],
            children: vec![Child { link: link(), share: 0.5, figures, cost: Some(1.0) }],
            child_count: 1,
            turn: vec![link()],
            sizes: vec![cell()],
            months: vec![cell()],
        };
        let shown = inventory_page(&evil, &Ok(found));
        assert!(!shown.contains("<script>") && !shown.contains("<b>"), "{shown}");
        assert!(shown.contains("value=\"0.5000\"") && !shown.contains("style="));
        assert!(!inventory_page(&evil, &Err(evil.clone())).contains("<b>"));
        let listed = Listed { name: evil.clone(), totals: Some((1, 2, 3)), state: "" };
        assert!(!inventories_page(&Ok(vec![listed])).contains("<b>"));
        assert!(inventories_page(&Ok(Vec::new())).contains("forebay:blobs"));
        assert!(!inventories_page(&Err(evil)).contains("<b>"));
    }
}
