//! Parameters that a route does not know are refused, on every route that the API description has.
//!
//! A parameter that is misspelled and ignored changes what a request means: a filter that is not
//! applied, a dry run that is not dry. The names are those of the description, so a route cannot
//! forget to look.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::Method;
use serde_json::Value;

use crate::problem::Problem;
use crate::query::pairs;

/// The names of the parameters of each method and path.
#[derive(Debug)]
pub(super) struct Known(HashMap<(String, String), Vec<String>>);

impl Known {
    /// Reads the names from an API description.
    pub(super) fn of(document: &Value) -> Self {
        let mut known = HashMap::new();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                let parameters = [&item["parameters"], &operation["parameters"]];
                let parameters = parameters.into_iter().filter_map(Value::as_array).flatten();
                let names = parameters
                    .filter(|parameter| parameter["in"] == "query")
                    .filter_map(|parameter| parameter["name"].as_str().map(str::to_owned));
                known.insert((method.to_ascii_uppercase(), pattern(path)), names.collect());
            }
        }
        Self(known)
    }

    /// Returns the first parameter that is not known, and those that are.
    fn unknown(&self, method: &Method, path: &str, query: &str) -> Option<(String, &[String])> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let names = self.0.get(&(method.as_str().to_owned(), pattern(path)))?;
        let (name, _) = pairs(query).into_iter().find(|(name, _)| !names.contains(name))?;
        Some((name, names))
    }
}

/// A path without the names of its parameters, which differ between description and router.
fn pattern(path: &str) -> String {
    let mut pattern = String::with_capacity(path.len());
    let mut within = false;
    for character in path.chars() {
        match character {
            '{' => within = true,
            '}' => {
                within = false;
                pattern.push('*');
            }
            _ if within => {}
            character => pattern.push(character),
        }
    }
    pattern
}

/// Refuses a request with a parameter that its route does not know.
pub(super) async fn check(
    State(known): State<Arc<Known>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let unknown = match query {
        "" => None,
        query => known.unknown(request.method(), path.as_str(), query),
    };
    let Some((name, names)) = unknown else { return next.run(request).await };
    let name: String = name.chars().take(60).collect();
    let accepted = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let text = format!("unknown query parameter {name:?}; this route accepts {accepted}");
    Problem::bad("query", text).answer(request.headers())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_known_by_method_and_path_whatever_the_path_calls_its_own() {
        let known = Known::of(&serde_json::json!({ "paths": {
            "/v1/files/{namespace}/{name}": {
                "get": { "parameters": [
                    { "in": "path", "name": "namespace" }, { "in": "query", "name": "download" },
                ] },
                "delete": {},
            },
        } }));
        let unknown = |method: Method, path: &str, query: &str| {
            known.unknown(&method, path, query).map(|(name, _)| name)
        };
        let path = "/v1/files/{space}/{*rest}";
        assert_eq!(unknown(Method::GET, path, "download=1"), None);
        assert_eq!(unknown(Method::HEAD, path, "download=1&x"), Some("x".to_owned()));
        assert_eq!(unknown(Method::GET, path, "Download=1"), Some("Download".to_owned()));
        assert_eq!(unknown(Method::DELETE, path, "down%6Coad"), Some("download".to_owned()));
        assert_eq!(unknown(Method::GET, "/v1/files/{id}", "x"), None, "it is not described");
    }
}
