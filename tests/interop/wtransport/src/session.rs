//! A session and its streams. wtransport leaves it to programs to map the codes of streams into those
//! of HTTP/3, and closes the connection in place of the session.

use wtransport::error::{ConnectionError, StreamReadError, StreamWriteError};
use wtransport::{Connection, RecvStream, SendStream, VarInt};

use crate::{Error, Failure};

/// An application's first code in HTTP/3, and the distance of the codes between that are left out
/// (draft-ietf-webtrans-http3 §4.4).
const FIRST: u64 = 0x52e4_a40f_a8db;
const GAP: u64 = 0x1e;

fn to_http3(code: u32) -> Result<VarInt, Error> {
    let code = u64::from(code);
    Ok(VarInt::try_from(FIRST + code + code / GAP)?)
}

/// A code that is not a program's stays as it is, if it fits.
fn from_http3(code: VarInt) -> Failure {
    let code = code.into_inner();
    let mapped = match code.checked_sub(FIRST) {
        Some(from_first) => from_first - from_first / (GAP + 1),
        None => code,
    };
    match u32::try_from(mapped) {
        Ok(code) => Failure::Code(code),
        Err(error) => Failure::Other(error.into()),
    }
}

pub struct Session(pub Connection);

impl Session {
    pub async fn open_bi(&self) -> Result<(Sending, Receiving), Error> {
        let (sending, receiving) = self.0.open_bi().await?.await?;
        Ok((Sending(sending), Receiving(receiving)))
    }

    pub async fn open_uni(&self) -> Result<Sending, Error> {
        Ok(Sending(self.0.open_uni().await?.await?))
    }

    pub async fn accept_bi(&self) -> Result<(Sending, Receiving), Error> {
        let (sending, receiving) = self.0.accept_bi().await?;
        Ok((Sending(sending), Receiving(receiving)))
    }

    pub async fn accept_uni(&self) -> Result<Receiving, Error> {
        Ok(Receiving(self.0.accept_uni().await?))
    }

    pub fn send_datagram(&self, data: &[u8]) -> Result<(), Error> {
        Ok(self.0.send_datagram(data)?)
    }

    pub async fn read_datagram(&self) -> Result<Vec<u8>, Error> {
        Ok(self.0.receive_datagram().await?.to_vec())
    }

    pub async fn close(&self, code: u32, reason: &str) {
        self.0.close(VarInt::from_u32(code), reason.as_bytes());
        self.0.closed().await;
    }

    /// The code and the reason that the peer has closed it with.
    pub async fn closed(&self) -> Result<(u32, String), Error> {
        match self.0.accept_uni().await {
            Err(ConnectionError::ApplicationClosed(close)) => Ok((
                u32::try_from(close.code().into_inner())?,
                String::from_utf8_lossy(close.reason()).into_owned(),
            )),
            Err(error) => Err(error.into()),
            Ok(_) => Err("a stream came".into()),
        }
    }
}

pub struct Sending(SendStream);

impl Sending {
    pub async fn write(&mut self, data: &[u8]) -> Result<(), Failure> {
        self.0.write_all(data).await.map_err(|error| match error {
            StreamWriteError::Stopped(code) => from_http3(code),
            error => Failure::Other(error.into()),
        })
    }

    pub async fn finish(&mut self) -> Result<(), Error> {
        Ok(self.0.finish().await?)
    }

    pub fn reset(&mut self, code: u32) -> Result<(), Error> {
        Ok(self.0.reset(to_http3(code)?)?)
    }
}

pub struct Receiving(RecvStream);

impl Receiving {
    /// Receives some; 0 bytes are the end.
    pub async fn read(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        match self.0.read(into).await {
            Ok(count) => Ok(count.unwrap_or(0)),
            Err(StreamReadError::Reset(code)) => Err(from_http3(code)),
            Err(error) => Err(Failure::Other(error.into())),
        }
    }

    pub fn stop(self, code: u32) -> Result<(), Error> {
        self.0.stop(to_http3(code)?);
        Ok(())
    }
}
