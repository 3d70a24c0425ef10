//! `Fn::Sub`'s little language.

/// A piece of a `Sub` text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Piece {
    /// Plain text.
    Plain(String),
    /// `${Name}` or `${Name.Attribute}`.
    Variable(String),
}

/// Cuts a text at its `${...}`; `${!Literal}` stands for a plain `${Literal}`. `None`: a brace is never closed.
pub(super) fn pieces(text: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut plain = String::new();
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, behind) = after.split_once('}')?;
        plain.push_str(before);
        if let Some(literal) = inside.strip_prefix('!') {
            plain.push_str("${");
            plain.push_str(literal);
            plain.push('}');
        } else {
            if !plain.is_empty() {
                pieces.push(Piece::Plain(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Variable(inside.trim().to_owned()));
        }
        rest = behind;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Plain(plain));
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_its_variables() {
        let plain = |text: &str| Piece::Plain(text.to_owned());
        let variable = |name: &str| Piece::Variable(name.to_owned());
        let check =
            |text: &str, expected: Option<Vec<Piece>>| assert_eq!(pieces(text), expected, "{text}");
        check("", Some(vec![]));
        check("plain", Some(vec![plain("plain")]));
        check("${A}", Some(vec![variable("A")]));
        check("a-${A.Arn}/*", Some(vec![plain("a-"), variable("A.Arn"), plain("/*")]));
        check("${A}${B}", Some(vec![variable("A"), variable("B")]));
        check("x${!Kept}y", Some(vec![plain("x${Kept}y")]));
        check("$ {A} $", Some(vec![plain("$ {A} $")]));
        check("${A", None);
    }
}
