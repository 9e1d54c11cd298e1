//! The dashboard: the files of its build, which are part of this program.
//!
//! Their names do not change from build to build, so browsers have to ask every time, and get
//! "304 Not Modified" as long as the entity tag is the same.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};
use std::sync::LazyLock;

/// Path, type, content.
type File = (&'static str, &'static str, &'static [u8]);

/// What describes the API, by OpenAPI 3.1: made by the build of the dashboard from the types that it uses.
pub(super) const OPENAPI: &[u8] = include_bytes!("../../dashboard/openapi.json");

const FILES: [File; 6] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../../dashboard/index.html")),
    ("/api.html", "text/html; charset=utf-8", include_bytes!("../../dashboard/api.html")),
    ("/app.css", "text/css; charset=utf-8", include_bytes!("../../dashboard/app.css")),
    ("/app.js", "text/javascript; charset=utf-8", include_bytes!("../../dashboard/app.js")),
    ("/favicon.svg", "image/svg+xml", include_bytes!("../../dashboard/favicon.svg")),
    ("/openapi.json", "application/json", OPENAPI),
];

static TAGS: LazyLock<[String; FILES.len()]> =
    LazyLock::new(|| FILES.map(|(_, _, content)| tag(content)));

fn tag(content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    format!("\"{}\"", terrace_base::hex::Hex(&hash[..12]))
}

/// The file at `path`; `None` if there is none.
pub(super) fn file(path: &str, headers: &HeaderMap) -> Option<Response> {
    let path = match path {
        "/index.html" => "/",
        "/api/v1/openapi.json" => "/openapi.json",
        path => path,
    };
    let at = FILES.iter().position(|(known, _, _)| *known == path)?;
    let (_, kind, content) = FILES[at];
    let tag = TAGS[at].as_str();
    let known = headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let mut response = match known.is_some_and(|known| matches(known, tag)) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => {
            let mut response = Bytes::from_static(content).into_response();
            let kind = HeaderValue::from_static(kind);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(response)
}

/// Whether `If-None-Match` names `tag` (RFC 9110, section 13.1.2: weak comparison).
fn matches(known: &str, tag: &str) -> bool {
    let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_string();
    known.trim() == "*" || known.split(',').any(|one| strong(one) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_there_with_a_tag_of_its_content() {
        let first = file("/", &HeaderMap::new()).unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        for path in ["/", "/index.html"] {
            let again = file(path, &headers).unwrap();
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
            assert_eq!(again.headers()[header::ETAG], first.headers()[header::ETAG]);
        }
        assert_ne!(tag(b"a"), tag(b"b"));
        for path in ["", "/nothing", "/../Cargo.toml", "//"] {
            assert!(file(path, &headers).is_none(), "{path}");
        }
    }

    #[test]
    fn every_file_of_the_build_is_in_the_table() {
        let dist = concat!(env!("CARGO_MANIFEST_DIR"), "/dashboard");
        for entry in std::fs::read_dir(dist).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(file(&format!("/{name}"), &HeaderMap::new()).is_some(), "{name}");
        }
    }

    #[test]
    fn tags_match_in_lists_and_weakly() {
        assert!(matches("\"a\", W/\"b\"", "\"b\"") && matches("*", "\"b\""));
        assert!(!matches("\"ab\"", "\"b\"") && !matches("", "\"b\""));
    }
}
