use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::{Mode, Roots};

/// Why there is no encryption to be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    #[error("sslrootcert: the certificates in {path:?} could not be read")]
    File {
        path: PathBuf,
        source: rustls_pki_types::pem::Error,
    },
    #[error("sslrootcert: there is no certificate in {0:?}")]
    Empty(PathBuf),
    #[error("sslrootcert: {path:?} holds something that is no certificate of an authority")]
    Root {
        path: PathBuf,
        source: rustls::Error,
    },
    #[error("the machine's certificate store has no usable certificate")]
    NoSystemRoots,
    #[error("the certificates to trust cannot be used")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
    #[error("rustls refuses its own defaults")]
    Provider(#[from] rustls::Error),
}

/// The encryption that a URL asks for.
///
/// The cryptography is ring's, named here: the process's default provider is the application's
/// business.
pub(super) fn connector(mode: Mode, roots: &Roots) -> Result<MakeRustlsConnect, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match mode {
        Mode::Disable | Mode::Prefer | Mode::Require => Arc::new(AnyServer(provider.clone())),
        Mode::VerifyCa => Arc::new(AnyName(authority(roots, &provider)?)),
        Mode::VerifyFull => authority(roots, &provider)?,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Checks chain and name against these roots.
fn authority(
    roots: &Roots,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let roots = Arc::new(trusted(roots)?);
    Ok(WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build()?)
}

fn trusted(roots: &Roots) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::System => {
            // Single certificates that this machine cannot give, or rustls cannot read, are not
            // worth a failure: the rest is tried.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(TlsError::NoSystemRoots);
            }
        }
        Roots::File(path) => {
            let unreadable = |source| TlsError::File {
                path: path.clone(),
                source,
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
                store
                    .add(certificate.map_err(unreadable)?)
                    .map_err(|source| TlsError::Root {
                        path: path.clone(),
                        source,
                    })?;
            }
            if store.is_empty() {
                return Err(TlsError::Empty(path.clone()));
            }
        }
    }
    Ok(store)
}

/// `require` and `prefer`: whoever holds the key of the certificate that it shows is the server.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// `verify-ca`: the chain must lead to the authority, whatever host the certificate names.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // rustls looks at the name last, so this error says that all the rest was right.
        match self
            .0
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
