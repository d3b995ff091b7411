//! One end of the HTTP/3 interop tests, with quiche; the contract is in
//! tests/interop/http3/programs/contract.py.

mod client;
mod link;
mod server;

use quiche::h3::{Header, NameValue};

type Error = Box<dyn std::error::Error>;

const SMALL: &[u8] = b"small\n";
const SIZE: usize = 1 << 20;

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", port, certificate, key] => server::serve(port.parse()?, certificate, key),
        ["client", authority, port, case] => {
            match client::run(authority, port.parse()?, case) {
                Ok(()) => println!("{{\"ok\": true}}"),
                Err(reason) => {
                    println!("{{\"ok\": false, \"reason\": {:?}}}", reason.to_string());
                }
            }
            Ok(())
        }
        _ => Err("server PORT CERT KEY | client CA PORT CASE".into()),
    }
}

fn pattern() -> Vec<u8> {
    (0..SIZE).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

fn header(name: &str, value: &str) -> Header {
    Header::new(name.as_bytes(), value.as_bytes())
}

fn field(list: &[Header], name: &str) -> Option<String> {
    let found = list.iter().find(|header| header.name() == name.as_bytes())?;
    Some(String::from_utf8_lossy(found.value()).into_owned())
}
