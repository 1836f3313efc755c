//! TLS over rustls: certificates from files in PEM.

use crate::socket::Io;
use kiln_ir::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The server's certificate chain and private key, as files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The certificate chain, the server's own first.
    pub certificates: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The server's side of TLS.
///
/// # Errors
/// When a file cannot be read, or certificate and key do not belong together.
#[cfg(feature = "server")]
pub(crate) fn acceptor(identity: &TlsIdentity) -> Result<TlsAcceptor> {
    let chain = certificates(&identity.certificates)?;
    let key = PrivateKeyDer::from_pem_file(&identity.key).map_err(|error| failed(&identity.key, error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| failed(&identity.certificates, error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The client's side of TLS: trusts the certificates of the file, or those of Mozilla's list.
///
/// # Errors
/// When the file cannot be read, or the handshake fails.
#[cfg(feature = "client")]
pub(crate) async fn connect(stream: Box<dyn Io>, host: &str, roots: Option<&Path>) -> Result<Box<dyn Io>> {
    let mut store = RootCertStore::empty();
    match roots {
        Some(path) => {
            for certificate in certificates(path)? {
                store.add(certificate).map_err(|error| failed(path, error))?;
            }
        }
        None => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let tls = |error: &dyn std::fmt::Display| Error::device("remote", format!("TLS with {host}: {error}"));
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| tls(&error))?
        .with_root_certificates(store)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_string()).map_err(|error| tls(&error))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map(|stream| Box::new(stream) as Box<dyn Io>).map_err(|error| {
        tls(&error).hint("`RemoteDevice::with_root_certificates` names a file of certificates to trust")
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| failed(path, error))?;
    let all = read.collect::<Result<Vec<_>, _>>().map_err(|error| failed(path, error))?;
    if all.is_empty() {
        return Err(failed(path, "no certificate in it"));
    }
    Ok(all)
}

fn failed(path: &Path, problem: impl std::fmt::Display) -> Error {
    Error::device("remote", format!("{}: {problem}", path.display()))
        .hint("it must be a file in PEM, with `-----BEGIN CERTIFICATE-----` or a private key")
}
