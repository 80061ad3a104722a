//! Small values that a connector keeps between runs, such as a token or what it found the last time.
//!
//! Invariants:
//! - They are not in the transaction that has the rows: a run that is killed may have kept a value and not its
//!   rows, or the other way round. So which rows are read must not depend on them.
//! - Their number and size have limits, which are checked before anything is stored.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use crate::connector::Result;
use crate::error::ConnectorError;

/// Maximum number of values of a connector for a stream.
pub const KEYS_MAX: usize = 64;
/// Maximum size of these, with their keys, in bytes.
pub const KEPT_SIZE_MAX: usize = 64 << 10;
/// Maximum size of a key in bytes.
pub const KEY_SIZE_MAX: usize = 256;

/// Whose values they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptBy {
    /// Name of the pipeline.
    pub pipeline: String,
    /// The connector and its role: `source postgres`.
    pub connector: String,
    /// Name of the stream in the source.
    pub stream: String,
}

/// Where values are kept. Its calls may block.
pub trait KeptValues: Debug + Send + Sync {
    /// All values, by their keys.
    ///
    /// # Errors
    /// They cannot be read.
    fn all(&self, of: &KeptBy) -> Result<Vec<(String, Vec<u8>)>>;

    /// Keeps a value in the place of the one before; `None` removes it.
    ///
    /// # Errors
    /// It cannot be written.
    fn put(&self, of: &KeptBy, key: &str, value: Option<&[u8]>) -> Result<()>;
}

/// The values of the connectors of a run. Clones share them.
#[derive(Debug, Clone)]
pub struct Kept {
    values: Arc<dyn KeptValues>,
    pipeline: Arc<str>,
    /// Held while a value is compared with the limits and stored.
    changing: Arc<Mutex<()>>,
}

impl Kept {
    /// Those of a pipeline.
    #[must_use]
    pub fn new(values: Arc<dyn KeptValues>, pipeline: &str) -> Self {
        Self { values, pipeline: pipeline.into(), changing: Arc::default() }
    }

    fn by(&self, connector: &str, stream: &str) -> KeptBy {
        KeptBy {
            pipeline: self.pipeline.to_string(),
            connector: connector.to_owned(),
            stream: stream.to_owned(),
        }
    }

    /// A value. Blocks.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn get(&self, connector: &str, stream: &str, key: &str) -> Result<Option<Vec<u8>>> {
        let all = self.values.all(&self.by(connector, stream))?;
        Ok(all.into_iter().find(|(known, _)| known == key).map(|(_, value)| value))
    }

    /// Keeps a value in the place of the one before; `None` removes it. Blocks.
    ///
    /// # Errors
    /// The key is empty or too long, there would be too many values or bytes, or it cannot be written.
    pub fn put(
        &self,
        connector: &str,
        stream: &str,
        key: &str,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let refused = |found: String| {
            Err(ConnectorError::data(format!("the values that {connector} keeps"), found))
        };
        if key.is_empty() || key.len() > KEY_SIZE_MAX {
            return refused(format!("a key has not 1 to {KEY_SIZE_MAX} bytes"));
        }
        let size = value.map_or(0, <[u8]>::len);
        if size > KEPT_SIZE_MAX {
            return refused(format!("{size} bytes, of at most {KEPT_SIZE_MAX} in all"));
        }
        let of = self.by(connector, stream);
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if value.is_some() {
            let all = self.values.all(&of)?;
            let others = || all.iter().filter(|(known, _)| known != key);
            if others().count() >= KEYS_MAX {
                return refused(format!("more than {KEYS_MAX} values"));
            }
            let used: usize = others().map(|(key, value)| key.len() + value.len()).sum();
            if used.saturating_add(key.len() + size) > KEPT_SIZE_MAX {
                return refused(format!("more than {KEPT_SIZE_MAX} bytes"));
            }
        }
        self.values.put(&of, key, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct InMemory(Mutex<Vec<(KeptBy, String, Vec<u8>)>>);

    impl KeptValues for InMemory {
        fn all(&self, of: &KeptBy) -> Result<Vec<(String, Vec<u8>)>> {
            let all = self.0.lock().unwrap();
            let own = all.iter().filter(|(by, ..)| by == of);
            Ok(own.map(|(_, key, value)| (key.clone(), value.clone())).collect())
        }

        fn put(&self, of: &KeptBy, key: &str, value: Option<&[u8]>) -> Result<()> {
            let mut all = self.0.lock().unwrap();
            all.retain(|(by, known, _)| by != of || known != key);
            all.extend(value.map(|value| (of.clone(), key.to_owned(), value.to_vec())));
            Ok(())
        }
    }

    #[test]
    fn values_are_those_of_one_connector_and_stream() {
        let kept = Kept::new(Arc::<InMemory>::default(), "p");
        kept.put("source a", "s", "k", Some(b"1")).unwrap();
        kept.put("source a", "t", "k", Some(b"2")).unwrap();
        let get = |connector, stream| kept.get(connector, stream, "k").unwrap();
        assert_eq!(get("source a", "s").as_deref(), Some(&b"1"[..]));
        assert_eq!(get("source a", "t").as_deref(), Some(&b"2"[..]));
        assert_eq!(get("destination a", "s"), None);
        kept.put("source a", "s", "k", None).unwrap();
        assert_eq!(get("source a", "s"), None);
    }

    #[test]
    fn what_is_kept_has_limits_that_a_replaced_value_counts_once_for() {
        let kept = Kept::new(Arc::<InMemory>::default(), "p");
        let put = |key: &str, size: usize| kept.put("c", "s", key, Some(&vec![0; size]));
        put("large", KEPT_SIZE_MAX - 100).unwrap();
        put("large", KEPT_SIZE_MAX - 5).unwrap();
        put("large", KEPT_SIZE_MAX - 4).unwrap_err();
        put("x", 0).unwrap_err();
        put("large", 0).unwrap();
        for key in 1..KEYS_MAX {
            put(&key.to_string(), 9).unwrap();
        }
        put("one more", 0).unwrap_err();
        put("1", 10).unwrap();
        put("", 0).unwrap_err();
        put(&"k".repeat(KEY_SIZE_MAX + 1), 0).unwrap_err();
        put("1", 1 << 30).unwrap_err();
    }
}
