//! Answers that are not 200.

use super::json;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// An answer that is not 200.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    error: String,
}

impl ApiError {
    pub fn new(status: StatusCode, error: impl ToString) -> Self {
        Self { status, error: error.to_string() }
    }

    pub fn bad(error: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub fn missing(error: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    /// What an engine or a keyspace could not do.
    pub fn failed(error: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(json::Error { error: self.error })).into_response()
    }
}
