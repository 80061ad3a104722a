//! Table or collection: the decision, with every rule and what it measured.
//!
//! A namespace's first documents decide and later ones follow, so a reader finds one namespace in
//! one place. A few documents are no evidence: until there are enough, the namespace is a collection
//! and undecided. A table needs documents that agree on their fields and on the fields' types, that are
//! shallow, and that do not embed lists of objects. Where agreement is not quite enough, keys and
//! references between records decide, and so does the sender's request.
//!
//! Invariant: the decision is a function of the profile, the options and the namespace's current
//! target; the rules in the answer are the ones that were applied, with the same numbers.

use serde::Serialize;

use super::profile::{Kind, Profile, is_key, refers_to};
use crate::format::TargetCode;
use crate::options::DecisionOptions;

/// The target that the sender asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wish {
    /// None: decide.
    #[default]
    Auto,
    /// A table, if the documents fit one.
    Table,
    /// A collection.
    Collection,
}

impl Wish {
    /// Reads a `target` option.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "auto" | "" => Some(Self::Auto),
            "table" | "sql" => Some(Self::Table),
            "collection" | "nosql" => Some(Self::Collection),
            _ => None,
        }
    }

    /// Reads a wish from a comment: whole words only, and nothing if they disagree.
    #[must_use]
    pub fn of_comment(comment: &str) -> Self {
        let mut wish = Self::Auto;
        let words = comment.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        for word in words {
            let asked = match word.to_ascii_lowercase().as_str() {
                "sql" | "table" | "relational" => Self::Table,
                "nosql" | "collection" | "schemaless" => Self::Collection,
                _ => continue,
            };
            if wish != Self::Auto && wish != asked {
                return Self::Auto;
            }
            wish = asked;
        }
        wish
    }
}

/// One rule, what it measured and its verdict.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = DecisionRule)]
pub struct Rule {
    /// Name of the rule.
    pub rule: &'static str,
    /// What was measured.
    pub measured: serde_json::Value,
    /// Its threshold.
    pub threshold: serde_json::Value,
    /// `table`, `collection` or `neutral`.
    pub says: &'static str,
    /// An explanation.
    pub detail: String,
}

/// Where a batch is stored, and why.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Table or collection.
    pub target: TargetCode,
    /// Name of the decisive rule.
    pub decided_by: &'static str,
    /// Every rule that was evaluated.
    pub rules: Vec<Rule>,
    /// Whether there are too few documents to decide: the target is preliminary.
    pub undecided: bool,
}

/// Decides where a batch is stored.
///
/// * `profile`: of the batch, and of all documents before it while the namespace is undecided.
/// * `existing`: the namespace's target; `None` while it is undecided.
#[must_use]
pub fn decide(
    profile: &Profile,
    options: &DecisionOptions,
    existing: Option<TargetCode>,
    wish: Wish,
) -> Decision {
    let undecided =
        existing.is_none() && wish == Wish::Auto && profile.documents < options.documents_min;
    let mut rules = vec![
        existing_rule(existing),
        wish_rule(wish),
        documents_rule(profile.documents, options, undecided),
    ];
    let structure = [
        fields_rule(profile, options),
        depth_rule(profile, options),
        embedded_rule(profile, options),
    ];
    let presence = presence(profile);
    let agreement = type_agreement(profile);
    rules.extend(structure.iter().cloned());
    rules.push(share_rule(
        "presence",
        presence,
        options,
        "average share of the fields that a document has",
    ));
    rules.push(share_rule(
        "type_agreement",
        agreement,
        options,
        "share of values that have the most common type of their field",
    ));
    let related = relations_rule(profile);
    let is_related = related.says == "table";
    rules.push(related);

    let weakest = presence.min(agreement);
    let (target, decided_by) = if let Some(existing) = existing {
        (existing, "existing")
    } else if undecided {
        (TargetCode::Collection, "documents")
    } else if wish == Wish::Collection {
        (TargetCode::Collection, "wish")
    } else if structure[0].says == "collection" {
        (TargetCode::Collection, "fields")
    } else if wish == Wish::Table {
        (TargetCode::Table, "wish")
    } else if let Some(rule) = structure.iter().find(|rule| rule.says == "collection") {
        (TargetCode::Collection, rule.rule)
    } else if weakest >= options.agreement_min {
        (TargetCode::Table, "stable")
    } else if weakest >= options.agreement_related_min && is_related {
        (TargetCode::Table, "relations")
    } else if presence <= agreement {
        (TargetCode::Collection, "presence")
    } else {
        (TargetCode::Collection, "type_agreement")
    };
    Decision { target, decided_by, rules, undecided }
}

fn existing_rule(existing: Option<TargetCode>) -> Rule {
    let (measured, says, detail) = match existing {
        None => ("new", "neutral", "the namespace is new, or too small to be decided before"),
        Some(TargetCode::Table) => ("table", "table", "the namespace is a table and stays one"),
        Some(TargetCode::Collection) => {
            ("collection", "collection", "the namespace is a collection and stays one")
        }
    };
    rule("existing", measured.into(), "new".into(), says, detail)
}

fn wish_rule(wish: Wish) -> Rule {
    let (measured, says, detail) = match wish {
        Wish::Auto => ("auto", "neutral", "the sender left the decision open"),
        Wish::Table => ("table", "table", "the sender asked for a table"),
        Wish::Collection => ("collection", "collection", "the sender asked for a collection"),
    };
    rule("wish", measured.into(), "auto".into(), says, detail)
}

fn documents_rule(documents: u64, options: &DecisionOptions, undecided: bool) -> Rule {
    let says = if undecided { "collection" } else { "neutral" };
    let detail = match undecided {
        true => "too few documents to decide: they are kept as a collection until there are enough",
        false => "number of documents that were examined",
    };
    rule("documents", documents.into(), options.documents_min.into(), says, detail)
}

fn fields_rule(profile: &Profile, options: &DecisionOptions) -> Rule {
    // A field that was always null gets no column.
    let fields = profile.columns().count();
    let fits = (1..=options.columns_max).contains(&fields) && profile.untracked == 0;
    let detail = if profile.untracked > 0 {
        format!("more than {fields} different fields were seen")
    } else {
        format!("{fields} different fields were seen after flattening")
    };
    let says = if fits { "table" } else { "collection" };
    let limit = serde_json::json!({ "min": 1, "max": options.columns_max });
    rule("fields", fields.into(), limit, says, detail)
}

fn depth_rule(profile: &Profile, options: &DecisionOptions) -> Rule {
    let shallow = share(profile.shallow, profile.documents);
    let says = if shallow >= options.agreement_min { "table" } else { "collection" };
    let detail = format!(
        "share of documents in which objects nest at most {} levels deep",
        options.flatten_depth
    );
    rule("depth", rounded(shallow), rounded(options.agreement_min), says, detail)
}

fn embedded_rule(profile: &Profile, options: &DecisionOptions) -> Rule {
    let lists = profile.fields().iter().filter(|(_, field)| field.of(Kind::Embedded) > 0).count();
    let embedded = share(lists as u64, profile.fields().len() as u64);
    let says = if embedded <= options.embedded_share_max { "table" } else { "collection" };
    let detail = format!("{lists} of the fields hold lists of objects");
    rule("embedded", rounded(embedded), rounded(options.embedded_share_max), says, detail)
}

fn share_rule(name: &'static str, measured: f64, options: &DecisionOptions, what: &str) -> Rule {
    let (says, detail) = if measured >= options.agreement_min {
        ("table", what.to_owned())
    } else if measured >= options.agreement_related_min {
        ("neutral", format!("{what}; sufficient only with keys or references"))
    } else {
        ("collection", what.to_owned())
    };
    rule(name, rounded(measured), rounded(options.agreement_min), says, detail)
}

fn relations_rule(profile: &Profile) -> Rule {
    let unique = |field: &super::profile::FieldProfile| field.is_unique(profile.documents);
    let key = profile.fields().iter().find(|(path, field)| is_key(path) && unique(field));
    let references: Vec<&str> =
        profile.fields().iter().filter_map(|(path, _)| refers_to(path)).take(8).collect();
    let related = key.is_some() || !references.is_empty();
    let detail = match (key, references.is_empty()) {
        (Some((path, _)), true) => format!("{path:?} is unique in every document"),
        (Some((path, _)), false) => {
            format!(
                "{path:?} is unique in every document, and fields are named after other records"
            )
        }
        (None, false) => "fields are named after other records".to_owned(),
        (None, true) => "no key and no references were found".to_owned(),
    };
    let measured = serde_json::json!({
        "key": key.map(|(path, _)| path.as_ref()),
        "references": references,
    });
    let says = if related { "table" } else { "neutral" };
    rule("relations", measured, "a key or a reference".into(), says, detail)
}

/// Share of (document, field) pairs that exist.
fn presence(profile: &Profile) -> f64 {
    let present: u64 = profile.fields().iter().map(|(_, field)| field.present).sum();
    share(present, profile.documents * profile.fields().len() as u64)
}

/// Share of values that have the most common type of their field. Nulls agree with every type.
fn type_agreement(profile: &Profile) -> f64 {
    let (mut agreeing, mut valued) = (0, 0);
    for (_, field) in profile.fields() {
        agreeing += field.agreeing();
        valued += field.valued();
    }
    if valued == 0 { 1.0 } else { share(agreeing, valued) }
}

#[expect(clippy::cast_precision_loss, reason = "counts of documents are far below 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Rounded for display; the decision uses the exact number.
fn rounded(share: f64) -> serde_json::Value {
    serde_json::json!((share * 10_000.0).round() / 10_000.0)
}

fn rule(
    rule: &'static str,
    measured: serde_json::Value,
    threshold: serde_json::Value,
    says: &'static str,
    detail: impl Into<String>,
) -> Rule {
    Rule { rule, measured, threshold, says, detail: detail.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::flatten::{Bounds, read};

    const BOUNDS: Bounds = Bounds { depth_max: 100, key_size_max: 1_024, flatten_depth: 4 };

    fn check(documents: &[&str], wish: Wish, target: TargetCode, decided_by: &str) {
        let options = DecisionOptions { documents_min: 1, ..DecisionOptions::default() };
        check_with(&options, documents, wish, target, decided_by);
    }

    fn check_with(
        options: &DecisionOptions,
        documents: &[&str],
        wish: Wish,
        target: TargetCode,
        decided_by: &str,
    ) {
        let mut profile = Profile::new(options.columns_max + 1);
        for document in documents {
            let members = read(document.as_bytes(), &BOUNDS).unwrap();
            profile.add(&members, &BOUNDS, &mut |_, _, _| {}).unwrap();
        }
        let decision = decide(&profile, options, None, wish);
        assert_eq!((decision.target, decision.decided_by), (target, decided_by), "{documents:?}");
    }

    #[test]
    fn documents_that_agree_become_a_table() {
        let rows = [r#"{"id":1,"a":"x","b":{"c":1}}"#, r#"{"id":2,"a":null,"b":{"c":2.5}}"#];
        check(&rows, Wish::Auto, TargetCode::Table, "stable");
    }

    #[test]
    fn documents_that_differ_become_a_collection_and_say_why() {
        check(&[r#"{"a":1}"#, r#"{"b":1}"#], Wish::Auto, TargetCode::Collection, "presence");
        let mixed = [r#"{"a":1}"#, r#"{"a":"x"}"#, r#"{"a":[1]}"#];
        check(&mixed, Wish::Auto, TargetCode::Collection, "type_agreement");
        let deep = [r#"{"a":{"b":{"c":{"d":{"e":1}}}}}"#];
        check(&deep, Wish::Auto, TargetCode::Collection, "depth");
        let embedded = [r#"{"a":[{"b":1}],"c":1}"#];
        check(&embedded, Wish::Auto, TargetCode::Collection, "embedded");
        check(&["{}"], Wish::Auto, TargetCode::Collection, "fields");
        check(&[r#"{"a":null}"#], Wish::Auto, TargetCode::Collection, "fields");
    }

    #[test]
    fn a_few_documents_decide_nothing_unless_the_sender_does() {
        let options = DecisionOptions { documents_min: 3, ..DecisionOptions::default() };
        let same = [r#"{"id":1,"a":2}"#; 3];
        let few = &same[..2];
        check_with(&options, few, Wish::Auto, TargetCode::Collection, "documents");
        check_with(&options, &same, Wish::Auto, TargetCode::Table, "stable");
        check_with(&options, few, Wish::Table, TargetCode::Table, "wish");
        check_with(&options, few, Wish::Collection, TargetCode::Collection, "wish");
    }

    #[test]
    fn keys_and_references_tip_the_balance_only_near_the_threshold() {
        let near = [r#"{"id":1,"a":1,"b":1}"#, r#"{"id":2,"a":1}"#];
        check(&near, Wish::Auto, TargetCode::Table, "relations");
        let paid = [r#"{"paid":1,"a":1,"b":1}"#, r#"{"paid":2,"a":1}"#];
        check(&paid, Wish::Auto, TargetCode::Collection, "presence");
    }

    #[test]
    fn a_wish_is_followed_where_it_can_be() {
        check(&[r#"{"a":1}"#], Wish::Collection, TargetCode::Collection, "wish");
        check(&[r#"{"a":1}"#, r#"{"b":1}"#], Wish::Table, TargetCode::Table, "wish");
        check(&["{}"], Wish::Table, TargetCode::Collection, "fields");
    }

    #[test]
    fn words_in_a_comment_are_whole_words() {
        assert_eq!(Wish::of_comment("please use SQL."), Wish::Table);
        assert_eq!(Wish::of_comment("nosql"), Wish::Collection);
        assert_eq!(Wish::of_comment("mysqldump of tables"), Wish::Auto);
        assert_eq!(Wish::of_comment("sql or nosql"), Wish::Auto);
    }
}
