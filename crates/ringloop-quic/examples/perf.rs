//! Measure the crate: a server, and a client in another process.
//!
//! ```text
//! perf server 127.0.0.1:4433              certificate made on the spot; clients do not verify it
//! perf client 127.0.0.1:4433 stream 16384 10       one stream, writes of so many bytes, so many seconds
//! perf client 127.0.0.1:4433 request 64 10         one request after the other, each on a stream of its own
//! perf client 127.0.0.1:4433 handshake 1 10        connect and close, so many at a time
//! perf client 127.0.0.1:4433 datagram 1000 10      as many datagrams as go out
//! ```
//! The first byte of a stream says what is asked: `s` count and tell, `r` send back. What is printed was
//! counted by the server, over the time after the first second.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]

use ringloop_quic::config::{ClientConfig, ServerConfig, Transport};
use ringloop_quic::tls::{Certificate, ClientTls, ServerTls};
use ringloop_quic::{Connection, Endpoint, Policy, RecvStream, SendStream};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = ringloop::Runtime::new()?;
    match *words.as_slice() {
        ["server", address] => runtime.block_on(serve(address.parse()?))?,
        ["client", address, what, size, seconds] => {
            let address = address.parse()?;
            let limit = Duration::from_secs(seconds.parse()?);
            runtime.block_on(measure(address, what, size.parse()?, limit))?
        }
        _ => Err("perf server ADDRESS | perf client ADDRESS stream|request|handshake|datagram SIZE SECONDS".into()),
    }
}

async fn serve(address: SocketAddr) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes())?;
    let transport = Transport::default();
    let tls = ServerTls::new(certificate).alpn(["perf"]);
    let server = Endpoint::server(address, ServerConfig::new(tls)?.transport(&transport)?)?;
    println!("ready");
    while let Some(incoming) = server.accept().await {
        ringloop::spawn(async move {
            if let Ok(connecting) = incoming.accept()
                && let Ok(connection) = connecting.await
            {
                answer(connection).await;
            }
        });
    }
    Ok(())
}

async fn answer(connection: Connection) {
    let datagrams = Rc::new(Cell::new(0u64));
    ringloop::spawn({
        let (connection, datagrams) = (connection.clone(), Rc::clone(&datagrams));
        async move {
            let mut batch = Vec::new();
            while let Ok(count) = connection.recv_datagrams(1024, &mut batch).await {
                datagrams.set(datagrams.get() + count as u64);
                batch.clear();
            }
        }
    });
    while let Ok((send, recv)) = connection.accept_bi().await {
        let datagrams = Rc::clone(&datagrams);
        ringloop::spawn(async move { drop(answer_stream(send, recv, &datagrams).await) });
    }
}

async fn answer_stream(
    mut send: SendStream,
    mut recv: RecvStream,
    datagrams: &Cell<u64>,
) -> Result<()> {
    let mut kind = [0; 1];
    recv.read_exact(&mut kind).await?;
    match kind[0] {
        b'd' => send.write_all(&datagrams.get().to_le_bytes()).await?,
        b's' => {
            // The first second is warm-up: each client tells when it is over by its own clock.
            let mut began = Instant::now();
            let (mut count, mut is_warm) = (0, false);
            while let Some(chunk) = recv.read_chunk(usize::MAX).await? {
                count += chunk.len() as u64;
                if !is_warm && began.elapsed() > Duration::from_secs(1) {
                    (count, is_warm, began) = (0, true, Instant::now());
                }
            }
            let took_ns = began.elapsed().as_nanos() as u64;
            send.write_all(&[count.to_le_bytes(), took_ns.to_le_bytes()].concat())
                .await?;
        }
        _ => {
            let request = recv.read_to_end(1 << 20).await?;
            send.write_all(&request).await?;
        }
    }
    send.finish()?;
    Ok(())
}

async fn measure(address: SocketAddr, what: &str, size: usize, limit: Duration) -> Result<()> {
    let tls = ClientTls::without_verification()
        .alpn(["perf"])
        .sessions(None);
    let config = ClientConfig::new(tls)?.transport(&Transport::default())?;
    let client = Endpoint::client(([127, 0, 0, 1], 0).into(), config)?;
    match what {
        "stream" => stream(&client, address, size, limit).await?,
        "request" => request(&client, address, size, limit).await?,
        "handshake" => handshake(&client, address, size, limit).await?,
        "datagram" => datagram(&client, address, size, limit).await?,
        other => return Err(format!("{other}?").into()),
    }
    client.close(0, b"");
    client.wait_idle().await;
    Ok(())
}

async fn stream(
    client: &Endpoint,
    address: SocketAddr,
    size: usize,
    limit: Duration,
) -> Result<()> {
    let connection = client.connect(address, "localhost")?.await?;
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(b"s").await?;
    let bytes = vec![7; size];
    let began = Instant::now();
    while began.elapsed() < limit {
        for _ in 0..16 {
            send.write_all(&bytes).await?;
        }
    }
    send.finish()?;
    let told = recv.read_to_end(16).await?;
    let number = |at: usize| u64::from_le_bytes(told[at..at + 8].try_into().unwrap());
    let bits = number(0) as f64 * 8.0;
    let stats = connection.stats();
    println!(
        "stream {size} B: {:.2} Gbit/s ({} datagrams, {} messages, {} lost)",
        bits / number(8) as f64,
        stats.udp_sent,
        stats.messages_sent,
        stats.packets_lost
    );
    Ok(())
}

async fn request(
    client: &Endpoint,
    address: SocketAddr,
    size: usize,
    limit: Duration,
) -> Result<()> {
    let connection = client.connect(address, "localhost")?.await?;
    let request = [&b"r"[..], &vec![1; size]].concat();
    let mut times = Vec::new();
    let began = Instant::now();
    while began.elapsed() < limit {
        let start = Instant::now();
        let (mut send, mut recv) = connection.open_bi().await?;
        send.write_all(&request).await?;
        send.finish()?;
        assert_eq!(recv.read_to_end(size).await?.len(), size);
        times.push(start.elapsed());
    }
    let rate = times.len() as f64 / began.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 1000].as_secs_f64() * 1e6;
    println!(
        "request {size} B: {rate:.0}/s, p50 {:.0} us, p99 {:.0} us",
        at(500),
        at(990)
    );
    Ok(())
}

async fn handshake(
    client: &Endpoint,
    address: SocketAddr,
    at_once: usize,
    limit: Duration,
) -> Result<()> {
    let began = Instant::now();
    let count = Rc::new(Cell::new(0u64));
    let tasks: Vec<_> = (0..at_once)
        .map(|_| {
            let (client, count) = (client.clone(), Rc::clone(&count));
            ringloop::spawn(async move {
                while began.elapsed() < limit {
                    let connection = client.connect(address, "localhost").unwrap().await.unwrap();
                    connection.close(0, b"");
                    count.set(count.get() + 1);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    let rate = count.get() as f64 / began.elapsed().as_secs_f64();
    println!("handshake {at_once} at once: {rate:.0}/s");
    Ok(())
}

async fn datagram(
    client: &Endpoint,
    address: SocketAddr,
    size: usize,
    limit: Duration,
) -> Result<()> {
    let connection = client.connect(address, "localhost")?.await?;
    let bytes = ringloop_quic::Bytes::from(vec![3; size]);
    let began = Instant::now();
    let mut count = 0u64;
    while began.elapsed() < limit {
        for _ in 0..64 {
            connection
                .send_datagram(bytes.clone(), Policy::Wait)
                .await?;
            count += 1;
        }
    }
    let took = began.elapsed().as_secs_f64();
    ringloop::time::sleep(Duration::from_millis(200)).await;
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(b"d").await?;
    send.finish()?;
    let told = recv.read_to_end(8).await?;
    let received = u64::from_le_bytes(told[..].try_into()?);
    let arrived = received as f64 * 100.0 / count as f64;
    println!(
        "datagram {size} B: {:.0}/s received, {arrived:.1} % of those sent",
        received as f64 / took
    );
    Ok(())
}
