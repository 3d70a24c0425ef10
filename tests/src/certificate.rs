//! The certificate of the subscribers of one host.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// A certificate for loopback that signs itself. The host is told to trust it; nobody else does.
#[derive(Clone)]
pub struct Certificate {
    file: PathBuf,
    server: Arc<ServerConfig>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Certificate {
    /// Makes one, and writes its public part into `folder`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn make(folder: &Path) -> Result<Self> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let file = folder.join("subscribers.pem");
        std::fs::write(&file, cert.pem()).context("the certificate cannot be written")?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let chain = vec![CertificateDer::from(cert.der().to_vec())];
        let server =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_single_cert(chain, key)?;
        Ok(Self { file, server: Arc::new(server) })
    }

    /// The file that the host is given as `LOCAL_EXTRA_ROOT`.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What a server with this certificate is set up with.
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }
}
