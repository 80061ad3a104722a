//! The inventory's part of `/openapi.json`.
//!
//! Parameters are written beside the routes rather than derived from handlers, because handlers
//! take whole requests and do not declare them. Answers are described by the types that are
//! serialised.

use forebay_inventory::render::{CostAnswer, Description, Figures, Histograms};
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::Parameter;

use super::answers::{BuildAnswer, ChangeList, InventoryList, PrefixList, PrefixPage, SmallList};
use super::job::BuildRequest;
use crate::describe::{Kind, LINES, Operation, PAGE, Routes, needed, path, query};
use crate::jobs::accepts_jobs_or;

const TAG: &str = "inventories";
const ABOUT: &str = "Indexes of object store inventories: objects, bytes, classes, sizes and \
    costs of any prefix.";
const ITEMS: &str = "A list; one object per line with Accept: application/x-ndjson";
const ETAG: &str = "Changes with the index and the prices; for If-None-Match";

const WRONG: (u16, &str) = (400, "The name or a parameter is not valid");
const MISSING: (u16, &str) =
    (404, "There is no such inventory or prefix; there may name the prefix that was meant");
const NO_BUILD: (u16, &str) = (404, "There is no build");
const BUSY: (u16, &str) = (429, "The limit inventory.queries_max is reached");
const DAMAGED: (u16, &str) = (500, "The index is damaged; the server's log has the details");
const CLOSED: (u16, &str) = (503, "The server is shutting down");

/// Returns the document.
pub(super) fn document() -> OpenApi {
    let routes =
        Routes::new("Forebay inventories").tag(TAG, ABOUT).get("/v1/inventories", list()).get(
            "/v1/inventories/page",
            Operation::new(TAG, "list_inventories_page", "Get the inventories as a page")
                .words(200, PAGE, "The page")
                .error_pages(&[DAMAGED, CLOSED]),
        );
    queries(changes(routes)).document()
}

/// The routes that build and remove an inventory.
fn changes(routes: Routes) -> Routes {
    let of = "/v1/inventories/{name}";
    routes
        .post(of, build())
        .delete(
            of,
            named("delete_inventory", "Delete an inventory")
                .empty(204, "It is deleted; running queries are completed")
                .problems(&[
                    WRONG,
                    (404, "There is no such inventory"),
                    (409, "It is being built"),
                ]),
        )
        .get(
            "/v1/inventories/{name}/build",
            named(
                "get_inventory_build",
                "Get the progress of a build, or the result of the last one",
            )
            .json::<BuildAnswer>(200, "The build")
            .problems(&[WRONG, NO_BUILD]),
        )
        .delete(
            "/v1/inventories/{name}/build",
            named("cancel_inventory_build", "Cancel a build")
                .json::<BuildAnswer>(202, "It ends soon; an earlier index stays unchanged")
                .problems(&[WRONG, NO_BUILD, (409, "It has ended")]),
        )
}

/// The routes that read an inventory.
fn queries(routes: Routes) -> Routes {
    let at = |question: &str| format!("/v1/inventories/{{name}}/{question}");
    routes
        .get(
            "/v1/inventories/{name}",
            cached(
                named("get_inventory", "Get the figures and the source of an inventory")
                    .json::<Description>(200, "Counts, classes and provenance"),
            ),
        )
        .get(
            &at("page"),
            named("get_inventory_page", "Get a prefix as a page")
                .parameters([prefix(), sort(), offset()])
                .words(200, PAGE, "The page")
                .error_pages(&[
                    (400, "A parameter is unknown or invalid"),
                    (404, "There is no such inventory, build or prefix"),
                    BUSY,
                    DAMAGED,
                    CLOSED,
                ]),
        )
        .get(
            &at("prefix"),
            cached(
                named("get_inventory_prefix", "Get the figures of a prefix")
                    .parameter(prefix())
                    .json::<Figures>(200, "The figures"),
            ),
        )
        .get(&at("children"), children())
        .get(&at("top"), top())
        .get(&at("descendants"), descendants())
        .get(
            &at("histogram"),
            cached(
                named("get_inventory_histogram", "Get the sizes and ages of a prefix")
                    .parameter(prefix())
                    .json::<Histograms>(200, "Objects by size and by month"),
            ),
        )
        .get(
            &at("cost"),
            cached(
                named("get_inventory_cost", "Get the monthly cost of a prefix")
                    .parameter(prefix())
                    .json::<CostAnswer>(200, "The cost, with the region and date of the prices"),
            ),
        )
        .get(&at("small-files"), small_files())
        .get(&at("diff"), diff())
}

fn named(id: &str, summary: &str) -> Operation {
    let text = "Name of the inventory: 1 to 64 of a-z 0-9 . _ -";
    Operation::new(TAG, id, summary).parameter(path("name", text))
}

/// Adds what all answers about an index have.
fn cached(operation: Operation) -> Operation {
    operation
        .header(200, "ETag", ETAG)
        .empty(304, "Unchanged")
        .problems(&[WRONG, MISSING, BUSY, DAMAGED, CLOSED])
}

fn prefix() -> Parameter {
    let text = "Prefix, with the delimiter at its end [default: the whole index]";
    query("prefix", Kind::Text, text)
}

/// What prefixes are sorted by.
const KEYS: [&str; 7] =
    ["billed", "bytes", "objects", "noncurrent", "delete-markers", "cost", "name"];

fn sort() -> Parameter {
    let text = "Order of the prefixes: the most bytes of all versions, current bytes, current \
                objects, noncurrent bytes, delete markers or cost first, or by name [default: \
                billed]";
    query("sort", Kind::Word(&KEYS), text)
}

fn class() -> Parameter {
    let text = "Only objects of this storage class count [default: all]";
    query("class", Kind::Text, text)
}

fn offset() -> Parameter {
    query("offset", Kind::Count(0, u64::MAX), "Number of children to skip")
}

fn depth() -> Parameter {
    let text = "Number of levels below the prefix [default: any]";
    query("depth", Kind::Count(0, u64::MAX), text)
}

fn count(name: &str) -> Parameter {
    query(name, Kind::Count(1, 10_000), "Maximum number of prefixes [default: 100]")
}

fn list() -> Operation {
    Operation::new(TAG, "list_inventories", "List the inventories")
        .json::<InventoryList>(200, "The inventories, also those that are being built")
        .problems(&[DAMAGED])
}

fn children() -> Operation {
    let limit = query("limit", Kind::Count(1, 1_000), "Maximum number of prefixes [default: 100]");
    let operation = named("list_inventory_children", "List the prefixes one level below a prefix")
        .parameters([prefix(), sort(), class(), offset(), limit])
        .json::<PrefixPage>(200, ITEMS)
        .or_bytes(200, LINES);
    cached(operation)
}

fn top() -> Operation {
    let operation =
        named("list_inventory_top", "List the largest prefixes below a prefix, exactly")
            .parameters([prefix(), count("k"), depth(), sort(), class()])
            .json::<PrefixList>(200, ITEMS)
            .or_bytes(200, LINES);
    cached(operation)
}

fn descendants() -> Operation {
    named("list_inventory_descendants", "List the prefixes below a prefix, by name")
        .parameters([
            prefix(),
            depth(),
            query(
                "min_billed",
                Kind::Text,
                "Only prefixes with at least this many bytes of all versions, such as 10GiB",
            ),
            query(
                "min_bytes",
                Kind::Text,
                "Only prefixes with at least this many current bytes, such as 10GiB",
            ),
            query(
                "min_objects",
                Kind::Count(0, u64::MAX),
                "Only prefixes with at least this many current objects",
            ),
            query(
                "min_noncurrent",
                Kind::Text,
                "Only prefixes with at least this many noncurrent bytes, such as 10GiB",
            ),
            query(
                "min_delete_markers",
                Kind::Count(0, u64::MAX),
                "Only prefixes with at least this many delete markers",
            ),
            query("min_cost", Kind::Text, "Only prefixes that cost at least this much a month"),
            class(),
            query(
                "limit",
                Kind::Count(1, 10_000_000),
                "Maximum number of prefixes [default: 100000]",
            ),
        ])
        .bytes(200, LINES, "One prefix per line, in order of name")
        .problems(&[WRONG, MISSING, BUSY, DAMAGED, CLOSED])
}

fn small_files() -> Operation {
    let under = query("under", Kind::Text, "A power of two, in bytes [default: 128KiB]");
    let operation = named("list_inventory_small_files", "List prefixes by small objects")
        .parameters([prefix(), count("k"), depth(), under])
        .json::<SmallList>(200, ITEMS)
        .or_bytes(200, LINES);
    cached(operation)
}

fn diff() -> Operation {
    let ranks = Kind::Word(&["change", "growth", "shrinkage"]);
    let operation = named("list_inventory_changes", "List changes since an earlier inventory")
        .parameters([
            needed("old", Kind::Text, "The earlier inventory"),
            count("top"),
            query("rank", ranks, "Which changes come first [default: change]"),
            query("by", Kind::Word(&KEYS), "The figure whose changes are ranked [default: billed]"),
            class(),
            depth(),
        ])
        .json::<ChangeList>(200, ITEMS)
        .or_bytes(200, LINES);
    cached(operation)
}

fn build() -> Operation {
    let operation = named("build_inventory", "Build or rebuild an inventory")
        .text(
            "An existing index is used until the new one is complete, and remains if the build \
             fails.",
        )
        .takes::<BuildRequest>(true, "What is built, and how");
    accepts_jobs_or::<BuildAnswer>(operation, "The build has started")
        .header(202, "Location", "URL path of its progress")
        .problems(&[
            (400, "The name, the body, a source or the delimiter is not valid"),
            (403, "inventory.sources does not permit this source"),
            (409, "It is being built, or the limit inventory.indexes_max is reached"),
            (413, "The body exceeds 512 KiB"),
            (429, "The limit inventory.builds_max is reached"),
            CLOSED,
        ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_an_order_is_described() {
        assert_eq!(KEYS, forebay_inventory::index::SortBy::ALL.map(|(word, _)| word));
    }

    #[test]
    fn every_route_is_described_with_the_types_of_its_answers() {
        let document = serde_json::to_value(document()).unwrap();
        assert_eq!(document["paths"].as_object().unwrap().len(), 13);
        let diff = &document["paths"]["/v1/inventories/{name}/diff"]["get"];
        let old = &diff["parameters"][1];
        assert_eq!((&old["name"], &old["required"]), (&"old".into(), &true.into()));
        let schemas = &document["components"]["schemas"];
        let page = &schemas["InventoryPrefixPage"];
        assert_eq!(
            page["properties"]["items"]["items"]["$ref"],
            "#/components/schemas/InventoryPrefix"
        );
        assert_eq!(page["properties"]["next"]["type"], serde_json::json!(["integer", "null"]));
        for name in ["InventorySourceFile", "InventoryClassCost", "InventoryVerdict"] {
            assert!(schemas[name].is_object(), "{name}");
        }
    }
}
