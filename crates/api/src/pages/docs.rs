//! The page at `/docs`: every operation of the OpenAPI document, with a form that sends it.
//!
//! Made once at start from the same document `/openapi.json` serves, so the two cannot differ.
//! Without script it is a complete reference; `docs.js` makes the forms work.

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use super::layout::page;
use super::schema::{is_required, words};

/// The methods an OpenAPI path item may have, in the order shown.
const METHODS: [&str; 7] = ["get", "head", "post", "put", "patch", "delete", "options"];

/// One operation of the document.
struct Operation<'a> {
    method: &'static str,
    path: &'a str,
    item: &'a Value,
    body: &'a Value,
}

/// The page for an OpenAPI `document`.
pub(crate) fn docs_page(document: &Value) -> String {
    let operations = operations(document);
    let mut tags: Vec<&str> = operations.iter().map(Operation::tag).collect();
    tags.sort_unstable();
    tags.dedup();
    // The server's own routes come last.
    tags.sort_by_key(|tag| *tag == "server");
    page(
        "Forebay API",
        Some("/docs/app.js"),
        &html! {
            h1 { (text(&document["info"]["title"])) " API" }
            (paragraphs(text(&document["info"]["description"])))
            form.key id="key-form" {
                label { "API key " input id="key" type="password" autocomplete="off"
                    placeholder="fbk_... (kept in this tab only)"; }
            }
            nav.index {
                @for tag in &tags {
                    h3 { (tag) }
                    ul { @for op in operations.iter().filter(|op| op.tag() == *tag) {
                        li { a href={"#" (op.anchor())} { code { (op.method.to_uppercase()) " " (op.path) } } }
                    } }
                }
            }
            @for tag in &tags {
                h2 { (tag) }
                @for op in operations.iter().filter(|op| op.tag() == *tag) {
                    (operation(document, op))
                }
            }
            h2 { "Schemas" }
            @if let Some(schemas) = document["components"]["schemas"].as_object() {
                @for (name, schema) in schemas { (schema_table(name, schema)) }
            }
        },
    )
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let Some(paths) = document["paths"].as_object() else { return Vec::new() };
    paths
        .iter()
        .flat_map(|(path, item)| {
            METHODS.into_iter().filter_map(move |method| {
                let body = item.get(method)?;
                Some(Operation { method, path, item, body })
            })
        })
        .collect()
}

impl Operation<'_> {
    fn tag(&self) -> &str {
        self.body["tags"][0].as_str().unwrap_or("other")
    }

    fn anchor(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        format!("{}{}", self.method, self.path.chars().map(plain).collect::<String>())
    }

    /// Parameters of the path item and of the operation.
    fn parameters(&self) -> impl Iterator<Item = &Value> {
        [self.item, self.body].into_iter().filter_map(|v| v["parameters"].as_array()).flatten()
    }
}

fn operation(document: &Value, op: &Operation<'_>) -> Markup {
    let parameters: Vec<&Value> = op.parameters().map(|p| resolve(document, p)).collect();
    let body = resolve(document, &op.body["requestBody"]);
    html! {
        section.operation id=(op.anchor()) {
            h3 { span class={"method " (op.method)} { (op.method.to_uppercase()) } " "
                 code { (op.path) } }
            p { strong { (text(&op.body["summary"])) } }
            (paragraphs(text(&op.body["description"])))
            form.try data-method=(op.method.to_uppercase()) data-path=(op.path) {
                @if !parameters.is_empty() {
                    table {
                        tr { th { "Parameter" } th { "In" } th { "Type" } th { "Meaning" } th { "Value" } }
                        @for parameter in &parameters { (parameter_row(parameter)) }
                    }
                }
                (request_body(body))
                button type="submit" { "Send" }
                output hidden {}
            }
            table {
                tr { th { "Status" } th { "Meaning" } th { "Body" } }
                @if let Some(responses) = op.body["responses"].as_object() {
                    @for (status, response) in responses {
                        @let response = resolve(document, response);
                        tr { td { (status) } td { (text(&response["description"])) }
                             td { (contents(&response["content"])) } }
                    }
                }
            }
        }
    }
}

fn parameter_row(parameter: &Value) -> Markup {
    let required = parameter["required"].as_bool().unwrap_or(false);
    let name = text(&parameter["name"]);
    html! {
        tr {
            td { code { (name) } @if required { abbr title="required" { "*" } } }
            td { (text(&parameter["in"])) }
            td { (words(&parameter["schema"])) }
            td { (text(&parameter["description"])) }
            td { input name=(name) aria-label=(name) data-in=(text(&parameter["in"])) required[required]; }
        }
    }
}

fn request_body(body: &Value) -> Markup {
    let Some(content) = body["content"].as_object().filter(|content| !content.is_empty()) else {
        return html! {};
    };
    html! {
        p { "Body: " (contents(&body["content"])) " " (text(&body["description"])) }
        label { "Content type "
            select data-role="type" { @for kind in content.keys() { option { (kind) } } }
        }
        label { "File " input type="file" multiple data-role="file"; }
        label { "or text " textarea rows="4" data-role="text" {} }
    }
}

fn contents(content: &Value) -> Markup {
    let Some(content) = content.as_object() else { return html! { "none" } };
    html! {
        @for (kind, media) in content {
            code { (kind) } " " (words(&media["schema"])) br;
        }
    }
}

fn schema_table(name: &str, schema: &Value) -> Markup {
    html! {
        section id={"schema-" (name)} {
            h3 { code { (name) } }
            (paragraphs(text(&schema["description"])))
            @match schema["properties"].as_object() {
                Some(properties) => table {
                    tr { th { "Property" } th { "Type" } th { "Meaning" } }
                    @for (property, inner) in properties {
                        tr {
                            td { code { (property) }
                                 @if is_required(schema, property) { abbr title="required" { "*" } } }
                            td { (words(inner)) }
                            td { (text(&inner["description"])) }
                        }
                    }
                },
                None => p { (words(schema)) },
            }
        }
    }
}

/// Follows one `$ref` inside the document; a reference without a target yields `null`, which is
/// rendered as nothing.
fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
        Some(pointer) => document.pointer(pointer).unwrap_or(&Value::Null),
        None => value,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Paragraphs split at empty lines, with `code` between backquotes.
fn paragraphs(text: &str) -> Markup {
    let paragraphs = text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty());
    html! { @for paragraph in paragraphs { p { (with_code(paragraph)) } } }
}

fn with_code(text: &str) -> Markup {
    let mut out = String::new();
    for (at, piece) in text.split('`').enumerate() {
        let piece = html! { (piece) }.into_string();
        if at % 2 == 1 {
            out.push_str(&html! { code { (PreEscaped(&piece)) } }.into_string());
        } else {
            out.push_str(&piece);
        }
    }
    PreEscaped(out)
}
