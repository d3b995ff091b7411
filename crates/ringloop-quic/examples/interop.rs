//! One end of the interoperability tests (`tests/interop` starts it and checks its output).
//!
//! ```text
//! interop certificates FOLDER                               writes ca.pem, cert.pem and key.pem
//! interop server 127.0.0.1:4433 cert.pem key.pem [retry]    serves; prints a line of JSON per event
//! interop client ca.pem                                     reads `CASE PORT [h3 FILE]` from standard input, prints a
//!                                                           line of JSON each; with h3 it saves /FILE to FILE
//! ```
//! With ALPN `interop` each stream and datagram is echoed, and a stream that contains
//! `close CODE REASON` closes the connection with them. With `h3` it is a minimal HTTP/3 server: every response
//! is the pattern.
#![allow(clippy::print_stdout)]

use ringloop_quic::config::{ClientConfig, ServerConfig, Version};
use ringloop_quic::error::ConnectionError;
use ringloop_quic::tls::{Certificate, ClientTls, Roots, ServerTls};
use ringloop_quic::{Bytes, Connection, Endpoint, Policy, RecvStream, SendStream};
use std::net::SocketAddr;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const BYTES: usize = 1 << 20;
const DATAGRAMS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(15);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = ringloop::Runtime::new()?;
    match *words.as_slice() {
        ["server", address, cert, key] => {
            runtime.block_on(serve(address.parse()?, cert, key, false))?
        }
        ["server", address, cert, key, "retry"] => {
            runtime.block_on(serve(address.parse()?, cert, key, true))?
        }
        ["client", ca] => runtime.block_on(obey(ca))?,
        ["certificates", folder] => make_certificates(std::path::Path::new(folder)),
        _ => Err("see the first lines of the source".into()),
    }
}

/// A CA, and a certificate signed by it for `localhost`, ECDSA P-256.
fn make_certificates(folder: &std::path::Path) -> Result<()> {
    let (ca_key, key) = (rcgen::KeyPair::generate()?, rcgen::KeyPair::generate()?);
    let mut params = rcgen::CertificateParams::new(Vec::new())?;
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "interop tests");
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let ca = params.self_signed(&ca_key)?;
    let issuer = rcgen::Issuer::new(params, ca_key);
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = rcgen::CertificateParams::new(names)?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, &issuer)?;
    std::fs::write(folder.join("ca.pem"), ca.pem())?;
    std::fs::write(folder.join("cert.pem"), certificate.pem())?;
    std::fs::write(folder.join("key.pem"), key.serialize_pem())?;
    Ok(())
}

/// The payload of every exchange.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    let escaped: String = text.chars().flat_map(char::escape_default).collect();
    format!("\"{}\"", escaped.replace("\\'", "'").replace("\\u{", "{"))
}

// --- the server ----------------------------------------------------------------------------------------------------

async fn serve(address: SocketAddr, cert: &str, key: &str, has_retry: bool) -> Result<()> {
    let certificate = Certificate::from_files(cert, key)?;
    let tls = ServerTls::new(certificate).alpn(["interop", "h3"]).early_data(true);
    let server = Endpoint::server(address, ServerConfig::new(tls)?)?;
    println!("{{\"event\": \"ready\"}}");
    while let Some(incoming) = server.accept().await {
        if has_retry && !incoming.is_validated() {
            drop(incoming.retry());
            continue;
        }
        let Ok(connecting) = incoming.accept() else {
            continue;
        };
        ringloop::spawn(async move {
            // Early data is read before the handshake is complete.
            let connection = match connecting.into_0rtt() {
                Ok((connection, _)) => connection,
                Err(connecting) => match connecting.await {
                    Ok(connection) => connection,
                    Err(_) => return,
                },
            };
            answer(connection).await;
        });
    }
    Ok(())
}

async fn answer(connection: Connection) {
    let is_h3 = loop {
        // The protocol is known with the first flight, and a stream may arrive with it.
        match connection.handshake_data() {
            Some(agreed) => break agreed.protocol.as_deref() == Some(b"h3"),
            None if connection.close_reason().is_some() => return,
            None => ringloop::time::sleep(Duration::from_millis(1)).await,
        }
    };
    if is_h3 {
        ringloop::spawn(greet(connection.clone()));
    } else {
        ringloop::spawn(send_datagrams_back(connection.clone()));
    }
    while let Ok((send, recv)) = connection.accept_bi().await {
        let connection = connection.clone();
        ringloop::spawn(async move {
            drop(if is_h3 {
                answer_h3(send, recv).await
            } else {
                echo(connection, send, recv).await
            });
        });
    }
    let told = connection.handshake_data().unwrap_or_default();
    let (code, reason) = match connection.closed().await {
        ConnectionError::ClosedByPeer { code, reason } => {
            (code.to_string(), String::from_utf8_lossy(&reason).into_owned())
        }
        other => ("null".to_owned(), other.to_string()),
    };
    println!(
        "{{\"event\": \"closed\", \"code\": {code}, \"reason\": {}, \"resumed\": {}}}",
        quoted(&reason),
        told.is_resumed
    );
}

async fn echo(connection: Connection, mut send: SendStream, mut recv: RecvStream) -> Result<()> {
    let mut is_first = true;
    while let Some(chunk) = recv.read_chunk(usize::MAX).await? {
        if is_first && let Some(rest) = chunk.strip_prefix(b"close ") {
            let text = String::from_utf8_lossy(rest).into_owned();
            let (code, reason) = text.split_once(' ').unwrap_or((&text, ""));
            connection.close(code.parse()?, reason.as_bytes());
            return Ok(());
        }
        is_first = false;
        send.write_chunk(chunk).await?;
    }
    send.finish()?;
    Ok(())
}

async fn send_datagrams_back(connection: Connection) {
    while let Ok(datagram) = connection.recv_datagram().await {
        drop(connection.send_datagram(datagram, Policy::Wait).await);
    }
}

// --- minimal HTTP/3 (RFC 9114)
// -------------------------------------------------------------------------------------

/// The control stream with empty SETTINGS; the peer's unidirectional streams are read and
/// discarded.
async fn greet(connection: Connection) {
    let Ok(mut control) = connection.open_uni().await else {
        return;
    };
    drop(control.write_all(&[0x00, 0x04, 0x00]).await);
    while let Ok(mut stream) = connection.accept_uni().await {
        ringloop::spawn(
            async move { while let Ok(Some(_)) = stream.read_chunk(usize::MAX).await {} },
        );
    }
    drop(control);
}

async fn answer_h3(mut send: SendStream, mut recv: RecvStream) -> Result<()> {
    recv.read_to_end(1 << 16).await?;
    // HEADERS: no dynamic table, `:status: 200` by its index in the static one (RFC 9204, appendix
    // A).
    send.write_all(&[0x01, 0x03, 0x00, 0x00, 0xc0 + 25]).await?;
    let body = pattern(BYTES);
    send.write_all(&[&[0x00][..], &varint(body.len())].concat()).await?;
    send.write_all(&body).await?;
    send.finish()?;
    Ok(())
}

async fn fetch_h3(connection: &Connection, path: &str) -> Result<Vec<u8>> {
    let (mut send, mut recv) = connection.open_bi().await?;
    // GET, https; then :authority and :path by static table names, with literal values.
    let mut section = vec![0x00, 0x00, 0xc0 + 17, 0xc0 + 23];
    for (name, value) in [(0, "localhost"), (1, path)] {
        section.extend([0x50 | name, u8::try_from(value.len())?]);
        section.extend(value.as_bytes());
    }
    send.write_all(&[&[0x01][..], &varint(section.len()), &section].concat()).await?;
    send.finish()?;
    let answer = recv.read_to_end(BYTES * 2).await?;
    let (mut rest, mut body) = (answer.as_slice(), Vec::new());
    while !rest.is_empty() {
        let kind = take_varint(&mut rest)?;
        let len = take_varint(&mut rest)?;
        let (payload, after) = rest.split_at_checked(len).ok_or("a frame is cut off")?;
        if kind == 0 {
            body.extend(payload);
        }
        rest = after;
    }
    Ok(body)
}

/// A variable-length integer (RFC 9000 §16) of four bytes.
fn varint(value: usize) -> [u8; 4] {
    (0x8000_0000 | value as u32).to_be_bytes()
}

fn take_varint(bytes: &mut &[u8]) -> Result<usize> {
    let first = *bytes.first().ok_or("a frame is cut off")?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6)).ok_or("a frame is cut off")?;
    *bytes = rest;
    let start = usize::from(first & 0x3f);
    Ok(number[1..].iter().fold(start, |value, byte| value << 8 | usize::from(*byte)))
}

// --- the client ----------------------------------------------------------------------------------------------------

/// Runs the cases from standard input, line by line.
async fn obey(ca: &str) -> Result<()> {
    let roots = Roots::empty().add_file(ca)?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let (case, port, h3) = match *words.as_slice() {
            [case, port] => (case, port.parse()?, None),
            [case, port, "h3", file] => (case, port.parse()?, Some(file)),
            _ => return Err(format!("{line:?}?").into()),
        };
        let outcome = ringloop::time::timeout(PATIENCE, run(&roots, case, port, h3)).await;
        match outcome.unwrap_or_else(|_| Err("nothing happened".into())) {
            Ok(more) => println!("{{\"ok\": true{more}}}"),
            Err(error) => println!("{{\"ok\": false, \"reason\": {}}}", quoted(&error.to_string())),
        }
    }
    Ok(())
}

/// Runs one case; returns what it adds to the output.
async fn run(roots: &Roots, case: &str, port: u16, h3: Option<&str>) -> Result<String> {
    let alpn = if h3.is_some() { "h3" } else { "interop" };
    let tls = ClientTls::with_roots(roots.clone()).alpn([alpn]);
    let mut config = ClientConfig::new(tls)?.tokens(None);
    if case == "v2" {
        config = config.version(Version::V2);
    }
    let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into(), config)?;
    let server: SocketAddr = ([127, 0, 0, 1], port).into();
    let connection = endpoint.connect(server, "localhost")?.await?;
    let agreed = connection.handshake_data().and_then(|data| data.protocol);
    if agreed.as_deref() != Some(alpn.as_bytes()) {
        return Err("another protocol was agreed on".into());
    }
    if h3.is_some() {
        ringloop::spawn(greet(connection.clone()));
    }
    let mut more = String::new();
    match case {
        "handshake" => {}
        "resumption" | "early-data" => {
            exchange(&connection, 1000, h3).await?;
            // Tickets come after the handshake, maybe after the echo.
            ringloop::time::sleep(Duration::from_millis(200)).await;
            connection.close(0, b"");
            more = again(&endpoint, server, case == "early-data", h3).await?;
        }
        "key-update" => {
            for _ in 0..3 {
                exchange(&connection, 100_000, h3).await?;
                connection.update_keys();
            }
            exchange(&connection, 100_000, h3).await?;
        }
        // Few enough packets that neither end updates its keys: quic-go derives the next ones as
        // version 1 does.
        "v2" => exchange(&connection, 20_000, h3).await?,
        "datagrams" => datagrams(&connection).await?,
        "close-codes" => more = close_codes(&endpoint, server, &connection, h3.is_some()).await?,
        _ => exchange(&connection, BYTES, h3).await?,
    }
    if case != "close-codes" {
        connection.close(0, b"");
    }
    endpoint.wait_idle().await;
    Ok(more)
}

/// Sends the pattern and reads it back, or fetches it.
async fn exchange(connection: &Connection, len: usize, h3: Option<&str>) -> Result<()> {
    if let Some(file) = h3 {
        let name = std::path::Path::new(file).file_name().and_then(|name| name.to_str());
        let body = fetch_h3(connection, &format!("/{}", name.unwrap_or_default())).await?;
        if body != pattern(BYTES) {
            return Err(format!("{} other bytes came", body.len()).into());
        }
        std::fs::write(file, body)?;
        return Ok(());
    }
    let (mut send, mut recv) = connection.open_bi().await?;
    let bytes = pattern(len);
    let written = ringloop::spawn({
        let bytes = bytes.clone();
        async move {
            send.write_all(&bytes).await?;
            send.finish()
        }
    });
    let back = recv.read_to_end(len).await?;
    written.await??;
    if back != bytes {
        return Err(format!("{} other bytes came back", back.len()).into());
    }
    Ok(())
}

async fn again(
    endpoint: &Endpoint,
    server: SocketAddr,
    early: bool,
    h3: Option<&str>,
) -> Result<String> {
    let connecting = endpoint.connect(server, "localhost")?;
    let mut accepted = None;
    let connection = if early {
        let (connection, zero_rtt) =
            connecting.into_0rtt().map_err(|_| "there is no ticket that allows early data")?;
        exchange(&connection, 1000, h3).await?;
        accepted = Some(zero_rtt.await);
        connection
    } else {
        let connection = connecting.await?;
        exchange(&connection, 1000, h3).await?;
        connection
    };
    let resumed = connection.handshake_data().is_some_and(|data| data.is_resumed);
    connection.close(0, b"");
    let early = accepted.map(|accepted| format!(", \"early\": {accepted}")).unwrap_or_default();
    Ok(format!(", \"resumed\": {resumed}{early}"))
}

async fn datagrams(connection: &Connection) -> Result<()> {
    for at in 0..DATAGRAMS {
        let sent = Bytes::from(format!("datagram {at}"));
        connection.send_datagram(sent.clone(), Policy::Wait).await?;
        if connection.recv_datagram().await? != sent {
            return Err("another datagram came back".into());
        }
    }
    Ok(())
}

async fn close_codes(
    endpoint: &Endpoint,
    server: SocketAddr,
    connection: &Connection,
    is_h3: bool,
) -> Result<String> {
    connection.close(42, b"as the client says");
    if is_h3 {
        return Ok(String::new());
    }
    let connection = endpoint.connect(server, "localhost")?.await?;
    let (mut send, _recv) = connection.open_bi().await?;
    send.write_all(b"close 43 as the server says").await?;
    send.finish()?;
    match connection.closed().await {
        ConnectionError::ClosedByPeer { code, reason } => {
            let reason = quoted(&String::from_utf8_lossy(&reason));
            Ok(format!(", \"code\": {code}, \"reason\": {reason}"))
        }
        other => Err(other.into()),
    }
}
