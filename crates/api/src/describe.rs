//! How routes are described in `/openapi.json`.
//!
//! ```text
//! Routes::new("Forebay intake")
//!     .tag("files", "Bytes under a name")
//!     .get("/v1/files", Operation::new("files", "list_files", "List files")
//!         .parameter(query("limit", Kind::Count(1, 1_000), "Maximum number of results"))
//!         .json::<FilePage>(200, "A page of files")
//!         .problems(&[(400, "A parameter is invalid")]))
//!     .document()
//! ```
//!
//! Invariants: every operation has an id, from which generated clients name their functions; the
//! schema of a JSON body is the one derived from the type that is serialised, referred to by its
//! name, and the schemas it contains come with it; every error has the schema of [`ProblemBody`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use utoipa::openapi::content::{Content, ContentBuilder};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{
    HttpMethod, Operation as ApiOperation, OperationBuilder, Parameter, ParameterBuilder,
    ParameterIn, Paths,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{
    AdditionalProperties, Array, ComponentsBuilder, KnownFormat, ObjectBuilder, OneOfBuilder,
    SchemaFormat, SchemaType,
};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Deprecated, Info, OpenApi, OpenApiBuilder, Ref, RefOr, Required, Schema, Tag, Type,
};
use utoipa::{PartialSchema, ToSchema};

use crate::problem::ProblemBody;

/// One JSON object a line.
pub(crate) const LINES: &str = "application/x-ndjson";
/// Any bytes.
pub(crate) const BYTES: &str = "application/octet-stream";
/// Bytes of a media type that depends on what they are.
pub(crate) const ANY: &str = "*/*";
/// Text for people and simple programs.
pub(crate) const TEXT: &str = "text/plain";
/// A page for browsers.
pub(crate) const PAGE: &str = "text/html";

const JSON: &str = "application/json";

/// Schemas by their names.
type Schemas = BTreeMap<String, RefOr<Schema>>;

/// The routes of a part of the server.
pub(crate) struct Routes {
    title: &'static str,
    tags: Vec<Tag>,
    paths: Paths,
    schemas: Schemas,
}

impl Routes {
    /// Starts with none.
    #[must_use]
    pub(crate) fn new(title: &'static str) -> Self {
        Self { title, tags: Vec::new(), paths: Paths::new(), schemas: Schemas::new() }
    }

    /// Adds a group of operations.
    #[must_use]
    pub(crate) fn tag(mut self, name: &str, text: &str) -> Self {
        self.tags.push(TagBuilder::new().name(name).description(Some(text)).build());
        self
    }

    /// Adds a route that reads.
    #[must_use]
    pub(crate) fn get(self, path: &str, operation: Operation) -> Self {
        self.add(path, HttpMethod::Get, operation)
    }

    /// Adds a route that stores under the given path.
    #[must_use]
    pub(crate) fn put(self, path: &str, operation: Operation) -> Self {
        self.add(path, HttpMethod::Put, operation)
    }

    /// Adds a route that starts or appends something.
    #[must_use]
    pub(crate) fn post(self, path: &str, operation: Operation) -> Self {
        self.add(path, HttpMethod::Post, operation)
    }

    /// Adds a route that changes what is there.
    #[must_use]
    pub(crate) fn patch(self, path: &str, operation: Operation) -> Self {
        self.add(path, HttpMethod::Patch, operation)
    }

    /// Adds a route that removes.
    #[must_use]
    pub(crate) fn delete(self, path: &str, operation: Operation) -> Self {
        self.add(path, HttpMethod::Delete, operation)
    }

    /// Adds a route that returns headers alone.
    #[must_use]
    pub(crate) fn head(self, path: &str, operation: Operation) -> Self {
        self.add(path, HttpMethod::Head, operation)
    }

    /// Adds a route that returns what is supported.
    #[must_use]
    pub(crate) fn options(self, path: &str, operation: Operation) -> Self {
        self.add(path, HttpMethod::Options, operation)
    }

    fn add(mut self, path: &str, method: HttpMethod, operation: Operation) -> Self {
        let Operation { described, responses, schemas } = operation;
        let described = responses.into_iter().fold(described, |described, (status, response)| {
            described.response(status.to_string(), response)
        });
        self.paths.add_path_operation(path, vec![method], described.build());
        for (name, schema) in schemas {
            note(&mut self.schemas, name, schema);
        }
        self
    }

    /// Returns the description.
    #[must_use]
    pub(crate) fn document(self) -> OpenApi {
        let Self { title, tags, paths, schemas } = self;
        let components = ComponentsBuilder::new().schemas_from_iter(schemas).build();
        OpenApiBuilder::new()
            .info(Info::new(title, env!("CARGO_PKG_VERSION")))
            .tags(Some(tags))
            .paths(paths)
            .components(Some(components))
            .build()
    }
}

/// An operation: one method of one path.
pub(crate) struct Operation {
    described: OperationBuilder,
    responses: BTreeMap<u16, Response>,
    schemas: Schemas,
}

impl Operation {
    /// Starts with neither parameters nor responses.
    ///
    /// * `id`: its name in generated clients, in `snake_case`, unique among all operations.
    #[must_use]
    pub(crate) fn new(tag: &str, id: &str, summary: &str) -> Self {
        let described =
            ApiOperation::builder().tag(tag).operation_id(Some(id)).summary(Some(summary));
        Self { described, responses: BTreeMap::new(), schemas: Schemas::new() }
    }

    /// Adds sentences below the summary.
    #[must_use]
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.described = self.described.description(Some(text));
        self
    }

    /// Adds a parameter.
    #[must_use]
    pub(crate) fn parameter(mut self, parameter: Parameter) -> Self {
        self.described = self.described.parameter(parameter);
        self
    }

    /// Adds parameters.
    #[must_use]
    pub(crate) fn parameters(self, parameters: impl IntoIterator<Item = Parameter>) -> Self {
        parameters.into_iter().fold(self, Self::parameter)
    }

    /// Accepts a body of JSON, of this type.
    #[must_use]
    pub(crate) fn takes<T: ToSchema>(self, required: bool, text: &str) -> Self {
        self.takes_also::<T>(required, text, &[])
    }

    /// Accepts a body of JSON, of this type, or bytes of other media types.
    #[must_use]
    pub(crate) fn takes_also<T: ToSchema>(
        mut self,
        required: bool,
        text: &str,
        kinds: &[&str],
    ) -> Self {
        let schema = self.schema::<T>();
        self.body(required, text, Some((JSON, schema)), kinds)
    }

    /// Accepts a form with files (`multipart/form-data`), of this type.
    #[must_use]
    pub(crate) fn takes_form<T: ToSchema>(mut self, text: &str) -> Self {
        let schema = self.schema::<T>();
        self.body(true, text, Some(("multipart/form-data", schema)), &[])
    }

    /// Accepts a body of any bytes.
    #[must_use]
    pub(crate) fn takes_bytes(self, text: &str) -> Self {
        self.body(true, text, None, &[BYTES])
    }

    /// Accepts a body of bytes of this media type, or none.
    #[must_use]
    pub(crate) fn may_take(self, kind: &str, text: &str) -> Self {
        self.body(false, text, None, &[kind])
    }

    /// Accepts a body of bytes of this media type.
    #[must_use]
    pub(crate) fn must_take(self, kind: &str, text: &str) -> Self {
        self.body(true, text, None, &[kind])
    }

    fn body(
        mut self,
        required: bool,
        text: &str,
        typed: Option<(&str, RefOr<Schema>)>,
        kinds: &[&str],
    ) -> Self {
        let required = if required { Required::True } else { Required::False };
        let mut body = RequestBodyBuilder::new().required(Some(required)).description(Some(text));
        if let Some((kind, schema)) = typed {
            body = body.content(kind, content(schema));
        }
        for kind in kinds {
            body = body.content(*kind, content(bytes()));
        }
        self.described = self.described.request_body(Some(body.build()));
        self
    }

    /// Answers this status with JSON of this type.
    #[must_use]
    pub(crate) fn json<T: ToSchema>(mut self, status: u16, text: &str) -> Self {
        let schema = self.schema::<T>();
        self.answer(status, text, Some((JSON, schema)))
    }

    /// Answers this status with bytes of a media type.
    #[must_use]
    pub(crate) fn bytes(self, status: u16, kind: &str, text: &str) -> Self {
        self.answer(status, text, Some((kind, bytes())))
    }

    /// Answers this status with text of a media type.
    #[must_use]
    pub(crate) fn words(self, status: u16, kind: &str, text: &str) -> Self {
        self.answer(status, text, Some((kind, word(None))))
    }

    /// Answers this status with server-sent events. The description of a whole body cannot say what one event
    /// is, so the schema permits anything.
    #[must_use]
    pub(crate) fn sent_events(self, status: u16, text: &str) -> Self {
        let anything = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
        self.answer(status, text, Some(("text/event-stream", anything.into())))
    }

    /// Answers this status without a body.
    #[must_use]
    pub(crate) fn empty(self, status: u16, text: &str) -> Self {
        self.answer(status, text, None)
    }

    /// Answers this status as text of another media type too, on request. The status has an answer
    /// already.
    #[must_use]
    pub(crate) fn or_words(self, status: u16, kind: &str) -> Self {
        self.or(status, kind, word(None))
    }

    /// Answers this status as bytes of another media type too, such as lines, on request. The
    /// status has an answer already.
    #[must_use]
    pub(crate) fn or_bytes(self, status: u16, kind: &str) -> Self {
        self.or(status, kind, bytes())
    }

    /// Answers this status with JSON of this type too, on request. The status has an answer already.
    #[must_use]
    pub(crate) fn or_json<T: ToSchema>(mut self, status: u16) -> Self {
        let schema = self.schema::<T>();
        self.or(status, JSON, schema)
    }

    fn or(mut self, status: u16, kind: &str, schema: RefOr<Schema>) -> Self {
        if let Some(response) = self.responses.get_mut(&status) {
            response.content.insert(kind.to_owned(), content(schema).into());
        }
        self
    }

    /// Sends a header with this status. The status has an answer already.
    #[must_use]
    pub(crate) fn header(mut self, status: u16, name: &str, text: &str) -> Self {
        if let Some(response) = self.responses.remove(&status) {
            let header =
                HeaderBuilder::new().schema(Some(word(None))).description(Some(text)).build();
            let response = ResponseBuilder::from(response).header(name, header).build();
            self.responses.insert(status, response);
        }
        self
    }

    /// Answers these statuses with a [`ProblemBody`].
    #[must_use]
    pub(crate) fn problems(mut self, statuses: &[(u16, &str)]) -> Self {
        for (status, text) in statuses {
            let schema = self.schema::<ProblemBody<'static>>();
            self = self.answer(*status, text, Some((JSON, schema)));
        }
        self
    }

    /// Answers these statuses with a page that shows what is wrong, and, before the page is made, with a
    /// [`ProblemBody`].
    #[must_use]
    pub(crate) fn error_pages(self, statuses: &[(u16, &str)]) -> Self {
        let described = self.problems(statuses);
        statuses.iter().fold(described, |described, (status, _)| described.or_words(*status, PAGE))
    }

    /// Answers this status with JSON of one of two types.
    #[must_use]
    pub(crate) fn json_either<A: ToSchema, B: ToSchema>(mut self, status: u16, text: &str) -> Self {
        let (one, other) = (self.schema::<A>(), self.schema::<B>());
        let either = OneOfBuilder::new().item(one).item(other);
        self.answer(status, text, Some((JSON, either.into())))
    }

    /// Answers this status with JSON of this type, or with a [`ProblemBody`].
    #[must_use]
    pub(crate) fn json_or_problem<T: ToSchema>(mut self, status: u16, text: &str) -> Self {
        let (schema, problem) = (self.schema::<T>(), self.schema::<ProblemBody<'static>>());
        let either = OneOfBuilder::new().item(schema).item(problem);
        self.answer(status, text, Some((JSON, either.into())))
    }

    fn answer(mut self, status: u16, text: &str, body: Option<(&str, RefOr<Schema>)>) -> Self {
        let mut response = ResponseBuilder::new().description(text);
        if let Some((kind, schema)) = body {
            response = response.content(kind, content(schema));
        }
        self.responses.insert(status, response.build());
        self
    }

    /// Returns a reference to the schema of a type, and notes the schema and those inside it.
    fn schema<T: ToSchema>(&mut self) -> RefOr<Schema> {
        let name = T::name().into_owned();
        let mut inner = Vec::new();
        T::schemas(&mut inner);
        inner.push((name.clone(), <T as PartialSchema>::schema()));
        for (name, schema) in inner {
            note(&mut self.schemas, name, schema);
        }
        Ref::from_schema_name(name).into()
    }
}

/// Notes the schema of a name. Two types of one name would leave one of them undescribed.
fn note(schemas: &mut Schemas, name: String, schema: RefOr<Schema>) {
    let before = schemas.get(&name);
    debug_assert!(before.is_none_or(|before| *before == schema), "two types are named {name}");
    schemas.insert(name, schema);
}

/// A JSON object whose members others chose: a document, or what it describes has its own schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonObject;

impl PartialSchema for JsonObject {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Object)
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .description(Some("A JSON object with any members."))
            .into()
    }
}

impl ToSchema for JsonObject {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("JsonObject")
    }
}

/// The kind of a parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind<'a> {
    /// Any text.
    Text,
    /// A whole number from the first to the second.
    Count(u64, u64),
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'a [&'a str]),
    /// Text; the parameter may be repeated.
    Texts,
}

impl Kind<'_> {
    fn schema(self) -> RefOr<Schema> {
        match self {
            Self::Text => word(None),
            Self::Count(from, to) => {
                let number = ObjectBuilder::new()
                    .schema_type(Type::Integer)
                    .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
                    .minimum(Some(from));
                // A maximum that no client can reach is none.
                if to == u64::MAX { number.into() } else { number.maximum(Some(to)).into() }
            }
            Self::Flag => ObjectBuilder::new().schema_type(Type::Boolean).into(),
            Self::Word(words) => {
                let words = words.iter().map(|word| (*word).to_owned());
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).into()
            }
            Self::Texts => Array::new(word(None)).into(),
        }
    }
}

/// A parameter in the path.
#[must_use]
pub(crate) fn path(name: &str, text: &str) -> Parameter {
    parameter(name, ParameterIn::Path, Required::True, Kind::Text, text)
}

/// An optional parameter in the query.
#[must_use]
pub(crate) fn query(name: &str, kind: Kind<'_>, text: &str) -> Parameter {
    parameter(name, ParameterIn::Query, Required::False, kind, text)
}

/// The name that a parameter in the query had in earlier versions, which is still accepted.
#[must_use]
pub(crate) fn earlier(name: &str, kind: Kind<'_>, now: &str) -> Parameter {
    let mut parameter = query(name, kind, &format!("Earlier name of {now}"));
    parameter.deprecated = Some(Deprecated::True);
    parameter
}

/// A parameter in the query that must be there.
#[must_use]
pub(crate) fn needed(name: &str, kind: Kind<'_>, text: &str) -> Parameter {
    parameter(name, ParameterIn::Query, Required::True, kind, text)
}

/// An optional header of the request.
#[must_use]
pub(crate) fn header(name: &str, text: &str) -> Parameter {
    parameter(name, ParameterIn::Header, Required::False, Kind::Text, text)
}

fn parameter(
    name: &str,
    parameter_in: ParameterIn,
    required: Required,
    kind: Kind<'_>,
    text: &str,
) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(parameter_in)
        .required(required)
        .description(Some(text))
        .schema(Some(kind.schema()))
        .build()
}

fn content(schema: RefOr<Schema>) -> Content {
    ContentBuilder::new().schema(Some(schema)).build()
}

fn word(format: Option<SchemaFormat>) -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).format(format).into()
}

fn bytes() -> RefOr<Schema> {
    word(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
}
