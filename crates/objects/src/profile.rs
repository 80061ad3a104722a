//! Named profiles, as the AWS command line keeps them in `~/.aws/credentials` and `~/.aws/config`.
//!
//! A profile has its keys, or names a program that prints them ([`process`](crate::process)). If it gets them in
//! another way, by a role or a sign-on, the error names that way, and how such a program does it. No message has
//! a secret.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::environment::Environment;
use crate::error::ConfigError;
use crate::process::ProcessKeys;
use crate::settings::Keys;

/// Where keys come from.
#[derive(Debug, Clone)]
pub(crate) enum KeySource {
    /// They are known.
    Keys(Keys),
    /// A program prints them.
    Program(Arc<ProcessKeys>),
}

/// The content of a profile.
#[derive(Clone, PartialEq, Eq)]
pub struct Profile {
    name: String,
    pub(crate) keys: Option<Keys>,
    /// The program that prints keys, if none are stored.
    program: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// The setting that would lead to keys, but is not supported.
    other_way: Option<&'static str>,
    /// The files it was looked for in.
    files: Vec<PathBuf>,
}

/// Settings by which a profile gets its keys if they are not stored.
const OTHER_WAYS: [&str; 5] =
    ["role_arn", "sso_session", "sso_start_url", "web_identity_token_file", "login_session"];

impl Profile {
    /// Reads a profile from the files of the user. Blocks on disk.
    ///
    /// # Errors
    /// [`ConfigError`]: there is no profile of that name, it has half of a key, or a file cannot be
    /// read. A profile without keys is none.
    pub fn load(name: &str, environment: &Environment) -> Result<Self, ConfigError> {
        let credentials = environment.profile_file("AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
        let config = environment.profile_file("AWS_CONFIG_FILE", "config")?;
        match Self::find(name, &read(&credentials)?, &read(&config)?)? {
            Some(found) => Ok(Self { files: vec![credentials, config], ..found }),
            None => Err(ConfigError::NoProfile { name: name.to_owned(), credentials, config }),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The files it was read from.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the profile in the texts of both files; the first takes precedence.
    fn find(name: &str, credentials: &str, config: &str) -> Result<Option<Self>, ConfigError> {
        let mut found = Vec::new();
        let mut is_there = false;
        for (text, is_config) in [(credentials, false), (config, true)] {
            for line in Lines::new(text) {
                match line {
                    Line::Section(section) if is_profile(section, name, is_config) => {
                        is_there = true;
                    }
                    Line::Property(section, key, value) if is_profile(section, name, is_config) => {
                        found.push((key.to_ascii_lowercase(), value));
                    }
                    _ => {}
                }
            }
        }
        if !is_there {
            return Ok(None);
        }
        let of = |wanted: &str| {
            let value = found.iter().find(|(key, value)| key == wanted && !value.is_empty());
            value.map(|(_, value)| (*value).to_owned())
        };
        let half = |lacks| ConfigError::HalfProfile { name: name.to_owned(), lacks };
        let keys = match (of("aws_access_key_id"), of("aws_secret_access_key")) {
            (Some(id), Some(secret)) => Some(Keys { id, secret, token: of("aws_session_token") }),
            (None, None) => None,
            (Some(_), None) => return Err(half("aws_secret_access_key")),
            (None, Some(_)) => return Err(half("aws_access_key_id")),
        };
        Ok(Some(Self {
            name: name.to_owned(),
            keys,
            program: of("credential_process"),
            region: of("region"),
            endpoint: of("endpoint_url"),
            other_way: OTHER_WAYS.into_iter().find(|way| of(way).is_some()),
            files: Vec::new(),
        }))
    }

    /// The keys of the profile, or the program that prints them; `None` if it has neither.
    pub(crate) fn key_source(&self) -> Option<KeySource> {
        if let Some(keys) = &self.keys {
            return Some(KeySource::Keys(keys.clone()));
        }
        let program = ProcessKeys::new(&self.name, self.program.as_deref()?)?;
        Some(KeySource::Program(Arc::new(program)))
    }

    /// The keys of a profile that was asked for.
    pub(crate) fn required_keys(&self) -> Result<KeySource, ConfigError> {
        self.key_source().ok_or_else(|| {
            let name = self.name.clone();
            match self.other_way {
                Some(way) => ConfigError::OtherKeys { name, way },
                None => ConfigError::NoKeys { name },
            }
        })
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the text of a file; none if it does not exist.
fn read(path: &Path) -> Result<String, ConfigError> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|source| ConfigError::Read { path: path.to_owned(), source }),
    }
}
/// Returns whether a section is that of a profile: `[NAME]`, and in the configuration, which has
/// sections of other things too, `[profile NAME]` unless it is the default.
fn is_profile(section: &str, name: &str, is_config: bool) -> bool {
    if !is_config || name == "default" && section == name {
        return section == name;
    }
    let Some(rest) = section.strip_prefix("profile") else { return false };
    let named = rest.trim_start();
    let unquoted = named.strip_prefix('"').and_then(|named| named.strip_suffix('"'));
    named.len() < rest.len() && unquoted.unwrap_or(named) == name
}

/// A significant line.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Section(&'a str),
    /// The section, the key, the value.
    Property(&'a str, &'a str, &'a str),
}

/// Returns the lines of such a file. Lines indented below a property belong to it and are skipped.
struct Lines<'a> {
    lines: std::str::Lines<'a>,
    section: &'a str,
    /// Indentation of the previous property.
    indent: Option<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { lines: text.lines(), section: "", indent: None }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = self.lines.next()?;
            let text = line.trim();
            if text.is_empty() || text.starts_with(['#', ';']) {
                continue;
            }
            if let Some((section, _)) = text.strip_prefix('[').and_then(|it| it.split_once(']')) {
                self.section = section.trim();
                self.indent = None;
                return Some(Line::Section(self.section));
            }
            let indent = line.len() - line.trim_start().len();
            if self.indent.is_some_and(|above| indent > above) {
                continue;
            }
            self.indent = Some(indent);
            if let Some((key, value)) = text.split_once('=') {
                let value = without_comment(value.trim());
                return Some(Line::Property(self.section, key.trim(), value));
            }
        }
    }
}

/// Returns a value without the comment after it, which begins with a blank.
fn without_comment(value: &str) -> &str {
    let comment = value
        .match_indices(['#', ';'])
        .find(|(at, _)| value.get(..*at).is_some_and(|before| before.ends_with([' ', '\t'])));
    comment.and_then(|(at, _)| value.get(..at)).unwrap_or(value).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "\u{feff}# keys
[default]
aws_access_key_id=AKDEFAULT
aws_secret_access_key = se/cret=+== ; not part of it

[work]
  aws_access_key_id = AKWORK\r
  aws_secret_access_key = other
  aws_session_token = token==
[half]
aws_access_key_id = AKHALF
";
    const CONFIG: &str = "
[default]
region = eu-west-1
s3 =
    endpoint_url = http://nested.test
    region = nested
[profile work]
region=us-west-2
endpoint_url = https://s3.test:9000/
[work]
region = not-of-a-profile
[profile \"two words\"]
role_arn = arn:aws:iam::1:role/x
[profile empty]
[profile program]
credential_process = /opt/keys --json
sso_session = x
";

    fn work_keys() -> Result<KeySource, ConfigError> {
        find("work").required_keys()
    }

    fn find(name: &str) -> Profile {
        Profile::find(name, CREDENTIALS, CONFIG).unwrap().unwrap()
    }

    #[test]
    fn a_profile_is_merged_from_both_files() {
        let default = find("default");
        let keys = default.keys.as_ref().unwrap();
        assert_eq!((&*keys.id, &*keys.secret), ("AKDEFAULT", "se/cret=+=="));
        assert!(keys.token.is_none());
        assert_eq!(default.region.as_deref(), Some("eu-west-1"));
        assert_eq!(default.endpoint, None, "what is nested is another setting");
        let work = find("work");
        let keys = work.keys.as_ref().unwrap();
        assert_eq!((&*keys.id, keys.token.as_deref()), ("AKWORK", Some("token==")));
        assert_eq!(work.region.as_deref(), Some("us-west-2"));
        assert_eq!(work.endpoint.as_deref(), Some("https://s3.test:9000/"));
    }

    #[test]
    fn what_is_missing_is_reported_and_no_secret_is() {
        assert!(Profile::find("nobody", CREDENTIALS, CONFIG).unwrap().is_none());
        let half = Profile::find("half", CREDENTIALS, CONFIG).unwrap_err();
        assert_eq!(half.to_string(), "profile \"half\" has no aws_secret_access_key");
        let message = find("two words").required_keys().unwrap_err().to_string();
        assert!(message.contains("by role_arn"), "{message}");
        assert!(matches!(find("program").required_keys(), Ok(KeySource::Program(_))));
        assert!(matches!(work_keys(), Ok(KeySource::Keys(_))));
        let message = find("empty").required_keys().unwrap_err().to_string();
        assert!(message.contains("neither"), "{message}");
        assert_eq!(format!("{:?}", find("work")), "Profile { name: \"work\", .. }");
    }

    #[test]
    fn files_are_where_variables_or_the_home_directory_say() {
        let home = tempfile::tempdir().unwrap();
        let aws = home.path().join(".aws");
        std::fs::create_dir(&aws).unwrap();
        std::fs::write(aws.join("credentials"), CREDENTIALS).unwrap();
        std::fs::write(home.path().join("elsewhere"), CONFIG).unwrap();
        let at_home = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            Environment::new(variables, Some(home.path().to_owned()))
        };
        let work = Profile::load("work", &at_home(&[])).unwrap();
        assert_eq!((work.region.as_deref(), work.name()), (None, "work"));
        assert_eq!(work.files(), [aws.join("credentials"), aws.join("config")]);
        let moved = at_home(&[("AWS_CONFIG_FILE", "~/elsewhere")]);
        let work = Profile::load("work", &moved).unwrap();
        assert_eq!(work.region.as_deref(), Some("us-west-2"));
        let error = Profile::load("nobody", &moved).unwrap_err().to_string();
        assert!(error.contains("there is no profile \"nobody\"") && error.contains("elsewhere"));
        let error = Profile::load("work", &Environment::default()).unwrap_err();
        assert!(matches!(error, ConfigError::NoHome { .. }), "{error}");
    }
}
