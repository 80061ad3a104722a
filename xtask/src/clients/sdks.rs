//! Cores of `mint` that are programs with the AWS SDKs for Ruby, Java and PHP, and the tests of MinIO's clients
//! for Java and JavaScript, over HTTP and over HTTPS.
//!
//! The first three come from a checkout of mint; those of MinIO's clients from checkouts of the clients, since no
//! package has them. The tests are not changed, except that one that fails ends no other. The SDK for Ruby
//! is that of Debian, those for Java come from Maven Central, and the one for PHP from wherever composer has put it:
//! its autoloader is named.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::fetch::{self, Missing};
use super::mint::{self, Both};
use super::passing::Results;
use super::{Outcome, Stage, skip};

/// Names the autoloader of a directory with `aws/aws-sdk-php`.
pub(super) const PHP: &str = "FOREBAY_AWS_SDK_PHP";
/// Names the checkout of minio-java.
pub(super) const MINIO_JAVA: &str = "FOREBAY_MINIO_JAVA";
/// Names the checkout of minio-js.
pub(super) const MINIO_JS: &str = "FOREBAY_MINIO_JS";

/// What minio-java's tests need: the client itself and libraries of tests.
const JARS: [(&str, &str); 5] = [
    (
        "io/minio/minio/9.0.3/minio-9.0.3-all.jar",
        "9853b1f55ecd9f0aa0eef3cca73037a550d7874f5867451701588623c8569fbc",
    ),
    (
        "com/github/spotbugs/spotbugs-annotations/4.8.6/spotbugs-annotations-4.8.6.jar",
        "4548b74a815ed44f5480ca4f06204a8b00809dc7e5f6a825a9edf18f40377b65",
    ),
    (
        "org/junit/jupiter/junit-jupiter-api/5.11.4/junit-jupiter-api-5.11.4.jar",
        "ab83ef9e51ac4597d59d26b4b58812129550e2f579a404c8af7d09f5ce5b4293",
    ),
    (
        "org/junit/platform/junit-platform-commons/1.11.4/junit-platform-commons-1.11.4.jar",
        "9edd969b0d0670c54105bc91ae79bd1c6f503e12115faba82073b84c86bbc334",
    ),
    (
        "org/opentest4j/opentest4j/1.3.0/opentest4j-1.3.0.jar",
        "48e2df636cab6563ced64dcdff8abb2355627cb236ef0bf37598682ddf742f1b",
    ),
];

pub(super) fn ruby(stage: &Stage) -> anyhow::Result<Outcome> {
    let core = mint::checkout()?.join("run/core/aws-sdk-ruby/aws-stub-tests.rb");
    fetch::need("ruby")?;
    fetch::need("wget")?;
    let mut sdk = Command::new("ruby");
    sdk.args(["-e", "require 'aws-sdk-s3'"]);
    fetch::step(&mut sdk, "the AWS SDK for Ruby is not installed (ruby-aws-sdk-s3)")?;
    let text = read(&core)?;
    ensure!(text.contains(RUBY_EXIT), "{} is not the core that is known", core.display());
    let dir = stage.output.join("mint-ruby");
    // What it downloads lies beside the server's data.
    write(&dir.join("tests.rb"), &text.replace(RUBY_EXIT, "").replace("/tmp", "."))?;
    // The packages that it names: the first brings the second's place, and the form of another is left out.
    write(&dir.join("aws-sdk.rb"), "require 'aws-sdk-s3'\nrequire 'json'\n")?;
    write(&dir.join("multipart_body.rb"), "")?;
    Both { stage, name: "mint-aws-sdk-ruby", results, only_https: false }.run(|_, _| {
        let mut tests = Command::new("ruby");
        tests.arg("-I").arg(&dir).arg(dir.join("tests.rb"));
        tests
    })
}

/// Ends the core.
const RUBY_EXIT: &str = "exit 1 if log_output[:status] == 'FAIL'";

pub(super) fn php(stage: &Stage) -> anyhow::Result<Outcome> {
    let core = mint::checkout()?.join("run/core/aws-sdk-php/quick-tests.php");
    fetch::need("php")?;
    let named = std::env::var_os(PHP).map(PathBuf::from).filter(|file| file.is_file());
    let Some(loader) = named else {
        let text =
            format!("{PHP} does not name the autoload.php of a directory with aws/aws-sdk-php");
        return Err(Missing(text).into());
    };
    let text = read(&core)?;
    let found = "'vendor/autoload.php'";
    ensure!(text.contains(found), "{} is not the core that is known", core.display());
    let text = text.replace(found, &format!("'{}'", loader.display()));
    let dir = stage.output.join("mint-php");
    // The statement stands in a branch of a switch.
    write(&dir.join("tests.php"), &text.replace("exit(1);", "break;"))?;
    Both { stage, name: "mint-aws-sdk-php", results, only_https: false }.run(|_, tls| {
        let mut tests = Command::new("php");
        if let Some((cert, _)) = tls {
            tests.arg("-d").arg(format!("curl.cainfo={}", cert.display()));
        }
        tests.arg(dir.join("tests.php"));
        tests
    })
}

pub(super) fn java(stage: &Stage) -> anyhow::Result<Outcome> {
    let sources = mint::checkout()?.join("build/aws-sdk-java-v2/app/src/main/java");
    fetch::need("javac")?;
    fetch::need("mvn")?;
    let pom = skip::path("s3").join("aws-sdk-java-v2.xml");
    let dir = fetch::once(&stage.dir.join("aws-sdk-java-2.38.1"), |dir| {
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-f"]).arg(&pom);
        maven.arg("org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies");
        maven.arg(format!("-DoutputDirectory={}", dir.display()));
        fetch::step(&mut maven, "cannot download the AWS SDK for Java")
    })?;
    let classes = stage.output.join("mint-java/classes");
    compile(&sources.join("io/minio/awssdk/v2/tests"), &dir, &classes)?;
    // Its tests leave everything out over HTTP.
    Both { stage, name: "mint-aws-sdk-java-v2", results, only_https: true }.run(|_, _| {
        let mut tests = Command::new("java");
        tests.arg("-cp").arg(class_path(&classes, &dir));
        tests.arg("io.minio.awssdk.v2.tests.FunctionalTests");
        tests
    })
}

pub(super) fn minio_java(stage: &Stage) -> anyhow::Result<Outcome> {
    let checkout = named(MINIO_JAVA, "functional/TestMinioClient.java", "minio/minio-java 9.0.3")?;
    fetch::need("javac")?;
    let jars = fetch::once(&stage.dir.join("minio-java-9.0.3"), |dir| {
        for (path, sha256) in JARS {
            let name = path.rsplit('/').next().unwrap_or(path);
            let address = format!("https://repo1.maven.org/maven2/{path}");
            fetch::file(&address, sha256, &dir.join(name))?;
        }
        Ok(())
    })?;
    let dir = stage.output.join("minio-java");
    let from = checkout.join("functional");
    // Those of MinIO's administration need a package that this version does not have.
    for name in ["ContentInputStream", "MintLogger", "PutObjectRunnable", "TestArgs"] {
        let name = format!("{name}.java");
        write(&dir.join("java").join(&name), &read(&from.join(&name))?)?;
    }
    let tests = each_by_itself(&read(&from.join("TestMinioClient.java"))?);
    write(&dir.join("java/TestMinioClient.java"), &tests)?;
    write(&dir.join("java/Each.java"), &read(&skip::path("s3").join("Each.java"))?)?;
    let classes = dir.join("classes");
    compile(&dir.join("java"), &jars, &classes)?;
    Both { stage, name: "minio-java", results, only_https: false }.run(|url, _| {
        let mut tests = Command::new("java");
        tests.arg("-cp").arg(class_path(&classes, &jars)).args(["Each", url]);
        tests.env("RUN_ON_FAIL", "1");
        tests
    })
}

pub(super) fn minio_js(stage: &Stage) -> anyhow::Result<Outcome> {
    let tests = "tests/functional/functional-tests.js";
    let checkout = named(MINIO_JS, tests, "minio/minio-js 8.0.7")?;
    fetch::need("node")?;
    fetch::need("npm")?;
    let dir = fetch::once(&stage.dir.join("minio-js-8.0.7"), |dir| {
        let mut copy = Command::new("cp");
        copy.arg("-r");
        for name in ["src", "tests", "package.json", "package-lock.json", "babel-register.js"] {
            copy.arg(checkout.join(name));
        }
        fetch::step(copy.arg(dir), "cannot copy minio-js")?;
        let mut npm = Command::new("npm");
        npm.current_dir(dir).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        fetch::step(&mut npm, "cannot download what minio-js needs")
    })?;
    Both { stage, name: "minio-js", results: of_mocha, only_https: false }.run(|_, _| {
        // Babel translates only what lies below the working directory.
        let mut mocha = Command::new("env");
        mocha.arg("-C").arg(&dir).arg("node").arg(dir.join("node_modules/mocha/bin/mocha.js"));
        mocha.args(["--no-config", "--exit", "--reporter", "json-stream", "--require"]);
        mocha.arg(dir.join("babel-register.js")).arg(dir.join(tests));
        mocha
    })
}

/// Returns the directory of a checkout that a variable names.
///
/// # Errors
/// [`Missing`].
fn named(variable: &str, file: &str, what: &str) -> anyhow::Result<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.filter(|dir| dir.join(file).is_file()).ok_or_else(|| {
        Missing(format!("{variable} does not name a checkout of github.com/{what}")).into()
    })
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Writes a file, and the directory that it is in.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let dir = file.parent().unwrap_or(file);
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(file, text))
        .with_context(|| format!("cannot write to {}", file.display()))
}

fn class_path(classes: &Path, jars: &Path) -> String {
    format!("{}:{}/*", classes.display(), jars.display())
}

/// Compiles the sources in a directory.
fn compile(sources: &Path, jars: &Path, classes: &Path) -> anyhow::Result<()> {
    let mut java = Command::new("javac");
    java.args(["-nowarn", "-d"]).arg(classes).arg("-cp").arg(class_path(classes, jars));
    let listed =
        std::fs::read_dir(sources).with_context(|| format!("cannot read {}", sources.display()))?;
    for entry in listed {
        java.arg(entry.with_context(|| format!("cannot read {}", sources.display()))?.path());
    }
    fetch::step(&mut java, "cannot compile the tests")
}

/// Runs each test that the functions of minio-java's tests call by itself.
fn each_by_itself(tests: &str) -> String {
    let mut text = String::with_capacity(tests.len() + 4_096);
    let mut is_run = false;
    for line in tests.lines() {
        is_run = line.starts_with("  public void runBucketTests()")
            || line.starts_with("  public void runObjectTests()")
            || is_run && !line.starts_with("  }");
        match line.trim().strip_suffix("();").filter(|_| is_run) {
            Some(name) => {
                // Writing to a string does not fail.
                writeln!(text, "    Each.run(\"{name}\", this::{name});").unwrap_or_default();
            }
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

/// Reads the lines of the tests: one JSON object for a test, named by the function that it tests, and what minio-java adds in
/// brackets.
fn results(said: &str) -> Results {
    let mut results = Results::default();
    for line in said.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
        let (function, args) = (text("function"), text("args"));
        let name = match args.starts_with('[') {
            true => format!("{function} {args}"),
            false => function.to_owned(),
        };
        match text("status") {
            "PASS" => results.note(&name, None),
            "" => {}
            _ => results.note(&name, Some(text("error").lines().next().unwrap_or_default())),
        }
    }
    results
}

/// Reads the events of mocha: `["pass", {...}]`. Names of buckets are made of UUIDs, and files lie in a new directory.
fn of_mocha(said: &str) -> Results {
    let mut results = Results::default();
    for line in said.lines() {
        let Ok((event, test)) = serde_json::from_str::<(String, Value)>(line) else { continue };
        let text = |name: &str| test.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut name = without_uuids(text("fullTitle").trim());
        if let Some((before, path)) = name.split_once("filePath:") {
            name = format!("{before}filePath:{}", path.rsplit('/').next().unwrap_or(path));
        }
        match event.as_str() {
            "pass" => results.note(&name, None),
            "fail" => results.note(&name, Some(text("err"))),
            _ => {}
        }
    }
    results
}

/// Replaces UUIDs by a star.
fn without_uuids(text: &str) -> String {
    let is_uuid = |word: &str| {
        word.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match rest.get(..36).filter(|word| is_uuid(word)) {
            Some(uuid) => {
                kept.push('*');
                rest = &rest[uuid.len()..];
            }
            None => {
                kept.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_known_by_its_function_and_what_stands_in_brackets() {
        let said = r#"{"name":"minio-java","function":"a()","args":"[x]","status":"PASS"}
{"name":"minio-java","function":"a()","args":"[y]","status":"FAIL","error":"500\nlast"}
{"name":"aws-sdk-ruby","function":"b(c)","args":{"c":"random"},"status":"PASS"}
{"name":"aws-sdk-php","function":"d","args":[],"status":"NA","error":"501"}"#;
        let listed = ["a() [x]", "a() [y]", "b(c)", "d"].map(str::to_owned).into();
        let mut outcome = Outcome::default();
        results(said).judge(&listed, "http", &mut outcome).unwrap();
        assert_eq!(outcome.passed, 2);
        assert_eq!(outcome.failed, ["http: a() [y]: 500", "http: d: 501"]);
    }

    #[test]
    fn random_names_and_directories_in_titles_of_mocha_are_left_out() {
        let said = r#"["start",{"total":2}]
["pass",{"fullTitle":"put_bucket:x-869c7b31-a93e-4275-8e7e-9834775ea57e, é, filePath:/a/b/c_"}]
["fail",{"fullTitle":"get","err":"405"}]"#;
        let listed = ["put_bucket:x-*, é, filePath:c_", "get"].map(str::to_owned).into();
        let mut outcome = Outcome::default();
        of_mocha(said).judge(&listed, "http", &mut outcome).unwrap();
        assert_eq!(outcome.passed, 1);
        assert_eq!(outcome.failed, ["http: get: 405"]);
    }

    #[test]
    fn each_test_of_minio_java_runs_by_itself() {
        let tests = "  public void runObjectTests() throws Exception {\n    setup();\n\n    putObject();\n  }\n\
                     \x20 void other() {\n    setup();\n  }\n";
        let expected = "  public void runObjectTests() throws Exception {\n    Each.run(\"setup\", this::setup);\n\n    \
                        Each.run(\"putObject\", this::putObject);\n  }\n\x20 void other() {\n    setup();\n  }\n";
        assert_eq!(each_by_itself(tests), expected);
    }
}
