//! Benchmark of the crate: a server, and a client in another process. `benches/quic` starts them;
//! by hand:
//!
//! ```text
//! perf server 127.0.0.1:4433 cert.pem key.pem
//! perf client 127.0.0.1:4433 ca.pem WORKLOAD SIZE WARM-UP SECONDS
//! perf both 127.0.0.1:4433 cert.pem key.pem ca.pem WORKLOAD SIZE WARM-UP SECONDS
//! ```
//! `both` runs server and client in one process and thread: `cpu_ns` by `done` is the cost of an
//! exchange.
//!
//! | workload | SIZE | what it does |
//! |---|---|---|
//! | `stream` | bytes per write | one stream, as many writes as possible |
//! | `request` | bytes | one request after another, each echoed on its own stream |
//! | `pingpong` | bytes | one message after another on the same stream |
//! | `churn` | bytes | 100 tasks, each doing `request` |
//! | `handshake` | concurrency | connect and close, certificate verified, without resumption |
//! | `datagram` | bytes | as many datagrams as possible |
//! | `idle` | connections | open connections, and their memory at the server |
//!
//! The first byte of a stream selects the request: `s` count, `e` echo, `i` report the counters.
//! The client prints the difference of two reports, as one line of JSON.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]

use ringloop_quic::config::{ClientConfig, ServerConfig, Transport};
use ringloop_quic::tls::{Certificate, ClientTls, Roots, ServerTls};
use ringloop_quic::{Bytes, Connection, Endpoint, Policy, RecvStream, SendStream};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ALPN: &str = "bench";
const CHURN_TASKS: usize = 100;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = ringloop::Runtime::new()?;
    match *words.as_slice() {
        ["server", address, chain, key] => {
            runtime.block_on(serve(address.parse()?, chain.into(), key.into()))??;
        }
        ["client", address, ca, workload, size, warmup, seconds] => {
            let client = Client::new(address, ca, size, warmup, seconds)?;
            runtime.block_on(client.run(workload))??;
        }
        ["both", address, chain, key, ca, workload, size, warmup, seconds] => {
            let client = Client::new(address, ca, size, warmup, seconds)?;
            runtime.block_on(async {
                let _server = spawn(serve(address.parse()?, chain.into(), key.into()));
                ringloop::time::sleep(Duration::from_millis(100)).await;
                client.run(workload).await
            })??;
        }
        _ => return Err("see the first lines of the source".into()),
    }
    Ok(())
}

fn transport() -> Transport {
    Transport { bi_streams_max: 512, ..Transport::default() }
}

// --- the server ----------------------------------------------------------------------------------------------------

/// Counters of the server for all connections.
#[derive(Default)]
struct Counts {
    bytes: Cell<u64>,
    datagrams: Cell<u64>,
    handshakes: Cell<u64>,
}

async fn serve(address: SocketAddr, chain: String, key: String) -> Result<()> {
    let tls = ServerTls::new(Certificate::from_files(chain, key)?).alpn([ALPN]);
    let config = ServerConfig::new(tls)?.transport(&transport())?;
    let server = Endpoint::server(address, config)?;
    println!("ready");
    let counts = Rc::new(Counts::default());
    while let Some(incoming) = server.accept().await {
        let counts = Rc::clone(&counts);
        ringloop::spawn(async move {
            if let Ok(connecting) = incoming.accept()
                && let Ok(connection) = connecting.await
            {
                counts.handshakes.set(counts.handshakes.get() + 1);
                answer(connection, counts).await;
            }
        });
    }
    Ok(())
}

async fn answer(connection: Connection, counts: Rc<Counts>) {
    ringloop::spawn({
        let (connection, counts) = (connection.clone(), Rc::clone(&counts));
        async move {
            let mut batch = Vec::new();
            while let Ok(count) = connection.recv_datagrams(1024, &mut batch).await {
                counts.datagrams.set(counts.datagrams.get() + count as u64);
                batch.clear();
            }
        }
    });
    while let Ok((send, recv)) = connection.accept_bi().await {
        let counts = Rc::clone(&counts);
        ringloop::spawn(async move { drop(answer_stream(send, recv, &counts).await) });
    }
}

async fn answer_stream(mut send: SendStream, mut recv: RecvStream, counts: &Counts) -> Result<()> {
    let mut kind = [0; 1];
    recv.read_exact(&mut kind).await?;
    match kind[0] {
        b's' => {
            while let Some(chunk) = recv.read_chunk(usize::MAX).await? {
                counts.bytes.set(counts.bytes.get() + chunk.len() as u64);
            }
        }
        b'e' => {
            while let Some(chunk) = recv.read_chunk(usize::MAX).await? {
                send.write_chunk(chunk).await?;
            }
        }
        _ => send.write_all(snapshot(counts).as_bytes()).await?,
    }
    send.finish()?;
    Ok(())
}

fn snapshot(counts: &Counts) -> String {
    static START: OnceLock<Instant> = OnceLock::new();
    format!(
        "{{\"time_ns\": {}, \"bytes\": {}, \"datagrams\": {}, \"handshakes\": {}, \"cpu_ns\": {}, \"rss\": {}}}",
        START.get_or_init(Instant::now).elapsed().as_nanos(),
        counts.bytes.get(),
        counts.datagrams.get(),
        counts.handshakes.get(),
        cpu_ns(),
        rss()
    )
}

/// CPU time of this process; proc(5) counts it in ticks of 10 ms.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |at| fields.split_whitespace().nth(at).and_then(|one| one.parse::<u64>().ok());
    (ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0)) * 10_000_000
}

/// Resident memory of this process.
fn rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

// --- the client ----------------------------------------------------------------------------------------------------

fn endpoint(ca: &str) -> Result<ClientConfig> {
    let tls = ClientTls::with_roots(Roots::empty().add_file(ca)?).alpn([ALPN]).sessions(None);
    Ok(ClientConfig::new(tls)?.tokens(None).transport(&transport())?)
}

struct Client {
    endpoint: ClientConfig,
    address: SocketAddr,
    size: usize,
    warmup: Duration,
    limit: Duration,
}

/// State shared by a client's tasks.
#[derive(Default)]
struct Tally {
    is_over: Cell<bool>,
    sent: Cell<u64>,
    latencies: RefCell<Vec<Duration>>,
}

impl Client {
    fn new(address: &str, ca: &str, size: &str, warmup: &str, seconds: &str) -> Result<Self> {
        Ok(Self {
            endpoint: endpoint(ca)?,
            address: address.parse()?,
            size: size.parse()?,
            warmup: Duration::from_secs_f64(warmup.parse()?),
            limit: Duration::from_secs_f64(seconds.parse()?),
        })
    }

    async fn run(self, workload: &str) -> Result<()> {
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into(), self.endpoint.clone())?;
        // Control requests use another connection, so that they do not queue behind the load.
        let control = endpoint.connect(self.address, "localhost")?.await?;
        let connection = endpoint.connect(self.address, "localhost")?.await?;
        let tally = Rc::new(Tally::default());
        if workload == "idle" {
            return self.idle(&endpoint, &control).await;
        }
        let tasks = match workload {
            "stream" => vec![spawn(stream(connection.clone(), self.size, Rc::clone(&tally)))],
            "pingpong" => vec![spawn(pingpong(connection.clone(), self.size, Rc::clone(&tally)))],
            "datagram" => vec![spawn(datagrams(connection.clone(), self.size, Rc::clone(&tally)))],
            "request" | "churn" => {
                let count = if workload == "churn" { CHURN_TASKS } else { 1 };
                let one = || spawn(requests(connection.clone(), self.size, Rc::clone(&tally)));
                (0..count).map(|_| one()).collect()
            }
            "handshake" => {
                let one = || spawn(handshakes(endpoint.clone(), self.address, Rc::clone(&tally)));
                (0..self.size).map(|_| one()).collect()
            }
            other => return Err(format!("{other}?").into()),
        };
        ringloop::time::sleep(self.warmup).await;
        let first = ask(&control).await?;
        let (sent, cpu) = (tally.sent.get(), cpu_ns());
        tally.latencies.borrow_mut().clear();
        let began = Instant::now();
        ringloop::time::sleep(self.limit).await;
        let took = began.elapsed();
        let cpu = cpu_ns() - cpu;
        let (sent, done) = (tally.sent.get() - sent, tally.latencies.borrow().len());
        let last = ask(&control).await?;
        tally.is_over.set(true);
        for task in tasks {
            task.await?;
        }
        // Let data in flight arrive; then totals of both ends are comparable.
        ringloop::time::sleep(Duration::from_millis(300)).await;
        let end = ask(&control).await?;
        let percentile = |part: usize| {
            let mut times = tally.latencies.borrow().clone();
            times.sort_unstable();
            let at = times.len().saturating_sub(1).min(times.len() * part / 1000);
            times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        println!(
            "{{\"first\": {first}, \"last\": {last}, \"end\": {end}, \"seconds\": {}, \"cpu_ns\": {cpu}, \"sent\": {sent}, \
             \"sent_total\": {}, \"done\": {done}, \"p50_us\": {}, \"p99_us\": {}, \"rss\": {}}}",
            took.as_secs_f64(),
            tally.sent.get(),
            percentile(500),
            percentile(990),
            rss()
        );
        Ok(())
    }

    async fn idle(&self, endpoint: &Endpoint, control: &Connection) -> Result<()> {
        let (first, own) = (ask(control).await?, rss());
        let mut held = Vec::new();
        for _ in 0..self.size {
            held.push(endpoint.connect(self.address, "localhost")?.await?);
        }
        let last = ask(control).await?;
        println!("{{\"first\": {first}, \"last\": {last}, \"client_rss\": {}}}", rss() - own);
        Ok(())
    }
}

fn spawn(task: impl Future<Output = Result<()>> + 'static) -> ringloop::JoinHandle<()> {
    ringloop::spawn(async move {
        if let Err(error) = task.await {
            eprintln!("{error}");
        }
    })
}

/// Requests the server's counters.
async fn ask(connection: &Connection) -> Result<String> {
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(b"i").await?;
    send.finish()?;
    Ok(String::from_utf8(recv.read_to_end(1024).await?)?)
}

async fn stream(connection: Connection, size: usize, tally: Rc<Tally>) -> Result<()> {
    let (mut send, _recv) = connection.open_bi().await?;
    send.write_all(b"s").await?;
    let bytes = vec![7; size];
    while !tally.is_over.get() {
        for _ in 0..16 {
            send.write_all(&bytes).await?;
        }
    }
    send.finish()?;
    Ok(())
}

async fn requests(connection: Connection, size: usize, tally: Rc<Tally>) -> Result<()> {
    let request = [&b"e"[..], &vec![1; size]].concat();
    while !tally.is_over.get() {
        let start = Instant::now();
        let (mut send, mut recv) = connection.open_bi().await?;
        send.write_all(&request).await?;
        send.finish()?;
        if recv.read_to_end(size).await? != request[1..] {
            return Err("another answer".into());
        }
        tally.latencies.borrow_mut().push(start.elapsed());
    }
    Ok(())
}

async fn pingpong(connection: Connection, size: usize, tally: Rc<Tally>) -> Result<()> {
    let (mut send, mut recv) = connection.open_bi().await?;
    let (message, mut answer) = (vec![1; size], vec![0; size]);
    send.write_all(b"e").await?;
    while !tally.is_over.get() {
        let start = Instant::now();
        send.write_all(&message).await?;
        recv.read_exact(&mut answer).await?;
        if answer != message {
            return Err("another answer".into());
        }
        tally.latencies.borrow_mut().push(start.elapsed());
    }
    send.finish()?;
    Ok(())
}

async fn handshakes(endpoint: Endpoint, address: SocketAddr, tally: Rc<Tally>) -> Result<()> {
    while !tally.is_over.get() {
        let start = Instant::now();
        let connection = endpoint.connect(address, "localhost")?.await?;
        tally.latencies.borrow_mut().push(start.elapsed());
        connection.close(0, b"");
    }
    Ok(())
}

async fn datagrams(connection: Connection, size: usize, tally: Rc<Tally>) -> Result<()> {
    let bytes = Bytes::from(vec![3; size]);
    while !tally.is_over.get() {
        for _ in 0..64 {
            connection.send_datagram(bytes.clone(), Policy::Wait).await?;
        }
        tally.sent.set(tally.sent.get() + 64);
    }
    Ok(())
}
