//! The HTML pages. They are below `/v1` because they show data that needs a key if keys exist;
//! `/inventories` redirects there.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, State};
use axum::response::Response;
use forebay_base::bytes::size;
use forebay_inventory::cost::{CostError, Pricer};
use forebay_inventory::format::cells;
use forebay_inventory::index::{Index, Node, Order, SortBy};
use http::Uri;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use super::Shared;
use super::params::Params;
use super::read::{all, measured};
use super::registry::Name;
use crate::answer::{PAGE, found_or_problem, moved};
use crate::blocking::on_thread;
use crate::pages::{Browsed, Cell, Child, Figures, Link, Listed, inventories_page, inventory_page};
use crate::problem::Problem;

/// Number of children on a page.
const ROWS: u64 = 100;
/// Maximum number of prefixes in the path; further ones are omitted, in the middle.
const PATH_MAX: usize = 64;

pub(super) async fn to_list() -> Response {
    moved("/v1/inventories/page")
}

pub(super) async fn to_index(Path(name): Path<String>, uri: Uri) -> Response {
    match Name::parse(&name) {
        Ok(name) => {
            let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
            moved(&format!("/v1/inventories/{}/page{query}", name.as_str()))
        }
        Err(_) => moved("/v1/inventories/page"),
    }
}

pub(super) async fn list(State(shared): State<Arc<Shared>>) -> Response {
    let listed = on_thread(move || {
        let all = all(&shared)?;
        let listed = all.into_iter().map(|one| Listed {
            totals: one
                .objects
                .zip(one.billed_bytes)
                .zip(one.prefixes)
                .map(|((objects, billed), prefixes)| (objects, billed, prefixes)),
            state: match (one.building, one.error) {
                (Some(true), _) => "is being built",
                (_, Some(_)) => "cannot be opened; see the server's log",
                _ if one.complete == Some(false) => "some rows were skipped",
                _ => "",
            },
            name: one.name,
        });
        Ok(listed.collect())
    });
    found_or_problem(listed.await, PAGE, inventories_page)
}

pub(super) async fn index(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
) -> Response {
    let begun = Instant::now();
    let (found, shown) = match Name::parse(&name) {
        Ok(name) => (look(&shared, &name, &uri).await, name.as_str().to_owned()),
        Err(problem) => (Err(problem), "?".to_owned()),
    };
    measured("page", begun);
    found_or_problem(found, PAGE, |found| inventory_page(&shown, found))
}

async fn look(shared: &Arc<Shared>, name: &Name, uri: &Uri) -> Result<Browsed, Problem> {
    let asked = Params::read(uri, &["prefix", "sort", "offset"])?;
    let opened = shared.registry.find(name)?;
    let permit = shared.permit()?;
    let (shared, name) = (Arc::clone(shared), name.clone());
    on_thread(move || {
        let looking = Looking { shared: &shared, name: &name, index: &opened.index, asked: &asked };
        let found = looking.look();
        drop(permit);
        found
    })
    .await
}

struct Looking<'a> {
    shared: &'a Shared,
    name: &'a Name,
    index: &'a Index,
    asked: &'a Params,
}

impl Looking<'_> {
    fn look(&self) -> Result<Browsed, Problem> {
        let node = self.asked.node(self.index)?;
        let pricer = match Pricer::new(self.index, &self.shared.prices) {
            Ok(pricer) => Some(pricer),
            Err(CostError::NoHistograms) => None,
            Err(error) => return Err(error.into()),
        };
        let cost = |node: &Node<'_>| match &pricer {
            Some(pricer) => Ok::<_, Problem>(Some(pricer.cost(node)?.total)),
            None => Ok(None),
        };
        if self.asked.sort == SortBy::Cost && pricer.is_none() {
            return Err(CostError::NoHistograms.into());
        }
        let order = Order::from(self.asked.sort).priced(pricer.as_ref());
        let page = node.page(order, self.asked.offset, to_size(ROWS))?;
        // Shares are of the figure that the prefixes are sorted by.
        let whole = node.figure(order)?;
        let children = page.nodes.iter().map(|child| {
            let prefix = child.prefix(&self.asked.prefix);
            let name = String::from_utf8_lossy(child.name());
            let text = format!("{name}{}", char::from(child.delimiter()));
            let link = Link { text, address: self.address(&prefix, SortBy::default(), 0) };
            let share = if whole > 0.0 { child.figure(order)? / whole } else { 0.0 };
            Ok(Child { link, share, figures: figures(child)?, cost: cost(child)? })
        });
        let children = children.collect::<Result<Vec<_>, Problem>>()?;
        let (sizes, months) = histograms(&node)?;
        Ok(Browsed {
            path: self.path(),
            figures: figures(&node)?,
            sorted_by: self.asked.sort.word(),
            descendants: node.descendants(),
            cost: cost(&node)?.map(|cost| (cost, self.shared.prices.currency.clone())),
            orders: SortBy::ALL
                .into_iter()
                .filter(|(_, sort)| *sort != SortBy::Cost || pricer.is_some())
                .map(|(word, sort)| Link {
                    text: word.to_owned(),
                    address: self.address(&self.asked.prefix, sort, 0),
                })
                .collect(),
            turn: self.turn(page.total),
            child_count: page.total,
            children,
            sizes,
            months,
        })
    }

    /// Returns the address of a page.
    fn address(&self, prefix: &[u8], sort: SortBy, offset: u64) -> String {
        let prefix = percent_encode(prefix, NON_ALPHANUMERIC);
        let (name, sort) = (self.name.as_str(), sort.word());
        let offset = if offset > 0 { format!("&offset={offset}") } else { String::new() };
        format!("/v1/inventories/{name}/page?prefix={prefix}&sort={sort}{offset}")
    }

    /// Returns the prefixes above the one that is shown, and itself.
    fn path(&self) -> Vec<Link> {
        let link = |prefix: &[u8], text: String| Link {
            text,
            address: self.address(prefix, SortBy::default(), 0),
        };
        let mut path = vec![link(b"", "(all)".to_owned())];
        let prefix = &self.asked.prefix;
        let delimiter = self.index.delimiter();
        let mut end = 0;
        for part in prefix.split_inclusive(|&byte| byte == delimiter) {
            end += part.len();
            let text = String::from_utf8_lossy(part).into_owned();
            path.push(link(prefix.get(..end).unwrap_or_default(), text));
        }
        let middle = PATH_MAX / 2;
        if path.len() > PATH_MAX {
            path.drain(middle..path.len() - middle);
        }
        path
    }

    fn turn(&self, total: u64) -> Vec<Link> {
        let (offset, sort) = (self.asked.offset, self.asked.sort);
        let link = |text: &str, offset| Link {
            text: text.to_owned(),
            address: self.address(&self.asked.prefix, sort, offset),
        };
        let before = (offset > 0).then(|| link("Previous", offset.saturating_sub(ROWS)));
        let after = offset.saturating_add(ROWS);
        before.into_iter().chain((after < total).then(|| link("Next", after))).collect()
    }
}

fn to_size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn figures(node: &Node<'_>) -> Result<Figures, Problem> {
    let totals = node.totals()?;
    Ok(Figures {
        billed: totals.billed().bytes,
        bytes: totals.current.bytes,
        objects: totals.current.objects,
        noncurrent_bytes: totals.noncurrent.bytes,
        noncurrent_objects: totals.noncurrent.objects,
        delete_markers: totals.delete_markers,
    })
}

/// Returns the cells by size and by month, of all versions.
fn histograms(node: &Node<'_>) -> Result<(Vec<Cell>, Vec<Cell>), Problem> {
    let stats = node.stats()?;
    let Some((classes, months)) = node.histograms(&stats)? else { return Ok(Default::default()) };
    let mut all = forebay_inventory::format::histogram::Sizes::default();
    for sizes in classes.iter().filter_map(|class| class.sizes.as_ref()) {
        sizes.iter().for_each(|(cell, amount)| all.add(cell, amount));
    }
    let sizes = all.iter().map(|(cell, amount)| Cell {
        text: format!("{} to below {}", size(cells::floor(cell)), size(cells::ceiling(cell))),
        objects: amount.objects,
        bytes: amount.bytes,
    });
    let months = months.iter().map(|(month, amount)| Cell {
        text: month.to_string(),
        objects: amount.objects,
        bytes: amount.bytes,
    });
    Ok((sizes.collect(), months.collect()))
}
