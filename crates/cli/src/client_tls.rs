//! TLS to a node: whom it must be signed by, and who we are. For `cluster_client.rs`.

use anyhow::{Context, Result, anyhow};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_server::bounded_file;

/// How nodes are reached; the names are those of `redis-cli`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TlsArgs {
    /// Reach the nodes by TLS, at their tls-port
    #[arg(long, global = true, requires = "cacert")]
    tls: bool,
    /// Certificates (PEM) of those who sign the nodes' certificates
    #[arg(long, global = true, value_name = "FILE", requires = "tls")]
    cacert: Option<PathBuf>,
    /// Own certificate (PEM), if the nodes ask for one
    #[arg(long = "cert", global = true, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long = "key", global = true, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// A connection over `stream` to the node at `HOST:PORT`, whose certificate must be for this host; `None` if TLS is not
    /// wanted. Nothing is exchanged yet.
    pub fn over(
        &self,
        stream: &TcpStream,
        address: &str,
    ) -> Result<Option<StreamOwned<ClientConnection, TcpStream>>> {
        if !self.tls {
            return Ok(None);
        }
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        let name = ServerName::try_from(host)
            .with_context(|| format!("{address} has no name that a certificate could be for"))?;
        let session = ClientConnection::new(Arc::new(self.config()?), name)?;
        Ok(Some(StreamOwned::new(session, stream.try_clone()?)))
    }

    fn config(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let trusted = self.cacert.as_deref().context("TLS needs --cacert")?;
        for certificate in certificates(trusted)? {
            roots.add(certificate).with_context(|| trusted.display().to_string())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(config.with_no_client_auth());
        };
        let own = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|why| about(key, &why))?;
        config
            .with_client_auth_cert(certificates(cert)?, own)
            .with_context(|| format!("{} and {}", cert.display(), key.display()))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read(file)?)
        .collect::<Result<_, _>>()
        .map_err(|why| about(file, &why))?;
    match found.is_empty() {
        true => Err(about(file, &"it has no certificate")),
        false => Ok(found),
    }
}

/// The bytes of a file, which may be a device without an end.
fn read(file: &Path) -> Result<Vec<u8>> {
    bounded_file::read(file, bounded_file::MAX_MIB).map_err(|why| about(file, &why))
}

fn about(file: &Path, why: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow!("{}: {why}", file.display())
}
