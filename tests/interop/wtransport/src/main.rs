//! One end of the WebTransport interop tests, with wtransport; the contract is in
//! tests/interop/http3/programs/session_contract.py.

mod client;
mod server;
mod session;

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use crate::session::{Receiving, Sending, Session};

type Error = Box<dyn std::error::Error + Send + Sync>;

const SMALL: &[u8] = b"small\n";
const SIZE: usize = 1 << 20;
const RESET: u32 = 70_000;
const STOP: u32 = 4_000_000_000;
const CLOSE: (u32, &str) = (3_000_000_007, "enough, thänk you");
const PIECE: [u8; 16 << 10] = [0; 16 << 10];
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a stream does not go on.
#[derive(Debug)]
enum Failure {
    /// The peer has reset it, or stopped it, with this code.
    Code(u32),
    Other(Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "the peer has ended it with {code}"),
            Self::Other(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for Failure {}

fn main() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tokio::task::LocalSet::new().run_until(work()))
}

async fn work() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", port, certificate, key] => server::serve(port.parse()?, certificate, key).await,
        ["client", authority, port, case] => {
            let running = client::run(authority, port.parse()?, case);
            let result = match tokio::time::timeout(PATIENCE, running).await {
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

fn pattern() -> Vec<u8> {
    (0..SIZE).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

fn same(got: &[u8], wanted: &[u8]) -> Result<(), Error> {
    if got == wanted {
        return Ok(());
    }
    let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
    Err(format!("{:?} came instead of {:?}", shown(got), shown(wanted)).into())
}

async fn read_all(stream: &mut Receiving) -> Result<Vec<u8>, Failure> {
    let (mut data, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match stream.read(&mut piece).await? {
            0 => return Ok(data),
            count => data.extend_from_slice(&piece[..count]),
        }
    }
}

async fn read_small(stream: &mut Receiving) -> Result<(), Error> {
    let (mut data, mut piece) = (Vec::new(), [0; SMALL.len()]);
    while data.len() < SMALL.len() {
        match stream.read(&mut piece[..SMALL.len() - data.len()]).await? {
            0 => break,
            count => data.extend_from_slice(&piece[..count]),
        }
    }
    same(&data, SMALL)
}

async fn send_all(mut stream: Sending, data: &[u8]) -> Result<(), Error> {
    stream.write(data).await?;
    stream.finish().await
}

/// Receives until the peer resets.
async fn reset_of(stream: &mut Receiving) -> Result<u32, Error> {
    match read_all(stream).await {
        Err(Failure::Code(code)) => Ok(code),
        Err(failure) => Err(failure.into()),
        Ok(_) => Err("the stream was complete".into()),
    }
}

/// Sends until the peer stops that.
async fn stop_of(stream: &mut Sending) -> Result<u32, Error> {
    loop {
        match stream.write(&PIECE).await {
            Ok(()) => {}
            Err(Failure::Code(code)) => return Ok(code),
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// Runs something beside the rest, and tells its failure.
fn start(
    session: &Rc<Session>,
    work: impl AsyncFnOnce(Rc<Session>) -> Result<(), Error> + 'static,
) {
    let session = session.clone();
    tokio::task::spawn_local(async move {
        if let Err(error) = work(session).await {
            eprintln!("{error}");
        }
    });
}
