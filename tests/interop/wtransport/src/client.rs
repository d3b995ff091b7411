//! The client.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use wtransport::error::ConnectingError;
use wtransport::{ClientConfig, Endpoint};

use crate::{
    CLOSE, Error, RESET, Receiving, SMALL, STOP, Sending, Session, pattern, read_all, read_small,
    reset_of, same, send_all, stop_of,
};

const PATH: &str = "/path?name=value&other=%20";
const STREAMS: usize = 100;
const STREAMS_AT_ONCE: usize = 20;
const DATAGRAMS: usize = 10;

/// Runs one case.
pub async fn run(authority: &str, port: u16, case: &str) -> Result<(), Error> {
    let open = async |path: &str| open(authority, port, path).await;
    match case {
        "session" => same(&told(&open(PATH).await?).await?, PATH.as_bytes()),
        "reject" => match open("/missing").await {
            Ok(_) => Err("the session was accepted".into()),
            Err(error) => match error.downcast_ref() {
                Some(ConnectingError::SessionRejected) => Ok(()),
                _ => Err(error),
            },
        },
        "close" => {
            open("/close").await?.close(CLOSE.0, CLOSE.1).await;
            loop {
                let back = told(&open("/closed").await?).await?;
                if !back.is_empty() {
                    return same(&back, format!("{} {}", CLOSE.0, CLOSE.1).as_bytes());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        "bidi" => echo(&open("/echo").await?, &pattern()).await,
        "uni" => {
            let session = open("/echo").await?;
            let data = pattern();
            let sending = session.open_uni().await?;
            let ((), back) = tokio::try_join!(send_all(sending, &data), told(&session))?;
            same(&back, &data)
        }
        "server-bidi" => {
            let session = open("/server-bidi").await?;
            let (sending, mut receiving) = session.accept_bi().await?;
            let data = read_all(&mut receiving).await?;
            same(&data, &pattern())?;
            let ((), back) = tokio::try_join!(send_all(sending, &data), told(&session))?;
            same(&back, &data)
        }
        "parallel" => parallel(open("/echo").await?).await,
        "datagrams" => datagrams(&open("/echo").await?).await,
        "reset" => {
            let session = open("/reset").await?;
            let (mut sending, mut receiving) = asked(&session).await?;
            read_small(&mut receiving).await?;
            sending.reset(RESET)?;
            same(&told(&session).await?, RESET.to_string().as_bytes())
        }
        "stop" => {
            let session = open("/stop").await?;
            let (_sending, mut receiving) = asked(&session).await?;
            receiving.read(&mut [0]).await?;
            receiving.stop(STOP)?;
            same(&told(&session).await?, STOP.to_string().as_bytes())
        }
        "server-reset" => {
            let session = open("/server-reset").await?;
            let (_sending, mut receiving) = asked(&session).await?;
            number(reset_of(&mut receiving).await?, RESET)
        }
        "server-stop" => {
            let session = open("/server-stop").await?;
            let (mut sending, _receiving) = asked(&session).await?;
            number(stop_of(&mut sending).await?, STOP)
        }
        "server-close" => {
            let session = open("/server-close").await?;
            let _streams = asked(&session).await?;
            let (code, reason) = session.closed().await?;
            number(code, CLOSE.0)?;
            same(reason.as_bytes(), CLOSE.1.as_bytes())
        }
        _ => Err("no such case".into()),
    }
}

async fn open(authority: &str, port: u16, path: &str) -> Result<Session, Error> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority)? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let config = ClientConfig::builder().with_bind_address(address).with_custom_tls(tls).build();
    let url = format!("https://127.0.0.1:{port}{path}");
    Ok(Session(Endpoint::client(config)?.connect(url).await?))
}

fn number(got: u32, wanted: u32) -> Result<(), Error> {
    same(got.to_string().as_bytes(), wanted.to_string().as_bytes())
}

/// What the server tells.
async fn told(session: &Session) -> Result<Vec<u8>, Error> {
    let mut stream = session.accept_uni().await?;
    Ok(read_all(&mut stream).await?)
}

/// Opens a stream and sends what begins it.
async fn asked(session: &Session) -> Result<(Sending, Receiving), Error> {
    let (mut sending, receiving) = session.open_bi().await?;
    sending.write(SMALL).await?;
    Ok((sending, receiving))
}

async fn echo(session: &Session, data: &[u8]) -> Result<(), Error> {
    let (sending, mut receiving) = session.open_bi().await?;
    let receive = async { Ok(read_all(&mut receiving).await?) };
    let ((), back) = tokio::try_join!(send_all(sending, data), receive)?;
    same(&back, data)
}

async fn parallel(session: Session) -> Result<(), Error> {
    let session = Rc::new(session);
    let gate = Rc::new(tokio::sync::Semaphore::new(STREAMS_AT_ONCE));
    let mut tasks = Vec::new();
    for at in 0..STREAMS {
        let (session, gate) = (session.clone(), gate.clone());
        tasks.push(tokio::task::spawn_local(async move {
            let _turn = gate.acquire().await?;
            echo(&*session, at.to_string().as_bytes()).await
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Sends each until it has come back: datagrams may be lost.
async fn datagrams(session: &Session) -> Result<(), Error> {
    let made = |at: usize| [format!("{at} ").as_bytes(), &[0; 900]].concat();
    let mut missing: HashSet<Vec<u8>> = (0..DATAGRAMS).map(made).collect();
    while !missing.is_empty() {
        for data in &missing {
            session.send_datagram(data)?;
        }
        let pause = tokio::time::sleep(Duration::from_millis(200));
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                came = session.read_datagram() => { missing.remove(&came?); }
            }
            if missing.is_empty() {
                break;
            }
        }
    }
    Ok(())
}
