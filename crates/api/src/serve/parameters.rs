//! Parameters that a route does not know are refused, on every route that the API description has,
//! and so are repeated ones, unless the description says that they are lists.
//!
//! A parameter that is misspelled and ignored changes what a request means: a filter that is not
//! applied, a dry run that is not dry. Of two values one would be ignored. The names are those of the
//! description, so a route cannot forget to look. A name that ends in `.NAME` stands for every name
//! with that prefix.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::Method;
use serde_json::Value;

use crate::problem::Problem;
use crate::query::pairs;

/// The parameters of each method and path.
#[derive(Debug)]
pub(super) struct Known(HashMap<(String, String), Vec<Parameter>>);

#[derive(Debug)]
struct Parameter {
    name: String,
    /// Whether it may be repeated.
    list: bool,
}

impl Parameter {
    fn of(parameter: &Value) -> Option<Self> {
        let name = parameter["name"].as_str()?.to_owned();
        Some(Self { name, list: parameter["schema"]["type"] == "array" })
    }

    fn names(&self, name: &str) -> bool {
        match self.name.strip_suffix("NAME") {
            Some(prefix) if prefix.ends_with('.') => name.starts_with(prefix),
            _ => self.name == name,
        }
    }
}

impl Known {
    /// Reads the parameters from an API description.
    pub(super) fn of(document: &Value) -> Self {
        let mut known = HashMap::new();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                let parameters = [&item["parameters"], &operation["parameters"]];
                let parameters = parameters.into_iter().filter_map(Value::as_array).flatten();
                let known_here = parameters
                    .filter(|parameter| parameter["in"] == "query")
                    .filter_map(Parameter::of);
                known.insert((method.to_ascii_uppercase(), pattern(path)), known_here.collect());
            }
        }
        Self(known)
    }

    /// Checks the parameters of a request.
    ///
    /// # Errors
    /// Returns what is wrong with the first one that is not known or is repeated.
    fn check(&self, method: &Method, path: &str, query: &str) -> Result<(), String> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let key = (method.as_str().to_owned(), pattern(path));
        let Some(parameters) = self.0.get(&key) else { return Ok(()) };
        let mut seen = HashSet::new();
        for (name, _) in pairs(query) {
            let shown = || name.chars().take(60).collect::<String>();
            let Some(known) = parameters.iter().find(|known| known.names(&name)) else {
                let names: Vec<_> = parameters.iter().map(|known| known.name.as_str()).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                let shown = shown();
                return Err(format!(
                    "unknown query parameter {shown:?}; this route accepts {names}"
                ));
            };
            if !known.list && !seen.insert(known.name.as_str()) {
                return Err(format!("query parameter {:?} can be used only once", shown()));
            }
        }
        Ok(())
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

/// Refuses a request with a parameter that its route does not know, or that is repeated.
pub(super) async fn check(
    State(known): State<Arc<Known>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let checked = match request.uri().query().unwrap_or_default() {
        "" => Ok(()),
        query => known.check(request.method(), path.as_str(), query),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(text) => Problem::bad("query", text).answer(request.headers()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known::of(&serde_json::json!({ "paths": {
            "/v1/files/{namespace}/{name}": {
                "get": { "parameters": [
                    { "in": "path", "name": "namespace" },
                    { "in": "query", "name": "download", "schema": { "type": "boolean" } },
                    { "in": "query", "name": "tag", "schema": { "type": "array" } },
                    { "in": "query", "name": "meta.NAME", "schema": { "type": "array" } },
                ] },
                "delete": {},
            },
        } }))
    }

    #[test]
    fn parameters_are_known_by_method_and_path_whatever_the_path_calls_its_own() {
        let known = known();
        let path = "/v1/files/{space}/{*rest}";
        for (method, query, unknown) in [
            (Method::GET, "download=1", None),
            (Method::HEAD, "download=1&x", Some("x")),
            (Method::GET, "Download=1", Some("Download")),
            (Method::DELETE, "down%6Coad", Some("download")),
            (Method::GET, "meta.author=Ada&meta.x", None),
            (Method::GET, "meta=Ada", Some("meta")),
        ] {
            let refused = known.check(&method, path, query).err();
            let expected = unknown.map(|name| format!("unknown query parameter {name:?};"));
            assert_eq!(refused.is_some(), expected.is_some(), "{query}: {refused:?}");
            assert!(refused.unwrap_or_default().starts_with(&expected.unwrap_or_default()));
        }
        let described = known.check(&Method::GET, "/v1/files/{id}", "x");
        assert_eq!(described, Ok(()), "it is not described");
    }

    #[test]
    fn only_a_list_is_repeated() {
        let known = known();
        let check = |query: &str| known.check(&Method::GET, "/v1/files/{a}/{b}", query);
        assert_eq!(check("tag=a&tag=b&download=1&meta.a=1&meta.a=2"), Ok(()));
        let refused = check("download=false&tag=a&down%6Coad=true");
        assert_eq!(refused, Err("query parameter \"download\" can be used only once".to_owned()));
    }
}
