//! Sub-protocols: `WT-Available-Protocols` and `WT-Protocol` (draft-ietf-webtrans-http3-16 §3.3), a List and an Item of
//! Strings in the syntax of structured fields (RFC 9651).

/// Strings of a List, in order; `None` if it is malformed or has other types: then ignore the field.
///
/// `text` is the field's value, several lines of it joined by commas. At most `count_max` members are read.
pub(super) fn parse_list(text: &[u8], count_max: usize) -> Option<Vec<String>> {
    let mut rest = text;
    let mut strings = Vec::new();
    skip_spaces(&mut rest);
    while !rest.is_empty() {
        if strings.len() == count_max {
            return None;
        }
        strings.push(take_item(&mut rest)?);
        skip_spaces_and_tabs(&mut rest);
        if !rest.is_empty() {
            skip(&mut rest, b',')?;
            skip_spaces_and_tabs(&mut rest);
            // No comma at the end.
            rest.first()?;
        }
    }
    Some(strings)
}

/// The String of an Item; `None` if it is malformed or has any other type.
pub(super) fn parse_item(text: &[u8]) -> Option<String> {
    let mut rest = text;
    skip_spaces(&mut rest);
    let string = take_item(&mut rest)?;
    skip_spaces(&mut rest);
    rest.is_empty().then_some(string)
}

/// An Item; `None` if `string` is not printable ASCII, as a String must be.
pub(super) fn write_item(string: &str) -> Option<String> {
    let mut out = String::with_capacity(string.len() + 2);
    out.push('"');
    for character in string.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            ' '..='~' => out.push(character),
            _ => return None,
        }
    }
    out.push('"');
    Some(out)
}

/// A List of all `strings`.
pub(super) fn write_list<S: AsRef<str>>(strings: &[S]) -> Option<String> {
    let items: Option<Vec<String>> =
        strings.iter().map(|string| write_item(string.as_ref())).collect();
    Some(items?.join(", "))
}

/// A String and its parameters, which are ignored (RFC 9651 §4.2.3).
fn take_item(rest: &mut &[u8]) -> Option<String> {
    let string = take_string(rest)?;
    while skip(rest, b';').is_some() {
        skip_spaces(rest);
        take_key(rest)?;
        if skip(rest, b'=').is_some() {
            take_bare_item(rest)?;
        }
    }
    Some(string)
}

fn take_string(rest: &mut &[u8]) -> Option<String> {
    skip(rest, b'"')?;
    let mut string = String::new();
    loop {
        match take(rest)? {
            b'"' => return Some(string),
            b'\\' => match take(rest)? {
                escaped @ (b'"' | b'\\') => string.push(char::from(escaped)),
                _ => return None,
            },
            plain @ b' '..=b'~' => string.push(char::from(plain)),
            _ => return None,
        }
    }
}

fn take_key(rest: &mut &[u8]) -> Option<()> {
    if !matches!(take(rest)?, b'a'..=b'z' | b'*') {
        return None;
    }
    skip_while(rest, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'));
    Some(())
}

/// The value of a parameter: any type of RFC 9651 §3.3, delimited but not validated.
fn take_bare_item(rest: &mut &[u8]) -> Option<()> {
    match rest.first()? {
        b'"' => take_string(rest).map(|_| ()),
        b':' => {
            take(rest)?;
            skip_while(rest, |byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
            skip(rest, b':')
        }
        b'%' => {
            take(rest)?;
            take_string(rest).map(|_| ())
        }
        b'?' => {
            take(rest)?;
            matches!(take(rest)?, b'0' | b'1').then_some(())
        }
        b'-' | b'@' | b'0'..=b'9' => {
            take(rest)?;
            skip_while(rest, |byte| matches!(byte, b'-' | b'.' | b'0'..=b'9'));
            Some(())
        }
        b'A'..=b'Z' | b'a'..=b'z' | b'*' => {
            skip_while(rest, |byte| {
                byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
            });
            Some(())
        }
        _ => None,
    }
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (&first, behind) = rest.split_first()?;
    *rest = behind;
    Some(first)
}

fn skip(rest: &mut &[u8], expected: u8) -> Option<()> {
    *rest = rest.strip_prefix(&[expected])?;
    Some(())
}

fn skip_while(rest: &mut &[u8], mut is_skipped: impl FnMut(u8) -> bool) {
    let len = rest.iter().take_while(|byte| is_skipped(**byte)).count();
    *rest = &rest[len..];
}

fn skip_spaces(rest: &mut &[u8]) {
    skip_while(rest, |byte| byte == b' ');
}

fn skip_spaces_and_tabs(rest: &mut &[u8]) {
    skip_while(rest, |byte| matches!(byte, b' ' | b'\t'));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_strings_are_read_whatever_their_parameters() {
        let cases: [(&[u8], &[&str]); 8] = [
            (b"", &[]),
            (b"\"a\"", &["a"]),
            (b"  \"a\" \t,\t \"b\"  ", &["a", "b"]),
            (b"\"a,b\", \"c\\\"d\\\\\"", &["a,b", "c\"d\\"]),
            (b"\"a\";q=0.5;x;y=\"z,\", \"b\"", &["a", "b"]),
            (b"\"a\";b=?1;c=:YWJj:;d=tok/en;e=-5;f=@1700000000;g=%\"x\"", &["a"]),
            (b"\"a\"; b=1", &["a"]),
            (b"\"\"", &[""]),
        ];
        for (text, expected) in cases {
            let strings = parse_list(text, 10);
            assert_eq!(
                strings.as_deref(),
                Some(&expected.iter().map(ToString::to_string).collect::<Vec<_>>()[..])
            );
        }
    }

    #[test]
    fn a_malformed_list_or_another_type_is_ignored_whole() {
        let cases: [&[u8]; 16] = [
            b"a",
            b"\"a\", b",
            b"\"a\", 1",
            b"(\"a\")",
            b"\"a\",",
            b",\"a\"",
            b"\"a\" \"b\"",
            b"\"a",
            b"\"a\\n\"",
            b"\"\x7f\"",
            b"\"\xc3\xa4\"",
            b"\"a\";",
            b"\"a\";B=1",
            b"\"a\";b=",
            b"\"a\";b=?2",
            b"?1",
        ];
        for text in cases {
            assert_eq!(parse_list(text, 10), None, "{}", String::from_utf8_lossy(text));
            assert_eq!(parse_item(text), None, "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(parse_list(b"\"a\", \"b\", \"c\"", 2), None);
        assert_eq!(parse_item(b"\"a\", \"b\""), None);
        assert_eq!(parse_item(b""), None);
    }

    #[test]
    fn what_is_written_reads_back() {
        let strings = ["moq-16", "", "a \"quoted\" \\ one", "~"];
        let list = write_list(&strings).unwrap();
        assert_eq!(parse_list(list.as_bytes(), 4).unwrap(), strings);
        for string in strings {
            assert_eq!(parse_item(write_item(string).unwrap().as_bytes()).unwrap(), string);
        }
        assert_eq!(write_item("ä"), None);
        assert_eq!(write_list(&["a", "\n"]), None);
    }
}
