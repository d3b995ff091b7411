//! The server.

use std::cell::RefCell;
use std::rc::Rc;

use wtransport::endpoint::IncomingSession;
use wtransport::{Endpoint, Identity, ServerConfig};

use crate::{
    CLOSE, Error, RESET, Receiving, SMALL, STOP, Sending, Session, pattern, read_all, read_small,
    reset_of, send_all, start, stop_of,
};

const PATHS: &[&str] = &[
    "/path",
    "/echo",
    "/protocol",
    "/server-bidi",
    "/reset",
    "/server-reset",
    "/stop",
    "/server-stop",
    "/close",
    "/closed",
    "/server-close",
];

thread_local! {
    /// How the session at `/close` was closed.
    static CLOSED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Serves until killed.
pub async fn serve(port: u16, certificate: &str, key: &str) -> Result<(), Error> {
    let identity = Identity::load_pemfiles(certificate, key).await?;
    let address = (std::net::Ipv4Addr::LOCALHOST, port).into();
    let config = ServerConfig::builder().with_bind_address(address).with_identity(identity).build();
    let endpoint = Endpoint::server(config)?;
    loop {
        let incoming = endpoint.accept().await;
        tokio::task::spawn_local(async move {
            if let Err(error) = answer(incoming).await {
                eprintln!("{error}");
            }
        });
    }
}

async fn answer(incoming: IncomingSession) -> Result<(), Error> {
    let request = incoming.await?;
    let path = request.path().to_owned();
    if !accepts(&path) {
        request.not_found().await;
        return Ok(());
    }
    handle(Session(request.accept().await?), &path).await
}

/// Whether there is such a path.
fn accepts(path_and_query: &str) -> bool {
    PATHS.contains(&path_of(path_and_query))
}

fn path_of(path_and_query: &str) -> &str {
    path_and_query.split('?').next().unwrap_or_default()
}

/// Does what the path asks for, until the session is over.
async fn handle(session: Session, path_and_query: &str) -> Result<(), Error> {
    let session = Rc::new(session);
    let path: Rc<str> = path_of(path_and_query).into();
    match &*path {
        "/path" => tell(&*session, path_and_query.as_bytes()).await?,
        "/closed" => tell(&*session, CLOSED.take().as_bytes()).await?,
        "/close" => {
            let (code, reason) = session.closed().await?;
            CLOSED.set(format!("{code} {reason}"));
            return Ok(());
        }
        "/server-bidi" => {
            let (sending, mut receiving) = session.open_bi().await?;
            let data = pattern();
            let receive = async { Ok(read_all(&mut receiving).await?) };
            let ((), back) = tokio::try_join!(send_all(sending, &data), receive)?;
            tell(&*session, &back).await?;
        }
        _ => {}
    }
    start(&session, return_datagrams);
    start(&session, return_streams);
    loop {
        let (sending, receiving) = session.accept_bi().await?;
        let path = path.clone();
        start(&session, async move |session: Rc<Session>| {
            on_stream(&*session, &path, sending, receiving).await
        });
    }
}

async fn tell(session: &Session, what: &[u8]) -> Result<(), Error> {
    send_all(session.open_uni().await?, what).await
}

async fn return_datagrams(session: Rc<Session>) -> Result<(), Error> {
    loop {
        let data = session.read_datagram().await?;
        session.send_datagram(&data)?;
    }
}

async fn return_streams(session: Rc<Session>) -> Result<(), Error> {
    loop {
        let mut stream = session.accept_uni().await?;
        let data = read_all(&mut stream).await?;
        tell(&*session, &data).await?;
    }
}

async fn on_stream(
    session: &Session,
    path: &str,
    mut sending: Sending,
    mut receiving: Receiving,
) -> Result<(), Error> {
    if path == "/echo" {
        let mut piece = vec![0; 64 << 10];
        loop {
            match receiving.read(&mut piece).await? {
                0 => return sending.finish().await,
                count => sending.write(&piece[..count]).await?,
            }
        }
    }
    read_small(&mut receiving).await?;
    match path {
        "/reset" => {
            sending.write(SMALL).await?;
            let code = reset_of(&mut receiving).await?;
            tell(session, code.to_string().as_bytes()).await?;
        }
        "/stop" => {
            let code = stop_of(&mut sending).await?;
            tell(session, code.to_string().as_bytes()).await?;
        }
        "/server-reset" => sending.reset(RESET)?,
        "/server-stop" => {
            receiving.stop(STOP)?;
            let _ = session.closed().await;
        }
        "/server-close" => session.close(CLOSE.0, CLOSE.1).await,
        _ => {}
    }
    Ok(())
}
