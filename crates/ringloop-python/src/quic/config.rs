//! Configurations: TLS and transport settings of Python, as the crate's types.
//!
//! Immutable (except for a server's certificates), shared by any number of endpoints.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyUnicodeEncodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMapping, PyMemoryView, PyString};
use ringloop_quic::config::{self, Congestion, Transport, Version};
use ringloop_quic::limits;
use ringloop_quic::qlog::Qlog;
use ringloop_quic::store::Directory;
use ringloop_quic::tls::{Certificates, ClientTls, Clients, ServerTls};

use super::address;
use super::errors;
use super::exception;
use super::keylog::{self, Listener};
use super::keywords::Keywords;
use super::material::{self, Key, bytes, certificate, private_key, roots, secret};
use super::memory::{Memory, Store};
use super::traces::Traces;
use crate::error;
use crate::ffi::Raise as _;

/// A client's configuration.
#[pyclass(frozen, module = "ringloop._native.quic")]
pub struct ClientConfig {
    pub inner: config::ClientConfig,
    pub listener: Option<Listener>,
    /// The connection's own store of the server's sessions and tokens, if it has one.
    pub memory: Option<Arc<Store>>,
}

#[pymethods]
impl ClientConfig {
    #[new]
    #[pyo3(signature = (**keywords), text_signature = "(*, alpn=(), verify=True, ca_file=None, ca_path=None, ca_data=None, system_roots=None, certificate=None, private_key=None, password=None, keylog=None, sessions=True, token_store=None, early_data=True, version=1, idle_timeout=30.0, handshake_timeout=30.0, keep_alive=None, max_streams_bidi=100, max_streams_uni=100, max_data=25165824, max_stream_data=16777216, send_window=16777216, congestion='cubic', datagram_receive_buffer=1048576, datagram_send_buffer=262144, initial_mtu=1200, mtu_max=1452, initial_rtt=0.333, ack_frequency=False, reset_stream_at=False, max_data_grown=67108864, send_window_min=1048576, qlog=None)")]
    fn new(py: Python<'_>, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let keywords = Keywords::new(py, "ClientConfig", keywords)?;
        let made = Self::made(py, &keywords);
        keywords.end(made)
    }

    /// A copy for one connection: sessions and address tokens are kept in `memory`, and the first packets are
    /// addressed to `destination_id`.
    #[pyo3(name = "_with_memory", signature = (memory, destination_id=None))]
    fn with_memory(
        &self,
        py: Python<'_>,
        memory: &Memory,
        destination_id: Option<&[u8]>,
    ) -> PyResult<Self> {
        let inner = self.inner.with_sessions(memory.sessions());
        let mut inner = inner.tokens(Some(memory.tokens()));
        if let Some(id) = destination_id {
            let made = inner.initial_destination(id);
            inner = made.map_err(|error| errors::config(py, error))?;
        }
        let listener = self.listener.as_ref();
        Ok(Self {
            inner,
            listener: listener.map(|listener| listener.clone_ref(py)),
            memory: Some(memory.store()),
        })
    }
}

impl ClientConfig {
    fn made(py: Python<'_>, keywords: &Keywords<'_>) -> PyResult<Self> {
        let refused = |error| errors::config(py, error);
        let verifies = keywords.take_or("verify", true)?;
        let roots = roots(py, keywords)?;
        let mut tls = match (verifies, roots) {
            (false, _) => ClientTls::without_verification(),
            (true, Some(roots)) if roots.is_empty() => {
                let text = "system_roots=False leaves no authority to trust: \
                            give ca_file=, ca_path= or ca_data=";
                return Err(exception::configuration(py, text.to_owned()));
            }
            (true, Some(roots)) => ClientTls::with_roots(roots),
            (true, None) => ClientTls::new().map_err(refused)?,
        };
        tls = tls.alpn(protocols(keywords)?);
        let shown = keywords.take_some("certificate")?;
        let key = private_key(keywords)?;
        if let Some(certificate) = certificate(shown, key)? {
            tls = tls.certificate(certificate);
        }
        let (secrets, listener) = keylog::from_python(keywords.take_some("keylog")?.as_ref())?;
        tls = tls.secrets(secrets);
        if !keywords.take_or("sessions", true)? {
            tls = tls.sessions(None);
        }
        tls = tls.early_data(keywords.take_or("early_data", true)?);
        let tokens = keywords.take_path("token_store")?;
        let version = version("version", keywords.take_in("version", 1, 0..=u32::MAX)?)?;
        let (transport, qlog) = (transport(keywords)?, qlog(keywords)?);
        let inner = config::ClientConfig::new(tls).and_then(|inner| inner.transport(&transport));
        let mut inner = inner.map_err(refused)?.version(version).qlog(qlog);
        if let Some(tokens) = tokens {
            inner = inner.tokens(Some(directory(py, tokens)?));
        }
        Ok(Self { inner, listener, memory: None })
    }
}

/// A server's configuration.
#[pyclass(frozen, module = "ringloop._native.quic")]
pub struct ServerConfig {
    pub inner: config::ServerConfig,
    pub listener: Option<Listener>,
    certificates: Certificates,
}

#[pymethods]
impl ServerConfig {
    #[new]
    #[pyo3(signature = (**keywords), text_signature = "(*, certificate=None, private_key=None, password=None, sni=None, alpn=(), client_auth='none', ca_file=None, ca_path=None, ca_data=None, system_roots=None, keylog=None, sessions=True, early_data=False, migration=True, preferred_address=(), token_secret=None, retry_lifetime=15.0, tokens=2, incoming_max=1024, idle_timeout=30.0, handshake_timeout=30.0, keep_alive=None, max_streams_bidi=100, max_streams_uni=100, max_data=25165824, max_stream_data=16777216, send_window=16777216, congestion='cubic', datagram_receive_buffer=1048576, datagram_send_buffer=262144, initial_mtu=1200, mtu_max=1452, initial_rtt=0.333, ack_frequency=False, reset_stream_at=False, max_data_grown=67108864, send_window_min=1048576, qlog=None)")]
    fn new(py: Python<'_>, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let keywords = Keywords::new(py, "ServerConfig", keywords)?;
        let made = Self::made(py, &keywords);
        keywords.end(made)
    }

    /// Present another certificate from now on: for `name`, or for all names without their own.
    #[pyo3(signature = (certificate, private_key=None, name=None, password=None))]
    fn set_certificate(
        &self,
        py: Python<'_>,
        certificate: Bound<'_, PyAny>,
        private_key: Option<Bound<'_, PyAny>>,
        name: Option<&str>,
        password: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let key = Key { object: private_key, password };
        let certificate = material::certificate(Some(certificate), key)?;
        match (certificate, name) {
            (Some(certificate), Some(name)) => {
                let name = address::sni_name(py, name)?;
                self.certificates.set(&name, certificate);
            }
            (Some(certificate), None) => self.certificates.set_default(certificate),
            (None, _) => {}
        }
        Ok(())
    }

    /// Remove a name's own certificate; return whether it had one.
    fn remove_certificate(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        Ok(self.certificates.remove(&address::sni_name(py, name)?))
    }
}

impl ServerConfig {
    fn made(py: Python<'_>, keywords: &Keywords<'_>) -> PyResult<Self> {
        let refused = |error| errors::config(py, error);
        let certificates = server_certificates(py, keywords)?;
        let mut tls = ServerTls::with_certificates(certificates.clone());
        tls = tls.alpn(protocols(keywords)?);
        tls = tls.clients(clients(py, keywords)?);
        let (secrets, listener) = keylog::from_python(keywords.take_some("keylog")?.as_ref())?;
        tls = tls.secrets(secrets);
        match kept(py, keywords)? {
            Kept::Default => {}
            Kept::Nowhere => tls = tls.sessions(None),
            Kept::In(directory) => tls = tls.sessions(Some(directory)),
        }
        tls = tls.early_data(keywords.take_or("early_data", false)?);
        let mut inner = config::ServerConfig::new(tls).map_err(refused)?;
        inner = inner.migration(keywords.take_or("migration", true)?);
        if let Some(addresses) = keywords.take_some("preferred_address")? {
            let made = preferred(&addresses);
            let (v4, v6) = keywords.named("preferred_address", made)?;
            inner = inner.preferred_address(v4, v6);
        }
        if let Some(secret) = secret(keywords, "token_secret")? {
            inner = inner.token_secret(&secret);
        }
        let lifetimes = Duration::from_secs(1)..=limits::TIME_MAX;
        if let Some(lifetime) = keywords.take_seconds("retry_lifetime", None, lifetimes)? {
            inner = inner.retry_lifetime(lifetime).map_err(refused)?;
        }
        let tokens = keywords.take_in("tokens", 2, 0..=limits::TOKENS_MAX)?;
        let made = inner.tokens(tokens, Duration::from_secs(14 * 24 * 3600));
        let waiting = limits::INCOMING_MAX;
        let waiting = keywords.take_in("incoming_max", waiting, 1..=limits::INCOMING_LIMIT)?;
        let made = made.and_then(|made| made.incoming_max(waiting));
        inner = made.map_err(refused)?;
        let (transport, qlog) = (transport(keywords)?, qlog(keywords)?);
        let inner = inner.transport(&transport).map_err(refused)?.qlog(qlog);
        Ok(Self { inner, listener, certificates })
    }
}

/// A certificate and its key, as given.
type Pair<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

fn server_certificates(py: Python<'_>, keywords: &Keywords<'_>) -> PyResult<Certificates> {
    let certificates = Certificates::default();
    let shown = keywords.take_some("certificate")?;
    let default = certificate(shown, private_key(keywords)?)?;
    let is_empty = default.is_none();
    if let Some(default) = default {
        certificates.set_default(default);
    }
    let named = keywords.take_some("sni")?;
    if let Some(named) = &named {
        for item in keywords.named("sni", named.cast::<PyMapping>())?.items()? {
            let pair: PyResult<(String, Pair<'_>)> = item.extract();
            let (name, (chain, object)) = keywords.named("sni", pair)?;
            let key = Key { object, password: None };
            if let Some(certificate) = keywords.named("sni", certificate(Some(chain), key))? {
                certificates.set(&address::sni_name(py, &name)?, certificate);
            }
        }
    }
    if is_empty && named.is_none() {
        let text = "a server needs a certificate: certificate=, or sni= \
                    (python -m ringloop.quic certificate NAME makes one)";
        return Err(exception::configuration(py, text.to_owned()));
    }
    Ok(certificates)
}

fn clients(py: Python<'_>, keywords: &Keywords<'_>) -> PyResult<Clients> {
    let wanted: String = keywords.take_or("client_auth", "none".to_owned())?;
    let roots = roots(py, keywords)?.filter(|roots| !roots.is_empty());
    // Not the system's authorities, which would admit every holder of a web server's certificate.
    let known = || {
        roots.ok_or_else(|| {
            let text = format!(
                "client_auth={wanted:?} needs the authority of the clients' certificates: \
                 ca_file=, ca_path= or ca_data= (or system_roots=True)"
            );
            exception::configuration(py, text)
        })
    };
    match wanted.as_str() {
        "none" => Ok(Clients::Anyone),
        "optional" => Ok(Clients::Known(known()?)),
        "required" => Ok(Clients::Required(known()?)),
        _ => Err(PyValueError::raise(format!(
            "client_auth is {wanted:?}: give 'none', 'optional' or 'required'"
        ))),
    }
}

fn protocols(keywords: &Keywords<'_>) -> PyResult<Vec<Vec<u8>>> {
    let Some(given) = keywords.take_some("alpn")? else {
        return Ok(Vec::new());
    };
    let is_one = given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.is_instance_of::<PyByteArray>()
        || given.is_instance_of::<PyMemoryView>();
    let names = given.try_iter().ok().filter(|_| !is_one);
    let Some(names) = names else {
        return Err(PyTypeError::raise("alpn is a list of protocols: alpn=[\"h3\"]"));
    };
    let name = |name: Bound<'_, PyAny>| {
        bytes(&name).map_err(|error| {
            let py = name.py();
            if error.is_instance_of::<PyUnicodeEncodeError>(py) {
                let text = format!("alpn: {name:?} cannot be encoded: {}", error.value(py));
                return exception::configuration(py, text);
            }
            PyTypeError::raise(format!(
                "alpn is a list of protocols, each text or bytes: {name:?} is neither"
            ))
        })
    };
    names.map(|item| name(item?)).collect()
}

fn version(name: &str, number: u32) -> PyResult<Version> {
    match number {
        1 => Ok(Version::V1),
        2 => Ok(Version::V2),
        number if number == Version::V2.number() => Ok(Version::V2),
        _ => Err(PyValueError::raise(format!(
            "{name}: {number:#x} is not a supported version of QUIC: give 1 or 2"
        ))),
    }
}

/// Parses several versions.
pub fn versions(numbers: &Bound<'_, PyAny>) -> PyResult<Vec<Version>> {
    let numbers = numbers.try_iter()?;
    numbers.map(|number| version("versions", number?.extract()?)).collect()
}

fn transport(keywords: &Keywords<'_>) -> PyResult<Transport> {
    let times = limits::TIME_MIN..=limits::TIME_MAX;
    let windows = 1..=limits::NUMBER_MAX;
    let streams = 0..=limits::STREAMS_LIMIT;
    let mut to = Transport::default();
    to.idle_timeout = keywords.take_seconds("idle_timeout", to.idle_timeout, times.clone())?;
    let whole = to.handshake_timeout;
    to.handshake_timeout = keywords.take_seconds("handshake_timeout", whole, times.clone())?;
    to.keep_alive = keywords.take_seconds("keep_alive", to.keep_alive, times)?;
    to.bi_streams_max = keywords.take_in("max_streams_bidi", to.bi_streams_max, streams.clone())?;
    to.uni_streams_max = keywords.take_in("max_streams_uni", to.uni_streams_max, streams)?;
    to.receive_window = keywords.take_in("max_data", to.receive_window, windows.clone())?;
    let stream = to.stream_receive_window;
    to.stream_receive_window = keywords.take_in("max_stream_data", stream, windows.clone())?;
    to.send_window = keywords.take_in("send_window", to.send_window, windows.clone())?;
    if let Some(name) = keywords.take_some("congestion")? {
        let name: String = keywords.named("congestion", name.extract())?;
        to.congestion = Congestion::from_name(&name).ok_or_else(|| {
            PyValueError::raise(format!(
                "there is no congestion control {name:?}: give 'cubic', 'newreno' or 'bbr'"
            ))
        })?;
    }
    let (mtus, buffers) = (1200..=65_527, 1..=limits::BUFFER_MAX);
    let buffer = to.datagram_receive_buffer;
    to.datagram_receive_buffer =
        keywords.take_in_or_none("datagram_receive_buffer", buffer, buffers.clone())?;
    let buffer = to.datagram_send_buffer;
    to.datagram_send_buffer = keywords.take_in("datagram_send_buffer", buffer, buffers)?;
    to.initial_mtu = keywords.take_in("initial_mtu", to.initial_mtu, mtus.clone())?;
    to.mtu_max = keywords.take_in_or_none("mtu_max", to.mtu_max, mtus)?;
    let rtts = limits::INITIAL_RTT_MIN..=limits::INITIAL_RTT_MAX;
    if let Some(rtt) = keywords.take_seconds("initial_rtt", None, rtts)? {
        to.initial_rtt = rtt;
    }
    to.ack_frequency = keywords.take_or("ack_frequency", to.ack_frequency)?;
    to.reset_stream_at = keywords.take_or("reset_stream_at", to.reset_stream_at)?;
    let grown = 0..=limits::NUMBER_MAX;
    to.receive_window_max = keywords.take_in("max_data_grown", to.receive_window_max, grown)?;
    to.send_window_min = keywords.take_in("send_window_min", to.send_window_min, windows)?;
    Ok(to)
}

/// The log of connections: one file each in an existing directory, or [`Traces`].
fn qlog(keywords: &Keywords<'_>) -> PyResult<Option<Qlog>> {
    let Some(place) = keywords.take_some("qlog")? else {
        return Ok(None);
    };
    if let Ok(traces) = place.cast::<Traces>() {
        return Ok(Some(Qlog::to(traces.get().target.clone())));
    }
    let path = place.extract::<PathBuf>();
    let path = path.map_err(|error| keywords.explained("qlog", error))?;
    let made = Qlog::in_directory(&path);
    made.map(Some).map_err(|error| error::with_path(place.py(), &error, &path))
}

/// A store shared by processes.
fn directory(py: Python<'_>, path: PathBuf) -> PyResult<Arc<Directory>> {
    let opened = Directory::open(&path).map(Arc::new);
    opened.map_err(|error| error::with_path(py, &error, &path))
}

/// A server's session store.
enum Kept {
    Default,
    Nowhere,
    In(Arc<Directory>),
}

/// Parses the argument `sessions`: a bool (in memory), or a directory's path.
fn kept(py: Python<'_>, keywords: &Keywords<'_>) -> PyResult<Kept> {
    let Some(given) = keywords.take("sessions")? else {
        return Ok(Kept::Default);
    };
    if let Ok(path) = given.extract::<PathBuf>() {
        return directory(py, path).map(Kept::In);
    }
    let keeps: bool = given
        .extract()
        .map_err(|_| PyTypeError::raise("sessions is True, False or the path of a directory"))?;
    Ok(if keeps { Kept::Default } else { Kept::Nowhere })
}

/// Parses the argument `preferred_address`: one address, or one per family.
fn preferred(
    addresses: &Bound<'_, PyAny>,
) -> PyResult<(Option<SocketAddrV4>, Option<SocketAddrV6>)> {
    let all = if let Ok(one) = address::from_python(addresses) {
        vec![one]
    } else {
        let given = addresses.try_iter()?;
        given.map(|one| address::from_python(&one?)).collect::<PyResult<_>>()?
    };
    let (mut v4, mut v6) = (None, None);
    for address in all {
        match address {
            SocketAddr::V4(address) => v4 = Some(address),
            SocketAddr::V6(address) => v6 = Some(address),
        }
    }
    Ok((v4, v6))
}
