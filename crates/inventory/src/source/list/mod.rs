//! The objects of a bucket, listed with ListObjectsV2, with their storage classes.
//!
//! A bucket is listed in parallel by its prefixes: those at the top are found first, with as few
//! requests as yield enough of them. The direct objects of a divided prefix are listed separately,
//! so that each key is requested once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::values::{self, ClassNames};
use super::{BadRow, Part, Provenance, RowSink, S3, Settings, Source, SourceError};
use crate::object::{Batch, Classes, Kind, Object};

mod client;
pub(crate) mod page;

use client::Client;
use page::Listed;

/// Minimum number of separately listed prefixes, if there are enough.
const PARTS_MIN: usize = 64;
/// Maximum number of prefixes divided to find them.
const DIVIDED_MAX: usize = 64;
/// Maximum number of pages read to divide a prefix: one with more objects or prefixes is not
/// divided.
const PAGES_MAX: usize = 4;

/// The keys right below a prefix, in order, at most `most` of them.
pub(crate) fn keys(
    s3: &S3,
    bucket: &str,
    prefix: &str,
    most: usize,
) -> Result<Vec<String>, SourceError> {
    let client = Client::new(s3, bucket)?;
    let wrong = |reason| SourceError::List { location: format!("s3://{bucket}/{prefix}"), reason };
    let (mut keys, mut token) = (Vec::new(), None);
    loop {
        let page = client.page(prefix.as_bytes(), true, token.as_deref())?;
        for listed in page.objects {
            let key = String::from_utf8(listed.key);
            keys.push(key.map_err(|_| wrong("it contains a key that is not UTF-8".to_owned()))?);
        }
        if keys.len() > most {
            return Err(wrong(format!("it contains more than {most} files")));
        }
        if page.next.is_some() && page.next == token {
            return Err(wrong("the server returned the same continuation token".to_owned()));
        }
        token = page.next;
        if token.is_none() {
            keys.sort_unstable();
            return Ok(keys);
        }
    }
}

/// A bucket that is listed.
pub(crate) struct Listing {
    client: Arc<Client>,
    prefix: Vec<u8>,
    classes: Arc<Classes>,
    provenance: Provenance,
}

impl Listing {
    pub(crate) fn open(
        given: &str,
        bucket: &str,
        prefix: &str,
        settings: &Settings,
    ) -> Result<Self, SourceError> {
        let client = Client::new(settings.s3(given)?, bucket)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let provenance = Provenance {
            source: given.to_owned(),
            format: "s3-list".to_owned(),
            bucket: Some(bucket.to_owned()),
            listed_at_ms: since.and_then(|since| u64::try_from(since.as_millis()).ok()),
            fields: ["Key", "Size", "LastModified", "StorageClass"].map(str::to_owned).to_vec(),
            notes: vec![
                "listed while the bucket may have changed; only current versions".to_owned(),
            ],
            ..Provenance::default()
        };
        let classes = Arc::clone(&settings.classes);
        Ok(Self { client: Arc::new(client), prefix: prefix.into(), classes, provenance })
    }

    /// The child prefixes of one; `None` if dividing it is not worth it.
    fn divide(&self, prefix: &[u8]) -> Result<Option<Vec<Vec<u8>>>, SourceError> {
        let mut below = Vec::new();
        let mut token = None;
        for _ in 0..PAGES_MAX {
            let page = self.client.page(prefix, true, token.as_deref())?;
            below.extend(page.prefixes);
            token = page.next;
            if token.is_none() {
                return Ok(Some(below).filter(|below| !below.is_empty()));
            }
        }
        Ok(None)
    }
}

impl Source for Listing {
    fn provenance(&self) -> Provenance {
        self.provenance.clone()
    }

    fn parts(&self) -> Result<Vec<Box<dyn Part>>, SourceError> {
        let mut waiting = VecDeque::from([self.prefix.clone()]);
        // Prefixes and whether everything below them is listed, or only their direct objects.
        let mut found: Vec<(Vec<u8>, bool)> = Vec::new();
        let mut divided = 0;
        while let Some(prefix) = waiting.pop_front() {
            if waiting.len() + found.len() >= PARTS_MIN || divided >= DIVIDED_MAX {
                found.push((prefix, true));
                continue;
            }
            divided += 1;
            match self.divide(&prefix)? {
                Some(below) => {
                    waiting.extend(below);
                    found.push((prefix, false));
                }
                None => found.push((prefix, true)),
            }
        }
        found.sort_unstable();
        let part = |(prefix, deep): (Vec<u8>, bool)| {
            let name = format!("s3://{}/{}", self.client.bucket, String::from_utf8_lossy(&prefix));
            Box::new(Prefix {
                client: Arc::clone(&self.client),
                prefix,
                deep,
                name,
                classes: ClassNames::new(Arc::clone(&self.classes)),
            }) as Box<dyn Part>
        };
        Ok(found.into_iter().map(part).collect())
    }
}

/// The objects below a prefix, or only the direct ones.
struct Prefix {
    client: Arc<Client>,
    prefix: Vec<u8>,
    deep: bool,
    name: String,
    classes: ClassNames,
}

impl Part for Prefix {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Option<u64> {
        None
    }

    fn read(mut self: Box<Self>, sink: &mut dyn RowSink) -> Result<(), SourceError> {
        let mut objects = Batch::default();
        let (mut token, mut row) = (None, 0_u64);
        loop {
            let page = self.client.page(&self.prefix, !self.deep, token.as_deref())?;
            for listed in &page.objects {
                row = row.saturating_add(1);
                let pushed = self.object(listed).and_then(|object| {
                    objects.push(&listed.key, object).map_err(|full| ("Key", full.to_string()))
                });
                if let Err((field, reason)) = pushed {
                    let (part, field) = (self.name.clone(), field.to_owned());
                    sink.bad_row(BadRow { part, row, field, reason })?;
                }
            }
            if !objects.is_empty() {
                sink.rows(&mut objects)?;
            }
            if page.next.is_some() && page.next == token {
                let reason = "the server returned the same continuation token".to_owned();
                return Err(SourceError::List { location: self.name, reason });
            }
            token = page.next;
            if token.is_none() {
                return Ok(());
            }
        }
    }
}

impl Prefix {
    /// An object; or the faulty field, and the reason.
    fn object(&mut self, listed: &Listed) -> Result<Object, (&'static str, String)> {
        let size = values::size(listed.size.as_bytes()).map_err(|reason| ("Size", reason))?;
        let modified = values::month(listed.modified.as_bytes());
        let modified = modified.map_err(|reason| ("LastModified", reason))?;
        let class = self.classes.id(Some(listed.class.as_bytes()), b"");
        let class = class.map_err(|reason| ("StorageClass", reason))?;
        Ok(Object { size, version: 0, modified, class, kind: Kind::Current })
    }
}

#[cfg(test)]
mod tests;
