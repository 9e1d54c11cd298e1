//! TLS as configured: our certificate, and whose certificates clients must have.

use super::transport::Tls;
use crate::bounded_file;
use crate::config::{ClientCertificates, Settings};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What `tls-port` needs; `None` if there is none.
///
/// # Errors
/// A file cannot be read, or is not what it should be; named in the error.
pub fn configured(settings: &Settings) -> io::Result<Option<Tls>> {
    if settings.tls_port != 0 && settings.tls_cert_file.is_some() && settings.tls_key_file.is_some()
    {
        return build(settings).map(Some);
    }
    Ok(None)
}

fn build(settings: &Settings) -> io::Result<Tls> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let path = |path: &Option<std::path::PathBuf>| path.clone().unwrap_or_default();
    let builder = match settings.tls_auth_clients {
        ClientCertificates::No => builder.with_no_client_auth(),
        wanted => {
            let file = path(&settings.tls_ca_cert_file);
            let mut roots = RootCertStore::empty();
            for certificate in certificates(&file)? {
                roots.add(certificate).map_err(|error| about(&file, &error))?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            let verifier = match wanted {
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier = verifier.build().map_err(|error| about(&file, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain_file, key_file) = (path(&settings.tls_cert_file), path(&settings.tls_key_file));
    let chain = certificates(&chain_file)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&key_file)?)
        .map_err(|error| about(&key_file, &error))?;
    let config =
        builder.with_single_cert(chain, key).map_err(|error| about(&chain_file, &error))?;
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read(file)?)
        .collect::<Result<_, _>>()
        .map_err(|error| about(file, &error))?;
    match found.is_empty() {
        true => Err(about(file, &"it has no certificate")),
        false => Ok(found),
    }
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    bounded_file::read(file, bounded_file::MAX_MIB).map_err(|error| about(file, &error))
}

fn about(file: &Path, what: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", file.display()))
}
