//! Whom we believe: the web's certificate authorities as they are compiled in, and nobody else.

use std::{io, path::Path, sync::Arc};

use domain::delivery::Cause;
use rustls::{
    CertificateError, ClientConfig, RootCertStore,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, pem, pem::PemObject as _},
};

/// Why there can be no TLS at all.
#[derive(Debug, thiserror::Error)]
pub enum NoTls {
    /// The file of the extra root.
    #[error("the extra root certificate cannot be read; LOCAL_EXTRA_ROOT must name a PEM file")]
    ExtraRoot(#[source] pem::Error),
    /// What is in it.
    #[error("the extra root certificate is not one")]
    NotARoot(#[source] rustls::Error),
    /// The provider of cryptography.
    #[error("the TLS versions are not supported")]
    Versions(#[source] rustls::Error),
}

/// The TLS of every connection. `extra_root` is for the local host.
///
/// HTTP/1.1 only. In HTTP/2 a stranger can send interim answers that the library keeps for a reader who never comes, as
/// fast as the network brings them; and one connection that went dead takes every request in it along.
///
/// No session is kept for the next connection. Its tickets are a stranger's bytes that would stay as long as the process,
/// and a certificate that has expired meanwhile would not be looked at again.
///
/// # Errors
/// [`NoTls`], at the start of the function.
pub fn config(extra_root: Option<&Path>) -> Result<Arc<ClientConfig>, NoTls> {
    // Compiled in: parsing the machine's own bundle would be most of a cold start.
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = extra_root {
        for root in CertificateDer::pem_file_iter(path).map_err(NoTls::ExtraRoot)? {
            roots.add(root.map_err(NoTls::ExtraRoot)?).map_err(NoTls::NotARoot)?;
        }
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(NoTls::Versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// J32: names what went wrong in a handshake, so that an expired certificate reads as one.
pub fn cause_of(error: &io::Error) -> Cause {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(reason)) => match reason {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                Cause::TlsExpired
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Cause::TlsWrongHost
            }
            CertificateError::UnknownIssuer => Cause::TlsUnknownIssuer,
            _ => Cause::Tls,
        },
        Some(_) => Cause::Tls,
        None => Cause::Reset,
    }
}
