//! The static table (RFC 9204, appendix A).

/// Names and values, by index.
pub(super) const ENTRIES: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

/// A match in the static table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// Its name and value.
    Whole(u64),
    /// Its name alone.
    Name(u64),
}

/// Bytes of the longest name.
const NAME_LEN_MAX: usize = 32;

const END: u8 = ENTRIES.len() as u8;

/// The entries as lists by the length of their names, in order.
struct Lists {
    /// By length, the first entry; [`END`] if there is none.
    first: [u8; NAME_LEN_MAX + 1],
    /// By entry, the next one with a name of this length.
    next: [u8; ENTRIES.len()],
}

static BY_NAME_LEN: Lists = {
    let mut lists = Lists { first: [END; NAME_LEN_MAX + 1], next: [END; ENTRIES.len()] };
    let mut index = ENTRIES.len();
    while index > 0 {
        index -= 1;
        let len = ENTRIES[index].0.len();
        lists.next[index] = lists.first[len];
        lists.first[len] = index as u8;
    }
    lists
};

/// Look for a field, or else for its name.
pub(super) fn find(name: &[u8], value: &[u8]) -> Option<Match> {
    let mut found = None;
    let mut index = *BY_NAME_LEN.first.get(name.len())?;
    while let Some((known, its_value)) = ENTRIES.get(usize::from(index)) {
        // Most names of one length differ in their last byte.
        if known.as_bytes().last() == name.last() && known.as_bytes() == name {
            if its_value.as_bytes() == value {
                return Some(Match::Whole(index.into()));
            }
            found = found.or(Some(Match::Name(index.into())));
        }
        index = BY_NAME_LEN.next[usize::from(index)];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_names_are_found_at_their_places() {
        assert_eq!(find(b":status", b"500"), Some(Match::Whole(71)));
        assert_eq!(find(b":status", b"200"), Some(Match::Whole(25)));
        assert_eq!(find(b":status", b"201"), Some(Match::Name(24)));
        assert_eq!(find(b"x-frame-options", b"sameorigin"), Some(Match::Whole(98)));
        assert_eq!(find(b"x-unknown", b""), None);
        for (index, (name, value)) in ENTRIES.iter().enumerate() {
            let expected = Some(Match::Whole(index as u64));
            assert_eq!(find(name.as_bytes(), value.as_bytes()), expected);
        }
    }
}
