//! hyper and rustls on ringloop: what the two programs of this folder share.
//!
//! Look at `bin/http_server.rs` first (HTTP/1 and HTTP/2 on every worker, a loop and a ring each), then at
//! `bin/tls_server.rs` (the same behind rustls). `tests/servers.rs` runs both and talks to them.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ringloop::compat::hyper::{Executor, Timer};
use ringloop::net::{Polled, TcpListener, TcpStream};
use ringloop::time::timeout;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// How long a client may take for its handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many requests a worker has answered: it never leaves its thread, so it needs no lock.
type Counter = Rc<Cell<u64>>;

/// Answer one request: `/` greets, `/echo` returns what it is sent, `/count` tells how many this worker has
/// answered.
async fn answer(
    request: Request<Incoming>,
    counter: Counter,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    counter.set(counter.get() + 1);
    let (status, body) = match request.uri().path() {
        "/" => (StatusCode::OK, Bytes::from_static(b"hello from a ring\n")),
        "/echo" => {
            let body = request.into_body().collect().await?;
            (StatusCode::OK, body.to_bytes())
        }
        "/count" => (StatusCode::OK, counter.get().to_string().into()),
        _ => (StatusCode::NOT_FOUND, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}

/// Serve one connection to its end, as HTTP/2 or as HTTP/1.1.
async fn serve<I>(io: I, is_http2: bool, counter: Counter) -> Result<(), hyper::Error>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    let service = service_fn(move |request| answer(request, Rc::clone(&counter)));
    if is_http2 {
        let mut builder = http2::Builder::new(Executor);
        builder.timer(Timer).serve_connection(io, service).await
    } else {
        let mut builder = http1::Builder::new();
        builder.timer(Timer).header_read_timeout(PATIENCE);
        builder.serve_connection(io, service).await
    }
}

/// Serve HTTP/1.1, or HTTP/2 to clients that begin with it, until accepting fails.
pub async fn serve_plain(listener: TcpListener, is_http2: bool) -> io::Error {
    let counter = Counter::default();
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let counter = Rc::clone(&counter);
                drop(ringloop::spawn(async move {
                    log(serve(Polled::new(stream), is_http2, counter).await);
                }));
            }
            Err(error) => return error,
        }
    }
}

/// Serve HTTP/2 or HTTP/1.1, as the client chooses by ALPN, over TLS, until accepting fails.
pub async fn serve_tls(listener: TcpListener, config: Arc<ServerConfig>) -> io::Error {
    let (acceptor, counter) = (TlsAcceptor::from(config), Counter::default());
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let (acceptor, counter) = (acceptor.clone(), Rc::clone(&counter));
                drop(ringloop::spawn(async move {
                    log(connection(stream, &acceptor, counter).await);
                }));
            }
            Err(error) => return error,
        }
    }
}

async fn connection(stream: TcpStream, acceptor: &TlsAcceptor, counter: Counter) -> io::Result<()> {
    let stream = timeout(PATIENCE, acceptor.accept(Polled::new(stream))).await??;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let served = serve(TokioIo::new(stream), is_http2, counter).await;
    served.map_err(io::Error::other)
}

/// A connection that fails is over; the others go on.
fn log(served: Result<(), impl std::error::Error>) {
    if let Err(error) = served {
        eprintln!("connection: {error}");
    }
}

/// A server's configuration with a new certificate for localhost, and a client's that trusts nothing else.
///
/// # Errors
/// Where no certificate can be made, or rustls refuses it.
pub fn self_signed() -> io::Result<(ServerConfig, ClientConfig)> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let made = made.map_err(io::Error::other)?;
    let certificate = CertificateDer::from(made.cert);
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    // Named, since a program may be built with two of them, and rustls does not choose then.
    let provider = Arc::new(ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .map_err(io::Error::other)?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut trusted = RootCertStore::empty();
    trusted.add(certificate).map_err(io::Error::other)?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    Ok((server, client))
}
