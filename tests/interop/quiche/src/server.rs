//! The server.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use quiche::h3::{Event, Header};

use crate::link::{ID_LEN, Link, Outgoing, config, random_id};
use crate::{Error, SMALL, field, header, pattern};

const INTERNAL_ERROR: u64 = 0x102;
const WAIT_MAX: Duration = Duration::from_millis(50);

struct Client {
    link: Link,
    /// Requests whose bodies come back.
    echoed: Vec<u64>,
}

pub fn serve(port: u16, certificate: &str, key: &str) -> Result<(), Error> {
    let mut config = config()?;
    config.load_cert_chain_from_pem_file(certificate)?;
    config.load_priv_key_from_pem_file(key)?;
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let socket = UdpSocket::bind(local)?;
    let mut clients: HashMap<Vec<u8>, Client> = HashMap::new();
    // What clients have chosen for their first packets.
    let mut first: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut cancelled = 0;
    let mut datagram = vec![0; 65535];
    loop {
        let wait = clients.values().map(|client| client.link.wait()).min().unwrap_or(WAIT_MAX);
        socket.set_read_timeout(Some(wait))?;
        if let Ok((count, from)) = socket.recv_from(&mut datagram) {
            let data = &mut datagram[..count];
            let Ok(head) = quiche::Header::from_slice(data, ID_LEN) else {
                continue;
            };
            let asked = head.dcid.to_vec();
            let id = first.get(&asked).cloned().unwrap_or(asked.clone());
            if !clients.contains_key(&id) && head.ty != quiche::Type::Initial {
                continue;
            }
            let id = if clients.contains_key(&id) {
                id
            } else {
                let made = random_id().to_vec();
                let ours = quiche::ConnectionId::from_ref(&made);
                let quic = quiche::accept(&ours, None, local, from, &mut config)?;
                clients.insert(made.clone(), Client { link: Link::new(quic), echoed: Vec::new() });
                first.insert(asked, made.clone());
                made
            };
            if let Some(client) = clients.get_mut(&id) {
                client.link.quic.recv(data, quiche::RecvInfo { from, to: local }).ok();
            }
        }
        for client in clients.values_mut() {
            if client.link.quic.timeout().is_some_and(|due| due.is_zero()) {
                client.link.quic.on_timeout();
            }
            if let Err(error) = client.work(&mut cancelled, &socket) {
                client.link.quic.close(true, INTERNAL_ERROR, error.to_string().as_bytes()).ok();
                client.link.flush(&socket).ok();
            }
        }
        clients.retain(|_, client| !client.link.quic.is_closed());
    }
}

impl Client {
    fn work(&mut self, cancelled: &mut u64, socket: &UdpSocket) -> Result<(), Error> {
        while let Some((stream, event)) = self.link.poll()? {
            match event {
                Event::Headers { list, .. } if self.echoed.contains(&stream) => {
                    if let Some(rest) = self.link.outgoing.get_mut(&stream) {
                        rest.trailers = list;
                    }
                }
                Event::Headers { list, .. } => self.answer(stream, &list, *cancelled)?,
                Event::Data => {
                    let data = self.link.read(stream);
                    if let Some(rest) = self.link.outgoing.get_mut(&stream) {
                        rest.data.extend(data);
                    }
                }
                Event::Finished if self.echoed.contains(&stream) => {
                    if let Some(rest) = self.link.outgoing.get_mut(&stream) {
                        rest.is_last = true;
                    }
                }
                _ => {}
            }
        }
        self.link.flush(socket)?;
        *cancelled += std::mem::take(&mut self.link.cancelled);
        Ok(())
    }

    fn answer(&mut self, stream: u64, list: &[Header], cancelled: u64) -> Result<(), Error> {
        let path = field(list, ":path").unwrap_or_default();
        let path: Vec<&str> = path.split('/').skip(1).collect();
        let mut fields = vec![header(":status", "200")];
        let mut rest = Outgoing { is_last: true, ..Outgoing::default() };
        let (http, quic) = match &mut self.link {
            Link { http: Some(http), quic, .. } => (http, quic),
            Link { .. } => return Ok(()),
        };
        match path[..] {
            ["small"] => {
                fields.push(header("content-length", &SMALL.len().to_string()));
                if field(list, ":method").as_deref() != Some("HEAD") {
                    rest.data.extend_from_slice(SMALL);
                }
            }
            ["number", number] => rest.data.extend_from_slice(number.as_bytes()),
            ["echo"] => {
                rest.is_last = false;
                self.echoed.push(stream);
            }
            ["headers"] => {
                fields.push(header("x-large", &field(list, "x-large").unwrap_or_default()));
                rest.data.extend_from_slice(SMALL);
            }
            ["trailers"] => {
                rest.data.extend_from_slice(SMALL);
                rest.trailers.push(header("x-checksum", "42"));
            }
            ["interim"] => {
                let link = header("link", "</style.css>; rel=preload");
                rest.heads.push(vec![header(":status", "103"), link]);
                rest.data.extend_from_slice(SMALL);
            }
            ["priority"] => rest.data.extend(field(list, "priority").unwrap_or_default().bytes()),
            ["cancelled"] => rest.data.extend(cancelled.to_string().bytes()),
            ["endless"] => rest.is_endless = true,
            ["reset"] => {
                http.send_response(quic, stream, &fields, false)?;
                http.send_body(quic, stream, SMALL, false)?;
                quic.stream_shutdown(stream, quiche::Shutdown::Write, INTERNAL_ERROR)?;
                return Ok(());
            }
            ["goaway"] => {
                http.send_goaway(quic, stream + 4)?;
                rest.data = pattern();
            }
            _ => fields = vec![header(":status", "404")],
        }
        rest.heads.push(fields);
        self.link.outgoing.insert(stream, rest);
        Ok(())
    }
}
