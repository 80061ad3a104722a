//! `POST /v1/ingest`: files, JSON and fields in one multipart body, one result per part.
//!
//! Parts are committed while later ones are still being received, many sharing one flush. A refused
//! part affects no other, and an interrupted body keeps its complete parts.
//!
//! Invariant: nothing is stored under a setting that was not understood: a wrong field ends the batch,
//! and files before the namespace are stored only once the whole body was read.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use forebay_intake::Intake;
use forebay_intake::IntakeError;
use forebay_intake::answer::to_json;
use forebay_intake::digest::Digest;
use forebay_intake::documents::decide::Wish;
use forebay_intake::names::{COMMENT_SIZE_MAX, FileName, Namespace, check_comment};
use forebay_intake::request::{Fingerprint, RequestKey};
use forebay_intake::rules::Sender;
use forebay_intake::upload::Upload;
use http::request::Parts;
use http::{HeaderMap, Uri};
use multer::Field;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::answers::{BatchAnswer, PartAnswer, PartError, PartStatus};
use super::body::PacedBody;
use super::content::Content;
use super::parts::{Part, failed, open};
use super::store::{self, JsonParts, Settings};
use super::{
    Keyed, bad_option, claim, problem, query, remember, replayed, request_key, sender,
    unknown_option,
};

/// Namespace of parts if the request names none.
const NAMESPACE: &str = "default";
/// Name of the field with documents.
const DOCUMENTS: &str = "documents";
/// Parts committed at once.
const COMMITS: usize = 64;
/// Bytes of small files held until the namespace is known.
const HELD_MAX: usize = 16 << 20;
/// What a large file held meanwhile counts for: each keeps a file open.
const STAGED_COST: usize = 128 << 10;

pub(super) async fn ingest(State(intake): State<Intake>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    match ingest_parts(&intake, &parts, body).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn ingest_parts(intake: &Intake, parts: &Parts, body: Body) -> Result<Response, IntakeError> {
    let (uri, headers) = (&parts.uri, &parts.headers);
    let key = request_key(headers)?;
    let namespace = namespace_of(uri)?;
    let body = Content::new(headers, PacedBody::new(body, intake.limits()))?;
    if body.has_digest() {
        // Parts are stored before the end is known.
        return Err(IntakeError::rejected(
            "digest",
            "a digest of a whole multipart body is not supported: send one in the headers of each part",
        ));
    }
    let keyed = claim(intake, headers).await?;
    if let Keyed::Answered { fingerprint, status, answer } = keyed {
        return match fingerprint_of(namespace.as_ref(), headers, body).await? == fingerprint {
            true => Ok(replayed(status, answer)),
            false => Err(IntakeError::KeyReused),
        };
    }
    let sender = sender(&parts.extensions);
    let mut batch = Batch::new(intake.clone(), key, namespace, sender);
    let received = batch.receive(headers, body).await;
    if let Err(error) = &received
        && batch.slots.iter().all(|slot| matches!(slot, Slot::Held))
    {
        let (status, code) = problem::classify(error);
        tracing::debug!(%status, code, "a batch was refused before a part was stored");
        return received.map(|()| replayed(200, Vec::new()));
    }
    let whole = received.is_ok();
    let print = batch.print.clone().finish();
    let (status, answer, is_final) = batch.finish(received).await;
    // A batch that was cut short, or of which a part may be stored later, is sent again whole: its parts
    // are recognised, not the batch.
    if let Keyed::Held(held) = &keyed
        && whole
        && is_final
    {
        remember(intake, held.record(print), status, &answer).await?;
    }
    Ok(super::json(status, answer))
}

/// The namespace that the query names, if it does.
fn namespace_of(uri: &Uri) -> Result<Option<Namespace>, IntakeError> {
    let mut namespace = None;
    for (name, value) in query(uri) {
        if name != "namespace" {
            return Err(unknown_option(&name, "namespace"));
        }
        if namespace.replace(Namespace::parse(&value)?).is_some() {
            return Err(bad_option("namespace", "given once"));
        }
    }
    Ok(namespace)
}

/// The fingerprint of a batch before its parts.
fn begin_fingerprint(namespace: Option<&Namespace>) -> Fingerprint {
    match namespace {
        None => Fingerprint::of(&[b"POST", b"/v1/ingest"]),
        Some(namespace) => {
            Fingerprint::of(&[b"POST", b"/v1/ingest", namespace.as_str().as_bytes()])
        }
    }
}

/// The fingerprint of a batch that was answered before. Nothing is stored.
async fn fingerprint_of(
    namespace: Option<&Namespace>,
    headers: &HeaderMap,
    body: Content<PacedBody>,
) -> Result<Digest, IntakeError> {
    let mut print = begin_fingerprint(namespace);
    let mut multipart = open(headers, body)?;
    while let Some(field) = multipart.next_field().await.map_err(failed)? {
        Part::new(field, true)?.finish(&mut print).await?;
    }
    Ok(print.finish())
}

/// A batch being received.
struct Batch {
    intake: Intake,
    key: Option<RequestKey>,
    print: Fingerprint,
    namespace: Option<Namespace>,
    settings: Settings,
    slots: Vec<Slot>,
    held: Vec<(usize, FileName, Upload, Settings)>,
    held_size: usize,
    gate: Arc<Semaphore>,
}

/// The result of a part: final, pending, or not begun, while the namespace is not known.
enum Slot {
    Done(PartAnswer),
    Running(JoinHandle<PartAnswer>),
    Held,
}

impl Batch {
    fn new(
        intake: Intake,
        key: Option<RequestKey>,
        namespace: Option<Namespace>,
        sender: Sender,
    ) -> Self {
        Self {
            intake,
            key,
            print: begin_fingerprint(namespace.as_ref()),
            namespace,
            settings: Settings { sender, ..Settings::default() },
            slots: Vec::new(),
            held: Vec::new(),
            held_size: 0,
            gate: Arc::new(Semaphore::new(COMMITS)),
        }
    }

    async fn receive(
        &mut self,
        headers: &HeaderMap,
        body: Content<PacedBody>,
    ) -> Result<(), IntakeError> {
        let parts_max = self.intake.limits().parts_max;
        let mut multipart = open(headers, body)?;
        let mut count = 0;
        while let Some(field) = multipart.next_field().await.map_err(failed)? {
            count += 1;
            if count > parts_max {
                return Err(IntakeError::rejected(
                    "too_many_parts",
                    format!("more than {parts_max} parts; those after them were not read"),
                ));
            }
            let what = field.file_name().or(field.name()).unwrap_or_default().to_owned();
            let is_setting = field.file_name().is_none() && field.name() != Some(DOCUMENTS);
            let slot = self.slots.len();
            if let Err(error) = self.part(field).await {
                if is_setting || is_fatal(&error) {
                    return Err(error);
                }
                self.slots.truncate(slot);
                self.slots.push(Slot::Done(store::rejected(&what, &error)));
            }
        }
        Ok(())
    }

    async fn part(&mut self, field: Field<'static>) -> Result<(), IntakeError> {
        let mut part = Part::new(field, self.key.is_some())?;
        let is_file = part.file_name().is_some();
        let taken = if is_file { self.file(&mut part).await } else { self.field(&mut part).await };
        let read = part.finish(&mut self.print).await;
        taken.and(read)
    }

    async fn file(&mut self, part: &mut Part) -> Result<(), IntakeError> {
        let name = FileName::parse(part.file_name().unwrap_or_default())?;
        let upload = self.intake.receive(part, None).await?;
        let settings = self.settings.clone();
        self.take(name, upload, settings).await
    }

    /// Starts to commit a part, or holds it until the namespace is known.
    async fn take(
        &mut self,
        name: FileName,
        upload: Upload,
        settings: Settings,
    ) -> Result<(), IntakeError> {
        let slot = self.slots.len();
        if self.namespace.is_some() {
            let running = self.commit(slot, name, upload, settings).await;
            self.slots.push(running);
            return Ok(());
        }
        self.held_size += upload.memory_size().map_or(STAGED_COST, |size| size + 512);
        if self.held_size > HELD_MAX {
            return Err(IntakeError::rejected(
                "namespace_late",
                "too many files before the namespace field; send that field before the files",
            ));
        }
        self.slots.push(Slot::Held);
        self.held.push((slot, name, upload, settings));
        Ok(())
    }

    async fn field(&mut self, part: &mut Part) -> Result<(), IntakeError> {
        let name = part.name().unwrap_or_default().to_owned();
        if name == DOCUMENTS {
            let size_max = self.intake.limits().document_size_max;
            let text = part.text(size_max).await?;
            let name = FileName::parse(DOCUMENTS)?;
            let upload = Upload::in_memory(text.into_bytes().into());
            let settings = Settings { json: JsonParts::Documents, ..self.settings.clone() };
            return self.take(name, upload, settings).await;
        }
        let text = part.text(COMMENT_SIZE_MAX).await?;
        match name.as_str() {
            "namespace" => {
                let namespace = Namespace::parse(text.trim())?;
                if self.namespace.as_ref().is_some_and(|before| *before != namespace) {
                    let text = "the batch has two namespaces; send a batch for each";
                    return Err(IntakeError::rejected("field", text));
                }
                self.namespace = Some(namespace);
            }
            "comment" => {
                check_comment(&text)?;
                self.settings.comment = text;
            }
            "target" => {
                let wish = Wish::parse(text.trim());
                let wish = wish.ok_or_else(|| bad_option(&name, "auto, table or collection"))?;
                self.settings.wish = wish;
            }
            "json" => {
                let parts = JsonParts::parse(text.trim());
                self.settings.json =
                    parts.ok_or_else(|| bad_option(&name, "both, file or documents"))?;
            }
            _ => {
                return Err(IntakeError::rejected(
                    "field",
                    "unknown field; send files as \"files\" with a filename, and texts as \
                     namespace, comment, target, json or documents",
                ));
            }
        }
        Ok(())
    }

    /// Starts to commit a file; waits while very many are being committed.
    async fn commit(
        &self,
        slot: usize,
        name: FileName,
        upload: Upload,
        settings: Settings,
    ) -> Slot {
        let settings = Settings { is_routed: self.namespace.is_none(), ..settings };
        let namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => match Namespace::parse(NAMESPACE) {
                Ok(namespace) => namespace,
                Err(error) => return Slot::Done(store::rejected(name.as_str(), &error.into())),
            },
        };
        let permit = self.gate.clone().acquire_owned().await;
        let intake = self.intake.clone();
        let key = self.key.as_ref().map(|key| key.part(slot));
        Slot::Running(tokio::spawn(async move {
            let result = store::store(&intake, (namespace, name), &settings, upload, key).await;
            drop(permit);
            result
        }))
    }

    /// Commits what is held, waits for everything, and returns the answer, and whether every part would get
    /// the same again.
    async fn finish(mut self, received: Result<(), IntakeError>) -> (u16, Vec<u8>, bool) {
        for (slot, name, upload, settings) in std::mem::take(&mut self.held) {
            let result = if received.is_ok() {
                // Fields apply to the whole batch, wherever they are.
                let settings = Settings { json: settings.json, ..self.settings.clone() };
                self.commit(slot, name, upload, settings).await
            } else {
                let message = "not stored: the fields after it could not all be read".to_owned();
                let error = PartError { code: "body_incomplete", message };
                Slot::Done(PartAnswer::rejected(Some(name.as_str()), error))
            };
            if let Some(place) = self.slots.get_mut(slot) {
                *place = result;
            }
        }
        let interrupted = || {
            let message = "the part was interrupted".to_owned();
            PartAnswer::rejected(None, PartError { code: "internal", message })
        };
        let mut parts = Vec::with_capacity(self.slots.len());
        for slot in self.slots {
            parts.push(match slot {
                Slot::Done(result) => result,
                Slot::Running(task) => task.await.unwrap_or_else(|_| interrupted()),
                // Each was begun above.
                Slot::Held => interrupted(),
            });
        }
        let error = received.err().map(|error| PartError::of(&error, error.to_string()));
        let status = if error.is_some() { 207 } else { status(&parts) };
        let namespace = self.namespace.as_ref().map_or(NAMESPACE, Namespace::as_str);
        let may_pass = |part: &PartAnswer| {
            part.error.as_ref().is_some_and(|error| problem::may_pass(error.code))
        };
        let is_final = !parts.iter().any(may_pass);
        (status, to_json(&BatchAnswer { error, namespace, parts }), is_final)
    }
}

/// The status of a batch that was read whole.
fn status(parts: &[PartAnswer]) -> u16 {
    let count = |status| parts.iter().filter(|part| part.status == status).count();
    let (rejected, stored) = (count(PartStatus::Rejected), count(PartStatus::Stored));
    let refused = rejected > 0 || parts.iter().any(PartAnswer::has_refused_documents);
    match refused {
        true if rejected == parts.len() => 422,
        true => 207,
        false if stored > 0 => 201,
        false => 200,
    }
}

/// Whether an error of one part is one of the whole body.
fn is_fatal(error: &IntakeError) -> bool {
    matches!(error, IntakeError::Body { .. } | IntakeError::Rejected { code: "multipart", .. })
}
