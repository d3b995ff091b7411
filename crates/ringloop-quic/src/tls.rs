//! TLS configuration: certificates, trust, protocols.
//!
//! Owns: [`ClientTls`] and [`ServerTls`] (settings of an application), [`Certificates`] (several by
//! name, replaceable at run time), and the crypto provider. Called by: applications, `config`.
//! Peers' certificates are verified unless the application opts out.

use crate::error::ConfigError;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ClientSessionStore, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::quic::Suite;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, StoresServerSessions,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{KeyLog, KeyLogFile, RootCertStore};
use sessions::{ClientSessions, ServerSessions};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

pub(crate) mod integrity;
pub(crate) mod refusal;
mod sessions;
pub(crate) mod token_key;
mod verify;
mod x509;

/// The crypto provider of the enabled feature; aws-lc-rs if both are.
pub fn provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "aws-lc-rs")]
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "aws-lc-rs"))]
    let provider = rustls::crypto::ring::default_provider();
    Arc::new(provider)
}

/// The cipher suite of Initial packets: AES-128-GCM, regardless of the configuration (RFC 9001
/// §5.2).
pub(crate) fn initial_suite() -> Result<Suite, ConfigError> {
    let aes = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
    let suites = provider().cipher_suites.clone();
    let mut suites = suites.iter().filter(|suite| suite.suite() == aes);
    let suite = suites.find_map(|suite| suite.tls13()?.quic_suite());
    suite.ok_or(ConfigError::OutOfBounds("the provider lacks AES-128-GCM"))
}

/// A certificate chain, its own certificate first, with its private key.
#[derive(Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.key.cert.len();
        f.debug_struct("Certificate").field("chain_len", &count).finish_non_exhaustive()
    }
}

impl Certificate {
    /// Parses a chain and a key (PKCS#8, PKCS#1 or SEC1) in PEM; both may be in one text.
    ///
    /// # Errors
    /// A text without certificates or a key; an unknown kind of key, or one that does not match the
    /// certificate.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        if is_swapped(chain, key) {
            return Err(swapped());
        }
        Self::from_der(certificates(chain)?, private_key(key)?)
    }

    /// The same in DER.
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, ConfigError> {
        if let Some(first) = chain.first()
            && PrivateKeyDer::try_from(first.as_ref()).is_ok()
        {
            let is_certificate = x509::names(&CertificateDer::from(key.secret_der())).is_some();
            return Err(if is_certificate {
                swapped()
            } else {
                ConfigError::Pem("a private key is given as the certificate".to_owned())
            });
        }
        let made = CertifiedKey::from_der(chain, key, &provider());
        let key = made.map_err(|error| match refusal::explain_pair(&error) {
            Some(text) => ConfigError::Pem(text.to_owned()),
            None => ConfigError::Tls(error),
        })?;
        Ok(Self { key: Arc::new(key) })
    }

    /// Reads them from files.
    pub fn from_files(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::from_pem(&read(chain.as_ref())?, &read(key.as_ref())?)
    }

    /// The subject's common name, or else organisation; the names that peers verify are in other
    /// fields.
    pub fn subject(&self) -> Option<String> {
        Some(x509::names(self.key.cert.first()?)?.subject)
    }

    /// When the certificate expires.
    pub fn not_after(&self) -> Option<UnixTime> {
        x509::not_after(self.key.cert.first()?)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|error| ConfigError::File { path: path.to_owned(), error })
}

/// At least one certificate in PEM.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) if has(pem, KEY_LABEL) => {
            Err(ConfigError::Pem("there is no certificate in it, only a private key".to_owned()))
        }
        Ok(_) => Err(ConfigError::Pem("no certificate in the PEM text".to_owned())),
        Err(error) => Err(ConfigError::Pem(format!("no certificate: {error}"))),
    }
}

/// The first private key in PEM.
fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, ConfigError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        ConfigError::Pem(if has(pem, "ENCRYPTED") {
            "the private key is encrypted: give its password".to_owned()
        } else if has(pem, CERTIFICATE_LABEL) {
            "there is no private key in it, only a certificate".to_owned()
        } else {
            format!("no private key: {error}")
        })
    })
}

const KEY_LABEL: &str = "PRIVATE KEY-----";
const CERTIFICATE_LABEL: &str = "BEGIN CERTIFICATE-----";

fn has(pem: &[u8], label: &str) -> bool {
    let mut windows = pem.windows(label.len());
    windows.any(|window| window == label.as_bytes())
}

/// Whether the two PEM texts are swapped.
fn is_swapped(chain: &[u8], key: &[u8]) -> bool {
    let is_key = has(chain, KEY_LABEL) && !has(chain, CERTIFICATE_LABEL);
    is_key && has(key, CERTIFICATE_LABEL) && !has(key, KEY_LABEL)
}

fn swapped() -> ConfigError {
    let text = "the certificate and the private key are swapped: give each in the other's place";
    ConfigError::Pem(text.to_owned())
}

/// A server's certificates by requested name; may be changed from any thread while servers use
/// them. Existing connections keep theirs.
///
/// `*.example.org` stands for one label. Unknown names get the default certificate, or an alert if
/// there is none.
#[derive(Debug, Clone, Default)]
pub struct Certificates {
    table: Arc<RwLock<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    default: Option<Certificate>,
    by_name: HashMap<String, Certificate>,
}

impl Certificates {
    /// With a default certificate.
    pub fn new(default: Certificate) -> Self {
        let certificates = Self::default();
        certificates.set_default(default);
        certificates
    }

    /// Sets the default certificate.
    pub fn set_default(&self, certificate: Certificate) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.default = Some(certificate);
    }

    /// Sets the certificate of a name.
    pub fn set(&self, name: &str, certificate: Certificate) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.by_name.insert(name.to_ascii_lowercase(), certificate);
    }

    /// Removes the certificate of a name; whether there was one.
    pub fn remove(&self, name: &str) -> bool {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.by_name.remove(&name.to_ascii_lowercase()).is_some()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let offered = hello.alpn().into_iter().flatten();
        refusal::note_hello(hello.server_name(), offered);
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let named = hello.server_name().and_then(|name| {
            let name = name.to_ascii_lowercase();
            let wildcard = || Some(format!("*.{}", name.split_once('.')?.1));
            let exact = table.by_name.get(&name);
            exact.or_else(|| table.by_name.get(&wildcard()?))
        });
        let certificate = named.or(table.default.as_ref())?;
        Some(Arc::clone(&certificate.key))
    }
}

/// Trusted authorities.
#[derive(Debug, Clone)]
pub struct Roots {
    store: RootCertStore,
    /// Those added by the application, which are also trusted as end-entity certificates.
    named: Vec<CertificateDer<'static>>,
}

impl Roots {
    /// No authorities.
    pub fn empty() -> Self {
        Self { store: RootCertStore::empty(), named: Vec::new() }
    }

    /// True if there are no authorities.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// The system's authorities (`SSL_CERT_FILE` and `SSL_CERT_DIR` if set).
    ///
    /// # Errors
    /// If there are none at all; single ones that do not parse are skipped.
    pub fn system() -> Result<Self, ConfigError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = Self::empty();
        roots.store.add_parsable_certificates(found.certs);
        if roots.store.is_empty() {
            return Err(ConfigError::Pem("the system has no trust anchors".to_owned()));
        }
        Ok(roots)
    }

    /// Adds authorities from PEM text.
    pub fn add_pem(mut self, pem: &[u8]) -> Result<Self, ConfigError> {
        for der in certificates(pem)? {
            self = self.add_der(der)?;
        }
        Ok(self)
    }

    /// Adds a certificate in DER: trusts what it has signed, and itself as a peer's certificate.
    pub fn add_der(mut self, der: CertificateDer<'static>) -> Result<Self, ConfigError> {
        self.store.add(der.clone())?;
        self.named.push(der);
        Ok(self)
    }

    /// Adds authorities from a file.
    pub fn add_file(self, path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        self.add_pem(&read(path)?).map_err(|error| match error {
            ConfigError::Pem(text) => ConfigError::Pem(format!("{}: {text}", path.display())),
            error => error,
        })
    }

    /// Adds authorities from all files of a directory, whatever their names.
    pub fn add_directory(mut self, path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let failed = |error| ConfigError::File { path: path.to_owned(), error };
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_file()
                && let Ok(found) = certificates(&read(&path)?)
            {
                self.named.extend(found.iter().cloned());
                self.store.add_parsable_certificates(found);
            }
        }
        Ok(self)
    }
}

/// Destination of connection secrets, for tools that decrypt packet captures.
#[derive(Debug, Clone, Default)]
pub enum Secrets {
    /// The file named by `SSLKEYLOGFILE`, if set.
    #[default]
    FromEnvironment,
    /// Nowhere.
    Kept,
    /// A key log of the application.
    To(Arc<dyn KeyLog>),
}

impl Secrets {
    fn log(&self) -> Arc<dyn KeyLog> {
        match self {
            Self::FromEnvironment => Arc::new(KeyLogFile::new()),
            Self::Kept => Arc::new(rustls::NoKeyLog {}),
            Self::To(log) => Arc::clone(log),
        }
    }
}

/// A client's TLS settings. Verifies the server's certificate and name unless configured otherwise.
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is part of a configuration"]
pub struct ClientTls {
    verifier: Verifier,
    alpn: Vec<Vec<u8>>,
    certificate: Option<Certificate>,
    secrets: Secrets,
    sessions: Option<Arc<dyn ClientSessionStore>>,
    early_data: bool,
}

#[derive(Debug, Clone)]
enum Verifier {
    Roots(Roots),
    Own(Arc<dyn ServerCertVerifier>),
}

impl ClientTls {
    /// Trusts the system's authorities.
    pub fn new() -> Result<Self, ConfigError> {
        Ok(Self::with_roots(Roots::system()?))
    }

    /// Trusts these authorities.
    pub fn with_roots(roots: Roots) -> Self {
        Self::with(Verifier::Roots(roots))
    }

    /// Trusts what `verifier` accepts.
    pub fn with_verifier(verifier: Arc<dyn ServerCertVerifier>) -> Self {
        Self::with(Verifier::Own(verifier))
    }

    /// Trusts every certificate: a man in the middle can read and change everything.
    pub fn without_verification() -> Self {
        Self::with(Verifier::Own(verify::AcceptAnyServerCert::new(provider())))
    }

    fn with(verifier: Verifier) -> Self {
        Self {
            verifier,
            alpn: Vec::new(),
            certificate: None,
            secrets: Secrets::default(),
            sessions: Some(Arc::new(ClientSessions::new())),
            early_data: true,
        }
    }

    /// Sets the protocols to offer, in order of preference.
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the certificate for servers that request one.
    pub fn certificate(mut self, certificate: Certificate) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// Sets the destination of secrets; `SSLKEYLOGFILE` by default.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// Sets the session store for resumption, or none. By default in memory, shared by all clones
    /// of the resulting configuration.
    pub fn sessions(mut self, store: Option<Arc<dyn ClientSessionStore>>) -> Self {
        self.sessions = store;
        self
    }

    /// Whether a resumed session may send data before the server answers (on by default, and used
    /// only through `Connecting::into_0rtt`).
    pub fn early_data(mut self, on: bool) -> Self {
        self.early_data = on;
        self
    }

    pub(crate) fn build(self) -> Result<rustls::ClientConfig, ConfigError> {
        let builder = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = match self.verifier {
            Verifier::Roots(roots) => {
                let store = Arc::new(roots.store);
                let verifier = WebPkiServerVerifier::builder_with_provider(store, provider());
                let verifier =
                    verifier.build().map_err(|error| ConfigError::Pem(error.to_string()))?;
                let verifier: Arc<dyn ServerCertVerifier> = verifier;
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(verify::Named::new(roots.named, verifier))
            }
            Verifier::Own(verifier) => {
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        let mut config = match self.certificate {
            Some(certificate) => builder
                .with_client_cert_resolver(Arc::new(verify::FixedClientCert(certificate.key))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = checked(self.alpn)?;
        config.key_log = self.secrets.log();
        config.enable_early_data = self.early_data && self.sessions.is_some();
        config.resumption = match self.sessions {
            Some(store) => Resumption::store(store),
            None => Resumption::disabled(),
        };
        Ok(config)
    }
}

/// Checks that TLS can carry these protocol names (RFC 7301 §3.1).
fn checked(protocols: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ConfigError> {
    if let Some(name) = protocols.iter().find(|name| !(1..=255).contains(&name.len())) {
        let (len, shown) = (name.len(), &name[..name.len().min(16)]);
        return Err(ConfigError::Alpn(format!(
            "a protocol's name has 1 to 255 bytes, and {:?}{} has {len}",
            String::from_utf8_lossy(shown),
            if len > 16 { "..." } else { "" }
        )));
    }
    let total: usize = protocols.iter().map(|name| 1 + name.len()).sum();
    if total > usize::from(u16::MAX) {
        return Err(ConfigError::Alpn(format!(
            "the {} protocols take {total} bytes in total, but TLS allows 65535",
            protocols.len()
        )));
    }
    Ok(protocols)
}

/// Which clients a server accepts.
#[derive(Debug, Clone, Default)]
pub enum Clients {
    /// Any client; no certificate is requested.
    #[default]
    Anyone,
    /// Any client; a certificate, if shown, must be signed by one of these authorities.
    Known(Roots),
    /// Only clients with a certificate signed by one of these authorities.
    Required(Roots),
}

/// A server's TLS settings.
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is part of a configuration"]
pub struct ServerTls {
    certificates: Certificates,
    alpn: Vec<Vec<u8>>,
    clients: Clients,
    secrets: Secrets,
    sessions: Option<Arc<dyn StoresServerSessions>>,
    early_data: bool,
}

impl ServerTls {
    /// Uses one certificate for all clients.
    pub fn new(certificate: Certificate) -> Self {
        Self::with_certificates(Certificates::new(certificate))
    }

    /// Uses certificates by name; keep a clone to change them later.
    pub fn with_certificates(certificates: Certificates) -> Self {
        Self {
            certificates,
            alpn: Vec::new(),
            clients: Clients::default(),
            secrets: Secrets::default(),
            sessions: Some(Arc::new(ServerSessions::new())),
            early_data: false,
        }
    }

    /// Sets the supported protocols in order of preference; a client that offers none of them is
    /// refused.
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Sets which clients to accept.
    pub fn clients(mut self, clients: Clients) -> Self {
        self.clients = clients;
        self
    }

    /// Sets the destination of secrets; `SSLKEYLOGFILE` by default.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// Sets the session store for resumption, or none. By default in memory, shared by all clones
    /// of the resulting configuration, so by all workers that use one.
    pub fn sessions(mut self, store: Option<Arc<dyn StoresServerSessions>>) -> Self {
        self.sessions = store;
        self
    }

    /// Whether to accept early data of resumed sessions (off by default: it can be replayed, so it
    /// must only request what may happen twice; RFC 9001 §9.2).
    pub fn early_data(mut self, on: bool) -> Self {
        self.early_data = on;
        self
    }

    pub(crate) fn build(self) -> Result<rustls::ServerConfig, ConfigError> {
        let builder = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let verified = |roots: Roots, required: bool| {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots.store), provider());
            let verifier = if required { verifier } else { verifier.allow_unauthenticated() };
            let verifier: Arc<dyn ClientCertVerifier> =
                verifier.build().map_err(|error| ConfigError::Pem(error.to_string()))?;
            Ok::<_, ConfigError>(verify::Named::new(roots.named, verifier))
        };
        let builder = match self.clients {
            Clients::Anyone => builder.with_no_client_auth(),
            Clients::Known(roots) => builder.with_client_cert_verifier(verified(roots, false)?),
            Clients::Required(roots) => builder.with_client_cert_verifier(verified(roots, true)?),
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.certificates));
        config.alpn_protocols = checked(self.alpn)?;
        config.key_log = self.secrets.log();
        // QUIC allows only these two values (RFC 9001 §4.6.1).
        let early_data = self.early_data && self.sessions.is_some();
        config.max_early_data_size = if early_data { u32::MAX } else { 0 };
        if let Some(store) = self.sessions {
            config.session_storage = store;
        } else {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(config)
    }
}
