//! One end of the HTTP/3 interop tests, with h3 on quinn; the contract is in
//! tests/interop/http3/programs/contract.py. h3 sends and receives no interim responses.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use http::{HeaderMap, Method, Request, Response};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::Notify;

type Error = Box<dyn std::error::Error + Send + Sync>;
type ServerStream = h3::server::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;
type ClientStream = h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;
type Sender = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

const SMALL: &[u8] = b"small\n";
const SIZE: usize = 1 << 20;
const PARALLEL: usize = 100;
const LARGE: usize = 12_000;
const PATIENCE: Duration = Duration::from_secs(20);

static CANCELLED: AtomicU64 = AtomicU64::new(0);

fn pattern() -> Bytes {
    (0..SIZE).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", port, cert, key] => serve(port.parse()?, cert, key).await,
        ["client", ca, port, case] => {
            let result = match tokio::time::timeout(PATIENCE, run(ca, port.parse()?, case)).await {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(_) => Err("timeout".to_string()),
            };
            match result {
                Ok(()) => println!("{{\"ok\": true}}"),
                Err(reason) => println!("{{\"ok\": false, \"reason\": {reason:?}}}"),
            }
            Ok(())
        }
        _ => Err("server PORT CERT KEY | client CA PORT CASE".into()),
    }
}

// --- the server

async fn serve(port: u16, cert: &str, key: &str) -> Result<(), Error> {
    let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let endpoint = quinn::Endpoint::server(config, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            if let Ok(connection) = incoming.await
                && let Err(error) = requests(connection).await
            {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

async fn requests(connection: quinn::Connection) -> Result<(), Error> {
    let mut connection = h3::server::Connection::new(h3_quinn::Connection::new(connection)).await?;
    let stop = Arc::new(Notify::new());
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted?,
            () = stop.notified() => { connection.shutdown(1).await?; continue }
        };
        let Some(resolver) = accepted else { return Ok(()) };
        let stop = stop.clone();
        tokio::spawn(async move {
            if let Ok((request, stream)) = resolver.resolve_request().await
                && let Err(error) = answer(request, stream, &stop).await
            {
                eprintln!("{error}");
            }
        });
    }
}

async fn answer(
    request: Request<()>,
    mut stream: ServerStream,
    stop: &Notify,
) -> Result<(), Error> {
    let path: Vec<&str> = request.uri().path().split('/').skip(1).collect();
    let field = |name: &str| {
        request
            .headers()
            .get(name)
            .map_or(Bytes::new(), |value| Bytes::copy_from_slice(value.as_bytes()))
    };
    let mut response = Response::new(());
    let body = match path[..] {
        ["small"] => {
            response.headers_mut().insert("content-length", SMALL.len().into());
            let is_head = request.method() == Method::HEAD;
            if is_head { Bytes::new() } else { Bytes::from_static(SMALL) }
        }
        ["number", number] => Bytes::copy_from_slice(number.as_bytes()),
        ["headers"] => {
            response.headers_mut().insert("x-large", request.headers()["x-large"].clone());
            Bytes::from_static(SMALL)
        }
        ["trailers"] => Bytes::from_static(SMALL),
        ["priority"] => field("priority"),
        ["cancelled"] => CANCELLED.load(Ordering::Relaxed).to_string().into(),
        ["goaway"] => {
            stop.notify_one();
            pattern()
        }
        ["echo" | "endless" | "reset"] => Bytes::new(),
        _ => {
            *response.status_mut() = http::StatusCode::NOT_FOUND;
            Bytes::new()
        }
    };
    stream.send_response(response).await?;
    if !body.is_empty() {
        stream.send_data(body).await?;
    }
    match path[..] {
        ["echo"] => {
            while let Some(mut piece) = stream.recv_data().await? {
                stream.send_data(piece.copy_to_bytes(piece.remaining())).await?;
            }
            if let Some(trailers) = stream.recv_trailers().await? {
                stream.send_trailers(trailers).await?;
            }
        }
        ["trailers"] => stream.send_trailers(checksum("42")).await?,
        ["endless"] => {
            while stream.send_data(Bytes::from(vec![0; 16 << 10])).await.is_ok() {}
            CANCELLED.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        ["reset"] => {
            stream.send_data(Bytes::from_static(SMALL)).await?;
            stream.stop_stream(Code::H3_INTERNAL_ERROR);
            return Ok(());
        }
        _ => {}
    }
    Ok(stream.finish().await?)
}

fn checksum(value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(
        http::HeaderName::from_static("x-checksum"),
        http::HeaderValue::from_static(value),
    )])
}

// --- the client

async fn run(ca: &str, port: u16, case: &str) -> Result<(), Error> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca)? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into())?;
    let connection =
        endpoint.connect_with(config, (Ipv4Addr::LOCALHOST, port).into(), "localhost")?.await?;
    let (mut driver, sender) =
        h3::client::new(h3_quinn::Connection::new(connection.clone())).await?;
    let driven = tokio::spawn(async move { driver.wait_idle().await });
    let client = Client { sender, origin: format!("https://localhost:{port}") };
    client.play(case).await?;
    drop(client);
    connection.close(0x100_u32.into(), b"");
    let _ = driven.await;
    endpoint.wait_idle().await;
    Ok(())
}

struct Client {
    sender: Sender,
    origin: String,
}

impl Client {
    async fn play(&self, case: &str) -> Result<(), Error> {
        match case {
            "get" => self.get("/small", SMALL).await,
            "head" => {
                let (response, body, _) = self.fetch(self.request("HEAD", "/small")).await?;
                same(
                    response.headers()["content-length"].as_bytes(),
                    SMALL.len().to_string().as_bytes(),
                )?;
                same(&body, b"")
            }
            "post" => {
                let sent = pattern();
                let body = self.echo(&sent, None).await?.0;
                same(&body, &sent)
            }
            "parallel" => {
                let mut tasks = Vec::new();
                for at in 0..PARALLEL {
                    let client =
                        Client { sender: self.sender.clone(), origin: self.origin.clone() };
                    let one = async move {
                        client.get(&format!("/number/{at}"), at.to_string().as_bytes()).await
                    };
                    tasks.push(tokio::spawn(one));
                }
                for task in tasks {
                    task.await??;
                }
                Ok(())
            }
            "headers" => {
                let large = "x".repeat(LARGE);
                let (response, ..) =
                    self.fetch(self.request("GET", "/headers").header("x-large", &large)).await?;
                same(response.headers()["x-large"].as_bytes(), large.as_bytes())
            }
            "trailers" => {
                let (_, body, trailers) = self.fetch(self.request("GET", "/trailers")).await?;
                same(&body, SMALL)?;
                same(trailers.unwrap_or_default()["x-checksum"].as_bytes(), b"42")
            }
            "request-trailers" => {
                let (_, trailers) =
                    self.echo(&Bytes::from_static(SMALL), Some(checksum("7"))).await?;
                same(trailers.unwrap_or_default()["x-checksum"].as_bytes(), b"7")
            }
            "priority" => {
                let (_, body, _) = self
                    .fetch(self.request("GET", "/priority").header("priority", "u=1, i"))
                    .await?;
                same(&body, b"u=1, i")
            }
            "client-reset" => {
                let mut stream = self.begin(self.request("GET", "/endless")).await?;
                stream.finish().await?;
                stream.recv_response().await?;
                stream.recv_data().await?;
                stream.stop_sending(Code::H3_REQUEST_CANCELLED);
                while self.get("/cancelled", b"1").await.is_err() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Ok(())
            }
            "server-reset" => match self.fetch(self.request("GET", "/reset")).await {
                Err(error)
                    if matches!(
                        error.downcast_ref(),
                        Some(StreamError::RemoteTerminate { .. })
                    ) =>
                {
                    self.get("/small", SMALL).await
                }
                Err(error) => Err(error),
                Ok(_) => Err("the response was complete".into()),
            },
            "goaway" => {
                self.get("/goaway", &pattern()).await?;
                loop {
                    match self.get("/small", SMALL).await {
                        Ok(()) => {}
                        Err(error) => match error.downcast_ref() {
                            Some(StreamError::RemoteClosing { .. }) => return Ok(()),
                            // It was sent before GOAWAY came.
                            Some(StreamError::RemoteTerminate {
                                code: Code::H3_REQUEST_REJECTED,
                                ..
                            }) => {}
                            _ => return Err(error),
                        },
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            _ => Err("no such case".into()),
        }
    }

    fn request(&self, method: &str, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(format!("{}{path}", self.origin))
    }

    async fn begin(&self, request: http::request::Builder) -> Result<ClientStream, Error> {
        Ok(self.sender.clone().send_request(request.body(())?).await?)
    }

    async fn fetch(
        &self,
        request: http::request::Builder,
    ) -> Result<(Response<()>, Vec<u8>, Option<HeaderMap>), Error> {
        let mut stream = self.begin(request).await?;
        stream.finish().await?;
        let response = stream.recv_response().await?;
        let mut body = Vec::new();
        while let Some(mut piece) = stream.recv_data().await? {
            body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        let trailers = stream.recv_trailers().await?;
        Ok((response, body, trailers))
    }

    async fn get(&self, path: &str, wanted: &[u8]) -> Result<(), Error> {
        same(&self.fetch(self.request("GET", path)).await?.1, wanted)
    }

    async fn echo(
        &self,
        data: &Bytes,
        trailers: Option<HeaderMap>,
    ) -> Result<(Vec<u8>, Option<HeaderMap>), Error> {
        let (mut sending, mut receiving) = self.begin(self.request("POST", "/echo")).await?.split();
        let data = data.clone();
        let sent = async move {
            sending.send_data(data).await?;
            if let Some(trailers) = trailers {
                sending.send_trailers(trailers).await?;
            }
            sending.finish().await
        };
        let received = async move {
            receiving.recv_response().await?;
            let mut body = Vec::new();
            while let Some(mut piece) = receiving.recv_data().await? {
                body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
            }
            Ok::<_, StreamError>((body, receiving.recv_trailers().await?))
        };
        let ((), back) = tokio::try_join!(sent, received)?;
        Ok(back)
    }
}

fn same(got: &[u8], wanted: &[u8]) -> Result<(), Error> {
    if got == wanted {
        return Ok(());
    }
    let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
    Err(format!("{:?} came instead of {:?}", shown(got), shown(wanted)).into())
}
