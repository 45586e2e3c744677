use std::error::Error;
use std::net::TcpListener;

use actix_web::dev::Server;
use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Data, Json, PayloadConfig};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, ResponseError, get, post};
use posta::Posta;
use posta::operations::Health;
use serde::Serialize;
use serde_json::json;

use super::intake::{IntakeError, Taken, take};
use super::{Db, tables};
use crate::{BODY_BYTES_MAX, Delivery, Options, Secrets, WebhookReceived};

/// Begins to serve; the server's future must be polled.
pub(super) fn serve(
    options: &Options,
    listener: TcpListener,
    posta: &Posta<Db>,
) -> std::io::Result<Server> {
    let posta = Data::new(posta.clone());
    let secrets = Data::new(options.secrets.clone());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(posta.clone())
            .app_data(secrets.clone())
            .app_data(PayloadConfig::new(BODY_BYTES_MAX))
            .service(receive)
            .service(repositories)
            .service(health)
            .service(live)
            .service(ready)
    });
    // Posta listens for them: while it drains, this server still answers.
    let server = server.disable_signals();
    Ok(server.workers(2).listen(listener)?.run())
}

/// Takes a delivery: 202 when it is new, 200 when it was here before. Either says that it is safe;
/// whatever else, that it is not.
#[post("/webhooks")]
async fn receive(
    request: HttpRequest,
    body: Bytes,
    posta: Data<Posta<Db>>,
    secrets: Data<Secrets>,
) -> Result<HttpResponse, Refusal> {
    // First of all: what is not from GitHub is not looked into.
    let signature = header(&request, "X-Hub-Signature-256").ok_or(Refusal::NotSigned)?;
    if !secrets.verify(signature, &body) {
        return Err(Refusal::WronglySigned);
    }
    let event = header(&request, "X-GitHub-Event")
        .ok_or(Refusal::Malformed("X-GitHub-Event is missing"))?;
    let id = header(&request, "X-GitHub-Delivery").and_then(|id| id.parse().ok());
    let id = id.ok_or(Refusal::Malformed("X-GitHub-Delivery is no UUID"))?;
    let delivery = Delivery {
        id,
        event: event.to_owned(),
        body,
    };
    let message = WebhookReceived::of(delivery.body.clone())
        .map_err(|_| Refusal::Malformed("the body is none of GitHub's JSON bodies"))?;
    let envelope = message.envelope(&delivery, signature).map_err(|error| {
        tracing::info!(error = &error as &dyn Error, delivery = %id, "refused");
        Refusal::Malformed("the repository's name or a header is too long, or empty")
    })?;
    let repository = message.repository.as_deref().unwrap_or("none");
    match take(&posta, envelope, event).await {
        Ok(Taken::Now) => {
            tracing::info!(delivery = %id, event, repository, "accepted");
            Ok(answer(StatusCode::ACCEPTED, "accepted"))
        }
        Ok(Taken::Before) => {
            tracing::info!(delivery = %id, event, repository, "here before");
            Ok(answer(StatusCode::OK, "done"))
        }
        Err(IntakeError::Refused(error)) => {
            tracing::info!(error = &error as &dyn Error, delivery = %id, "refused");
            Err(Refusal::Malformed("the delivery breaks a limit"))
        }
        Err(error) => {
            tracing::warn!(error = &error as &dyn Error, delivery = %id, "not accepted");
            Err(Refusal::Unavailable)
        }
    }
}

fn header<'r>(request: &'r HttpRequest, name: &str) -> Option<&'r str> {
    request
        .headers()
        .get(name)?
        .to_str()
        .ok()
        .filter(|value| !value.is_empty())
}

fn answer(status: StatusCode, word: &str) -> HttpResponse {
    HttpResponse::build(status).json(json!({ "status": word }))
}

/// What the statistics say, as JSON.
#[get("/repositories")]
async fn repositories(posta: Data<Posta<Db>>) -> Result<Json<Vec<Repository>>, Refusal> {
    let rows = tables::repositories(&posta).await.map_err(|error| {
        tracing::warn!(error = &*error as &dyn Error, "statistics cannot be read");
        Refusal::Unavailable
    })?;
    let row = |(repository, deliveries, last_event)| Repository {
        repository,
        deliveries,
        last_event,
    };
    Ok(Json(rows.into_iter().map(row).collect()))
}

#[derive(Serialize)]
struct Repository {
    repository: String,
    deliveries: i64,
    last_event: String,
}

/// Kubernetes' liveness and startup probes: 503 when this process cannot heal itself.
#[get("/live")]
async fn live(posta: Data<Posta<Db>>) -> HttpResponse {
    let now = posta.health();
    probe(now.live, &now)
}

/// Kubernetes' readiness probe: 503 when requests are to go elsewhere.
#[get("/ready")]
async fn ready(posta: Data<Posta<Db>>) -> HttpResponse {
    let now = posta.health();
    probe(now.ready, &now)
}

fn probe(is_well: bool, now: &Health) -> HttpResponse {
    let status = match is_well {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    HttpResponse::build(status).json(json!({ "status": is_well, "reasons": now.reasons }))
}

/// 200 while every actor runs and misses nothing, else 503 with those that do not.
#[get("/health")]
async fn health(posta: Data<Posta<Db>>) -> HttpResponse {
    let registry = posta.registry();
    if registry.is_healthy() {
        return answer(StatusCode::OK, "healthy");
    }
    let ill = registry
        .children()
        .into_iter()
        .filter_map(|(name, child)| Some((name, child.last_error?.0)));
    let ill: std::collections::BTreeMap<String, String> = ill.collect();
    HttpResponse::ServiceUnavailable().json(json!({ "status": "unhealthy", "actors": ill }))
}

/// Why a request is not served, as far as its sender may know.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Refusal {
    #[error("X-Hub-Signature-256 is missing")]
    NotSigned,
    #[error("X-Hub-Signature-256 is not the body's signature")]
    WronglySigned,
    #[error("{0}")]
    Malformed(&'static str),
    #[error("not now: send it again")]
    Unavailable,
}

impl ResponseError for Refusal {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::NotSigned | Self::WronglySigned => StatusCode::UNAUTHORIZED,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn error_response(&self) -> HttpResponse {
        HttpResponse::build(self.status_code())
            .json(json!({ "status": "refused", "why": self.to_string() }))
    }
}
