//! QPACK by lines, for comparisons with other implementations: a command a line in, an answer a line out.
//!
//! Bytes are hexadecimal, `-` where there are none. A line that is refused is answered by `error` and why.
//!
//! | command | answer |
//! |---|---|
//! | `limits CAPACITY BLOCKED SECTION` | `ok`: a new encoder and decoder, both with these limits |
//! | `encode STREAM NAME VALUE …` | instructions, section |
//! | `answers BYTES` (the decoder stream's) | `ok` |
//! | `instructions BYTES` (the encoder stream's) | `STREAM NAME VALUE …` of each section that is unblocked, by `;` |
//! | `decode STREAM BYTES` | `NAME VALUE …`, or `blocked` |
//! | `acknowledge` | what the decoder stream has to carry |

use ringloop_h3::qpack::{Decoded, Decoder, Encoder, Field};
use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _, stdin, stdout};

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".into();
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(hex: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    if hex == "-" {
        return Ok(Vec::new());
    }
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

fn shown(fields: &[Field]) -> String {
    let fields = fields.iter();
    let shown = fields.map(|field| format!("{} {}", hex(&field.name), hex(&field.value)));
    shown.collect::<Vec<_>>().join(" ")
}

fn answer(
    encoder: &mut Encoder,
    decoder: &mut Decoder,
    line: &str,
) -> Result<String, Box<dyn Error>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["limits", capacity, blocked, section] => {
            let (capacity, blocked) = (capacity.parse()?, blocked.parse()?);
            *encoder = Encoder::new();
            encoder.set_peer_limits(capacity, blocked);
            *decoder = Decoder::new(capacity, blocked, section.parse()?);
            Ok("ok".into())
        }
        ["encode", stream, ref fields @ ..] => {
            let fields = fields.chunks_exact(2);
            let fields: Result<Vec<_>, Box<dyn Error>> =
                fields.map(|field| Ok(Field::new(bytes(field[0])?, bytes(field[1])?))).collect();
            let mut section = Vec::new();
            encoder.encode(stream.parse()?, &fields?, &mut section);
            let instructions = encoder.take_instructions();
            Ok(format!("{} {}", hex(&instructions), hex(&section)))
        }
        ["answers", carried] => {
            encoder.receive(&bytes(carried)?)?;
            Ok("ok".into())
        }
        ["instructions", carried] => {
            decoder.receive(&bytes(carried)?)?;
            let mut unblocked = Vec::new();
            while let Some((stream, fields)) = decoder.next_unblocked() {
                unblocked.push(format!("{stream} {}", shown(&fields?)));
            }
            Ok(unblocked.join(";"))
        }
        ["decode", stream, section] => {
            match decoder.decode(stream.parse()?, bytes(section)?.into())? {
                Decoded::Fields(fields) => Ok(shown(&fields)),
                Decoded::Blocked => Ok("blocked".into()),
            }
        }
        ["acknowledge"] => Ok(hex(&decoder.take_instructions())),
        _ => Err("no such command".into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(0, 0, 0));
    for line in stdin().lock().lines() {
        let answer = answer(&mut encoder, &mut decoder, &line?);
        let mut out = stdout().lock();
        match answer {
            Ok(answer) => writeln!(out, "{answer}")?,
            Err(error) => writeln!(out, "error {error}")?,
        }
        out.flush()?;
    }
    Ok(())
}
