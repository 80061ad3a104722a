//! The routing rules of new files.

use forebay_intake::rules::{Rule, Rules};

use super::value::{Toml, Value};

impl Value for Rules {
    const EXPECTED: &'static str = "rules such as \"name=*.log -> namespace=logs keep=30d\"";
    const TOML: Toml = Toml::List;

    fn parse(text: &str) -> Result<Self, String> {
        let rules = text.split(',').map(str::trim).filter(|rule| !rule.is_empty());
        let rules = rules.map(str::parse::<Rule>).collect::<Result<_, _>>();
        rules.and_then(Self::new).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use forebay_intake::classify::Category;
    use forebay_intake::rules::{Sender, Subject};

    use super::*;

    #[test]
    fn rules_are_separated_by_commas() {
        let rules = Rules::parse("name=*.log -> namespace=logs keep=30d, -> tag.seen=no,").unwrap();
        let (sender, category) = (Sender::default(), Category::Text);
        let of = |name| Subject {
            sender,
            name,
            namespace: "default",
            mime: "text/plain",
            category,
            size: 1,
        };
        let first = |name| rules.first(&of(name)).unwrap().to_string();
        assert_eq!(first("a.log"), "name=*.log -> namespace=logs keep=30d");
        assert_eq!(first("a.txt"), "-> tag.seen=no");
        assert_eq!(Rules::parse(""), Ok(Rules::default()));
        let error = Rules::parse("-> keep=1d, name=*.log").unwrap_err();
        assert!(error.starts_with("\"name=*.log\": "), "{error}");
    }
}
