//! One field out of a body that is an HTML form.

/// Longer values name nothing.
const LONGEST: usize = 4096;

/// The value of a field that is there once. `None` for a body that is no form: JSON and XML have characters that a form
/// escapes, so that text inside them is never taken for a field.
pub(crate) fn field(body: &[u8], name: &str) -> Option<String> {
    let is_form =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~*+%=&!'(),:;@/$?|[]".contains(byte);
    if !body.iter().all(is_form) {
        return None;
    }
    let mut found = None;
    for item in body.split(|byte| *byte == b'&') {
        let mut halves = item.splitn(2, |byte| *byte == b'=');
        let (Some(field), Some(value)) = (halves.next(), halves.next()) else { continue };
        if field.len() <= LONGEST && decoded(field).as_deref() == Some(name) {
            if found.is_some() || value.len() > LONGEST {
                return None;
            }
            found = Some(decoded(value)?);
        }
    }
    found
}

/// All fields of a form, or of the query of an address, in order. Empty if one of them cannot be read, so that nothing is
/// seen in part.
pub(crate) fn pairs(text: &[u8]) -> Vec<(String, String)> {
    let items = text.split(|byte| *byte == b'&').filter(|item| !item.is_empty());
    let pair = |item: &[u8]| {
        let mut halves = item.splitn(2, |byte| *byte == b'=');
        Some((decoded(halves.next()?)?, decoded(halves.next().unwrap_or_default())?))
    };
    items.map(pair).collect::<Option<_>>().unwrap_or_default()
}

/// Undoes the escapes; `%2f` and `%2F` are the same. `None` if that gives no text.
fn decoded(text: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(*rest.next()?).to_digit(16)?;
                let low = char::from(*rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, name: &str, expected: Option<&str>) {
        assert_eq!(field(body.as_bytes(), name).as_deref(), expected, "{body}");
    }

    #[test]
    fn a_field_is_found_in_a_form_and_nowhere_else() {
        check("token=fake&command=%2Fdeploy&text=prod+%26+go", "command", Some("/deploy"));
        check("token=fake&command=%2fdeploy&text=prod+%26+go", "text", Some("prod & go"));
        check("a%62=1", "ab", Some("1"));
        check("a=b=c&d", "a", Some("b=c"));
        check("a=", "a", Some(""));
        check("a=%C3%A9", "a", Some("é"));
        check("command=x&command=y", "command", None);
        check("Command=x", "command", None);
        check("a&b", "a", None);
        check("", "a", None);
        for broken in ["a=%", "a=%2", "a=%zz", "a=%ff"] {
            check(broken, "a", None);
        }
        check(r#"{"text":"&command=x&"}"#, "command", None);
        check("<a>&command=x&</a>", "command", None);
        check("a b&command=x", "command", None);
        check(&format!("command={}", "x".repeat(5000)), "command", None);
    }
}
