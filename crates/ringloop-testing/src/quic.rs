//! Shared by the tests: runtimes on both drivers, certificates, pairs of connections, a faulty
//! network.

use crate::{LIMIT, drivers};
use ringloop::net::UdpSocket;
use ringloop::time::timeout;
use ringloop::{Options, Runtime};
use ringloop_quic::config::{ClientConfig, EndpointConfig, ServerConfig, Transport};
use ringloop_quic::tls::{Certificate, ClientTls, Roots, ServerTls};
use ringloop_quic::{Connection, Endpoint};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::OnceLock;

/// Runs a test on every driver, each in a new runtime.
pub fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for driver in drivers() {
        let options = Options { driver, ..Options::default() };
        let runtime = Runtime::with_options(options).unwrap();
        let result = runtime.block_on(timeout(LIMIT, test())).unwrap();
        result.unwrap_or_else(|_| panic!("{driver:?}: not over after {LIMIT:?}"));
    }
}

/// A CA, with certificates signed by it.
pub struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pub pem: String,
}

pub fn authority() -> &'static Authority {
    static ONE: OnceLock<Authority> = OnceLock::new();
    ONE.get_or_init(|| Authority::new("test authority"))
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: rcgen::Issuer::new(params, key), pem }
    }

    pub fn certificate(&self, names: &[&str]) -> Certificate {
        let key = rcgen::KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![
            rcgen::ExtendedKeyUsagePurpose::ServerAuth,
            rcgen::ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        Certificate::from_pem(signed.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }

    pub fn roots(&self) -> Roots {
        Roots::empty().add_pem(self.pem.as_bytes()).unwrap()
    }
}

pub fn server_tls() -> ServerTls {
    static ONE: OnceLock<Certificate> = OnceLock::new();
    let certificate = ONE.get_or_init(|| authority().certificate(&["localhost", "127.0.0.1"]));
    ServerTls::new(certificate.clone()).alpn(["test"])
}

pub fn client_tls() -> ClientTls {
    ClientTls::with_roots(authority().roots()).alpn(["test"])
}

pub fn server_config() -> ServerConfig {
    ServerConfig::new(server_tls()).unwrap()
}

pub fn client_config() -> ClientConfig {
    ClientConfig::new(client_tls()).unwrap()
}

pub fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Two endpoints with a connection between them.
pub struct Pair {
    pub server: Endpoint,
    pub client: Endpoint,
    pub theirs: Connection,
    pub ours: Connection,
}

impl Pair {
    /// Our connection, the peer's, and the endpoints that keep both alive.
    pub fn parts(self) -> (Connection, Connection, [Endpoint; 2]) {
        (self.ours, self.theirs, [self.server, self.client])
    }
}

pub async fn pair() -> Pair {
    pair_with(server_config(), client_config(), |address| address).await
}

/// A pair with this transport on both ends.
pub async fn pair_as(transport: &Transport) -> Pair {
    let server = server_config().transport(transport).unwrap();
    pair_with(server, client_config().transport(transport).unwrap(), |address| address).await
}

/// A pair whose client connects to the address that `route` returns.
pub async fn pair_with(
    server: ServerConfig,
    client: ClientConfig,
    route: impl FnOnce(SocketAddr) -> SocketAddr,
) -> Pair {
    let server = Endpoint::server(any(), server).unwrap();
    let client = Endpoint::client(any(), client).unwrap();
    let address = route(server.local_addr().unwrap());
    let connecting = client.connect(address, "localhost").unwrap();
    let accepting = ringloop::spawn({
        let server = server.clone();
        async move { server.accept().await.unwrap().accept().unwrap().await }
    });
    let ours = connecting.await.unwrap();
    let theirs = accepting.await.unwrap().unwrap();
    Pair { server, client, theirs, ours }
}

pub fn endpoint(config: &EndpointConfig, server: Option<ServerConfig>) -> Endpoint {
    let socket = UdpSocket::bind_addr(any()).unwrap();
    Endpoint::with_socket(socket, config, server, Some(client_config())).unwrap()
}

/// Bytes that depend on their position.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
