//! The routes, and what each of them answers.

use super::access::Asker;
use super::api_error::ApiError;
use super::blocking::{blocking, to_json};
use super::json::{self, Key};
use super::metrics::{self, Scrape};
use super::shared::{CONFIG, Shared};
use super::{ServerStatus, Unread, assets, browse, command, escape, explain, guard, history};
use crate::cluster::{AdminReply, AdminRequest, ClusterStatus};
use crate::process::resident_bytes;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace::MAX_KEY_BYTES;
use terrace_base::hex;
use tokio::sync::oneshot;

/// Files whose filters are listed at once.
const MAX_FILTER_FILES: usize = 1000;
/// Segments of a model that are drawn.
const MAX_SEGMENTS: usize = 500;
/// Entries of the slow log that are shown.
const MAX_SLOW: usize = 128;
/// Hot keys of each list.
const MAX_HOT: usize = 32;

/// The type of answers that are JSON.
const JSON: &str = "application/json";

type Answer<T> = Result<Json<T>, ApiError>;
type Server = State<Arc<Shared>>;

/// All routes behind the guard.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/api/v1", get(index))
        .route("/api/v1/", get(index))
        .route("/api/v1/summary", get(summary))
        .route("/api/v1/shape", get(shape))
        .route("/api/v1/memory", get(memory))
        .route("/api/v1/jobs", get(jobs))
        .route("/api/v1/live", get(live))
        .route("/api/v1/stream", get(stream))
        .route("/api/v1/history", get(history))
        .route("/api/v1/filters", get(filters))
        .route("/api/v1/model", get(model))
        .route("/api/v1/explain", get(explanation))
        .route("/api/v1/keys", get(keys))
        .route("/api/v1/value", get(value))
        .route("/api/v1/command", get(command_line))
        .route("/api/v1/hotkeys", get(hot_keys))
        .route("/api/v1/slowlog", get(slow_log))
        .route("/api/v1/latency", get(latency))
        .route("/api/v1/cluster", get(cluster))
        .route(CONFIG, get(config))
        .fallback(page)
        .layer(axum::middleware::from_fn_with_state(shared.clone(), guard::guard))
        .with_state(shared)
}

/// The parameters of a request; an error says what is wrong with them.
fn parameters<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiError> {
    Query::try_from_uri(uri).map(|Query(parameters)| parameters).map_err(ApiError::bad)
}

fn typed(kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

async fn page(uri: Uri, headers: HeaderMap) -> Result<Response, ApiError> {
    assets::file(uri.path(), &headers).ok_or_else(|| ApiError::missing("there is nothing here"))
}

async fn metrics_text(State(shared): Server) -> Result<Response, ApiError> {
    let text = blocking(move || {
        let scrape = Scrape {
            figures: shared.status.figures(),
            commands: shared.status.commands(),
            rss_bytes: resident_bytes(),
            http_connections: shared.connections.load(Ordering::Relaxed),
            http_refused_connections: shared.refused.load(Ordering::Relaxed),
            http_requests: shared.requests.load(Ordering::Relaxed),
            http_listeners: shared.sampler.listeners() as u64,
        };
        metrics::text(&shared.status.engine().metrics(), &scrape)
    });
    Ok(typed(metrics::CONTENT_TYPE, text.await?))
}

/// Ready is who may write.
async fn ready(State(shared): Server) -> Result<&'static str, ApiError> {
    let why_not = blocking(move || {
        let engine = shared.status.engine().metrics();
        let reasons = [
            (shared.status.is_stopping(), "the server is stopping"),
            (
                engine.poisoned,
                "writes are refused until the store is opened again: an earlier one failed",
            ),
            (engine.disk_full, "writes are refused until there is room on the disk"),
        ];
        reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
    });
    match why_not.await? {
        None => Ok("ready\n"),
        Some(reason) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, reason)),
    }
}

/// The endpoints that [`assets::OPENAPI`] describes.
async fn index() -> Answer<json::Index> {
    let of = |text: &serde_json::Value| text.as_str().unwrap_or_default().to_string();
    let document: serde_json::Value = serde_json::from_slice(assets::OPENAPI)
        .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error))?;
    let paths = document["paths"].as_object().into_iter().flatten();
    let endpoint = |(path, about): (&String, &serde_json::Value)| json::Endpoint {
        path: path.clone(),
        summary: of(&about["get"]["summary"]),
    };
    Ok(Json(json::Index { endpoints: paths.map(endpoint).collect() }))
}

async fn summary(State(shared): Server) -> Answer<json::Summary> {
    Ok(Json(shared.sampler.summary().await?))
}

async fn shape(State(shared): Server) -> Result<Response, ApiError> {
    let look = shared.sampler.look().await?;
    Ok(typed(JSON, look.shape_json().await?))
}

async fn memory(State(shared): Server) -> Result<Response, ApiError> {
    Ok(Json(&shared.sampler.look().await?.memory).into_response())
}

async fn jobs(State(shared): Server) -> Result<Response, ApiError> {
    Ok(Json(&shared.sampler.look().await?.jobs).into_response())
}

async fn live(State(shared): Server) -> Result<Response, ApiError> {
    Ok(typed(JSON, shared.sampler.live().await?))
}

async fn stream(
    State(shared): Server,
    Extension(asker): Extension<Asker>,
) -> Result<Response, ApiError> {
    let mut response = typed("text/event-stream", Body::new(shared.sampler.listen(asker).await?));
    // A proxy that gathers bytes before it passes them on (nginx does) would keep events back for seconds.
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    response.headers_mut().insert(unbuffered, HeaderValue::from_static("no"));
    Ok(response)
}

#[derive(Deserialize)]
struct HistoryQuery {
    seconds: Option<usize>,
}

async fn history(State(shared): Server, uri: Uri) -> Answer<json::History> {
    let query: HistoryQuery = parameters(&uri)?;
    Ok(Json(shared.sampler.history(query.seconds.unwrap_or(history::KEPT_SECONDS))))
}

#[derive(Deserialize)]
struct FiltersQuery {
    family: String,
    file: Option<u64>,
}

async fn filters(State(shared): Server, uri: Uri) -> Result<Response, ApiError> {
    let query: FiltersQuery = parameters(&uri)?;
    let listed = shared.expensive(move |status| terrace::Result::Ok(filters_of(status, query)));
    Ok(typed(JSON, listed.await??))
}

fn filters_of(status: &dyn ServerStatus, query: FiltersQuery) -> Result<Bytes, ApiError> {
    let (engine, FiltersQuery { family, file }) = (status.engine(), query);
    if engine.column_family(&family).is_none() {
        return Err(ApiError::missing("there is no such family"));
    }
    let of_it = |heat: &terrace::FilterHeat| {
        heat.family == family && file.is_none_or(|file| file == heat.file)
    };
    let files: Vec<_> = engine
        .filter_heat(usize::MAX)
        .into_iter()
        .filter(of_it)
        .take(MAX_FILTER_FILES)
        .map(|heat| json::FileFilters {
            file: heat.file,
            level: heat.level,
            partitions: heat
                .partitions
                .iter()
                .map(|partition| (partition.units, partition.units_in_memory, partition.heat))
                .collect(),
        })
        .collect();
    if files.is_empty() && file.is_some() {
        return Err(ApiError::missing("there is no such file in this family"));
    }
    to_json(&json::Filters { family, files })
}

#[derive(Deserialize)]
struct ModelQuery {
    family: String,
    file: u64,
}

async fn model(State(shared): Server, uri: Uri) -> Answer<Option<json::Model>> {
    let ModelQuery { family, file } = parameters(&uri)?;
    let of_file = shared.expensive(move |status| {
        let engine = status.engine();
        let families = engine.shape().families;
        let files = families.iter().filter(|known| known.name == family).flat_map(|f| &f.levels);
        if !files.flatten().any(|known| known.number == file) {
            return Ok(None);
        }
        engine.model_shape(file).map(|model| Some(model.as_ref().map(drawn)))
    });
    Ok(Json(of_file.await?.ok_or_else(|| ApiError::missing("there is no such file"))?))
}

/// A model with its segments as shares of the file's numbers, at most [`MAX_SEGMENTS`] of them, evenly spread.
pub(super) fn drawn(model: &terrace::ModelShape) -> json::Model {
    let (mut first, mut last) = (0.0, 0.0);
    if let (Some(head), Some(tail)) = (model.segments.first(), model.segments.last()) {
        first = head.first_key as f64;
        // The last line goes on to the greatest number there is; the file ends with its blocks.
        let blocks = model.blocks.saturating_sub(tail.first_block) as f64;
        let reach = if tail.slope > 0.0 { blocks / tail.slope } else { f64::INFINITY };
        last = (tail.first_key as f64 + reach).min(tail.last_key as f64);
    }
    let per_block = model.keys as f64 / model.blocks.max(1) as f64;
    let segment = |segment: &terrace::ModelSegment| {
        let blocks = segment.last_block.min(model.blocks).saturating_sub(segment.first_block);
        json::ModelSegment {
            start: ((segment.first_key as f64 - first) / (last - first).max(1.0)).clamp(0.0, 1.0),
            first_block: segment.first_block,
            // Blocks are about equally full.
            keys: (blocks as f64 * per_block).round() as u64,
            slope: segment.slope,
        }
    };
    json::Model {
        file: model.file,
        keys: model.keys,
        blocks: model.blocks,
        model_bytes: model.model_bytes,
        index_bytes: model.index_bytes,
        segment_count: model.segments.len() as u64,
        segments: thinned(&model.segments, MAX_SEGMENTS).map(segment).collect(),
        error_counts: model.error_counts.clone(),
    }
}

/// At most `most` of them, the first and the last among them.
fn thinned<T>(all: &[T], most: usize) -> impl Iterator<Item = &T> {
    let shown = all.len().min(most);
    let (last, steps) = (all.len().saturating_sub(1), shown.saturating_sub(1).max(1));
    (0..shown).filter_map(move |at| all.get(at * last / steps))
}

/// A key of a database.
#[derive(Deserialize)]
struct KeyQuery {
    db: Option<u8>,
    key: Option<String>,
    hex: Option<String>,
}

/// The parameters of a request that names keys as text, where any other byte would become another one.
fn parameters_with_keys<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiError> {
    if !uri.query().is_none_or(escape::is_utf8_unescaped) {
        return Err(ApiError::bad("a key that is not UTF-8 is given as hex"));
    }
    parameters(uri)
}

fn of_hex(digits: &str) -> Result<Vec<u8>, ApiError> {
    let wrong = || ApiError::bad("hex has no two digits for every byte");
    hex::decode(digits.as_bytes()).ok_or_else(wrong)
}

fn database(number: Option<u8>, status: &dyn ServerStatus) -> Result<u8, ApiError> {
    let number = number.unwrap_or(0);
    let is_known = usize::from(number) < status.databases();
    is_known.then_some(number).ok_or_else(|| ApiError::bad("there is no such database"))
}

impl KeyQuery {
    /// The database and the key.
    fn named(self, status: &dyn ServerStatus) -> Result<(u8, Vec<u8>), ApiError> {
        let key = match (self.key, self.hex) {
            (Some(key), None) => key.into_bytes(),
            (None, Some(digits)) => of_hex(&digits)?,
            _ => return Err(ApiError::bad("either key or hex is needed")),
        };
        let number = database(self.db, status)?;
        if key.len() >= MAX_KEY_BYTES - 2 {
            return Err(ApiError::bad("no key is so long"));
        }
        Ok((number, key))
    }
}

async fn explanation(State(shared): Server, uri: Uri) -> Answer<json::Explanation> {
    let (number, key) = parameters_with_keys::<KeyQuery>(&uri)?.named(&*shared.status)?;
    let explained =
        shared.expensive(move |status| explain(status.engine(), status.layout(), number, &key));
    Ok(Json(explained.await?))
}

#[derive(Deserialize)]
struct KeysQuery {
    db: Option<u8>,
    prefix: Option<String>,
    hex: Option<String>,
    after: Option<String>,
}

async fn keys(State(shared): Server, uri: Uri) -> Answer<json::KeyList> {
    let query: KeysQuery = parameters_with_keys(&uri)?;
    let prefix = match (query.prefix, query.hex) {
        (Some(_), Some(_)) => return Err(ApiError::bad("either prefix or hex, not both")),
        (None, Some(digits)) => of_hex(&digits)?,
        (prefix, None) => prefix.unwrap_or_default().into_bytes(),
    };
    let after = query.after.as_deref().map(of_hex).transpose()?;
    let wanted = browse::Wanted { db: database(query.db, &*shared.status)?, prefix, after };
    Ok(Json(shared.expensive(move |status| browse::keys(status.space(), &wanted)).await?))
}

async fn value(State(shared): Server, uri: Uri) -> Answer<json::KeyValue> {
    let (number, key) = parameters_with_keys::<KeyQuery>(&uri)?.named(&*shared.status)?;
    Ok(Json(shared.expensive(move |status| browse::value(status.space(), number, &key)).await?))
}

#[derive(Deserialize)]
struct CommandQuery {
    db: Option<u8>,
    line: String,
}

/// The reply to a command that only reads, as the user who is logged in.
async fn command_line(
    State(shared): Server,
    Extension(asker): Extension<Asker>,
    uri: Uri,
) -> Answer<json::CommandAnswer> {
    let CommandQuery { db, line } = parameters_with_keys(&uri)?;
    let db = database(db, &*shared.status)?;
    let command = command::parsed(&line).map_err(ApiError::bad)?;
    let work = move |status: &dyn ServerStatus| {
        let login = asker.login.as_ref().map(|(user, password)| (&user[..], &password[..]));
        let reply = status.read_command(login, asker.peer, db, &command);
        Ok::<_, &str>(match reply {
            Ok(reply) => Ok(command::answer(db, &reply)?),
            Err(unread) => Err(unread),
        })
    };
    match shared.expensive(work).await? {
        Ok(answer) => Ok(Json(answer)),
        Err(Unread::Refused(why)) => Err(ApiError::new(StatusCode::FORBIDDEN, why)),
        Err(Unread::Busy) => {
            let why = "it cannot be executed now: try again";
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why))
        }
    }
}

async fn hot_keys(State(shared): Server) -> Answer<json::HotKeys> {
    let hot = blocking(move || shared.status.hot_keys(MAX_HOT)).await?;
    let list = |keys: Vec<super::HotKey>| {
        let key = |hot: super::HotKey| json::HotKey {
            db: hot.db,
            key: Key { len: hot.key_bytes, ..Key::of(&hot.key) },
            per_s: hot.per_s,
            error_per_s: hot.error_per_s,
        };
        keys.into_iter().map(key).collect()
    };
    Ok(Json(json::HotKeys {
        sampled_one_in: hot.sampled_one_in,
        window_s: hot.window_s,
        read: list(hot.read),
        write: list(hot.write),
    }))
}

async fn slow_log(State(shared): Server) -> Answer<json::SlowLog> {
    let log = blocking(move || shared.status.slow_log(MAX_SLOW)).await?;
    let entry = |slow: super::SlowCommand| json::SlowEntry {
        id: slow.id,
        at_ms: slow.at_ms,
        duration_us: slow.duration_us,
        args: slow.args.iter().map(|arg| escape::text(arg)).collect(),
        client: slow.client,
        client_name: slow.client_name,
    };
    let entries = log.entries.into_iter().map(entry).collect();
    Ok(Json(json::SlowLog { threshold_us: log.threshold_us, entries }))
}

async fn latency(State(shared): Server) -> Answer<json::CommandLatencies> {
    let mut commands = blocking(move || shared.status.commands()).await?;
    commands.sort_by(|a, b| b.calls.cmp(&a.calls).then(a.name.cmp(b.name)));
    let row = |command: &super::CommandFigures| {
        let percentiles = history::percentiles(&command.latency);
        json::CommandLatency {
            name: command.name,
            calls: command.calls,
            failed: command.failed,
            p50_us: percentiles.p50,
            p99_us: percentiles.p99,
            p999_us: percentiles.p999,
        }
    };
    Ok(Json(json::CommandLatencies { commands: commands.iter().map(row).collect() }))
}

/// What all nodes tell; `null` without a cluster. Each request asks them.
async fn cluster(State(shared): Server) -> Answer<Option<ClusterStatus>> {
    let Some(admin) = shared.status.cluster_admin() else { return Ok(Json(None)) };
    let (done, told) = oneshot::channel();
    admin.begin(AdminRequest::Status, Box::new(move |answer| drop(done.send(answer))));
    match told.await {
        Ok(Ok(AdminReply::Status(status))) => Ok(Json(Some(*status))),
        Ok(Err(why)) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why)),
        _ => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the cluster does not tell")),
    }
}

async fn config(State(shared): Server) -> Answer<json::Config> {
    let entry = |entry: super::ConfigEntry| json::ConfigOption {
        name: entry.name,
        value: entry.value,
        is_live: entry.is_live,
    };
    Ok(Json(json::Config { options: shared.status.config().into_iter().map(entry).collect() }))
}
