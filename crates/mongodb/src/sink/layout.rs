//! The contents of the database besides the rows, described in `docs/formats/mongodb-sink.md`.
//!
//! ```text
//! _forebay_sink        { _id: "state", layout, identity, owner, epoch, position, changes }
//! _forebay_changes     { _id: "<number>:<place>", collection, ... }: changes that rows are about to get
//! _forebay_namespaces  { _id: namespace, collection, epoch, before: S, now: S,
//!                        reshaping: { shape, names, values } or absent }
//!                      S = { at, row_count, last_id, columns: [{ path, name, type }], shape } or null
//! <namespace>          { _id, _received_ms, _at, columns..., _document, _shape }
//! <namespace>:parts    { _id: "<id>:<part>", bytes }: documents too long for one row
//! <namespace>:reshaped:<shape>
//!                      { _id: id, set }: values that rows are about to get
//! ```
//!
//! Invariant: `position` in the state is authoritative. Of a namespace, the slot with `at` at or
//! below it is valid, `now` before `before`; rows with ids above its `last_id` were never
//! committed.

use forebay_sink::server::book::Namespace;
use forebay_sink::{Column, ColumnType, Identity, Position, TableSchema};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};

/// The version of this layout.
pub const LAYOUT_VERSION: i32 = 1;

pub(super) const STATE: &str = "_forebay_sink";
pub(super) const NAMESPACES: &str = "_forebay_namespaces";
pub(super) const CHANGES: &str = "_forebay_changes";

/// The collection of a namespace: its own name, unless that is reserved or invalid; then one that
/// no namespace can have.
pub(super) fn collection_name(namespace: &str) -> String {
    let is_odd = namespace.starts_with('.')
        || namespace.ends_with('.')
        || namespace.contains("..")
        || namespace.starts_with("system.")
        || namespace.starts_with("_forebay_");
    if is_odd { format!("namespace:{}", namespace.replace('.', ":")) } else { namespace.to_owned() }
}

/// The collection of long documents.
pub(super) fn parts_name(collection: &str) -> String {
    format!("{collection}:parts")
}

/// The collection of values that rows are about to get; `shape` is the number of the attempt.
pub(super) fn reshaped_name(collection: &str, shape: Option<i64>) -> String {
    let shape = shape.map_or(String::new(), |shape| format!(":{shape:x}"));
    format!("{collection}:reshaped{shape}")
}

/// The key of a part of a document. Keys are ordered by row id, then by part.
pub(super) fn part_key(id: u64, part: usize) -> String {
    format!("{id:020}:{part:06}")
}

/// What is above every key of a part of the row `last`, or of none.
pub(super) fn parts_after(last: Option<u64>) -> String {
    last.map_or(String::new(), |last| format!("{last:020}:~"))
}

/// A number in stored form; larger ones were refused before.
pub(super) fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn binary(bytes: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

/// The contents of a sink's state.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) identity: Identity,
    pub(super) position: Option<Position>,
    pub(super) epoch: i64,
    /// The changes of rows that the last commit with some made valid.
    pub(super) changes: Option<i64>,
}

/// The state of a new sink; its first opener becomes the owner.
pub(super) fn new_state(identity: [u8; 16]) -> Document {
    doc! {
        "_id": "state",
        "layout": LAYOUT_VERSION,
        "identity": binary(&identity),
        "owner": Bson::Null,
        "epoch": 0_i64,
        "position": Bson::Null,
    }
}

/// Parses the document of the state. The error is the fault.
pub(super) fn parse_state(state: &Document) -> Result<State, String> {
    let layout = state.get_i32("layout").ok();
    if layout != Some(LAYOUT_VERSION) {
        let found = layout.map_or("none".to_owned(), |layout| layout.to_string());
        return Err(format!(
            "layout version {found} is not supported; this program supports version \
             {LAYOUT_VERSION}"
        ));
    }
    let identity = state.get_binary_generic("identity").ok();
    let identity = identity.and_then(|bytes| <[u8; 16]>::try_from(bytes.as_slice()).ok());
    let identity = Identity(identity.ok_or("the identity is not 16 bytes")?);
    let position = number(state, "position")?.map(Position);
    let epoch = state.get_i64("epoch").map_err(|error| error.to_string())?;
    let changes = number(state, "changes")?.map(long);
    Ok(State { identity, position, epoch, changes })
}

/// A number, or null.
fn number(document: &Document, key: &str) -> Result<Option<u64>, String> {
    match document.get(key) {
        None | Some(Bson::Null) => Ok(None),
        Some(Bson::Int64(found)) => {
            u64::try_from(*found).map(Some).map_err(|_| format!("{key} is {found}"))
        }
        // Some servers and shells store small numbers as int32.
        Some(Bson::Int32(found)) => {
            u64::try_from(*found).map(Some).map_err(|_| format!("{key} is {found}"))
        }
        Some(other) => Err(format!("{key} is {other}, expected a whole number")),
    }
}

/// A namespace as of a commit at a position.
pub(super) fn slot(namespace: &Namespace, at: Position) -> Document {
    let columns: Vec<Document> = namespace
        .schema
        .columns()
        .iter()
        .map(|column| doc! { "path": &column.path, "name": &column.name, "type": column.ty.name() })
        .collect();
    doc! {
        "at": long(at.0),
        "row_count": long(namespace.row_count),
        "last_id": namespace.last_id.map_or(Bson::Null, |last| Bson::Int64(long(last))),
        "columns": columns,
    }
}

/// The slot of a namespace that is valid at `position`. The error is the fault.
pub(super) fn slot_at(
    namespace: &Document,
    position: Option<Position>,
) -> Result<Option<&Document>, String> {
    let Some(position) = position else { return Ok(None) };
    for key in ["now", "before"] {
        let Some(slot) = namespace.get_document(key).ok() else { continue };
        let at = number(slot, "at")?.ok_or("a commit has no position")?;
        if at <= position.0 {
            return Ok(Some(slot));
        }
    }
    Ok(None)
}

/// Parses the document of a namespace and its slot. The error is the fault.
pub(super) fn parse_namespace(
    document: &Document,
    slot: Option<&Document>,
) -> Result<Namespace, String> {
    let text = |document: &Document, key: &str| {
        document.get_str(key).map(str::to_owned).map_err(|error| error.to_string())
    };
    let name = text(document, "_id")?;
    let mut namespace = Namespace::new(name, 0, text(document, "collection")?);
    let Some(slot) = slot else { return Ok(namespace) };
    namespace.row_count = number(slot, "row_count")?.ok_or("it has no row count")?;
    namespace.last_id = number(slot, "last_id")?;
    let columns = slot.get_array("columns").map_err(|error| error.to_string())?;
    let column = |column: &Bson| {
        let column = column.as_document().ok_or("a column is not a document")?;
        let ty = text(column, "type")?;
        let ty = ColumnType::from_name(&ty).ok_or_else(|| format!("unknown column type {ty:?}"))?;
        Ok(Column { path: text(column, "path")?, name: text(column, "name")?, ty })
    };
    namespace.schema = columns.iter().map(column).collect::<Result<TableSchema, String>>()?;
    Ok(namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_namespaces_have_a_collection_in_common() {
        let names = [".", "..", "a", "a.", ".a", "a..b", "a.b", "system.x", "_forebay_sink", "a-b"];
        let mut collections: Vec<String> = names.iter().map(|name| collection_name(name)).collect();
        for name in &collections {
            assert!(!name.starts_with('.') && !name.ends_with('.') && !name.contains(".."));
            assert!(!name.starts_with("system.") && !name.starts_with("_forebay_"));
        }
        collections.sort();
        collections.dedup();
        assert_eq!(collections.len(), names.len());
    }

    #[test]
    fn of_two_commits_the_last_one_that_counts_holds() {
        let namespace = |number: u64| {
            let mut namespace = Namespace::new("a".into(), 0, "a".into());
            namespace.last_id = Some(number);
            slot(&namespace, Position(number))
        };
        let document =
            doc! { "_id": "a", "collection": "a", "before": namespace(3), "now": namespace(7) };
        let at = |position: Option<u64>| {
            let slot = slot_at(&document, position.map(Position)).unwrap();
            slot.map(|slot| parse_namespace(&document, Some(slot)).unwrap().last_id)
        };
        assert_eq!(at(None), None);
        assert_eq!(at(Some(2)), None);
        assert_eq!((at(Some(3)), at(Some(6))), (Some(Some(3)), Some(Some(3))));
        assert_eq!((at(Some(7)), at(Some(8))), (Some(Some(7)), Some(Some(7))));
    }

    #[test]
    fn parts_of_a_row_lie_between_its_neighbours() {
        assert!(parts_after(None) < part_key(0, 0));
        assert!(part_key(9, 123_456) < parts_after(Some(9)));
        assert!(parts_after(Some(9)) < part_key(10, 0));
    }
}
