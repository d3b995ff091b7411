//! Priorities of responses (RFC 9218): the `priority` field and the `PRIORITY_UPDATE` frame.

use http::HeaderMap;
use std::fmt;

/// Urgency and incrementality of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 0 to 7; lower is more urgent.
    pub urgency: u8,
    /// True if partial responses are useful: it may share the path with others of its urgency.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Parses a `priority` field or the value of a `PRIORITY_UPDATE` frame.
    ///
    /// Members that are unknown or out of range are ignored (RFC 9218 §4).
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        priority.read(value);
        priority
    }

    /// The priority that the header fields of a request give it.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut priority = Self::default();
        for value in headers.get_all("priority") {
            priority.read(value.as_bytes());
        }
        priority
    }

    fn read(&mut self, mut rest: &[u8]) {
        while !rest.is_empty() {
            let member = take_member(&mut rest);
            let (item, _parameters) = split_once(member, b';');
            let (key, value) = match split_once(item, b'=') {
                (key, Some(value)) => (key, value.trim_ascii_end()),
                (key, None) => (key.trim_ascii_end(), &b"?1"[..]),
            };
            match (key, value) {
                (b"u", [digit @ b'0'..=b'7']) => self.urgency = digit - b'0',
                (b"i", b"?1") => self.incremental = true,
                (b"i", b"?0") => self.incremental = false,
                _ => {}
            }
        }
    }
}

/// The shortest field value: defaults are left out.
impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        match (self.urgency == default.urgency, self.incremental) {
            (true, false) => Ok(()),
            (true, true) => f.write_str("i"),
            (false, false) => write!(f, "u={}", self.urgency),
            (false, true) => write!(f, "u={}, i", self.urgency),
        }
    }
}

/// Takes a dictionary member off the front of `bytes`, with the comma after it; commas within strings do not separate.
fn take_member<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let mut is_quoted = false;
    let mut is_escaped = false;
    let is_end = |byte: &u8| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' => return !is_quoted,
            _ => {}
        }
        false
    };
    let end = bytes.iter().position(is_end);
    let member = &bytes[..end.unwrap_or(bytes.len())];
    *bytes = end.map_or(&[][..], |end| &bytes[end + 1..]);
    member.trim_ascii()
}

fn split_once(bytes: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match bytes.iter().position(|byte| *byte == at) {
        Some(index) => (&bytes[..index], Some(&bytes[index + 1..])),
        None => (bytes, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_and_unknown_ones_ignored() {
        for (value, urgency, incremental) in [
            ("", 3, false),
            ("u=5, i", 5, true),
            ("i,u=0", 0, true),
            ("u=1, i=?0", 1, false),
            ("i=?1;x=2, u=7;y", 7, true),
            ("u=8", 3, false),
            ("u=-1, i=1", 3, false),
            ("a=\"x, u=1\", u=2", 2, false),
            ("u=1, u=4", 4, false),
            ("a=\"\\\", i", 3, false),
        ] {
            let expected = Priority { urgency, incremental };
            assert_eq!(Priority::parse(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for urgency in 0..8 {
            for incremental in [false, true] {
                let priority = Priority { urgency, incremental };
                assert_eq!(Priority::parse(priority.to_string().as_bytes()), priority);
            }
        }
    }
}
