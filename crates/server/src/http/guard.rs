//! Who may ask: the method, the `Host` header, the login; and the headers that every answer has.
//!
//! Everything runs through [`guard`] before any route is looked at. There is no CORS: a page from
//! elsewhere may neither read answers (no header allows it) nor pretend to be from here (its name is
//! not among ours).

use super::access::{Asker, Refusal, Subject};
use super::api_error::ApiError;
use super::escape;
use super::shared::{CONFIG, Shared};
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// How long the answer to a wrong password is held back: with the bound of connections, this bounds
/// guesses.
const WRONG_PASSWORD_PAUSE: Duration = Duration::from_millis(300);

/// Answered without a login: they say nothing but yes or no.
pub(super) const FREE: [&str; 2] = ["/healthz", "/readyz"];
/// Paths that begin so are not for pages of other sites.
const API: &str = "/api/";

/// On every answer.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The address that a request comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub IpAddr);

/// Lets a request through to its route, with an [`Asker`] in its extensions, or answers it. A connection ends with
/// what everybody may have: a refusal, or the answer about health.
pub(super) async fn guard(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    shared.count_request();
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let is_free = FREE.contains(&request.uri().path());
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let admitted = admit(&shared, peer, method, uri, headers).await;
    let is_last = is_free || admitted.is_err();
    let mut response = match admitted {
        Ok(asker) => {
            request.extensions_mut().insert(asker);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    let is_unknown = response.status() == StatusCode::UNAUTHORIZED;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if is_last {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if is_unknown {
        let realm = HeaderValue::from_static("Basic realm=\"Terrace\", charset=\"UTF-8\"");
        headers.insert(header::WWW_AUTHENTICATE, realm);
    }
    response
}

async fn admit(
    shared: &Shared,
    peer: Option<IpAddr>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Asker, ApiError> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered"));
    }
    if !is_for_us(uri, headers, &shared.status.host_names()) {
        let why = "the Host header names neither an address, nor localhost, nor a configured name";
        return Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, why));
    }
    if uri.path().starts_with(API) {
        refuse_other_sites(headers)?;
    }
    let login = headers.get(header::AUTHORIZATION).and_then(credentials);
    let asker = Asker { peer, login };
    if FREE.contains(&uri.path()) {
        return Ok(asker);
    }
    let subject = if uri.path() == CONFIG { Subject::Options } else { Subject::Store };
    if let Err(refusal) = asker.check(subject, &*shared.status) {
        if refusal == Refusal::WrongLogin {
            tokio::time::sleep(WRONG_PASSWORD_PAUSE).await;
        }
        return Err(refusal.into());
    }
    Ok(asker)
}

/// Refuses what a browser sends since the page of another site made it: such a page could not read the answer, but have it
/// made. Browsers say so in `Sec-Fetch-Site` (W3C, Fetch Metadata); others send no such header.
fn refuse_other_sites(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_ours = |site: &HeaderValue| site == "same-origin" || site == "none";
    if headers.get_all("sec-fetch-site").iter().all(is_ours) {
        return Ok(());
    }
    Err(ApiError::new(StatusCode::FORBIDDEN, "a page of another site asks for this"))
}

/// User and password of HTTP Basic (RFC 7617); the password may contain colons.
fn credentials(given: &HeaderValue) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = given.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = escape::base64(encoded.trim())?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let user = std::str::from_utf8(&pair[..colon]).ok()?.to_string();
    Some((user, pair[colon + 1..].to_vec()))
}

/// Whether the request's one `Host`, and the authority of its target if there is one, are ours.
fn is_for_us(uri: &Uri, headers: &HeaderMap, names: &[String]) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let target = uri.authority().is_none_or(|authority| is_ours(authority.as_str(), names));
    target && host.to_str().is_ok_and(|host| is_ours(host, names))
}

/// Whether `host`, with or without a port, is an address, `localhost`, or one of `names`.
fn is_ours(host: &str, names: &[String]) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let is_address = address.parse::<Ipv6Addr>().is_ok();
            return is_address && port.strip_prefix(':').map_or(port.is_empty(), is_port);
        }
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    let known = |name: &str| {
        name.eq_ignore_ascii_case("localhost")
            || names.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    port.is_none_or(is_port) && (name.parse::<IpAddr>().is_ok() || known(name))
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_known_names_are_ours() {
        let names = ["store.example".to_string()];
        for host in [
            "127.0.0.1",
            "127.0.0.1:6380",
            "[::1]",
            "[::1]:6380",
            "localhost",
            "LocalHost:1",
            "10.1.2.3:80",
            "store.example",
            "Store.Example:6380",
        ] {
            assert!(is_ours(host, &names), "{host}");
        }
        for host in [
            "",
            ":80",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.example:6380",
            "[::1",
            "::1",
            "[::1]x",
            "[evil]",
            "127.1",
            "0x7f000001",
            "127.0.0.1:x",
            "127.0.0.1:80:80",
            "user@127.0.0.1",
            "store.example:99999",
            "a.store.example",
        ] {
            assert!(!is_ours(host, &names), "{host}");
        }
    }

    #[test]
    fn passwords_may_contain_colons() {
        let parsed = |text: &'static str| credentials(&HeaderValue::from_static(text));
        let given = parsed("Basic YWxpY2U6YTpi");
        assert_eq!(given, Some(("alice".to_string(), b"a:b".to_vec())));
        assert_eq!(parsed("bAsIc OnB3"), Some((String::new(), b"pw".to_vec())));
        for wrong in ["Basic", "Basic YWxpY2U", "Bearer YWxpY2U6YTpi", "Basic YWxpY2U=", ""] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
