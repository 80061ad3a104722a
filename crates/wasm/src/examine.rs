//! A component under test: its description, its settings, and itself as a connector.
//!
//! What the SDK's suite cannot see, since it knows only settings that were accepted, is tested here.
//!
//! Invariant: a component under test reaches what its settings name, and nothing else.

use std::sync::Arc;

use forebay_base::printable::printable;
use forebay_sdk::ConnectorError;
use forebay_sdk::acceptance::{Claim, Failure, Findings, Tested};
use forebay_sdk::component::Column;
use forebay_sdk::connector::{Destination, Form, Result, Source};
use forebay_sdk::settings::Reach;
use forebay_sdk::transform::Transform;
use serde_json::Value;

use crate::destination::WasmDestination;
use crate::grants::Grants;
use crate::inspect::{self, DestinationRole, Role, Roles};
use crate::instance::Loaded;
use crate::settings::{self, Asked};
use crate::source::WasmSource;
use crate::transform::WasmTransform;
use crate::wit::types;

const DESCRIBED: Claim =
    Claim("the description has a version, a sentence and a schema of settings");
const ACCEPTED: Claim = Claim("the settings are accepted");
const UNKNOWN: Claim = Claim("an unknown setting is refused, and is named");
const FORM: Claim = Claim("settings that are no object are refused");

/// A setting that no connector has.
const NO_SETTING: &str = "no_such_setting";

/// A role that is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// As a source.
    Source,
    /// As a destination.
    Destination,
    /// As a transform.
    Transform,
}

impl Tried {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Source, Self::Destination, Self::Transform];

    /// Its name, as in `wit/connector.wit`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Transform => "transform",
        }
    }

    fn asked(self) -> Asked {
        match self {
            Self::Source => Asked::Source,
            Self::Destination => Asked::Destination,
            Self::Transform => Asked::Transform,
        }
    }
}

/// Replaces `${NAME}` in all texts of settings, as in a pipeline file: within
/// [`resolving`](forebay_sdk::settings::text::resolving).
///
/// # Errors
/// A name has no value.
pub fn resolved(config: Value) -> Result<Value, String> {
    settings::resolved(config)
}

/// A component under test.
#[derive(Debug)]
pub struct Subject {
    loaded: Loaded,
    roles: Roles,
}

impl Subject {
    /// A component and its roles.
    #[must_use]
    pub fn new(loaded: Loaded, roles: Roles) -> Self {
        Self { loaded, roles }
    }

    /// A component whose roles are not known.
    ///
    /// # Errors
    /// It cannot be started, or does not describe itself.
    pub async fn of(loaded: Loaded) -> Result<Self> {
        let roles = inspect::roles(&loaded).await?;
        Ok(Self { loaded, roles })
    }

    /// What it is in a role; `None` if it has not this role.
    #[must_use]
    pub fn role(&self, tried: Tried) -> Option<&Role> {
        match tried {
            Tried::Source => self.roles.source.as_ref(),
            Tried::Destination => self.roles.destination.as_ref().map(|it| &it.role),
            Tried::Transform => self.roles.transform.as_ref(),
        }
    }

    /// Tests the description of a role and how it takes settings. Returns the component with these settings, if they
    /// are accepted.
    ///
    /// * `config`: the settings, an object.
    pub async fn examine(&self, tried: Tried, config: &Value) -> (Findings, Option<Accepted>) {
        let mut findings = Findings::default();
        findings.add(DESCRIBED, self.described(tried));
        let accepted = findings.take(ACCEPTED, self.accepted(tried, config).await);
        if accepted.is_some() {
            findings.add(UNKNOWN, self.refuses_unknown(tried, config).await);
            findings.add(FORM, self.refuses_list(tried).await);
        }
        (findings, accepted)
    }

    fn described(&self, tried: Tried) -> Result<Tested, Failure> {
        let claim = DESCRIBED;
        let broken = |found: String| Err(Failure::Broken { claim: claim.0, found });
        let Some(role) = self.role(tried) else {
            return broken(format!("the component is no {}", tried.name()));
        };
        if role.version.is_empty() || role.description.is_empty() {
            return broken("the version or the description is empty".to_owned());
        }
        match role.settings.get("type").and_then(Value::as_str) {
            Some("object") => Ok(Tested::Kept),
            found => broken(format!(
                "the schema of the settings has the type {found:?}, expected \"object\""
            )),
        }
    }

    async fn asked(
        &self,
        claim: Claim,
        tried: Tried,
        config: &Value,
    ) -> Result<Result<types::Reach, types::InvalidSetting>, Failure> {
        claim.ok(settings::validate(&self.loaded, tried.asked(), &config.to_string()).await)
    }

    async fn accepted(&self, tried: Tried, config: &Value) -> Result<Accepted, Failure> {
        let reach = self.asked(ACCEPTED, tried, config).await?.map_err(|invalid| {
            let field = if invalid.field.is_empty() { "config" } else { &invalid.field };
            let found = format!("{}: {}", printable(field), printable(&invalid.found));
            Failure::Broken { claim: ACCEPTED.0, found }
        })?;
        let mut grants = Grants::default();
        grants.settle(&Reach {
            hosts: reach.hosts,
            paths: reach.paths.into_iter().map(Into::into).collect(),
        });
        Ok(Accepted {
            loaded: self.loaded.granted(grants),
            config: config.to_string().into(),
            form: self.roles.destination.as_ref().map(DestinationRole::form),
        })
    }

    async fn refuses_unknown(&self, tried: Tried, config: &Value) -> Result<Tested, Failure> {
        let mut config = config.clone();
        if let Some(fields) = config.as_object_mut() {
            fields.insert(NO_SETTING.to_owned(), Value::Bool(true));
        }
        match self.asked(UNKNOWN, tried, &config).await? {
            Ok(_) => {
                let found = format!("{NO_SETTING:?} was accepted");
                Err(Failure::Broken { claim: UNKNOWN.0, found })
            }
            Err(invalid) => {
                let is_named =
                    invalid.field.contains(NO_SETTING) || invalid.found.contains(NO_SETTING);
                let found = || {
                    let (field, found) = (printable(&invalid.field), printable(&invalid.found));
                    format!("{NO_SETTING:?} was refused as {field:?}: {found}")
                };
                UNKNOWN.holds(is_named, found).map(|()| Tested::Kept)
            }
        }
    }

    async fn refuses_list(&self, tried: Tried) -> Result<Tested, Failure> {
        let list = Value::Array(vec![Value::Null]);
        let answer = self.asked(FORM, tried, &list).await?;
        FORM.holds(answer.is_err(), || format!("{list} was accepted")).map(|()| Tested::Kept)
    }
}

/// A component with settings that it accepted.
#[derive(Debug)]
pub struct Accepted {
    loaded: Loaded,
    config: Arc<str>,
    /// The form of rows that it prefers as a destination.
    form: Option<Form>,
}

impl Accepted {
    /// It as a source.
    #[must_use]
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::new(WasmSource::new(self.loaded.clone(), Arc::clone(&self.config)))
    }

    /// It as a destination.
    #[must_use]
    pub fn destination(&self) -> Arc<dyn Destination> {
        let form = self.form.unwrap_or(Form::PlainRecords);
        Arc::new(WasmDestination::new(self.loaded.clone(), Arc::clone(&self.config), form))
    }

    /// It as a transform of a stream with these columns.
    ///
    /// # Errors
    /// Those of the component.
    pub async fn transform(
        &self,
        stream: &str,
        columns: &[Column],
    ) -> Result<Arc<dyn Transform>, ConnectorError> {
        let (loaded, config) = (self.loaded.clone(), Arc::clone(&self.config));
        Ok(Arc::new(WasmTransform::open(loaded, config, stream, columns).await?))
    }
}
