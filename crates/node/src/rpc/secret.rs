//! The secret that the nodes of a cluster share: sent with every call, compared in constant time.

use std::fmt;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

const NAME: &str = "cluster-secret";

/// See the module; may be none, where only this machine can connect.
#[derive(Clone, Default)]
pub struct Secret(Option<MetadataValue<Ascii>>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Secret(..)" } else { "no secret" })
    }
}

impl Secret {
    /// No secret.
    pub fn none() -> Self {
        Self(None)
    }

    /// This one; `None` if it is empty or has bytes that are not printable ASCII.
    pub fn new(text: &str) -> Option<Self> {
        let is_fine = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let value = is_fine.then(|| text.parse::<MetadataValue<Ascii>>().ok()).flatten();
        value.map(|mut value| {
            value.set_sensitive(true);
            Self(Some(value))
        })
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Adds it to a call.
    pub(super) fn sign<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(secret) = &self.0 {
            request.metadata_mut().insert(NAME, secret.clone());
        }
        request
    }
}

/// Refuses calls without the secret, before their message is read.
impl Interceptor for Secret {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(secret) = &self.0 else { return Ok(request) };
        let given = request.metadata().get(NAME).map_or(&b""[..], |value| value.as_bytes());
        match is_same(secret.as_bytes(), given) {
            true => Ok(request),
            false => Err(Status::unauthenticated("the cluster's secret is missing or wrong")),
        }
    }
}

/// Compares in a time that depends on the lengths only.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_the_secret_are_refused() {
        let mut secret = Secret::new("s3cret").unwrap();
        let with = |text: &str| Secret::new(text).unwrap().sign(());
        assert!(secret.call(with("s3cret")).is_ok());
        for wrong in [with("s3creT"), with("s3cre"), with("s3cretX"), Request::new(())] {
            assert_eq!(secret.call(wrong).unwrap_err().code(), tonic::Code::Unauthenticated);
        }
        assert!(Secret::none().call(Request::new(())).is_ok());
        for bad in ["", "a b", "ä", "a\n"] {
            assert!(Secret::new(bad).is_none(), "{bad:?}");
        }
        assert_eq!(format!("{secret:?}"), "Secret(..)", "it is not logged");
    }
}
