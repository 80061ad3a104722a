//! Routing rules: what becomes of a new file by its name, type, size, namespace and sender.
//!
//! ```text
//! name=*.log size_min=10MiB -> namespace=archive tag.kind=log keep=30d
//! ```
//!
//! The first rule that matches applies. Its namespace is used only where the request names none: a file
//! is always found where its client put it. Its tags do not replace those of the client.
//!
//! Invariants: a rule that was parsed can be applied: its patterns, namespace and tags are valid; the same
//! file gets the same namespace and tags from the same rules.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use forebay_base::bytes::ByteSize;
use forebay_base::duration::HumanDuration;
use glob::{MatchOptions, Pattern};

use crate::attributes::{AttributeError, AttributeKind, Attributes};
use crate::classify::Category;
use crate::names::Namespace;

/// Maximum number of rules.
pub const RULES_MAX: usize = 1_000;
/// The shortest time that files can be kept.
const KEEP_MIN: Duration = Duration::from_secs(60);
/// The longest time that files can be kept: a hundred years.
const KEEP_MAX: Duration = Duration::from_secs(36_525 * 86_400);
/// What separates conditions from actions.
const ARROW: &str = "->";

/// Why a rule was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule:?}: {reason}")]
pub struct RuleError {
    /// The rule.
    pub rule: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Size of the id of an API key.
pub const KEY_ID_SIZE: usize = 12;

/// How a new file was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// In a request of the HTTP API, or a job made of one.
    #[default]
    Http,
    /// As a resumable upload.
    Tus,
    /// Over the S3-compatible API.
    S3,
}

impl Protocol {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "http" => Some(Self::Http),
            "tus" => Some(Self::Tus),
            "s3" => Some(Self::S3),
            _ => None,
        }
    }
}

/// Where a new file comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sender {
    /// How it was sent.
    pub protocol: Protocol,
    /// Id of the API key of the request, if it has one.
    pub key: Option<[u8; KEY_ID_SIZE]>,
}

/// What rules see of a new file.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Where it comes from.
    pub sender: Sender,
    /// Its name.
    pub name: &'a str,
    /// The namespace that the request names, or the default.
    pub namespace: &'a str,
    /// Its media type, detected from the content.
    pub mime: &'a str,
    /// Its category.
    pub category: Category,
    /// Its size in bytes.
    pub size: u64,
}

/// One rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    text: String,
    conditions: Conditions,
    actions: Actions,
}

/// Everything that must hold of a file.
#[derive(Debug, Clone, Default, PartialEq)]
struct Conditions {
    name: Option<Pattern>,
    mime: Option<Pattern>,
    from: Option<Pattern>,
    key: Option<Pattern>,
    protocol: Option<Protocol>,
    category: Option<Category>,
    size_min: Option<u64>,
    size_max: Option<u64>,
}

/// What a rule gives to a file.
#[derive(Debug, Clone, Default, PartialEq)]
struct Actions {
    namespace: Option<Namespace>,
    tags: Attributes,
    keep: Option<Duration>,
}

impl Conditions {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "name" => once(&mut self.name, key, pattern(value)?),
            "type" => once(&mut self.mime, key, pattern(value)?),
            "from" => once(&mut self.from, key, pattern(value)?),
            "key" => once(&mut self.key, key, pattern(value)?),
            "protocol" => {
                let protocol = Protocol::parse(value);
                let unknown = || format!("{value:?} is not a protocol; known are http, tus and s3");
                once(&mut self.protocol, key, protocol.ok_or_else(unknown)?)
            }
            "category" => {
                let category = Category::parse(value);
                let unknown = || format!("{value:?} is not a category");
                once(&mut self.category, key, category.ok_or_else(unknown)?)
            }
            "size_min" => once(&mut self.size_min, key, size(value)?),
            "size_max" => once(&mut self.size_max, key, size(value)?),
            _ => Err(format!(
                "unknown condition {key:?}; known are name, type, category, from, key, protocol, \
                 size_min and size_max"
            )),
        }
    }

    fn hold(&self, subject: &Subject<'_>) -> bool {
        let fits = |pattern: &Option<Pattern>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches_with(text, MatchOptions::new()))
        };
        // A file that was sent without a key has none that matches.
        let key = subject.sender.key.as_ref().and_then(|id| std::str::from_utf8(id).ok());
        self.category.is_none_or(|category| category == subject.category)
            && self.protocol.is_none_or(|protocol| protocol == subject.sender.protocol)
            && (self.key.is_none() || key.is_some_and(|key| fits(&self.key, key)))
            && self.size_min.is_none_or(|least| subject.size >= least)
            && self.size_max.is_none_or(|most| subject.size <= most)
            && fits(&self.from, subject.namespace)
            && fits(&self.mime, subject.mime)
            && fits(&self.name, subject.name)
    }
}

impl Actions {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "namespace" => {
                let namespace = Namespace::parse(value).map_err(|error| error.to_string())?;
                once(&mut self.namespace, key, namespace)
            }
            "keep" => {
                let keep: HumanDuration =
                    value.parse().map_err(|error| format!("{value:?}: {error}"))?;
                if !(KEEP_MIN..=KEEP_MAX).contains(&keep.get()) {
                    return Err(format!("keep is 1m to 36525d, not {value}"));
                }
                once(&mut self.keep, key, keep.get())
            }
            _ => match key.strip_prefix("tag.") {
                Some(tag) if self.tags.get(AttributeKind::Tag, tag).is_some() => {
                    Err(format!("{key} is set twice"))
                }
                Some(tag) => {
                    self.tags.set(AttributeKind::Tag, tag, value).map_err(|error| error.to_string())
                }
                None => {
                    Err(format!("unknown action {key:?}; known are namespace, tag.NAME and keep"))
                }
            },
        }
    }
}

fn once<T>(place: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{key} is set twice")),
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|error| format!("{text:?} is not a pattern: {error}"))
}

fn size(text: &str) -> Result<u64, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{text:?}: {error}"))?;
    Ok(size.bytes())
}

impl FromStr for Rule {
    type Err = RuleError;

    /// Parses conditions and actions, each `KEY=VALUE`, separated by white space; `->` between them.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let refused = |reason: String| RuleError { rule: text.to_owned(), reason };
        let (mut conditions, mut actions) = (Conditions::default(), Actions::default());
        let (mut is_action, mut action_count) = (false, 0);
        for word in text.split_whitespace() {
            if word == ARROW {
                if std::mem::replace(&mut is_action, true) {
                    return Err(refused(format!("there are two {ARROW}")));
                }
                continue;
            }
            let (key, value) = word
                .split_once('=')
                .filter(|(key, value)| !key.is_empty() && !value.is_empty())
                .ok_or_else(|| refused(format!("{word:?} is not KEY=VALUE")))?;
            if is_action {
                action_count += 1;
                actions.set(key, value).map_err(refused)?;
            } else {
                conditions.set(key, value).map_err(refused)?;
            }
        }
        if action_count == 0 {
            let reason = format!(
                "a rule is CONDITIONS {ARROW} ACTIONS, such as name=*.log {ARROW} namespace=logs keep=30d"
            );
            return Err(refused(reason));
        }
        let is_empty_range = matches!(
            (conditions.size_min, conditions.size_max),
            (Some(least), Some(most)) if least > most
        );
        if is_empty_range {
            return Err(refused("size_min is more than size_max".to_owned()));
        }
        Ok(Self { text: text.to_owned(), conditions, actions })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Rule {
    /// The namespace of a file that it matches, if the request names none.
    #[must_use]
    pub fn namespace(&self) -> Option<&Namespace> {
        self.actions.namespace.as_ref()
    }

    /// Adds its tags, unless the file has tags of these names, and how long it is kept.
    ///
    /// # Errors
    /// [`AttributeError`]: the file has no room for them.
    pub(crate) fn describe(&self, attributes: &mut Attributes) -> Result<(), AttributeError> {
        for (name, value) in self.actions.tags.of(AttributeKind::Tag) {
            if attributes.get(AttributeKind::Tag, name).is_none() {
                attributes.set(AttributeKind::Tag, name, value)?;
            }
        }
        self.actions.keep.map_or(Ok(()), |keep| attributes.set_keep(keep))
    }
}

/// The rules in the order in which they are tried.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Takes rules in the order in which they are tried.
    ///
    /// # Errors
    /// [`RuleError`]: there are more than [`RULES_MAX`]; it names the first of them.
    pub fn new(rules: Vec<Rule>) -> Result<Self, RuleError> {
        match rules.get(RULES_MAX) {
            None => Ok(Self(rules)),
            Some(rule) => Err(RuleError {
                rule: rule.text.clone(),
                reason: format!("there can be at most {RULES_MAX} rules"),
            }),
        }
    }

    /// The first rule that matches.
    #[must_use]
    pub fn first(&self, subject: &Subject<'_>) -> Option<&Rule> {
        self.0.iter().find(|rule| rule.conditions.hold(subject))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    fn subject(name: &str) -> Subject<'_> {
        let category = Category::Image;
        let sender = Sender { protocol: Protocol::Tus, key: Some(*b"0123456789ab") };
        Subject { sender, name, namespace: "default", mime: "image/png", category, size: 2_048 }
    }

    #[test]
    fn a_file_that_was_sent_without_a_key_matches_no_key() {
        let rules = Rules::new(vec![rule("key=* -> keep=1d")]).unwrap();
        let sent = subject("x");
        assert!(rules.first(&sent).is_some());
        let without = Subject { sender: Sender { key: None, ..sent.sender }, ..sent };
        assert_eq!(rules.first(&without), None);
    }

    #[test]
    fn every_condition_must_hold() {
        let holds = |text: &str| {
            let rules = Rules::new(vec![rule(&format!("{text} -> keep=1d"))]).unwrap();
            rules.first(&subject("a/b.png")).is_some()
        };
        for text in [
            "",
            "name=*.png",
            "name=a/?.png",
            "name=[ab]/*",
            "type=image/*",
            "category=image",
            "from=default",
            "key=0123456789ab",
            "key=0123* protocol=tus",
            "size_min=2KiB size_max=2048",
            "name=*.png type=image/png category=image from=d* size_min=1",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in [
            "name=*.PNG",
            "name=.png",
            "type=text/*",
            "category=text",
            "from=other",
            "key=1123456789ab",
            "protocol=http",
            "protocol=s3",
            "size_min=2049",
            "size_max=2047",
            "name=*.png type=text/*",
        ] {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_applies() {
        let texts = ["name=*.gif -> namespace=a", "name=*.png -> namespace=b", "-> namespace=c"];
        let rules = Rules::new(texts.map(rule).into()).unwrap();
        let namespace = |name| rules.first(&subject(name)).unwrap().namespace().unwrap().as_str();
        assert_eq!([namespace("x.gif"), namespace("x.png"), namespace("x")], ["a", "b", "c"]);
        assert_eq!(Rules::default().first(&subject("x")), None);
    }

    #[test]
    fn tags_of_the_client_stay() {
        let rule = rule("-> tag.kind=picture tag.team=web keep=90d");
        let mut attributes = Attributes::default();
        attributes.set(AttributeKind::Tag, "kind", "logo").unwrap();
        rule.describe(&mut attributes).unwrap();
        let tags: Vec<_> = attributes.of(AttributeKind::Tag).collect();
        assert_eq!(tags, [("kind", "logo"), ("team", "web")]);
        assert_eq!(attributes.keep(), Some(Duration::from_secs(90 * 86_400)));
    }

    #[test]
    fn a_wrong_rule_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "CONDITIONS -> ACTIONS"),
            ("name=*.log", "CONDITIONS -> ACTIONS"),
            ("name=*.log ->", "CONDITIONS -> ACTIONS"),
            ("name=a -> keep=1d -> keep=2d", "two ->"),
            ("name -> keep=1d", "KEY=VALUE"),
            ("name= -> keep=1d", "KEY=VALUE"),
            ("nam=x -> keep=1d", "unknown condition"),
            ("name=a name=b -> keep=1d", "set twice"),
            ("name=[ -> keep=1d", "not a pattern"),
            ("category=picture -> keep=1d", "not a category"),
            ("size_min=big -> keep=1d", "big"),
            ("size_min=2 size_max=1 -> keep=1d", "size_min is more"),
            ("-> keep=1s", "1m to"),
            ("-> keep=soon", "soon"),
            ("-> namespace=a/b/../c\u{7}", "namespace"),
            ("-> tag.=x", "1 to 128"),
            ("-> tag.a=1 tag.a=2", "set twice"),
            ("-> delete=yes", "unknown action"),
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert!(error.reason.contains(reason), "{text:?}: {error}");
        }
        let most = vec![rule("-> keep=1d"); RULES_MAX + 1];
        assert!(Rules::new(most).unwrap_err().reason.contains("at most"));
    }
}
