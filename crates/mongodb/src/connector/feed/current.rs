//! The documents that changes concern, as they are after what was staged before.
//!
//! Invariant: a document is found under the key that it has when a part of a unit begins, whatever earlier parts
//! did to it, and whatever this part has staged.

use std::collections::{HashMap, HashSet};

use forebay_sdk::connector::Result;
use mongodb::Cursor;
use mongodb::bson::raw::{RawBsonRef, RawDocument, cstr};
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::super::connect::refused;
use super::super::statement::broken;
use super::DELETED_AT;
use super::alter::Step;
use super::net::Changing;
use super::pending::Work;
use super::table::Table;
use super::values::{canonical, merged};

/// Documents, and bytes of them, that are looked at together.
const GROUP_ROWS: usize = 500;
const GROUP_SIZE: usize = 4 << 20;

/// What an earlier part has staged of a document.
pub(super) struct Earlier {
    /// Its number.
    pub(super) number: i64,
    /// Whether it is the whole document.
    pub(super) is_put: bool,
    /// The fields.
    pub(super) fields: RawDocumentBuf,
}

/// A document that is there.
pub(super) struct Current {
    id: RawDocumentBuf,
    /// The document, or its id and key.
    pub(super) document: RawDocumentBuf,
    pub(super) earlier: Option<Earlier>,
    /// Whether it is marked as deleted.
    pub(super) is_deleted: bool,
}

impl Current {
    pub(super) fn id(&self) -> Result<RawBsonRef<'_>> {
        let id = self.id.get("i").map_err(|error| broken(error.to_string()))?;
        id.ok_or_else(|| broken("it has no id".to_owned()))
    }
}

/// Whether a document is marked as deleted; `None`: it does not say, or deleted rows are not kept.
fn is_marked(table: &Table, document: &RawDocument) -> Option<bool> {
    table.deleted_at.as_ref()?;
    let value = document.get(DELETED_AT).ok().flatten()?;
    Some(!matches!(value, RawBsonRef::Null))
}

/// An id, as the only field of a document.
fn wrapped_id(document: &RawDocument, name: &str) -> Result<RawDocumentBuf> {
    let id = document.get(name).map_err(|error| broken(error.to_string()))?;
    let mut wrapped = RawDocumentBuf::new();
    wrapped.append(cstr!("i"), id.ok_or_else(|| broken("it has no id".to_owned()))?);
    Ok(wrapped)
}

/// The condition that a document has one of these keys.
///
/// * `field`: where the value of a column is.
fn any_of(keys: &[&RawDocument], field: impl Fn(&str) -> String) -> Result<Document> {
    let keys = keys.iter().map(|key| Document::try_from(*key));
    let keys: Vec<Document> =
        keys.collect::<Result<_, _>>().map_err(|error| broken(error.to_string()))?;
    let single = keys.iter().map(|key| {
        let mut fields = key.iter();
        let one = fields.next()?;
        fields.next().is_none().then_some(one)
    });
    if let Some(single) = single.collect::<Option<Vec<_>>>()
        && let Some((name, _)) = single.first()
    {
        let values: Vec<Bson> = single.iter().map(|(_, value)| (*value).clone()).collect();
        return Ok(doc! { field(name): { "$in": values } });
    }
    let named = keys
        .into_iter()
        .map(|key| key.into_iter().map(|(name, value)| (field(&name), value)).collect());
    let named: Vec<Document> = named.collect();
    Ok(doc! { "$or": named })
}

/// The condition that a staged document has one of these keys, under the names that its part has.
fn put_with(changing: &Changing, keys: &[&RawDocument]) -> Result<Document> {
    let mut parts: Vec<i64> = changing.steps.iter().map(|step| step.part).collect();
    parts.insert(0, 0);
    parts.dedup();
    let mut any = Vec::with_capacity(parts.len());
    for (at, from) in parts.iter().enumerate() {
        let field = |name: &str| format!("doc.{}", Step::before(&changing.steps, name, *from));
        let mut of_part = doc! { "$gte": *from };
        if let Some(end) = parts.get(at + 1) {
            of_part.insert("$lt", *end);
        }
        any.push(doc! { "$and": [{ "part": of_part }, any_of(keys, field)?] });
    }
    Ok(doc! { "op": "put", "$or": any })
}

/// Documents with some keys, in groups.
pub(super) struct Sweep<'a> {
    work: &'a Work,
    table: &'a Table,
    of_collection: Option<Cursor<RawDocumentBuf>>,
    of_earlier: Option<Cursor<RawDocumentBuf>>,
}

impl<'a> Sweep<'a> {
    /// Looks for documents.
    ///
    /// * `is_whole`: whether all their fields are wanted.
    pub(super) async fn begin(
        work: &'a Work,
        table: &'a Table,
        changing: &Changing,
        keys: &[&RawDocument],
        is_whole: bool,
    ) -> Result<Self> {
        let (mut of_collection, mut of_earlier) = (None, None);
        if keys.is_empty() {
            return Ok(Self { work, table, of_collection, of_earlier });
        }
        if !changing.empties {
            let name = &table.collection;
            let act = |error| refused(format!("read {name}"), error);
            let there = work.server.database().await?.collection::<RawDocumentBuf>(name);
            let field = |name: &str| Step::before(&changing.steps, name, 0);
            let mut found = there.find(any_of(keys, field)?);
            if !is_whole {
                let mut fields = doc! { "_id": 1, DELETED_AT: 1 };
                fields.extend(table.key_names.iter().map(|name| (field(name), Bson::Int32(1))));
                found = found.projection(fields);
            }
            of_collection = Some(found.await.map_err(act)?);
        }
        if changing.staged.has_earlier() {
            of_earlier = Some(changing.staged.earlier(work, put_with(changing, keys)?).await?);
        }
        Ok(Self { work, table, of_collection, of_earlier })
    }

    /// The next documents; empty at the end.
    pub(super) async fn next(&mut self, changing: &Changing) -> Result<Vec<Current>> {
        let act = |error| refused(format!("read {}", self.table.collection), error);
        while let Some(cursor) = &mut self.of_collection {
            let (mut group, mut size) = (Vec::new(), 0);
            let mut is_end = false;
            while group.len() < GROUP_ROWS && size < GROUP_SIZE {
                if !cursor.advance().await.map_err(act)? {
                    is_end = true;
                    break;
                }
                let document = cursor.current();
                size += document.as_bytes().len();
                group.push(document.to_owned());
            }
            if is_end {
                self.of_collection = None;
            }
            let found = there(self.work, self.table, changing, group).await?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let Some(cursor) = &mut self.of_earlier else { return Ok(Vec::new()) };
        let (mut group, mut size) = (Vec::new(), 0);
        while group.len() < GROUP_ROWS && size < GROUP_SIZE {
            if !cursor.advance().await.map_err(act)? {
                self.of_earlier = None;
                break;
            }
            let staged = cursor.current();
            size += staged.as_bytes().len();
            let (id, earlier) = (wrapped_id(staged, "i")?, earlier(staged, changing)?);
            let document = earlier.fields.clone();
            let is_deleted = is_marked(self.table, &document).unwrap_or(false);
            group.push(Current { id, document, earlier: Some(earlier), is_deleted });
        }
        Ok(group)
    }
}

/// Documents of the collection, after what earlier parts have staged for them.
async fn there(
    work: &Work,
    table: &Table,
    changing: &Changing,
    group: Vec<RawDocumentBuf>,
) -> Result<Vec<Current>> {
    let (mut gone, mut sets) = (HashSet::new(), HashMap::new());
    if changing.staged.has_earlier() && !group.is_empty() {
        let ids = group.iter().map(|document| {
            let id = wrapped_id(document, "_id")?;
            let id = Document::try_from(&*id).map_err(|error| broken(error.to_string()))?;
            Ok(id.get("i").cloned().unwrap_or(Bson::Null))
        });
        let ids = ids.collect::<Result<Vec<Bson>>>()?;
        let of_ids = doc! { "i": { "$in": ids }, "op": { "$ne": "put" } };
        let mut staged = changing.staged.earlier(work, of_ids).await?;
        let act = |error| refused("read staged changes", error);
        while staged.advance().await.map_err(act)? {
            let staged = staged.current();
            let id = wrapped_id(staged, "i")?;
            let id = canonical(id.get("i").ok().flatten());
            match staged.get_str("op") {
                Ok("gone") => drop(gone.insert(id)),
                _ => drop(sets.insert(id, earlier(staged, changing)?)),
            }
        }
    }
    let mut found = Vec::with_capacity(group.len());
    for document in group {
        let id = wrapped_id(&document, "_id")?;
        let known = canonical(id.get("i").ok().flatten());
        if gone.contains(&known) {
            continue;
        }
        let mut document = Step::through(&changing.steps, &document, 0, true)?;
        let earlier = sets.remove(&known);
        if let Some(earlier) = &earlier {
            document = merged(&document, &earlier.fields)?;
        }
        let said = earlier.as_ref().and_then(|earlier| is_marked(table, &earlier.fields));
        let is_deleted = said.unwrap_or_else(|| {
            changing.marks.is_some() || is_marked(table, &document).unwrap_or(false)
        });
        found.push(Current { id, document, earlier, is_deleted });
    }
    Ok(found)
}

/// What is staged, with the fields of now.
fn earlier(staged: &RawDocument, changing: &Changing) -> Result<Earlier> {
    let odd = |error: mongodb::bson::error::Error| broken(error.to_string());
    let number = staged.get_i64("_id").map_err(odd)?;
    let part = staged.get_i64("part").map_err(odd)?;
    let is_put = staged.get_str("op").map_err(odd)? == "put";
    let fields = staged.get_document("doc").map_err(odd)?;
    let fields = Step::through(&changing.steps, fields, part, is_put)?;
    Ok(Earlier { number, is_put, fields })
}
