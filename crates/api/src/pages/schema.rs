//! OpenAPI schemas as text: `array of Document`, `string (date-time)`, `object {name, size?}`.

use serde_json::Value;

/// Maximum nesting shown; deeper levels are an ellipsis.
const DEPTH_MAX: usize = 4;

/// Returns `schema` as one line of text.
pub(super) fn words(schema: &Value) -> String {
    at_depth(schema, 0)
}

fn at_depth(schema: &Value, depth: usize) -> String {
    if depth >= DEPTH_MAX {
        return "…".to_owned();
    }
    if let Some(name) = schema["$ref"].as_str() {
        return name.rsplit('/').next().unwrap_or(name).to_owned();
    }
    for (key, joint) in [("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")] {
        if let Some(parts) = schema[key].as_array() {
            let parts: Vec<_> = parts.iter().map(|part| at_depth(part, depth + 1)).collect();
            return parts.join(joint);
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<_> = values.iter().map(Value::to_string).collect();
        return values.join(" | ");
    }
    match &schema["type"] {
        Value::Array(types) => {
            let types: Vec<_> = types.iter().filter_map(Value::as_str).collect();
            types.join(" or ")
        }
        Value::String(kind) if kind == "array" => {
            format!("array of {}", at_depth(&schema["items"], depth + 1))
        }
        Value::String(kind) if kind == "object" && schema["properties"].is_object() => {
            format!("object {{{}}}", property_names(schema).join(", "))
        }
        Value::String(kind) => match schema["format"].as_str() {
            Some(format) => format!("{kind} ({format})"),
            None => kind.clone(),
        },
        _ => "anything".to_owned(),
    }
}

/// Returns the names of an object's properties; optional ones end in `?`.
fn property_names(schema: &Value) -> Vec<String> {
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    properties
        .keys()
        .map(|name| if is_required(schema, name) { name.clone() } else { format!("{name}?") })
        .collect()
}

/// Returns whether `schema` lists `name` as required.
pub(super) fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
}
