//! What `forebay pipeline` prints of names and addresses from outside: no secret, no code for a
//! terminal, no line that is not its own, and not without a limit.

use tempfile::TempDir;

use crate::support::{run, run_ok, stderr};

/// Writes a pipeline from a source to SQLite.
fn write(dir: &TempDir, source: &str) {
    let path = dir.path().display();
    let text = format!(
        "version: 1
pipeline: names
source:
{source}
destination:
  use: sqlite
  config: {{ path: '{path}/out.sqlite' }}
"
    );
    std::fs::write(dir.path().join("names.yaml"), text).unwrap();
}

#[test]
fn no_part_of_a_password_is_printed_or_recorded_whatever_the_form_of_the_address() {
    let dir = TempDir::new().unwrap();
    for url in [
        "postgres://bob:first@geheim@127.0.0.1:1/db",
        "postgres://bob:first@geheim/x@127.0.0.1:1/db",
        "postgres://h:5432/db?user=bob@corp&password=geheim",
    ] {
        let source = |permissions: &str| {
            format!(
                "  use: postgres\n  config: {{ url: '{url}' }}\n{permissions}  streams: [{{ name: t }}]"
            )
        };
        for permissions in ["", "  permissions: { network: { allowed_hosts: [localhost] } }\n"] {
            write(&dir, &source(permissions));
            for command in ["check", "plan", "discover", "run"] {
                let refused = run(&dir, &["pipeline", command, "names.yaml"]);
                // As every other setting that is not valid.
                assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
                let said =
                    format!("{} {}", stderr(&refused), String::from_utf8_lossy(&refused.stdout));
                assert!(said.contains("`url` is") && !said.contains("geheim"), "{said}");
            }
        }
    }
    let runs = run(&dir, &["pipeline", "runs", "--data", "data"]);
    assert!(!String::from_utf8_lossy(&runs.stdout).contains("geheim"));
}

#[test]
fn names_of_files_and_columns_make_no_line_and_no_code_for_a_terminal() {
    let dir = TempDir::new().unwrap();
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let name = "b\u{1b}[31m\nERROR forged line.csv";
    std::fs::write(files.join(name), "\"c\u{1b}[0m\u{9b}\nERROR x\",n\n1,2\n").unwrap();
    let path = files.display();
    let source = |stream: &str, columns: &str| {
        format!(
            "  use: csv\n  config: {{ path: '{path}'{columns} }}\n  streams: [{{ name: {stream}, into: t }}]"
        )
    };
    let safe = |text: &str| {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("ERROR")), "{text:?}");
        assert!(text.contains(r"\u{1b}"), "{text:?}");
    };
    write(&dir, &source("'*.csv'", ""));
    safe(&run_ok(&dir, &["pipeline", "discover", "names.yaml"]));
    safe(&run_ok(&dir, &["pipeline", "plan", "names.yaml"]));
    std::fs::write(files.join(name), "id,n\n1,2\n3,x,y\n").unwrap();
    for stream in ["'*.csv'", "\"b\\e[31m\\nERROR forged line.csv\""] {
        write(&dir, &source(stream, ""));
        let failed = run(&dir, &["pipeline", "run", "names.yaml", "--data", "data"]);
        assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
        safe(&stderr(&failed));
        assert_eq!(stderr(&failed).lines().count(), 1, "{}", stderr(&failed));
    }
    let runs = run_ok(&dir, &["pipeline", "runs", "--data", "data"]);
    safe(&runs);
    assert_eq!(runs.lines().count(), 2, "{runs}");
    for line in run_ok(&dir, &["pipeline", "runs", "--json", "--data", "data"]).lines() {
        let run: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(run["outcome"], "failed");
    }
}

#[test]
fn a_message_with_a_long_name_has_a_maximum_size() {
    let dir = TempDir::new().unwrap();
    let header = "[".repeat(150_000);
    std::fs::write(dir.path().join("x.csv"), format!("\"{header}\"\n1\n")).unwrap();
    let path = dir.path().display();
    write(
        &dir,
        &format!(
            "  use: csv\n  config: {{ path: '{path}' }}\n  streams: [{{ name: x.csv, columns: [none] }}]"
        ),
    );
    let failed = run(&dir, &["pipeline", "run", "names.yaml", "--data", "data"]);
    assert_eq!(failed.status.code(), Some(1));
    let said = stderr(&failed);
    assert!(said.len() < 10_000 && said.contains("bytes left out"), "{} {said:.200}", said.len());
}
