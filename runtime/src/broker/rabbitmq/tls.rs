use std::io;
use std::path::Path;
use std::sync::Arc;

use lapin::tcp::RustlsConnector;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// Makes TLS connections that trust the system's authorities and those of a file; by rustls with
/// ring, whatever the process's default provider is.
///
/// The file is read at each new connection, so that a renewed authority needs no restart.
pub(super) fn connector(ca_file: Option<&Path>) -> io::Result<RustlsConnector> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::debug!(%error, "an authority of the system's is not usable");
    }
    roots.add_parsable_certificates(native.certs);
    if let Some(path) = ca_file {
        add_file(&mut roots, path)?;
    }
    if roots.is_empty() {
        return Err(unusable(
            "no authority is trusted: the system has none, and no CA file is given",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(RustlsConnector::from(config))
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> io::Result<()> {
    let within = |reason: String| unusable(format!("the CA file {}: {reason}", path.display()));
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| within(error.to_string()))?;
    if certificates.is_empty() {
        return Err(within("it holds no certificate".to_owned()));
    }
    for certificate in certificates {
        roots
            .add(certificate)
            .map_err(|error| within(error.to_string()))?;
    }
    Ok(())
}

/// An error that trying again does not mend: what classifies as the configuration's fault.
fn unusable(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
