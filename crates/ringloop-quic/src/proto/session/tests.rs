//! Sessions of both ends without an engine: a server's session concludes without a visible change.

use super::*;
use crate::tls::{Certificate, ClientTls, Clients, Roots, Secrets as To, ServerTls};
use quinn_proto::crypto::Session as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::quic::{ClientConnection, ServerConnection};
use rustls::{KeyLog, RootCertStore, SupportedCipherSuite};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, OnceLock};

/// A self-signed certificate, and its chain in PEM.
fn certificate() -> &'static (Certificate, String) {
    static ONE: OnceLock<(Certificate, String)> = OnceLock::new();
    ONE.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes());
        (certificate.unwrap(), chain)
    })
}

fn roots() -> Roots {
    Roots::empty().add_pem(certificate().1.as_bytes()).unwrap()
}

fn server_tls() -> ServerTls {
    let tls = ServerTls::new(certificate().0.clone()).alpn(["test"]);
    tls.secrets(To::Kept).early_data(true)
}

fn client_tls() -> ClientTls {
    let tls = ClientTls::without_verification().alpn(["test"]);
    tls.secrets(To::Kept)
}

/// Configurations of both ends; may be used for several connections.
#[derive(Clone)]
struct Configs {
    server: Arc<rustls::ServerConfig>,
    client: Arc<rustls::ClientConfig>,
    version: Version,
}

impl Configs {
    fn new(server: ServerTls, client: ClientTls) -> Self {
        let initial = crate::tls::initial_suite().unwrap();
        Self {
            server: ServerSessions::new(server.build().unwrap(), initial).unwrap().config,
            client: Arc::new(client.build().unwrap()),
            version: Version::V1,
        }
    }

    /// With a client that supports one cipher suite.
    fn with_suite(suite: SupportedCipherSuite) -> Self {
        let provider = CryptoProvider {
            cipher_suites: vec![suite],
            ..CryptoProvider::clone(&crate::tls::provider())
        };
        let mut roots = RootCertStore::empty();
        let chain = CertificateDer::from_pem_slice(certificate().1.as_bytes());
        roots.add(chain.unwrap()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13]);
        let client = client.unwrap().with_root_certificates(roots);
        let mut client = client.with_no_client_auth();
        client.alpn_protocols = vec![b"test".to_vec()];
        Self { client: Arc::new(client), ..Self::new(server_tls(), client_tls()) }
    }

    fn start(&self) -> Ends {
        let suite = crate::tls::initial_suite().unwrap();
        // max_idle_timeout, 1,000 ms (RFC 9000 §18.2).
        let parameters = vec![0x01, 0x02, 0x43, 0xe8];
        let (server, client) = (Arc::clone(&self.server), Arc::clone(&self.client));
        let name = ServerName::try_from("localhost").unwrap();
        let server = ServerConnection::new(server, self.version, parameters.clone());
        let client = ClientConnection::new(client, self.version, name, parameters);
        let session = |connection, own| Session::new(connection, own, self.version, suite);
        let own = (Arc::clone(&self.server), Arc::clone(&self.client));
        Ends {
            server: session(Connection::Server(server.unwrap()), Own::Server(own.0)),
            client: session(Connection::Client(client.unwrap()), Own::Client(own.1)),
            keys: Vec::new(),
        }
    }

    /// Both have read everything the other wrote; the server was not yet asked for more to write.
    fn shake_hands(&self) -> Ends {
        let mut ends = self.start();
        hand_on(&mut ends.client, &mut ends.server);
        ends.keys = hand_on(&mut ends.server, &mut ends.client);
        hand_on(&mut ends.client, &mut ends.server);
        assert!(!ends.server.is_handshaking() && !ends.client.is_handshaking());
        assert!(!ends.is_concluded());
        ends
    }

    /// The server has written its tickets.
    fn connect(&self) -> Ends {
        let mut ends = self.shake_hands();
        ends.conclude();
        ends
    }
}

struct Ends {
    server: Session,
    client: Session,
    /// The server's keys.
    keys: Vec<Keys>,
}

impl Ends {
    fn is_concluded(&self) -> bool {
        matches!(self.client.tls, Tls::Running(_)) && matches!(self.server.tls, Tls::Concluded(_))
    }

    fn conclude(&mut self) {
        assert!(hand_on(&mut self.server, &mut self.client).is_empty());
        assert!(self.is_concluded());
    }
}

/// Passes messages from one end to the other until there are none left, as the engine does; returns
/// the keys that became available.
fn hand_on(from: &mut Session, to: &mut Session) -> Vec<Keys> {
    let mut given = Vec::new();
    loop {
        let mut flight = Vec::new();
        let keys = from.write_handshake(&mut flight);
        if keys.is_none() && flight.is_empty() {
            return given;
        }
        given.extend(keys);
        if !flight.is_empty() {
            to.read_handshake(&flight).unwrap();
        }
    }
}

/// Everything a session reports except its keys.
fn told(session: &Session) -> String {
    let agreed = session.handshake_data().unwrap();
    let agreed = agreed.downcast::<Agreed>().unwrap();
    let chain = session.peer_identity();
    let chain = chain.map(|chain| chain.downcast::<PeerCertificates>().unwrap());
    let parameters = session.transport_parameters().unwrap().unwrap();
    let (early, handshaking) = (session.early_data_accepted(), session.is_handshaking());
    format!("{agreed:?} {chain:?} {parameters:?} {early:?} {handshaking}")
}

fn exported(session: &Session, len: usize, label: &[u8], context: &[u8]) -> Option<Vec<u8>> {
    let mut output = vec![0; len];
    let result = session.export_keying_material(&mut output, label, context);
    result.ok().map(|()| output)
}

#[test]
fn server_reports_the_same_after_conclusion() {
    let known = server_tls().clients(Clients::Required(roots()));
    let shown = client_tls().certificate(certificate().0.clone());
    for (server, client) in [(server_tls(), client_tls()), (known, shown)] {
        let mut configs = Configs::new(server, client);
        for (version, resumed) in [(Version::V1, false), (Version::V2, true)] {
            configs.version = version;
            let mut ends = configs.shake_hands();
            let before = told(&ends.server);
            ends.conclude();
            assert_eq!(told(&ends.server), before);
            assert!(before.contains("localhost") && before.contains("TLS13_"));
            assert!(before.contains(&format!("resumed: {resumed}")), "{before}");
        }
    }
}

#[test]
fn concluded_server_keeps_the_client_certificate() {
    let server = server_tls().clients(Clients::Known(roots()));
    let client = client_tls().certificate(certificate().0.clone());
    let configs = Configs::new(server, client);
    for _resumed in [false, true] {
        let chain = configs.connect().server.peer_identity().unwrap();
        let chain = chain.downcast::<PeerCertificates>().unwrap();
        let shown = CertificateDer::from_pem_slice(certificate().1.as_bytes());
        assert_eq!(*chain, [shown.unwrap()]);
    }
}

#[test]
fn server_concludes_without_tickets_and_with_early_data() {
    let configs = Configs::new(server_tls().sessions(None), client_tls());
    configs.connect();
    let configs = Configs::new(server_tls(), client_tls());
    configs.connect();
    let mut ends = configs.start();
    hand_on(&mut ends.client, &mut ends.server);
    assert!(ends.server.early_crypto().is_some());
    assert!(!ends.is_concluded());
    hand_on(&mut ends.server, &mut ends.client);
    assert_eq!(ends.client.early_data_accepted(), Some(true));
    // It waits for the client's Finished.
    assert!(ends.server.is_handshaking() && !ends.is_concluded());
    hand_on(&mut ends.client, &mut ends.server);
    ends.conclude();
}

#[test]
fn keying_material_matches_client_before_and_after_conclusion() {
    let long = vec![7; 3000];
    let suites = crate::tls::provider().cipher_suites.clone();
    let suites: Vec<_> = suites.into_iter().filter(|suite| suite.tls13().is_some()).collect();
    assert_eq!(suites.len(), 3);
    for suite in suites {
        let hash_len = suite.tls13().unwrap().common.hash_provider.output_len();
        let lens = [1, hash_len - 1, hash_len, hash_len + 1, 255 * hash_len];
        // The longest label that RFC 8446 can encode, and a longer one.
        for label in [&b""[..], b"EXPORTER-test", &long[..249], &long[..400]] {
            for context in [&b""[..], b"context", &long] {
                let mut ends = Configs::with_suite(suite).shake_hands();
                let all =
                    |session: &Session| lens.map(|len| exported(session, len, label, context));
                let before = all(&ends.server);
                assert!(before.iter().all(Option::is_some));
                ends.conclude();
                assert_eq!(all(&ends.server), before);
                assert_eq!(all(&ends.client), before);
                for refused in [0, 255 * hash_len + 1, 1 << 20] {
                    for session in [&ends.server, &ends.client] {
                        assert_eq!(exported(session, refused, label, context), None);
                    }
                }
            }
        }
    }
}

#[test]
fn keying_material_differs_per_connection() {
    let mut configs = Configs::new(server_tls(), client_tls());
    let mut seen = Vec::new();
    for version in [Version::V1, Version::V1, Version::V2] {
        configs.version = version;
        let ends = configs.connect();
        let material = exported(&ends.server, 32, b"label", b"").unwrap();
        assert_eq!(exported(&ends.client, 32, b"label", b""), Some(material.clone()));
        assert!(!seen.contains(&material));
        seen.push(material);
    }
}

#[test]
fn messages_are_unexpected_before_and_after_conclusion() {
    let configs = Configs::new(server_tls(), client_tls());
    // A KeyUpdate, a Finished, a NewSessionTicket's head: RFC 8446 §4.
    let key_update = [24, 0, 0, 1, 0];
    let finished = [&[20, 0, 0, 32][..], &[0; 32]].concat();
    for message in [&key_update[..], &finished] {
        for is_concluded in [false, true] {
            let mut ends = configs.shake_hands();
            if is_concluded {
                ends.conclude();
            }
            let error = ends.server.read_handshake(message).unwrap_err();
            assert_eq!(u64::from(error.code), 0x10a, "{}", error.reason);
        }
    }
}

#[test]
fn both_ends_can_update_keys_after_conclusion() {
    for version in [Version::V1, Version::V2] {
        let mut configs = Configs::new(server_tls(), client_tls());
        configs.version = version;
        let mut ends = configs.connect();
        assert_eq!(ends.keys.len(), 2);
        for number in 0..5 {
            let ours = ends.client.next_1rtt_keys().unwrap();
            let theirs = ends.server.next_1rtt_keys().unwrap();
            let mut packet = b"headpayload".to_vec();
            packet.resize(packet.len() + ours.local.tag_len(), 0);
            ours.local.encrypt(number, &mut packet, 4);
            let mut sealed = bytes::BytesMut::from(&packet[4..]);
            theirs.remote.decrypt(number, b"head", &mut sealed).unwrap();
            assert_eq!(&sealed[..], b"payload");
        }
    }
}

/// A line of a key log: label, client's random, secret.
type Line = (String, Vec<u8>, Vec<u8>);

/// An application's key log that accepts labels with this prefix.
#[derive(Debug, Default)]
struct Lines {
    wanted: &'static str,
    lines: Mutex<Vec<Line>>,
}

impl KeyLog for Lines {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = (label.to_owned(), client_random.to_vec(), secret.to_vec());
        self.lines.lock().unwrap().push(line);
    }

    fn will_log(&self, label: &str) -> bool {
        label.starts_with(self.wanted)
    }
}

#[test]
fn application_key_log_matches_plain_rustls() {
    for (wanted, count) in [("", 5), ("CLIENT_", 2), ("EXPORTER", 1), ("-", 0)] {
        let log = |wanted| Arc::new(Lines { wanted, ..Lines::default() });
        let (theirs, plain, ours) = (log(wanted), log(wanted), log(wanted));
        let to = |log: &Arc<Lines>| To::To(Arc::clone(log) as Arc<dyn KeyLog>);
        // rustls reports the client's secrets itself.
        let client = client_tls().secrets(to(&ours));
        let configs = Configs::new(server_tls().secrets(to(&theirs)), client);
        configs.connect();
        let sorted = |log: &Lines| {
            let mut lines = std::mem::take(&mut *log.lines.lock().unwrap());
            let labels: Vec<_> = lines.iter().map(|line| line.0.clone()).collect();
            lines.sort();
            (lines, labels)
        };
        let (lines, labels) = sorted(&theirs);
        assert_eq!(lines.len(), count);
        assert_eq!(lines, sorted(&ours).0);
        // In the order of an unmodified rustls server.
        let server = server_tls().secrets(to(&plain)).build();
        let mut ends = Configs { server: Arc::new(server.unwrap()), ..configs }.shake_hands();
        hand_on(&mut ends.server, &mut ends.client);
        assert_eq!(labels, sorted(&plain).1);
        // Its secret was not captured: it keeps rustls' connection, and exports keying material
        // through it.
        assert!(!ends.is_concluded());
        let material = exported(&ends.server, 32, b"label", b"");
        assert!(material.is_some() && material == exported(&ends.client, 32, b"label", b""));
    }
}

/// A key log that does something else when it gets the exporter secret.
struct Then<F>(F);

impl<F> std::fmt::Debug for Then<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Then")
    }
}

impl<F: Fn() + Send + Sync> KeyLog for Then<F> {
    fn log(&self, label: &str, _: &[u8], _: &[u8]) {
        if label == "EXPORTER_SECRET" {
            self.0();
        }
    }
}

#[test]
fn panicking_key_log_leaves_no_secret_behind() {
    // Without the panic hook, whose backtrace allocates memory that other tests count.
    let log = Then(|| resume_unwind(Box::new("a key log that fails")));
    let configs = Configs::new(server_tls().secrets(To::To(Arc::new(log))), client_tls());
    let mut ends = configs.start();
    let shaken = catch_unwind(AssertUnwindSafe(|| {
        hand_on(&mut ends.client, &mut ends.server);
    }));
    assert!(shaken.is_err());
    assert!(exporter::captured().is_none());
}

#[test]
fn nested_session_in_key_log_keeps_secrets_apart() {
    let inner = Configs::new(server_tls(), client_tls());
    let check = |ends: &Ends| {
        let material = exported(&ends.server, 32, b"label", b"");
        assert!(material.is_some() && material == exported(&ends.client, 32, b"label", b""));
    };
    let log = Then(move || check(&inner.connect()));
    let configs = Configs::new(server_tls().secrets(To::To(Arc::new(log))), client_tls());
    check(&configs.connect());
}
