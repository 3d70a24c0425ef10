//! Fields of an `application/x-www-form-urlencoded` text, as bytes.

use std::borrow::Cow;

/// Name and value, decoded.
pub(super) type Field<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// Takes a form apart, as bytes: putting a replacement for bytes that are no text would let them be exchanged unseen.
pub(super) fn fields(form: &[u8]) -> impl Iterator<Item = Field<'_>> {
    form.split(|byte| *byte == b'&').filter(|item| !item.is_empty()).map(|item| {
        let at = item.iter().position(|byte| *byte == b'=');
        let (name, value) = item.split_at(at.unwrap_or(item.len()));
        (plain(name), plain(value.get(1..).unwrap_or_default()))
    })
}

/// Undoes `+` and `%XX`; a percent sign that starts no escape stays.
fn plain(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'%');
        let mut byte = [0_u8];
        match escaped {
            Some(digits) if hex::decode_to_slice(digits, &mut byte).is_ok() => {
                plain.extend(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                plain.push(if *first == b'+' { b' ' } else { *first });
                rest = after;
            }
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(form: &str, expected: &[(&str, &[u8])]) {
        let found: Vec<Field<'_>> = fields(form.as_bytes()).collect();
        let expected: Vec<Field<'_>> = expected
            .iter()
            .map(|(name, value)| (Cow::Borrowed(name.as_bytes()), Cow::Borrowed(*value)))
            .collect();
        assert_eq!(found, expected, "{form}");
    }

    #[test]
    fn a_form_is_read_as_bytes_and_nothing_is_replaced() {
        check("", &[]);
        check("&&", &[]);
        check("a=1&b=&c", &[("a", b"1"), ("b", b""), ("c", b"")]);
        check("a=b=c", &[("a", b"b=c")]);
        check("=x", &[("", b"x")]);
        check("a+b=c%20d%2Be", &[("a b", b"c d+e")]);
        check("a=%ff%FE", &[("a", b"\xff\xfe")]);
        check("a=%&b=%4&c=%zz&d=%%41", &[("a", b"%"), ("b", b"%4"), ("c", b"%zz"), ("d", b"%A")]);
    }
}
