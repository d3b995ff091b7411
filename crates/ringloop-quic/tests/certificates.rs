//! Certificates of servers and clients, on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_quic::Endpoint;
use ringloop_quic::config::{ClientConfig, ServerConfig};
use ringloop_quic::error::ConnectionError;
use ringloop_quic::tls::{Certificates, ClientTls, Clients, Roots, ServerTls};
use ringloop_testing::quic::{
    Authority, any, authority, client_tls, on_both, server_config, server_tls,
};

#[test]
fn certificates_are_verified_by_default() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let address = server.local_addr().unwrap();
        ringloop::spawn(async move {
            while let Some(incoming) = server.accept().await {
                let accepting = incoming.accept().unwrap();
                ringloop::spawn(async move {
                    if let Ok(theirs) = accepting.await {
                        theirs.closed().await;
                    }
                });
            }
        });
        let stranger = Authority::new("somebody else");
        let try_with = async |tls: ClientTls, name: &str| {
            let config = ClientConfig::new(tls.alpn(["test"])).unwrap();
            let client = Endpoint::client(any(), config).unwrap();
            client.connect(address, name).unwrap().await.map(drop)
        };
        // TLS alerts: 48 unknown_ca, 42 bad_certificate, 120 no_application_protocol.
        let alert = |result: Result<(), ConnectionError>| match result.unwrap_err() {
            ConnectionError::Transport { code, .. }
            | ConnectionError::TransportByPeer { code, .. } => code - 0x100,
            other => panic!("{other}"),
        };
        assert_eq!(alert(try_with(ClientTls::with_roots(stranger.roots()), "localhost").await), 48);
        assert_eq!(alert(try_with(client_tls(), "example.org").await), 42);
        try_with(ClientTls::without_verification(), "example.org").await.unwrap();
        try_with(client_tls(), "127.0.0.1").await.unwrap();
        let other = ClientConfig::new(client_tls().alpn(["other"])).unwrap();
        let client = Endpoint::client(any(), other).unwrap();
        let ended = client.connect(address, "localhost").unwrap().await.map(drop);
        assert_eq!(alert(ended), 120);
        assert!(Roots::empty().add_pem(b"nonsense").is_err());
    });
}

#[test]
fn servers_request_and_see_client_certificates() {
    on_both(|| async {
        let guests = Authority::new("guests");
        let tls = server_tls().clients(Clients::Required(guests.roots()));
        let server = Endpoint::server(any(), ServerConfig::new(tls).unwrap()).unwrap();
        let address = server.local_addr().unwrap();
        let seen = ringloop::spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..3 {
                let result = server.accept().await.unwrap().accept().unwrap().await;
                seen.push(result.map(|theirs| theirs.peer_identity().map(|chain| chain.len())));
            }
            seen
        });
        let guest = client_tls().certificate(guests.certificate(&["guest"]));
        let other = client_tls().certificate(authority().certificate(&["other"]));
        for tls in [guest, other, client_tls()] {
            let client = Endpoint::client(any(), ClientConfig::new(tls).unwrap()).unwrap();
            // A client is done before the server has looked at its certificate.
            if let Ok(ours) = client.connect(address, "localhost").unwrap().await {
                ours.closed().await;
            }
        }
        let seen = seen.await.unwrap();
        assert_eq!(seen[0], Ok(Some(1)));
        assert!(seen[1].is_err() && seen[2].is_err(), "{seen:?}");
    });
}

#[test]
fn certificates_by_name_change_at_run_time() {
    on_both(|| async {
        let certificates = Certificates::new(authority().certificate(&["one.test"]));
        certificates.set("two.test", authority().certificate(&["two.test"]));
        certificates.set("*.many.test", authority().certificate(&["*.many.test"]));
        let tls = ServerTls::with_certificates(certificates.clone()).alpn(["test"]);
        let server = Endpoint::server(any(), ServerConfig::new(tls).unwrap()).unwrap();
        let address = server.local_addr().unwrap();
        ringloop::spawn(async move {
            while let Some(incoming) = server.accept().await {
                if let Ok(accepting) = incoming.accept() {
                    ringloop::spawn(async move { drop(accepting.await) });
                }
            }
        });
        let is_served = async |name: &str| {
            let config = ClientConfig::new(client_tls().sessions(None)).unwrap();
            let client = Endpoint::client(any(), config).unwrap();
            client.connect(address, name).unwrap().await.is_ok()
        };
        for name in ["one.test", "two.test", "TWO.test", "a.many.test"] {
            assert!(is_served(name).await, "{name}");
        }
        assert!(!is_served("three.test").await);
        certificates.set_default(authority().certificate(&["three.test"]));
        assert!(is_served("three.test").await && !is_served("one.test").await);
        assert!(certificates.remove("Two.Test") && !certificates.remove("two.test"));
        assert!(!is_served("two.test").await);
    });
}
