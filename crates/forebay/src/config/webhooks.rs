//! Settings of webhooks: which receivers are permitted beside the public Internet.

use forebay_webhooks::{Allow, Allowed};

use super::value::{Toml, Value};

/// Host names, addresses and networks, separated by commas.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedReceivers(pub(crate) Allowed);

impl Value for AllowedReceivers {
    const EXPECTED: &'static str =
        "host names, addresses and networks such as hooks.internal,10.0.0.7,10.1.0.0/16";
    const TOML: Toml = Toml::List;

    fn parse(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let entries = entries.map(str::parse::<Allow>).collect::<Result<_, _>>()?;
        Ok(Self(Allowed(entries)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_names_addresses_and_networks() {
        let parsed = AllowedReceivers::parse("hooks.internal, 10.0.0.7,[fd00::1],10.1.2.3/16");
        let shown: Vec<String> = parsed.unwrap().0.0.iter().map(Allow::to_string).collect();
        assert_eq!(shown, ["hooks.internal", "10.0.0.7/32", "fd00::1/128", "10.1.0.0/16"]);
        assert!(AllowedReceivers::parse("").unwrap().0.0.is_empty());
        for wrong in ["*", "http://x", "10.0.0.0/99", "a b"] {
            assert!(AllowedReceivers::parse(wrong).is_err(), "{wrong}");
        }
    }
}
