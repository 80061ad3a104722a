//! Where each setting comes from, for errors that are found when its value is used.

use std::collections::BTreeMap;

use super::resolve::{Origin, Resolved};

/// The sources of the settings that are not at their default.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingSources(BTreeMap<&'static str, Origin>);

impl SettingSources {
    /// The sources of `resolved`.
    pub(super) fn of(resolved: &Resolved) -> Self {
        let set = resolved.iter().filter(|(_, _, origin)| **origin != Origin::Default);
        Self(set.map(|(setting, _, origin)| (setting.key, origin.clone())).collect())
    }

    /// Returns `key` with its source, such as `server.tls_cert (forebay.toml:3)`.
    pub(crate) fn named(&self, key: &str) -> String {
        match self.0.get(key) {
            Some(origin) => format!("{key} ({origin})"),
            None => key.to_owned(),
        }
    }
}
