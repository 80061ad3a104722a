//! `forebay config show` and `forebay config init`.

use super::resolve::{Origin, Resolved};
use super::settings::{SETTINGS, Setting};
use crate::out::push_line;

/// A table: key, value, origin. Passwords are hidden.
pub(crate) fn show_human(resolved: &Resolved) -> String {
    let rows: Vec<_> = resolved
        .iter()
        .map(|(setting, text, origin)| {
            (setting.key, setting.toml_literal(&(setting.shown)(text)), origin.to_string())
        })
        .collect();
    let key_width = rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
    let value_width = rows.iter().map(|row| row.1.len()).max().unwrap_or(0);
    let mut out = String::new();
    for (key, value, origin) in rows {
        push_line!(out, "{key:key_width$} = {value:value_width$}  # {origin}");
    }
    out
}

/// An object by key: `{"server.listen":{"value":"...","source":"file","file":"...","line":3}}`.
pub(crate) fn show_json(resolved: &Resolved) -> serde_json::Value {
    let settings: serde_json::Map<_, _> = resolved
        .iter()
        .map(|(setting, text, origin)| {
            let mut entry = serde_json::json!({
                "value": (setting.shown)(text),
                "default": setting.default,
                "environment": setting.env(),
            });
            match origin {
                Origin::Default => entry["source"] = "default".into(),
                Origin::File { path, line } => {
                    entry["source"] = "file".into();
                    entry["file"] = path.display().to_string().into();
                    entry["line"] = (*line).into();
                }
                Origin::Env(_) => entry["source"] = "environment".into(),
                Origin::Flag(flag) => {
                    entry["source"] = "flag".into();
                    entry["flag"] = flag.as_str().into();
                }
            }
            (setting.key.to_owned(), entry)
        })
        .collect();
    serde_json::Value::Object(settings)
}

/// A `forebay.toml` with every setting commented out at its default.
pub(crate) fn template() -> String {
    let mut out = String::from(
        "# forebay.toml: every setting, at its default. Remove the # of a line to change it.\n\
         # A flag beats the environment, the environment beats this file, this file beats the\n\
         # default; `forebay config show` shows the source of each value.\n",
    );
    let mut section = "";
    for setting in SETTINGS {
        let (of, name) = setting.key.split_once('.').unwrap_or(("", setting.key));
        if of != section {
            push_line!(out, "\n[{of}]");
            section = of;
        }
        out.push('\n');
        write_setting(&mut out, setting, name);
    }
    out
}

fn write_setting(out: &mut String, setting: &Setting, name: &str) {
    for line in setting.doc {
        push_line!(out, "#{line}");
    }
    push_line!(out, "# Expected: {}. Environment: {}.", setting.expected, setting.env());
    push_line!(out, "#{name} = {}", setting.toml_literal(setting.default));
}
